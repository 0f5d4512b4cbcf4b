"""Several managers who change a group at the same moment, from threads and devices of their own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from scbroker import BrokerError, Group, KeyRing, MemberRole, Promise, ServerProvider
from tests.client.conftest import id_of
from tests.client.rosters.conftest import SHARER, WRITER, accepted, roles, team
from tests.kit.both_engines import both_engines
from tests.kit.waiting import PATIENCE

Users = Callable[[int], list[KeyRing]]
Start = Callable[[], Promise[Group]]


def at_once(*starts: Start) -> list[Group | BrokerError]:
    """Start operations at the same moment; return how each ended."""
    together = Barrier(len(starts))

    def run(start: Start) -> Group | BrokerError:
        together.wait(PATIENCE)
        try:
            return start().result(PATIENCE)
        except BrokerError as error:
            return error

    with ThreadPoolExecutor(len(starts)) as threads:
        return list(threads.map(run, starts))


def good(outcomes: Sequence[Group | BrokerError]) -> Iterator[Group]:
    for each in outcomes:
        assert isinstance(each, Group), each
        yield each


def managed(alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, *more: Any) -> Group:
    """A group of alice's that bob and carol manage, with further members."""
    group = team(alice, bob, carol, *more, managers=[id_of(bob), id_of(carol)])
    return accepted(group, bob, carol)


@pytest.mark.long
@both_engines
def test_managers_who_add_and_remove_different_members_at_once_lose_no_change(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, user_pool: Users
) -> None:
    users = [ring.userId for ring in user_pool(8)[2:]]
    old, new = users[:3], users[3:]
    group = managed(alice, bob, carol, *map(MemberRole, old))
    managers = (alice, bob, carol)
    outcomes = at_once(
        *[lambda m=m, u=u: m.addGroupMembers(group, u) for m, u in zip(managers, new, strict=True)],
        *[lambda m=m, u=u: m.removeGroupMembers(group, u) for m, u in zip(managers, old, strict=True)],
    )  # fmt: skip
    found = list(good(outcomes))
    assert sorted(each.version for each in found) == [2, 3, 4, 5, 6, 7]
    assert max(each.epoch for each in found) == 3
    expected = {id_of(alice): SHARER, **dict.fromkeys([id_of(bob), id_of(carol), *new], WRITER)}
    assert roles(bob, group) == roles(carol, group) == expected
