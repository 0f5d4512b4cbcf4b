"""Define the command that reads and verifies all that the user has access to."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli.command import WATCHING, command
from scbroker.cli.completion import complete_container
from scbroker.cli.output import Size
from scbroker.cli.run import Run

_BATCH: Final = 64
"""Containers that are listed, or read together."""
_BATCH_BYTES: Final = 16 * 1_048_576
_SMALL: Final = 1_048_576
"""Bytes of a content that is read together with others."""
_BLOCK: Final = 8 * 1_048_576
_ATTEMPTS: Final = 3
_PREFETCHED: Final = 2
_Moved = Callable[[int], None]
_Group = list[tuple[uuid.UUID, int]]
"""Ids of containers, and the lengths of their contents."""
if TYPE_CHECKING:
    _Entry = scbroker.Container[Any] | errors.BrokerError
    _Results = list[_Entry]


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

    @property
    def row(self) -> dict[str, Any]:
        return {
            "containers": self.containers,
            "length": self.bytes,
            "verified": self.verified,
            "hidden": self.hidden,
            "failures": self.failures,
            "leftOut": self.left_out,
        }


@command(WATCHING)
def verify(
    run: Run,
    containers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTAINER",
            help="A container: its name, its id, or four or more first digits of the id. By default all.",
            autocompletion=complete_container,
        ),
    ] = None,
) -> None:
    """Read and verify all your containers, or some.

    The command reads records, headers and contents, and saves none of them. Each failure is a line on
    standard error, and the exit status is then not 0. Members with the permission ReceiveAccessEvents see
    these reads.

    The command also reports containers that this device has read before and that the broker now denies:
    either your access has ended, or the broker withholds them.
    """
    report = _Report()
    if containers:
        ids = list(dict.fromkeys(run.names.ids_of(containers)))
        found = _readable(run, report, _metadata(run, ids))
    else:
        found = _readable(run, report, _all(run, report))
    total = sum(length for _, length in found)
    with run.out.progress("Verifying", total) as moved:
        for group, results in _fetched(run, _groups(found)):
            _verify(run, report, group, results, moved)
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


def _metadata(run: Run, ids: Sequence[uuid.UUID]) -> Iterator[_Entry]:
    for first in range(0, len(ids), _BATCH):
        group = ids[first : first + _BATCH]
        yield from run.session.getContainers(group, content=False, headers=False).result()


def _readable(run: Run, report: _Report, entries: Iterable[_Entry]) -> _Group:
    """Return id and length of the containers whose metadata is right."""
    found = []
    for each in entries:
        report.containers += 1
        if isinstance(each, errors.BrokerError):
            _failed(run, report, each.containerId, each)
        else:
            found.append((each.id, each.length or 0))
    return found


def _groups(found: Iterable[tuple[uuid.UUID, int]]) -> Iterator[_Group]:
    """Yield small containers together, as far as memory is bounded, and each large one alone."""
    group: _Group = []
    size = 0
    for id, length in found:
        if length > _SMALL:
            yield [(id, length)]
            continue
        if len(group) == _BATCH or size + length > _BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append((id, length))
        size += length
    if group:
        yield group


def _fetched(run: Run, groups: Iterable[_Group]) -> Iterator[tuple[_Group, _Results]]:
    """Yield each group with its headers, and small contents; the next groups are prefetched."""
    started: deque[tuple[_Group, scbroker.Promise[_Results]]] = deque()
    for group in groups:
        ids, is_small = [id for id, _ in group], group[0][1] <= _SMALL
        started.append((group, run.session.getContainers(ids, content=is_small)))
        if len(started) > _PREFETCHED:
            first, promise = started.popleft()
            yield first, promise.result()
    for first, promise in started:
        yield first, promise.result()


def _verify(run: Run, report: _Report, group: _Group, results: _Results, moved: _Moved) -> None:
    """Report what is wrong with a group, after reading its large content."""
    is_large = group[0][1] > _SMALL
    for (id, _), each in zip(group, results, strict=True):
        try:
            if isinstance(each, errors.BrokerError):
                raise each
            length = _read(run, each.id, report.bytes, moved) if is_large else each.length or 0
        except errors.DeletedError:  # since it was listed, as the signed tombstone proves
            report.containers -= 1
        except errors.BrokerUnavailableError:
            raise
        except errors.BrokerError as error:
            _failed(run, report, id, error)
        else:
            hidden = scbroker.Availability.Hidden
            report.hidden += hidden in (each.contentAvailability, each.headerAvailability)
            report.verified += 1
            report.bytes += length
    moved(report.bytes)


def _read(run: Run, container: uuid.UUID, before: int, moved: _Moved) -> int:
    """Read a large content block by block, again if it is replaced meanwhile; return its length."""
    attempts = 0
    while True:
        attempts += 1
        try:
            reader = run.session.openContainerContent(container).result()
            if reader is None:  # emptied or hidden since it was listed
                return 0
            with reader:
                for start in range(0, reader.size, _BLOCK):
                    block = reader.readRange(start, _BLOCK).result()
                    moved(before + start + len(block))
                return reader.size
        except errors.ConflictError:
            if attempts == _ATTEMPTS:
                raise


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
