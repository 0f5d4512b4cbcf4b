"""Define the commands that watch and check: events, what is verified, what this device remembers."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import signal
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import (
    WATCHING,
    Checksum,
    Run,
    Yes,
    command,
    complete_container,
    complete_folder,
    complete_group,
    group,
)
from scbroker.cli.commands.getting import pieces
from scbroker.cli.commands.listing import access_in_words, access_of
from scbroker.cli.names import (
    CONTAINER,
    GROUP_HELP,
    AnyContainers,
    ContainerArgument,
    Everyone,
    GroupArgument,
    OfType,
)
from scbroker.cli.output import Row, ShortId, Size, fields_of
from scbroker.cli.together import Together
from scbroker.desk.names import Container, Entry, names_by_id
from scbroker.desk.people import counted

if TYPE_CHECKING:
    from scbroker.vocabulary import ContainerEventType

_SMALL: Final = 1_048_576
"""Bytes: contents up to this size are read in batches."""
_ATTEMPTS: Final = 3


class _Report:
    """The findings of `verify` so far."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.row: dict[str, Any] = {
            "containers": 0,
            "length": 0,
            "verified": 0,
            # Containers whose content or header the user's permissions hide: their metadata is verified.
            "hidden": 0,
            "failures": [],
            "leftOut": [],
            "ofStrangers": 0,
        }

    def note(self, id: uuid.UUID | None, result: Entry) -> None:
        """Add the result of reading a container."""
        if isinstance(result, errors.DeletedError):  # since it was listed, as a tombstone proves
            self.row["containers"] -= 1
        elif isinstance(result, errors.BrokerUnavailableError):
            raise result
        elif isinstance(result, errors.BrokerError):
            self._run.failed(str(id), result)
            failure = {"id": id, "code": result.code, "error": result.message}
            self.row["failures"].append(failure)
        else:
            hidden = scbroker.Availability.Hidden
            self.row["hidden"] += hidden in (result.contentAvailability, result.headerAvailability)
            self.row["verified"] += 1
            self.row["length"] += _length(result)

    def end(self) -> None:
        denied, length = self.row["leftOut"], Size(self.row["length"]).shown()
        if denied:
            self._run.out.error(
                f"The broker denies {len(denied)} containers that this device has read before, such as "
                f"{denied[0]}: your access has ended, or the broker withholds them. Ask another member."
            )
        text = "{verified} of {containers} containers verified".format_map(self.row)
        text += f", {length} of contents read"
        if self.row["hidden"]:
            text += f", {self.row['hidden']} of them hide content or header from you"
        self._run.out.done(self.row, f"{text}.")


@command(WATCHING)
def verify(run: Run, containers: AnyContainers = None, everyone: Everyone = False) -> None:
    """Read and verify all your containers, or some.

    The command reads records, headers and contents, and saves none of them. Each failure is a line on
    standard error, and the exit status is then not 0. Members with the permission ReceiveAccessEvents see
    these reads.

    Without CONTAINER, the command reads what nobody can change but you, your contacts, and members of groups
    that you or a contact made; with --everyone, also what other people can change. Anybody at the broker can
    share a container with you that is huge or damaged.

    The command also reports containers that this device has read before and that the broker now denies:
    either your access has ended, or the broker withholds them.
    """
    report = _Report(run)
    found: list[Container] = []
    for each in _named(run, containers) if containers else _all(run, report):
        report.row["containers"] += 1
        if isinstance(each, errors.BrokerError):
            report.note(each.containerId, each)
        else:
            found.append(each)
    if not (containers or everyone):
        kept = [each for each in found if not run.people.may_change(each)]
        if left := len(found) - len(kept):
            report.row["ofStrangers"] = left
            report.row["containers"] -= left
            run.out.say(
                f"Left out: {counted(left, 'container')}, which people who are not your contacts can change: "
                "--everyone verifies them too."
            )
        found = kept
    size = sum(map(_length, found))
    with run.out.progress("Verifying", size) as show, Together(show) as together:
        alone, batch = partial(_read_large, run, together), partial(_read, run, together)
        for each, result in together.each(found, alone, batch, _length, _SMALL):
            report.note(each.id, result)
    report.end()


def _all(run: Run, report: _Report) -> Iterator[Entry]:
    """Yield the metadata of all containers; add to the report the ids that the broker denies now."""
    start: uuid.UUID | None = None
    while True:
        page = run.session.listContainers(startAfter=start, headers=False).result()
        yield from page.containers
        report.row["leftOut"] += page.leftOut
        if page.next is None:
            return
        start = page.next


