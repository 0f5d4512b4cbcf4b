"""Define the command that reads and verifies all that the user has access to."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli.command import WATCHING, command
from scbroker.cli.commands.getting import pieces
from scbroker.cli.names import AnyContainers, Everyone
from scbroker.cli.output import Size
from scbroker.cli.run import Run
from scbroker.cli.together import Together, Total, batches
from scbroker.desk.people import counted
from scbroker.desk.strangers import Strangers

_BATCH: Final = 64
_SMALL: Final = 1_048_576
"""Bytes of a content that is read together with others."""
_ATTEMPTS: Final = 3
if TYPE_CHECKING:
    _Container = scbroker.Container[Any]
    _Entry = _Container | errors.BrokerError
    _Results = list[tuple[uuid.UUID, _Entry]]


@dataclass
class _Report:
    """The findings of `verify` so far."""

    containers: int = 0
    bytes: int = 0
    verified: int = 0
    hidden: int = 0
    """Containers whose content or header the user's permissions hide: their metadata is verified."""
    failures: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[uuid.UUID] = field(default_factory=list)
    of_strangers: int = 0
    """Containers that strangers can change, and that were not read."""

    @property
    def row(self) -> dict[str, Any]:
        return {
            "containers": self.containers,
            "length": self.bytes,
            "verified": self.verified,
            "hidden": self.hidden,
            "failures": self.failures,
            "leftOut": self.left_out,
            "ofStrangers": self.of_strangers,
        }


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
    report = _Report()
    entries = _metadata(run, containers) if containers else _all(run, report)
    found = list(_readable(run, report, entries))
    if not (containers or everyone):
        found = _of_known_people(run, report, found)
    small = [each for each in found if _length(each) <= _SMALL]
    large = [each for each in found if _length(each) > _SMALL]
    with run.out.progress("Verifying", sum(map(_length, found))) as show, Together() as together:
        reading = _Reading(run.session, together, Total(show))
        jobs = itertools.chain(
            (partial(reading.batch, batch) for batch in batches(small, _length)),
            (partial(reading.alone, each) for each in large),
        )
        for results in together.run(jobs):
            for id, result in results:
                _note(run, report, id, result)
    _end(run, report)


def _all(run: Run, report: _Report) -> Iterator[_Entry]:
    """Yield the metadata of all containers, and note which of them the broker denies."""
    start: uuid.UUID | None = None
    while True:
        page = run.session.listContainers(startAfter=start, headers=False).result()
        yield from page.containers
        report.left_out += page.leftOut
        if page.next is None:
            return
        start = page.next


def _metadata(run: Run, texts: Sequence[str]) -> Iterator[_Entry]:
    ids = list(dict.fromkeys(run.names.ids_of(texts)))
    for first in range(0, len(ids), _BATCH):
        group = ids[first : first + _BATCH]
        yield from run.session.getContainers(group, content=False, headers=False).result()


def _readable(run: Run, report: _Report, entries: Iterable[_Entry]) -> Iterator[_Container]:
    """Yield the containers whose metadata is right; report the others."""
    for each in entries:
        report.containers += 1
        if isinstance(each, errors.BrokerError):
            _failed(run, report, each.containerId, each)
        else:
            yield each


def _of_known_people(run: Run, report: _Report, found: list[_Container]) -> list[_Container]:
    """Return the containers that no stranger can change; say how many others there are."""
    strangers = Strangers(run.session)
    kept = [each for each in found if not strangers.may_change(each)]
    report.of_strangers = len(found) - len(kept)
    report.containers -= report.of_strangers
    if report.of_strangers:
        run.out.say(
            f"Left out: {counted(report.of_strangers, 'container')}, which people who are not your contacts "
            "can change: --everyone verifies them too."
        )
    return kept


def _length(container: _Container) -> int:
    return container.length or 0


class _Reading:
    """Reads headers and contents, and keeps none of them."""

    def __init__(self, session: scbroker.ServerProvider, together: Together, total: Total) -> None:
        self._session, self._together, self._total = session, together, total

    def batch(self, containers: Sequence[_Container]) -> _Results:
        ids = [each.id for each in containers]
        results = self._together.wait(self._session.getContainers(ids))
        for each in containers:
            self._total.set(each.id, _length(each))
        return list(zip(ids, results, strict=True))

    def alone(self, container: _Container) -> _Results:
        """Read a large content piece by piece, again if it is replaced meanwhile."""
        found: _Entry = container
        for attempt in range(_ATTEMPTS):
            reading = self._session.getContainers([container.id], content=False)
            [found] = self._together.wait(reading)
            try:
                done = 0
                if not isinstance(found, errors.BrokerError):
                    for piece in pieces(self._session, found, self._together):
                        done += len(piece)
                        self._total.set(container.id, done)
            except errors.ConflictError as error:
                if attempt == _ATTEMPTS - 1:
                    return [(container.id, error)]
            except errors.BrokerUnavailableError:
                raise
            except errors.BrokerError as error:
                return [(container.id, error)]
            else:
                break
        return [(container.id, found)]


def _note(run: Run, report: _Report, id: uuid.UUID, result: _Entry) -> None:
    if isinstance(result, errors.DeletedError):  # since it was listed, as the tombstone proves
        report.containers -= 1
    elif isinstance(result, errors.BrokerUnavailableError):
        raise result
    elif isinstance(result, errors.BrokerError):
        _failed(run, report, id, result)
    else:
        hidden = scbroker.Availability.Hidden
        report.hidden += hidden in (result.contentAvailability, result.headerAvailability)
        report.verified += 1
        report.bytes += _length(result)


def _failed(
    run: Run, report: _Report, container: uuid.UUID | None, error: errors.BrokerError
) -> None:
    run.failed(str(container), error)
    report.failures.append({"id": container, "code": error.code, "error": error.message})


def _end(run: Run, report: _Report) -> None:
    if report.left_out:
        run.out.error(
            f"The broker denies {len(report.left_out)} containers that this device has read before, such as "
            f"{report.left_out[0]}: your access has ended, or the broker withholds them. Ask another member."
        )
    parts = [f"{report.verified} of {report.containers} containers verified"]
    parts.append(f"{Size(report.bytes).shown()} of contents read")
    if report.hidden:
        parts.append(f"{report.hidden} of them hide content or header from you")
    run.out.done(report.row, f"{', '.join(parts)}.")
