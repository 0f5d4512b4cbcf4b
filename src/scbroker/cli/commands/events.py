"""Define the command that lists and follows the events of the user's containers."""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import WATCHING, command
from scbroker.cli.completion import complete_container, complete_group
from scbroker.cli.names import CONTAINER, OfType
from scbroker.cli.output import Row, ShortId, fields_of
from scbroker.cli.people import GROUP_HELP
from scbroker.cli.run import Run
from scbroker.desk.names import names_by_id

if TYPE_CHECKING:
    from scbroker.vocabulary import ContainerEventType

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
        found = _in_all_logs(run, read) if team is None and since is None else [*read(team)]
        _list(run, found if limit is None else found[-limit:], known)
        return
    starts = {} if team is None or since is None else {team: since}
    first = since if team is None else None
    with run.session.followEvents(first, kinds, id, type, groupStartIds=starts) as stream:
        wanted = (each for each in stream if team in (None, each.groupId))
        widths = dict.fromkeys(_COLUMNS | _GROUP, 0) | _WIDTHS | ({"name": 24} if names else {})
        for each in islice(_each_once(wanted), limit):
            run.out.item(_row(run, each, known), widths)


def _in_all_logs(
    run: Run, read: Callable[[uuid.UUID | None], Iterable[scbroker.ContainerEvent]]
) -> list[scbroker.ContainerEvent]:
    """Return the user's own events and those of the groups that the user has accepted, by time."""
    logs = [read(None)]
    for each in run.people.readable:
        with contextlib.suppress(errors.NotFoundError):  # removed from the group meanwhile
            logs.append(read(each.id))
    return merged(logs)


def _list(
    run: Run, found: Sequence[scbroker.ContainerEvent], known: dict[uuid.UUID, str] | None
) -> None:
    columns = _COLUMNS | ({} if known is None else {"name": "NAME"})
    if any(each.groupId for each in found) or not run.out.on_terminal:
        columns = _COLUMNS | _GROUP | columns
    run.out.rows((_row(run, each, known) for each in found), columns)


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