def _named(run: Run, texts: Sequence[str]) -> list[Entry]:
    ids = list(dict.fromkeys(run.names.ids_of(texts)))
    return [*run.session.getContainers(ids, content=False, headers=False).result()]


def _length(container: Container) -> int:
    return container.length or 0


def _read(run: Run, together: Together, some: Sequence[Container]) -> Sequence[Entry]:
    """Read headers and contents of a batch, which verifies them."""
    results = together.wait(run.session.getContainers([each.id for each in some]))
    for each in some:
        together.progress(each.id, _length(each))
    return results


def _read_large(
    run: Run, together: Together, container: Container, attempts: int = _ATTEMPTS
) -> Container:
    """Read a large content piece by piece; retry if it is replaced meanwhile."""
    [found] = together.wait(run.session.getContainers([container.id], content=False))
    if isinstance(found, errors.BrokerError):
        raise found
    done = 0
    try:
        for piece in pieces(run.session, found, together):
            done += len(piece)
            together.progress(container.id, done)
    except errors.ConflictError:
        if attempts == 1:
            raise
        return _read_large(run, together, container, attempts - 1)
    return found


mark: typer.Typer = group("mark", WATCHING, "Compare a history with what this device has verified.")
Accept = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION:HASH",
        help="Accept the broker's history with this head, which the command shows without --accept.",
    ),
]


@command(name="container", of=mark)
def mark_container(
    run: Run, container: ContainerArgument, accept: Accept = None, yes: Yes = False
) -> None:
    """Compare the history of a container, and accept the broker's.

    A head is the version and hash at the end of a history. The command shows the head that this device has
    verified and the head that the broker serves. With --accept, the device follows the broker's history from
    now on.

    Accept it only after a "rollback" or "fork" for which you know the reason, such as a backup that the
    operator has restored. Compare the heads with another member first: a broker that hides changes wants you
    to accept its history.
    """
    id = run.names.id_of(container)
    _show(run, lambda head: run.session.resetContainerMark(id, head).result(), accept, yes)


@command(name="group", of=mark)
def mark_group(run: Run, group: GroupArgument, accept: Accept = None, yes: Yes = False) -> None:
    """Compare the history of a group, and accept the broker's.

    This is for a group what `scbroker mark container` is for a container.
    """
    id = run.people.find_group_or_id(group).id
    _show(run, lambda head: run.session.resetContainerMark(id, head).result(), accept, yes)


@command(name="events", of=mark)
def mark_events(
    run: Run,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help=f"The events of this group in place of your own: {GROUP_HELP}",
            autocompletion=complete_group,
        ),
    ] = None,
    accept: Accept = None,
    yes: Yes = False,
) -> None:
    """Compare the history of events, and accept the broker's.

    The command shows the head of the event log that this device has verified and the head that the broker
    serves. With --accept, the device follows the broker's log from now on. Accept it only after a "rollback"
    or "fork" for which you know the reason.
    """
    id = None if group is None else run.people.find_group_or_id(group).id
    _show(run, lambda head: run.session.resetEventMark(head, groupId=id).result(), accept, yes)


