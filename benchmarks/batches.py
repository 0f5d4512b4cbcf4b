"""Measure batches of containers against single calls of the same client."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.result import Result, interleaved, rate
from benchmarks.small import CONTENT, HEADER, Stage
from scbroker import AccessChange, AccessLevel, BrokerError, ContainerAccessLevel, NewContainer
from tests.kit.brokers import BrokerProcess

_BATCH: Final = 64
_LARGE: Final = 512
_AS_FAST: Final = 1.0
_WRITER: Final = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload
_TIMES: Final = 3
_SETS: Final = 1 + 5 * _TIMES
_PATIENCE: Final = 60.0


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run with one client on SQLite; `quick` changes nothing."""
    del quick
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder / "batches"))
        stage = Stage(broker, stack)
        singly, together = _unread(stage), _unread(stage)
        read, many = create(stage, stage.two), create(stage, stage.two, _LARGE)
        return [
            _beside("createContainers", 1800,
                    lambda: create(stage), lambda: _create_singly(stage)),
            _beside("getContainers, not read before", 2500,
                    lambda: _get(stage, next(together)), lambda: _get_singly(stage, next(singly))),
            _beside("getContainers, read before", 4500,
                    lambda: _get(stage, read), lambda: _get_singly(stage, read)),
            _changes(stage),
            _in_one_call("createContainers",
                         lambda: create(stage, count=_LARGE), lambda: create(stage)),
            _in_one_call("getContainers, read before",
                         lambda: _get(stage, many), lambda: _get(stage, read)),
            _grants(stage, stage.two),
            _grants(stage, stage.ten),
        ]  # fmt: skip


def _beside(
    name: str, at_least: float, together: Callable[[], object], singly: Callable[[], object]
) -> Result:
    batch, single = interleaved([together, singly], _TIMES)
    return rate(
        f"{name}, {_BATCH} of 1 KiB", _BATCH / batch, "/s", _BATCH / single, "one by one",
        at_least=at_least,
    )  # fmt: skip


def _changes(stage: Stage) -> Result:
    """Measure changes of access: each makes a container key, and wraps it for both members."""
    ids, him = create(stage, stage.two), stage.two[1].userId
    levels = itertools.cycle([AccessLevel(him, _WRITER), stage.two[1]])

    def change(calls: list[list[uuid.UUID]]) -> None:
        access = [stage.two[0], next(levels)]
        for some in calls:
            changes = [AccessChange(each, replace=access) for each in some]
            good(stage.alice.updateContainersAccessLevels(changes).result(_PATIENCE))

    return _beside(
        "updateContainersAccessLevels, 2 members", 1500,
        lambda: change([ids]), lambda: change([[each] for each in ids]),
    )  # fmt: skip


def _in_one_call(name: str, many: Callable[[], object], some: Callable[[], object]) -> Result:
    """Measure a call of many containers beside calls of a batch, which is one request."""
    large, small = interleaved([many, some], 1)
    return rate(
        f"{name}, {_LARGE} of 1 KiB", _LARGE / large, "/s", _BATCH / small, f"{_BATCH} in a call",
        ratio_at_least=_AS_FAST,
    )  # fmt: skip


def _grants(stage: Stage, access: list[AccessLevel]) -> Result:
    """Measure grants, each of which wraps a new key for every member, beside the creation of as many."""
    ids, him = create(stage, access), access[1].userId
    levels = itertools.cycle([AccessLevel(him, _WRITER), access[1]])
    grant, new = interleaved(
        [
            lambda: good(stage.alice.grantAccess(ids, next(levels)).result(_PATIENCE)),
            lambda: create(stage, access),
        ],
        _TIMES,
    )
    return rate(
        f"grantAccess, {_BATCH} of {len(access)} members", _BATCH / grant, "/s", _BATCH / new,
        "createContainers", ratio_at_least=_AS_FAST,
    )  # fmt: skip


def create(stage: Stage, access: Any = None, count: int = _BATCH) -> list[uuid.UUID]:
    new = [NewContainer(CONTENT, HEADER, access) for _ in range(count)]
    return [made.id for made in good(stage.alice.createContainers(new).result(_PATIENCE))]


def _create_singly(stage: Stage) -> None:
    for _ in range(_BATCH):
        stage.create()


def _get(stage: Stage, ids: list[uuid.UUID]) -> None:
    good(stage.bob.getContainers(ids).result(_PATIENCE))


def _get_singly(stage: Stage, ids: list[uuid.UUID]) -> None:
    for container_id in ids:
        stage.bob.getContainer(container_id).result(_PATIENCE)


def _unread(stage: Stage) -> Iterator[list[uuid.UUID]]:
    """Return an iterator of batches of containers that Bob has not read yet."""
    return iter([create(stage, stage.two) for _ in range(_SETS)])


def good(found: list[Any]) -> list[Any]:
    """Return the results; raise the first error among them."""
    for each in found:
        if isinstance(each, BrokerError):
            raise each
    return found
