"""Define the command that stores files."""

from __future__ import annotations

import itertools
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import CONTAINERS, Checksum, Yes, command
from scbroker.cli.commands.getting import has_content
from scbroker.cli.completion import complete_group, complete_holder
from scbroker.cli.files import STREAM, File, find, read_small
from scbroker.cli.names import is_whole, label_of
from scbroker.cli.output import Size
from scbroker.cli.paths import translated
from scbroker.cli.people import Holder, holder_of, warning_of
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, do_each, jobs_of
from scbroker.desk.names import header_of, name_of
from scbroker.desk.people import some
from scbroker.desk.strangers import is_own
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
    if into is not None:
        work = _into(run, found, into, yes)
    else:
        people = [_checked(run, each) for each in share or []]
        team = None if to is None else holder_of(run.people.find_group(to))
        work = _planned(run, found, update=update, checksum=checksum, yes=yes)
        work.type, work.access = type, _access(run, people, team)
        _tell_who_lacks(run, work, people, team)
    _transfer(run, work)


@dataclass(slots=True)
class Work:
    """The files to create, to update and to skip, with the type and access of new containers."""

    new: list[File] = field(default_factory=list)
    updates: list[tuple[File, scbroker.Container[Any]]] = field(default_factory=list)
    unchanged: list[tuple[File, scbroker.Container[Any]]] = field(default_factory=list)
    type: str | None = None
    access: list[scbroker.AccessLevel] | None = None


def _into(run: Run, files: list[File], text: str, yes: bool) -> Work:
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
    return Work(updates=[(file._replace(name=name_of(container) or file.name), container)])


def _checked(run: Run, text: str) -> Holder:
    """Return a person or a group of `--share`; a person must be a user of the broker."""
    found = run.people.find_holder(text)
    if isinstance(found.who, scbroker.Group):
        return found
    if run.session.getLatestActiveSigningKey(found.who).result() is None:
        raise errors.NotFoundError(f"{text!r} is not a user of this broker: check --share.")
    if isinstance(found.who, scbroker.Contact) and (warning := warning_of(found)) is not None:
        run.out.say(warning)
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


def _planned(run: Run, files: list[File], *, update: bool, checksum: bool, yes: bool) -> Work:
    """Sort the files into new, changed and unchanged, by the user's containers of the same names.

    Containers that other users created are left out. A member with Upload can give a container of the user
    the name of any file. So a file is unchanged only if the user wrote the container last, and an update of
    a container that others can read is confirmed.
    """
    own = run.people.own_id
    stored = run.names.named({file.name for file in files})
    work = Work()
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
            work.unchanged.append((file, container))
        elif len(found) > 1 and update:
            run.failed(
                file.name,
                errors.InvalidArgumentError(
                    f"{len(found)} of your containers have this name: choose one with --into and its id."
                ),
            )
        elif found:
            work.updates.append((file, found[0]))
        else:
            work.new.append(file)
    changed = [file.name for file, _ in work.updates]
    if changed and not update:
        raise errors.AlreadyExistsError(
            f"Your containers named {some(map(repr, changed))} differ from the files: --update writes new "
            "versions, --name gives another name."
        )
    _confirm_readers(run, [container for _, container in work.updates], yes)
    return work


def _has_bytes(run: Run, file: File, container: scbroker.Container[Any]) -> bool:
    if file.path is None or file.size != container.length:
        return False
    with translated(file.path), open(file.path, "rb", opener=regular) as opened:
        return has_content(run, container, opened)


def _confirm_readers(run: Run, containers: list[scbroker.Container[Any]], yes: bool) -> None:
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


def _tell_who_lacks(run: Run, work: Work, people: list[Holder], team: Holder | None) -> None:
    """Warn that `--share` and `--to` do not change access to containers that exist already."""
    wanted = {each.id for each in (*people, *([team] if team else []))}
    options = "--share is" if team is None else "--share and --to are" if people else "--to is"
    present = [container for _, container in (*work.unchanged, *work.updates)]
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


def _transfer(run: Run, work: Work) -> None:
    sent = [*work.new, *(file for file, _ in work.updates)]
    sizes = [file.size for file in sent]
    size = None if None in sizes else sum(each or 0 for each in sizes)
    what = f"{len(sent)} files" if len(sent) > 1 else "".join(file.name for file in sent)

    def jobs(together: Together) -> Iterable[Job]:
        return Sending(run.session, work, together).jobs()

    unchanged = [_outcome(file, "unchanged", container) for file, container in work.unchanged]
    do_each(run, what, size, jobs, _COLUMNS, unchanged)


def _outcome(file: File, status: str, result: scbroker.Metadata | errors.BrokerError) -> Outcome:
    if isinstance(result, errors.BrokerError):
        return Outcome(file.name, result)
    length = result.length or 0
    row = {"name": file.name, "status": status, "id": result.id, "version": result.version}
    return Outcome(file.name, {**row, "length": Size(length)})


class Sending:
    """The transfer of the files of a command."""

    def __init__(self, session: scbroker.ServerProvider, work: Work, together: Together) -> None:
        self._session, self._work, self._together = session, work, together

    def jobs(self) -> Iterable[Job]:
        """Return the jobs that send everything: batches of small files, and the others one by one."""
        new = jobs_of(
            self._work.new, lambda file: file.size, _SMALL, self._create_batch, self._create
        )
        return itertools.chain(new, (partial(self._update, *each) for each in self._work.updates))

    def _create_batch(self, files: Sequence[File]) -> list[Outcome]:
        try:
            new = [
                scbroker.NewContainer(
                    # Read in this thread: given a path, the library would use a thread of its pool.
                    read_small(file.path, _SMALL) if file.path else b"",
                    file.header(),
                    self._work.access,
                    self._work.type,
                )
                for file in files
            ]
            results = self._together.wait(self._session.createContainers(new))
        except errors.InvalidArgumentError:  # one may be invalid: send each alone
            return [outcome for file in files for outcome in self._create(file)]
        for file in files:
            self._together.progress(file.name, file.size or 0)
        return [_outcome(file, "stored", each) for file, each in zip(files, results, strict=True)]

    def _create(self, file: File) -> list[Outcome]:
        def create() -> scbroker.Metadata:
            return self._together.wait(
                self._session.createContainer(
                    self._content(file), file.header(), self._work.access, self._work.type,
                    progress=self._together.progress_of(file.name),
                )
            )  # fmt: skip

        return [_tried(file, "stored", create)]

    def _update(self, file: File, container: scbroker.Container[Any]) -> list[Outcome]:
        """Write a new version: content, then header.

        After a crash in between, the old time in the header makes the next `put --update` write both again.
        """

        def update() -> scbroker.Metadata:
            written: scbroker.Metadata = self._together.wait(
                self._session.updateContainerContent(
                    container.id, self._content(file), ifVersion=container.version,
                    progress=self._together.progress_of(file.name),
                )
            )  # fmt: skip
            if name_of(container) is None:  # leave a header that another program wrote
                return written
            header = file.header(header_of(container))
            return self._together.wait(
                self._session.updateContainerHeader(container.id, header, ifVersion=written.version)
            )

        return [_tried(file, "updated", update)]

    def _content(self, file: File) -> Path | Iterator[bytes]:
        return standard_input(self._together) if file.path is None else file.path


def _tried(file: File, status: str, work: Callable[[], scbroker.Metadata]) -> Outcome:
    try:
        return _outcome(file, status, work())
    except errors.BrokerError as error:
        return _outcome(file, status, error)


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