@command(name="access", of=mark)
def mark_access(
    run: Run,
    container: ContainerArgument,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION:HASH",
            help="Accept the change of access with this head, which the command shows without --accept.",
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore the access list from before the change.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Show and accept a change of access by a former member.

    Somebody who acted for a group changed who has access to the container, and is not in the group any more,
    or has a lower role there. They may have made the change while they were allowed to. Or they made it
    afterwards, together with a broker that lies. Until you decide, commands that write into the container
    fail.

    Compare the two lists, and ask the person or another member. With --accept, you can write again, for the
    people of the new list. With --undo, the command restores the list from before the change, and the
    container gets a new key.
    """
    if undo and accept is not None:
        raise errors.InvalidArgumentError("--accept and --undo exclude each other: pass one.")
    id = run.names.id_of(container)
    head = None if accept is None else head_of(accept)
    if head is not None:
        run.confirm(
            "The people of the new access list read what you write from now on. Go on?", yes
        )
    found = run.session.confirmAccess(id, head).result()
    if undo and found is not None:
        if found.before is None:
            raise errors.PermissionDeniedError(
                "Your permissions hide the access list: ask a member who can manage or own the container."
            )
        run.confirm("Restore the access list from before this change?", yes)
        run.session.updateContainerAccessLevels(id, found.before).result()
    _show_access(run, found, "undone" if undo else "accepted" if head is not None else None)


def _show_access(run: Run, found: scbroker.UnsettledAccess | None, done: str | None) -> None:
    """Show an unsettled change of access with both lists, and whether it was accepted or undone."""
    before, after = (None, None) if found is None else (found.before, found.after)
    head = None if found is None else _text(found.head)
    if run.out.as_json:
        fields = ("changedBy", "changedVia", "changedAt")
        known = {each: getattr(found, each, None) for each in fields}
        lists = {"before": access_of(run, before), "after": access_of(run, after)}
        run.out.fields({"head": head, **known, **lists, "done": None if found is None else done})
        return
    if found is None:
        run.out.say("No change of access has to be confirmed: you can write into the container.")
        return
    run.out.fields(
        {
            "changedBy": run.people.named_with_id(found.changedBy),
            "changedVia": run.people.group_of(found.changedVia),
            "changedAt": found.changedAt,
            "before": "hidden from you" if before is None else access_in_words(run, before),
            "after": "hidden from you" if after is None else access_in_words(run, after),
        }
    )
    run.out.say(
        f"The change of access is {done}."
        if done
        else f"To accept the change, add --accept {head}; to restore the list from before it, --undo."
    )


@command(WATCHING)
def sent(run: Run, container: ContainerArgument) -> None:
    """Show the outcome of changes that got no answer.

    These are changes of a container that this device sent and that the broker did not answer. Each is Stored,
    NotStored or still Uncertain. An uncertain one is decided by the next change of the container, which gets
    its version unless it was stored.
    """
    found = run.session.getSentChanges(run.names.id_of(container)).result()
    rows = [{"version": each.version, "outcome": each.outcome} for each in found]
    run.out.rows(rows, {"version": "VERSION", "outcome": "OUTCOME"})
    if not rows:
        run.out.say("Every change of the container that this device sent got an answer.")


def _show(
    run: Run, reset: Callable[[scbroker.Head | None], scbroker.Heads], accept: str | None, yes: bool
) -> None:
    head = None if accept is None else head_of(accept)
    if head is not None:
        run.confirm(
            "This device forgets the history that it has verified, and follows the broker's. Go on?",
            yes,
        )
    heads = reset(head)
    stored = None if heads.stored is None else _text(heads.stored)
    served = _text(heads.served)
    run.out.fields({"stored": stored, "served": served, "accepted": head is not None})
    if head is None and heads.stored != heads.served:
        run.out.say(f"To accept the served head, add --accept {served}")


def _text(head: scbroker.Head) -> str:
    return f"{head.version}:{head.hash.hex()}"


def head_of(text: str) -> scbroker.Head:
    """Parse a head as `_text` writes it."""
    if not re.fullmatch(r"[0-9]{1,20}:[0-9a-f]{64}", text):
        raise errors.InvalidArgumentError(
            f"{text!r:.100} is not VERSION:HASH, as this command prints it."
        )
    version, _, digest = text.partition(":")
    return scbroker.Head(int(version), bytes.fromhex(digest))


_COLUMNS: Final = {
    "id": "EVENT",
    "date": "TIME",
    "eventType": "KIND",
    "containerId": "CONTAINER",
    "containerType": "TYPE",
    "version": "VERSION",
    "relatedUserId": "BY",
    "applicationName": "PROGRAM",
    "changes": "CHANGES",
}
_GROUP: Final = {"groupId": "GROUP"}
_RECENT: Final = 1024
"""Latest events that `_each_once` remembers, to recognize the same event from another log.

The logs are read at about the same time, so the same event comes from them shortly after one another.
"""
_WIDTHS: Final = {"id": 6, "date": 16, "eventType": 8, "containerId": 8}


@command(WATCHING)
def events(
    run: Run,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for events, and show each as it happens.")
    ] = False,
    since: Annotated[
        int | None,
        typer.Option(
            metavar="EVENT",
            min=1,
            help="The number of the first event to show, from the column EVENT. It is a number of your own "
            "events, or with --group of the group's.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help=f"Only the events of this group: {GROUP_HELP}",
            autocompletion=complete_group,
        ),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(
            metavar="CONTAINER",
            help=f"Only events of this container. {CONTAINER}",
            autocompletion=complete_container,
        ),
    ] = None,
    type: OfType = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...", help="Only these kinds: Added, Updated, Accessed, Deleted."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="The last N events; with --follow, end after N events."
        ),
    ] = None,
    names: Annotated[
        bool,
        typer.Option(
            "--names",
            help="Show the names of containers. The command reads their headers once, and members with the "
            "permission ReceiveAccessEvents see that.",
        ),
    ] = False,
) -> None:
    """List or follow the events of your containers.

    Events say what has changed, when and by whom. They are the broker's word: the container itself is
    verified when you read it.

    Each group that you have accepted has a log of its own, with numbers of its own. It has the events of the
    group and of the containers that the group can reach. The column GROUP names the group. Without --since,
    the list has the events of all logs in the order of time. With --since, it has only your own events, or
    with --group those of the group. An event of a container that you reach in several ways is listed once.

    With --follow, the command shows each event from now on, or from --since on, until Ctrl-C. It reconnects
    if the connection ends. With --json each event is then one line.
    """
    kinds = None if kind is None else _kinds(kind)
    id = None if container is None else run.names.id_of(container)
    known = dict(names_by_id(run.session)) if names else None
    team = None if group is None else run.people.find_group(group).id

    def read(log: uuid.UUID | None) -> Sequence[scbroker.ContainerEvent]:
        return run.session.getEvents(kinds, id, type, since, groupId=log).result()

    if not follow:
        logs = [read(team)]
        for accepted in run.people.readable if team is None and since is None else ():
            with contextlib.suppress(errors.NotFoundError):  # removed from the group meanwhile
                logs.append(read(accepted.id))
        found = merged(logs) if limit is None else merged(logs)[-limit:]
        columns = _COLUMNS | ({} if known is None else {"name": "NAME"})
        if any(each.groupId for each in found) or not run.out.on_terminal:
            columns = _COLUMNS | _GROUP | columns
        run.out.rows((_row(run, each, known) for each in found), columns)
        return
    starts = {} if team is None or since is None else {team: since}
    first = since if team is None else None
    with run.session.followEvents(first, kinds, id, type, groupStartIds=starts) as stream:
        wanted = (each for each in stream if team in (None, each.groupId))
        widths = dict.fromkeys(_COLUMNS | _GROUP, 0) | _WIDTHS | ({"name": 24} if names else {})
        for each in islice(_each_once(wanted), limit):
            run.out.item(_row(run, each, known), widths)


def _kinds(text: str) -> list[ContainerEventType]:
    """Parse a comma-separated list of event kinds, in upper or lower case."""
    try:
        return [scbroker.ContainerEventType[each.strip().capitalize()] for each in text.split(",")]
    except KeyError as error:
        listed = ", ".join(each.name for each in scbroker.ContainerEventType)
        raise errors.InvalidArgumentError(
            f"--kind does not know {error}: pass one or more of {listed}."
        ) from None


def _row(run: Run, event: scbroker.ContainerEvent, known: dict[uuid.UUID, str] | None) -> Row:
    by: uuid.UUID | str | None = event.relatedUserId
    group: uuid.UUID | str | None = event.groupId
    if isinstance(by, uuid.UUID) and not run.out.as_json:
        by = run.people.name_of(by)
    if isinstance(group, uuid.UUID) and not run.out.as_json:
        group = run.people.group_of(group).removeprefix("group ")
    names = (
        "id", "date", "eventType", "containerType", "previousContainerType", "applicationName", "changes",
    )  # fmt: skip
    row = fields_of(event, *names) | {
        "containerId": ShortId(event.containerId),
        # Version 0: the broker emptied the event when the container was deleted.
        "version": event.version if run.out.as_json else event.version or None,
        "relatedUserId": by,
        "groupId": group,
    }
    return row if known is None else row | {"name": known.get(event.containerId)}


def merged(logs: Iterable[Iterable[scbroker.ContainerEvent]]) -> list[scbroker.ContainerEvent]:
    """Return the events of several logs by time, each once, in the order of each log.

    An event can have an earlier time than the one before it: the broker changes events of deleted containers.
    So each event counts as of the latest time so far in its log.
    """
    dated = list[tuple[dt.datetime, scbroker.ContainerEvent]]()
    for log in logs:
        latest = dt.datetime.min.replace(tzinfo=dt.UTC)
        for each in log:
            latest = max(latest, each.date)
            dated.append((latest, each))
    dated.sort(key=lambda each: each[0])
    return list(_each_once(event for _, event in dated))


def _each_once(events: Iterable[scbroker.ContainerEvent]) -> Iterator[scbroker.ContainerEvent]:
    """Yield events, and leave out those that were already yielded from another log.

    A container that the user reaches in two ways has its events in both logs, with the same time.
    """
    recent = dict[object, uuid.UUID | None]()
    for each in events:
        same = (each.date, each.eventType, each.containerId, each.version, each.relatedUserId)
        if recent.setdefault(same, each.groupId) == each.groupId:
            yield each
        if len(recent) > _RECENT:
            del recent[next(iter(recent))]


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
    from scbroker.cli.files import Folder, translated
    from scbroker.cli.mirror.mirroring import Mirror
    from scbroker.cli.mirror.state import Selection, State

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
