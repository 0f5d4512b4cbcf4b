"""Define the command that reads and verifies all that the user has access to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import WATCHING, command
from scbroker.cli.commands.getting import pieces
from scbroker.cli.names import AnyContainers, Everyone
from scbroker.cli.output import Size
from scbroker.cli.run import Run
from scbroker.cli.together import Together, jobs_of
from scbroker.desk.people import counted
from scbroker.desk.strangers import Strangers

_SMALL: Final = 1_048_576
"""Bytes: contents up to this size are read in batches."""
_ATTEMPTS: Final = 3
if TYPE_CHECKING:
    _Container = scbroker.Container[Any]
    _Entry = _Container | errors.BrokerError
    _Results = list[tuple[uuid.UUID, _Entry]]


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

    def note(self, id: uuid.UUID | None, result: _Entry) -> None:
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
    found: list[_Container] = []
    for each in _named(run, containers) if containers else _all(run, report):
        report.row["containers"] += 1
        if isinstance(each, errors.BrokerError):
            report.note(each.containerId, each)
        else:
            found.append(each)
    if not (containers or everyone):
        strangers = Strangers(run.session)
        kept = [each for each in found if not strangers.may_change(each)]
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
        batch, alone = partial(_read, run, together), partial(_read_large, run, together)
        jobs = jobs_of(found, _length, _SMALL, batch, alone)
        for results in together.run(jobs):
            for id, result in results:
                report.note(id, result)
    report.end()


def _all(run: Run, report: _Report) -> Iterator[_Entry]:
    """Yield the metadata of all containers; add to the report the ids that the broker denies now."""
    start: uuid.UUID | None = None
    while True:
        page = run.session.listContainers(startAfter=start, headers=False).result()
        yield from page.containers
        report.row["leftOut"] += page.leftOut
        if page.next is None:
            return
        start = page.next


def _named(run: Run, texts: Sequence[str]) -> list[_Entry]:
    ids = list(dict.fromkeys(run.names.ids_of(texts)))
    return [*run.session.getContainers(ids, content=False, headers=False).result()]


def _length(container: _Container) -> int:
    return container.length or 0


def _read(run: Run, together: Together, some: Sequence[_Container]) -> _Results:
    """Read headers and contents of a batch, which verifies them."""
    ids = [each.id for each in some]
    results = together.wait(run.session.getContainers(ids))
    for each in some:
        together.progress(each.id, _length(each))
    return list(zip(ids, results, strict=True))


def _read_large(run: Run, together: Together, container: _Container) -> _Results:
    """Read a large content piece by piece; retry if it is replaced meanwhile."""
    found: _Entry = container
    for _ in range(_ATTEMPTS):
        reading = run.session.getContainers([container.id], content=False)
        [found] = together.wait(reading)
        done = 0
        try:
            if not isinstance(found, errors.BrokerError):
                for piece in pieces(run.session, found, together):
                    done += len(piece)
                    together.progress(container.id, done)
        except errors.BrokerUnavailableError:
            raise
        except errors.BrokerError as error:
            found = error
        if not isinstance(found, errors.ConflictError):
            break
    return [(container.id, found)]
