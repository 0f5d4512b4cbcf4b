"""Define the command that stores files."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import (
    CONTAINERS,
    Checksum,
    Run,
    Yes,
    command,
    complete_group,
    complete_holder,
)
from scbroker.cli.commands.getting import has_content
from scbroker.cli.files import STREAM, File, find, read_small, translated
from scbroker.cli.names import Holder, holder_of, is_whole, label_of, warn
from scbroker.cli.output import Row, Size
from scbroker.cli.together import Together, do_each, tried
from scbroker.desk.names import Container, header_of, name_of
from scbroker.desk.people import is_own, some
from scbroker.folders import regular

_COLUMNS: Final = {"name": "NAME", "status": "STATUS", "length": "SIZE", "id": "ID"}
_SMALL: Final = 65_536
"""Bytes: files up to this size go into batches, because their contents are part of the request."""
_READ: Final = 1_048_576
_POLL_SECONDS: Final = 0.2


@command(CONTAINERS)
def put(
    run: Run,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="A file or folder; `-` reads standard input."),
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Store the files in folders as well.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name in place of that of the file or folder."),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="A label of new containers, which the broker can read."),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PERSON",
            help="A person who may read new containers: the name of a contact, a user id or a contact "
            "card. Or a group, all of whose members may read. Can be repeated.",
            autocompletion=complete_holder,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="A group that new containers are for: each member can do what the member's role allows.",
            autocompletion=complete_group,
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", "-u", help="Write a new version of containers whose files have changed."
        ),
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="CONTAINER",
            help="Write a new version of this container: its name, its id, or four or more first digits "
            "of the id.",
        ),
    ] = None,
    checksum: Checksum = False,
    yes: Yes = False,
) -> None:
    """Store files, each in a container of its own.

    A container gets the name of its file. With --recursive the name is the path from the folder on, such as
    photos/2026/a.jpg. The header has name, time and media type, encrypted.

    A file is skipped as "unchanged" if a container of yours has its name, size and time, and you wrote it
    last. So after an interruption, run the same command again: it skips the files that are stored, and
    resumes a large one where it stopped. For a file that differs, --update writes a new version.

    Some programs keep the time of a file that they change, as VeraCrypt does for its volumes. With --checksum
    a file is unchanged if it has the same bytes, all of which are read from the broker.

    With --to, the files go to a group as well as to you: `scbroker put -r photos --to Family`.

    Symbolic links and special files in folders are skipped.
    """
    if into is not None and (len(files) > 1 or name or type or share or to):
        raise errors.InvalidArgumentError(
            "--into takes one file or -, and no --name, --type, --share or --to: the container keeps its own."
        )
    if into is not None and files == [STREAM]:
        name = "standard input"  # only for messages: the container keeps its name
    found = find(files, name, recursive=recursive, skipped=run.out.say, failed=run.failed)
    unchanged: list[Step] = []
    access = None
    if into is not None:
        steps = [_into(run, found, into, yes)]
    else:
        people = [_checked(run, each) for each in share or []]
        team = None if to is None else holder_of(run.people.find_group(to))
        steps, unchanged = _planned(run, found, update=update, checksum=checksum, yes=yes)
        access = _access(run, people, team)
        _tell_who_lacks(run, [*unchanged, *steps], people, team)
    sizes = [step.file.size for step in steps]
    size = None if None in sizes else sum(each or 0 for each in sizes)
    what = f"{len(steps)} files" if len(steps) > 1 else "".join(step.file.name for step in steps)

    def work(together: Together) -> Iterable[tuple[Step, Row | errors.BrokerError]]:
        sending = Sending(run.session, together, type, access)
        return together.each(steps, sending.send, sending.create_batch, Step.size_if_new, _SMALL)

    done = [(e, _row(e.file, "unchanged", e.container)) for e in unchanged if e.container]
    do_each(run, what, size, lambda step: step.file.name, _COLUMNS, work, done)


class Step(NamedTuple):
    """A file to store: as a new version of a container, or in a new one."""

    file: File
    container: Container | None = None

    def size_if_new(self) -> int | None:
        return None if self.container else self.file.size


def _into(run: Run, files: list[File], text: str, yes: bool) -> Step:
    """Plan a new version of the container that `--into` names."""
    if len(files) != 1:
        raise errors.InvalidArgumentError(
            f"--into takes one file, not {len(files)}: name the one to store."
        )
    container = run.names.container(text)
    if not is_whole(text, container.id):
        # Ask unless the whole id was given: anybody can share a container with any name and any beginning of
        # an id, and a member with Upload can rename a container of the user.
        if container.createdBy != run.people.own_id:
            creator = run.people.name_of(container.createdBy)
            run.confirm(
                f"{creator} created the container {text!r}, not you: write a new version of it?",
                yes,
            )
        else:
            _confirm_readers(run, [container], yes)
    file = files[0]
    return Step(file._replace(name=name_of(container) or file.name), container)


def _checked(run: Run, text: str) -> Holder:
    """Return a person or a group of `--share`; a person must be a user of the broker."""
    found = run.people.find_holder(text)
    if isinstance(found.who, scbroker.Group):
        return found
    if run.session.getLatestActiveSigningKey(found.who).result() is None:
        raise errors.NotFoundError(f"{text!r} is not a user of this broker: check --share.")
    warn(run, [found])
    return found


def _access(
    run: Run, people: list[Holder], team: Holder | None
) -> list[scbroker.AccessLevel] | None:
    """Return the access list of new containers; None if the user alone gets access.

    The group of `--to` gets every permission, so that only the roles of its members limit them.
    """
    if not people and team is None:
        return None
    own = run.people.own_id
    owner = scbroker.ContainerAccessLevel.DefaultOwnerPermissions
    others = {each.id: scbroker.AccessLevel(each.who) for each in people}
    if own in others:
        raise errors.InvalidArgumentError(
            "--share names you, and you have access in any case: leave it out."
        )
    if team is not None:
        others[team.id] = scbroker.AccessLevel(team.who, owner)
    return [scbroker.AccessLevel(own, owner), *others.values()]


def _planned(
    run: Run, files: list[File], *, update: bool, checksum: bool, yes: bool
) -> tuple[list[Step], list[Step]]:
    """Return new and changed files, and unchanged ones, by the user's containers of the same names.

    Containers that other users created are left out. A member with Upload can give a container of the user
    the name of any file. So a file is unchanged only if the user wrote the container last, and an update of
    a container that others can read is confirmed.
    """
    own = run.people.own_id
    stored = run.names.named({file.name for file in files})
    steps, unchanged = list[Step](), list[Step]()
    for file in files:
        own_ones = [each for each in stored[file.name] if each.createdBy == own]
        named = [each for each in own_ones if is_own(each, own)]
        found = run.names.without_twins(file.name, named or own_ones)
        same = (
            each
            for each in found
            if each.modifiedBy == each.contentBy == each.headerBy == own
            and (_has_bytes(run, file, each) if checksum else file.is_in(each))
        )
        if (container := next(same, None)) is not None:
            unchanged.append(Step(file, container))
        elif len(found) > 1 and update:
            run.failed(
                file.name,
                errors.InvalidArgumentError(
                    f"{len(found)} of your containers have this name: choose one with --into and its id."
                ),
            )
        else:
            steps.append(Step(file, found[0] if found else None))
    changed = [step.file.name for step in steps if step.container]
    if changed and not update:
        raise errors.AlreadyExistsError(
            f"Your containers named {some(map(repr, changed))} differ from the files: --update writes new "
            "versions, --name gives another name."
        )
    _confirm_readers(run, [step.container for step in steps if step.container], yes)
    return steps, unchanged


def _has_bytes(run: Run, file: File, container: Container) -> bool:
    if file.path is None or file.size != container.length:
        return False
    with translated(file.path), open(file.path, "rb", opener=regular) as opened:
        return has_content(run, container, opened)


def _confirm_readers(run: Run, containers: list[Container], yes: bool) -> None:
    """If other people can read the containers, name them and ask whether to write."""
    if yes:
        return
    others = [(container, run.people.others_of(container)) for container in containers]
    shared = [
        f"{label_of(container)!r} ({'members are hidden' if who is None else ', '.join(who)})"
        for container, who in others
        if who != []
    ]
    if shared:
        run.confirm(f"Others can read {some(shared)}: write the new versions there?", yes)


def _tell_who_lacks(run: Run, steps: list[Step], people: list[Holder], team: Holder | None) -> None:
    """Warn that `--share` and `--to` do not change access to containers that exist already."""
    wanted = {each.id for each in (*people, *([team] if team else []))}
    options = "--share is" if team is None else "--share and --to are" if people else "--to is"
    present = [step.container for step in steps if step.container]
    lacking = [
        container
        for container in present
        if container.access is None or not wanted <= {each.userId for each in container.access}
    ]
    if wanted and lacking:
        run.out.say(
            f"{options} for new containers, and {len(lacking)} existed before: `scbroker share` shares "
            "those."
        )


def _row(
    file: File, status: str, stored: scbroker.SecuredContainer | scbroker.Container[Any]
) -> Row:
    row = {"name": file.name, "status": status, "id": stored.id, "version": stored.version}
    return {**row, "length": Size(stored.length or 0)}


class Sending(NamedTuple):
    """Sends files; new containers get the type and the access."""

    session: scbroker.ServerProvider
    together: Together
    type: str | None = None
    access: list[scbroker.AccessLevel] | None = None

    def create_batch(self, steps: Sequence[Step]) -> list[Row | errors.BrokerError]:
        """Create containers of small files by one request."""
        try:
            new = [
                scbroker.NewContainer(
                    # Read in this thread: given a path, the library would use a thread of its pool.
                    read_small(file.path, _SMALL) if file.path else b"",
                    file.header(),
                    self.access,
                    self.type,
                )
                for file, _ in steps
            ]
            made = self.together.wait(self.session.createContainers(new))
        except errors.InvalidArgumentError:  # one may be invalid: send each alone
            return [tried(self.send, each) for each in steps]
        for file, _ in steps:
            self.together.progress(file.name, file.size or 0)
        return [
            each if isinstance(each, errors.BrokerError) else _row(file, "stored", each)
            for (file, _), each in zip(steps, made, strict=True)
        ]

    def send(self, step: Step) -> Row:
        """Create a container, or write a new version: content, then header.

        After a crash in between, the old time in the header makes the next `put --update` write both again.
        """
        (file, container), wait = step, self.together.wait
        content = standard_input(self.together) if file.path is None else file.path
        progress = self.together.progress_of(file.name)
        if container is None:
            creating = self.session.createContainer(
                content, file.header(), self.access, self.type, progress=progress
            )
            return _row(file, "stored", wait(creating))
        updating = self.session.updateContainerContent(
            container.id, content, ifVersion=container.version, progress=progress
        )
        written = wait(updating)
        if name_of(container) is not None:  # leave a header that another program wrote
            header = file.header(header_of(container))
            updating = self.session.updateContainerHeader(
                container.id, header, ifVersion=written.version
            )
            written = wait(updating)
        return _row(file, "updated", written)


def standard_input(together: Together) -> Iterator[bytes]:
    """Yield standard input in pieces; stop waiting for input when the command is interrupted."""
    descriptor = sys.stdin.fileno()
    while not together.is_over:
        # On Windows, select() takes sockets only: there, an interrupted command ends with its input.
        if os.name == "nt" or select.select([descriptor], [], [], _POLL_SECONDS)[0]:
            try:
                piece = os.read(descriptor, _READ)
            except OSError as error:
                raise errors.InvalidArgumentError(
                    f"Standard input cannot be read: {error.strerror}."
                ) from None
            if not piece:
                return
            yield piece
    raise errors.OperationCancelledError("The command was interrupted.")
