"""Define the command that keeps a folder up to date with containers."""

import signal
import unicodedata
from pathlib import Path
from typing import Annotated

import typer

from scbroker import errors
from scbroker.cli.command import WATCHING, Checksum, command
from scbroker.cli.completion import complete_folder
from scbroker.cli.names import Everyone, OfType
from scbroker.cli.run import Run


@command(WATCHING)
def mirror(
    run: Run,
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder; it is created if it is missing.")
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME/",
            help="Only containers below this folder, such as photos/.",
            autocompletion=complete_folder,
        ),
    ] = "",
    once: Annotated[
        bool, typer.Option("--once", help="Compare once, and end instead of following changes.")
    ] = False,
    type: OfType = None,
    everyone: Everyone = False,
    checksum: Checksum = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete/--keep", help="Remove the file of a container that is gone, or keep it."
        ),
    ] = True,
) -> None:
    """Keep a folder up to date with your containers.

    The command runs until Ctrl-C. It writes the contents of containers to files of the same names, and prints
    each change of the folder as a line. Changes go one way: what you change in the folder is not stored.

    The folder gets the containers that nobody can change but you, your contacts, and members of groups that
    you or a contact made; with --everyone, also those of other people. It gets hidden files only of
    containers that nobody but you can change.

    A file that the command did not write, or that was changed since, is never overwritten or removed: a new
    version goes into a file beside it, with the version in its name. If several containers have the same
    name, the files of all but one have the first digits of the id in their names.

    With --checksum the bytes of every file are compared with what the command wrote, not its size and time,
    and the content comes beside a file that was changed.

    The folder .scbroker-mirror inside it has the record of the files. After an interruption, run the command
    again.
    """
    from scbroker.cli.mirror.mirroring import Mirror
    from scbroker.cli.mirror.state import Selection, State
    from scbroker.cli.paths import Folder, translated

    if name and not name.endswith("/"):
        raise errors.InvalidArgumentError(
            f"{name!r} does not end with a slash: name a folder of containers, such as photos/."
        )
    if not folder:  # Path("") would be the current folder
        raise errors.InvalidArgumentError("FOLDER is empty: name a folder.")
    selection = Selection(
        user=run.profile.user_id,
        broker=run.profile.server_url.rstrip("/"),
        name=unicodedata.normalize("NFC", name),
        type=type,
        everyone=everyone,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    path = Path(folder)
    if not path.exists():
        with translated(path):
            path.mkdir(mode=0o700)
    with Folder(path) as opened, State(opened.path, selection) as state:
        mirroring = Mirror(run, opened, state, selection, keep=not delete, checksum=checksum)
        if once:
            mirroring.compare()
        else:
            run.out.say(f"Mirroring to {opened.path}; Ctrl-C ends it.")
            mirroring.follow()
    if mirroring.status:
        raise typer.Exit(mirroring.status)
