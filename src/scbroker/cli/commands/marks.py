"""Define the commands about a device's memory: the marks of what it has verified, and what it has sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli.command import WATCHING, Yes, command, group
from scbroker.cli.names import ContainerArgument
from scbroker.cli.run import Run

mark: typer.Typer = group(
    "mark", WATCHING, "Compare and accept the histories of a container or the event log."
)
Accept = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION:HASH",
        help="The served head as this command shows it, to follow it from now on.",
    ),
]
TrustFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="The trust store of another program, whose marks are meant; the profile's if left out.",
    ),
]


@command(name="container", of=mark)
def mark_container(
    run: Run,
    container: ContainerArgument,
    accept: Accept = None,
    trust_folder: TrustFolder = None,
    yes: Yes = False,
) -> None:
    """Show both heads of a container; with --accept, follow the served one from now on.

    Needed only after a "rollback" or "fork" that you trust the broker about, as after its operator has
    restored a backup. Compare the heads with another member first: a broker that hides changes wants you to
    accept.
    """
    _use_store(run, trust_folder)
    id = run.names.id_of(container)
    _show(run, lambda head: run.session.resetContainerMark(id, head).result(), accept, yes)


@command(name="events", of=mark)
def mark_events(
    run: Run, accept: Accept = None, trust_folder: TrustFolder = None, yes: Yes = False
) -> None:
    """Show both ends of the event log; with --accept, follow the served one from now on.

    Needed only after a "rollback" or "fork" of the event log that you trust the broker about.
    """
    _use_store(run, trust_folder)
    _show(run, lambda head: run.session.resetEventMark(head).result(), accept, yes)


@command(WATCHING)
def sent(run: Run, container: ContainerArgument) -> None:
    """Show what became of changes whose outcome was uncertain.

    These are changes of a container that this device sent, and whose answer it did not get.

    A change is Stored, NotStored or still Uncertain. Any other change of the container decides: it takes the
    version of the uncertain one, unless that has taken effect.
    """
    found = run.session.getSentChanges(run.names.id_of(container)).result()
    rows = [{"version": each.version, "outcome": each.outcome} for each in found]
    run.out.rows(rows, {"version": "VERSION", "outcome": "OUTCOME"})
    if not rows:
        run.out.say("This device has sent no change of it without an answer.")


def _use_store(run: Run, folder: Path | None) -> None:
    """Have the session use the marks in a folder. A store is not made: a new one would know nothing."""
    if folder is None:
        return
    if not folder.is_dir():
        raise errors.InvalidArgumentError(f"{folder} is not a folder: name a trust store's folder.")
    import msgspec

    run.profile = msgspec.structs.replace(run.profile, trust_folder=str(folder.absolute()))


def _show(
    run: Run, reset: Callable[[scbroker.Head | None], scbroker.Heads], accept: str | None, yes: bool
) -> None:
    head = None if accept is None else _parsed(accept)
    if head is not None:
        run.confirm(
            "This device forgets the history that it has verified, and follows the accepted one. Go on?",
            yes,
        )
    try:
        heads = reset(head)
    except errors.ConflictError:
        raise errors.ConflictError(
            "The broker serves another head than --accept names: run the command without --accept, and "
            "compare again."
        ) from None
    stored = None if heads.stored is None else _text(heads.stored)
    served = _text(heads.served)
    if run.out.as_json:
        run.out.fields({"stored": stored, "served": served, "accepted": head is not None})
        return
    run.out.line({}, f"verified by this device: {stored or 'nothing'}")
    run.out.line({}, f"served by the broker:    {served}")
    if head is not None:
        run.out.line({}, "The served one is accepted.")
    elif heads.stored != heads.served:
        run.out.line({}, f"To accept the served one, add --accept {served}")


def _text(head: scbroker.Head) -> str:
    return f"{head.version}:{head.hash.hex()}"


def _parsed(text: str) -> scbroker.Head:
    if not re.fullmatch(r"[0-9]{1,20}:[0-9a-f]{64}", text):
        raise errors.InvalidArgumentError(
            f"--accept {text!r:.100} is not VERSION:HASH, as this command prints it."
        )
    version, _, digest = text.partition(":")
    return scbroker.Head(int(version), bytes.fromhex(digest))
