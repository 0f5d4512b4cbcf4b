"""Define the command that stores files."""

from __future__ import annotations

import itertools
import os
import select
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli.command import CONTAINERS, Yes, command
from scbroker.cli.files import STREAM, File, find, header_of, why_unread
from scbroker.cli.names import name_of
from scbroker.cli.output import Size
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, Total, do_each

_COLUMNS: Final = {"name": "NAME", "status": "STATUS", "length": "SIZE", "id": "ID"}
_BATCH: Final = 64
_SMALL: Final = 65_536
"""Bytes: files up to this size go into batches, because their contents are part of the request."""
_LONGEST_TYPE: Final = 256
_UPDATED: Final = "updated"
_LISTED: Final = 5
_READ: Final = 1_048_576
_POLL_SECONDS: Final = 0.2

if TYPE_CHECKING:
    Person: TypeAlias = scbroker.Contact | scbroker.ContactCard | uuid.UUID


@command(CONTAINERS)
def put(
    run: Run,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Files, folders, or - for standard input.")
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Store the files in folders as well.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The container's name in place of the file's."),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="A label for new containers, which the broker can read."),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PERSON",
            help="A person who may read new containers: a contact, a user id or a card. Can be repeated.",
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", "-u", help="Write a new version of containers whose file has changed."
        ),
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="CONTAINER", help="Write a new version of this container, also another user's."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Store files, each in a container of its own.

    The container of a file gets the file's name; that of a file in a folder gets a path that begins with the
    folder's name, such as photos/2026/a.jpg. The header keeps name, time and media type, encrypted.

    A file is skipped as "unchanged" if a container of yours has its name, size and time, and you wrote it.
    So after an interruption the same command goes on where it stopped; large files go on within the file.
    If the file differs, --update writes a new version. Links and special files in folders are skipped.
    """
    _check_options(files, name, type, share, into)
    if into is not None and files == [STREAM]:
        name = "standard input"  # the container keeps its own
    found = find(files, name, recursive=recursive, skipped=run.out.say, failed=run.failed)
    if into is not None:
        work = _into(run, found, into, yes)
    else:
        people = [_person(run, each) for each in share or []]
        work = _planned(run, found, update=update, yes=yes)
        work.type, work.access = type, _access(run, people)
        _tell_who_lacks(run, work, people)
    _transfer(run, work)


@dataclass(slots=True)
class Work:
    """The files of a command, by what is done with them, and what new containers get."""

    new: list[File] = field(default_factory=list)
    updates: list[tuple[File, scbroker.Container[Any]]] = field(default_factory=list)
    unchanged: list[tuple[File, scbroker.Container[Any]]] = field(default_factory=list)
    type: str | None = None
    access: list[scbroker.AccessLevel] | None = None


def _check_options(
    files: list[str], name: str | None, type: str | None, share: list[str] | None, into: str | None
) -> None:
    if into is not None and (len(files) > 1 or name is not None or type is not None or share):
        raise errors.InvalidArgumentError(
            "--into takes one file or -, and no --name, --type or --share: the container keeps its own."
        )
    if type is not None and not 0 < len(type.encode("utf-8", "replace")) <= _LONGEST_TYPE:
        raise errors.InvalidArgumentError(f"--type must have 1 to {_LONGEST_TYPE} bytes.")


def _into(run: Run, files: list[File], text: str, yes: bool) -> Work:
    """Plan a new version of the container that `--into` names."""
    if len(files) != 1:
        raise errors.InvalidArgumentError(
            f"--into takes one file, and there are {len(files)}: name the one to store."
        )
    container = run.names.container(text)
    is_by_id = container.id.hex.startswith(text.replace("-", "").lower())
    if container.createdBy != run.people.own_id and not is_by_id:
        # Anybody can share a container whose name is that of a file that the user keeps.
        creator = run.people.name_of(container.createdBy)
        run.confirm(f"The container {text!r} is of {creator}, not yours: write into it?", yes)
    file = files[0]
    return Work(updates=[(file._replace(name=name_of(container) or file.name), container)])


def _person(run: Run, text: str) -> Person:
    """Return a person of `--share`, who must be a user of the broker."""
    found = run.people.find(text)
    if run.session.getLatestActiveSigningKey(found).result() is None:
        raise errors.NotFoundError(f"No user of this broker is {text!r}: check --share.")
    if isinstance(found, scbroker.Contact) and not found.verified:
        run.out.say(
            f"{found.name} is not verified: compare the fingerprints, then `scbroker contacts verify`."
        )
    return found


def _id_of(person: Person) -> uuid.UUID:
    return person if isinstance(person, uuid.UUID) else person.userId


def _access(run: Run, people: list[Person]) -> list[scbroker.AccessLevel] | None:
    """Return the access list of new containers; None if the user alone gets access."""
    if not people:
        return None
    own = run.people.own_id
    others = {_id_of(person): scbroker.AccessLevel(person) for person in people}
    if own in others:
        raise errors.InvalidArgumentError("--share names yourself: you have access in any case.")
    owner = scbroker.ContainerAccessLevel.DefaultOwnerPermissions
    return [scbroker.AccessLevel(own, owner), *others.values()]


def _planned(run: Run, files: list[File], *, update: bool, yes: bool) -> Work:
    """Compare the files with the user's containers of the same names.

    Containers that other users created are left out. A member with Upload can give a container of the user
    the name of any file. So a file is unchanged only if the user wrote the container last, and an update of
    a container that others can read is confirmed.
    """
    own = run.people.own_id
    stored = run.names.named({file.name for file in files})
    work, several = Work(), ""
    for file in files:
        found = [each for each in stored[file.name] if each.createdBy == own]
        same = (c for c in found if file.is_in(c) and c.modifiedBy == c.contentBy == own)
        if (container := next(same, None)) is not None:
            work.unchanged.append((file, container))
        elif found:
            several = several or file.name * (len(found) > 1)
            work.updates.append((file, found[0]))
        else:
            work.new.append(file)
    changed = [file.name for file, _ in work.updates]
    if changed and not update:
        raise errors.AlreadyExistsError(
            f"You have containers with other contents or times that are named {_some(map(repr, changed))}: "
            "--update writes a new version, --name gives another name."
        )
    if several:
        raise errors.InvalidArgumentError(
            f"Several of your containers are named {several!r}: choose one by its id, with --into."
        )
    _confirm_readers(run, [container for _, container in work.updates], yes)
    return work


def _confirm_readers(run: Run, containers: list[scbroker.Container[Any]], yes: bool) -> None:
    """Ask before contents go to other people, and say who they are."""
    if yes:
        return
    others = [(container, run.people.others(container)) for container in containers]
    shared = [
        f"{name_of(container)!r} ({'members are hidden' if who is None else ', '.join(who)})"
        for container, who in others
        if who != []
    ]
    if shared:
        run.confirm(f"Others can read {_some(shared)}: write the new versions there?", yes)


def _some(items: Iterable[str]) -> str:
    """Return the first few of many items, for a message."""
    listed = list(items)
    more = len(listed) - _LISTED
    return ", ".join(listed[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _tell_who_lacks(run: Run, work: Work, people: list[Person]) -> None:
    """Say that `--share` changes nothing about containers that exist already."""
    wanted = {_id_of(person) for person in people}
    present = [container for _, container in (*work.unchanged, *work.updates)]
    lacking = [
        container
        for container in present
        if container.access is None or not wanted <= {each.userId for each in container.access}
    ]
    if wanted and lacking:
        run.out.say(
            f"--share is for new containers, and {len(lacking)} existed before: `scbroker share` adds people."
        )


def _transfer(run: Run, work: Work) -> None:
    sent = [*work.new, *(file for file, _ in work.updates)]
    sizes = [file.size for file in sent]
    size = None if None in sizes else sum(each or 0 for each in sizes)
    what = f"{len(sent)} files" if len(sent) > 1 else "".join(file.name for file in sent)

    def jobs(together: Together, total: Total) -> Iterable[Job]:
        return Sending(run.session, work, together, total).jobs()

    unchanged = [_outcome(file, "unchanged", container) for file, container in work.unchanged]
    do_each(run, what, size, jobs, _COLUMNS, unchanged)


def _outcome(file: File, status: str, result: scbroker.Metadata | errors.BrokerError) -> Outcome:
    match result:
        case errors.ConflictError() if status == _UPDATED:
            result = errors.ConflictError(
                "The container was changed meanwhile: look at it, then repeat the command."
            )
        case errors.BrokerError():
            result = why_unread(file, result)
    if isinstance(result, errors.BrokerError):
        return Outcome(file.name, result)
    length = result.length or 0
    row = {"name": file.name, "status": status, "id": result.id, "version": result.version}
    return Outcome(file.name, {**row, "length": Size(length)})


class Sending:
    """The transfer of the files of a command."""

    def __init__(
        self, session: scbroker.ServerProvider, work: Work, together: Together, total: Total
    ) -> None:
        self._session, self._work, self._together, self._total = session, work, together, total

    def jobs(self) -> Iterable[Job]:
        """Return the jobs that send everything: batches of small files, and the others one by one."""
        small = [file for file in self._work.new if file.size is not None and file.size <= _SMALL]
        large = [file for file in self._work.new if file.size is None or file.size > _SMALL]
        batches = (small[at : at + _BATCH] for at in range(0, len(small), _BATCH))
        return itertools.chain(
            (partial(self._create_batch, batch) for batch in batches),
            (partial(self._create, file) for file in large),
            (partial(self._update, *each) for each in self._work.updates),
        )

    def _create_batch(self, files: Sequence[File]) -> list[Outcome]:
        new = [
            scbroker.NewContainer(
                self._content(file), file.header(), self._work.access, self._work.type
            )
            for file in files
        ]
        try:
            results = self._together.wait(self._session.createContainers(new))
        except errors.InvalidArgumentError:  # of one file, which the others do not have to meet
            return [outcome for file in files for outcome in self._create(file)]
        for file in files:
            self._total.set(file.name, file.size or 0)
        return [
            _outcome(file, "stored", result) for file, result in zip(files, results, strict=True)
        ]

    def _create(self, file: File) -> list[Outcome]:
        def create() -> scbroker.Metadata:
            return self._together.wait(
                self._session.createContainer(
                    self._content(file), file.header(), self._work.access, self._work.type,
                    progress=self._total.of(file.name),
                )
            )  # fmt: skip

        return [_tried(file, "stored", create)]

    def _update(self, file: File, container: scbroker.Container[Any]) -> list[Outcome]:
        """Write a new version: the content first, so that after a crash the header differs from the file."""

        def update() -> scbroker.Metadata:
            written: scbroker.Metadata = self._together.wait(
                self._session.updateContainerContent(
                    container.id, self._content(file), ifVersion=container.version,
                    progress=self._total.of(file.name),
                )
            )  # fmt: skip
            if name_of(container) is None:  # the header of another program
                return written
            header = file.header(header_of(container))
            return self._together.wait(
                self._session.updateContainerHeader(container.id, header, ifVersion=written.version)
            )

        return [_tried(file, _UPDATED, update)]

    def _content(self, file: File) -> Path | Iterator[bytes]:
        return standard_input(self._together) if file.path is None else file.path


def _tried(file: File, status: str, work: Callable[[], scbroker.Metadata]) -> Outcome:
    try:
        return _outcome(file, status, work())
    except errors.BrokerError as error:
        return _outcome(file, status, error)


def standard_input(together: Together) -> Iterator[bytes]:
    """Yield what standard input gives; stop waiting for it when the command is interrupted."""
    if sys.stdin is None:
        raise errors.InvalidArgumentError("Standard input is closed.")
    descriptor = sys.stdin.fileno()
    while not together.is_over:
        # Windows can wait for sockets only: there, an interrupted command ends with the input.
        if os.name == "nt" or select.select([descriptor], [], [], _POLL_SECONDS)[0]:
            if not (piece := os.read(descriptor, _READ)):
                return
            yield piece
    raise errors.OperationCancelledError("The command was interrupted.")
