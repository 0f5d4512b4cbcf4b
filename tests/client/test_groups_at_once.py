"""Several managers who change a group at the same moment, from threads and devices of their own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from scbroker import BrokerError, Group, KeyRing, MemberRole, Promise, ServerProvider, WriteOutcome
from tests.client.conftest import id_of
from tests.client.rosters.conftest import SHARER, WRITER, accepted, roles, seen, team
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


@pytest.mark.long
@both_engines
def test_managers_who_want_the_same_at_once_make_one_record(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, user_pool: Users
) -> None:
    group, user = managed(alice, bob, carol), user_pool(3)[2].userId
    managers = (alice, bob, carol)
    adds = at_once(*[lambda m=m: m.addGroupMembers(group, user) for m in managers])
    assert {(each.version, each.epoch) for each in good(adds)} == {(2, 0)}
    removals = at_once(*[lambda m=m: m.removeGroupMembers(group, user) for m in managers])
    assert {(each.version, each.epoch) for each in good(removals)} == {(3, 1)}


@pytest.mark.long
@both_engines
def test_of_managers_who_give_a_member_different_roles_at_once_one_succeeds(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, user_pool: Users
) -> None:
    """Each of the others reads that somebody else was faster, and nothing of theirs is stored."""
    group, user = managed(alice, bob, carol), user_pool(3)[2].userId
    wishes = list(zip((alice, bob, carol), ("Reader", "Writer", "Sharer"), strict=True))
    outcomes = at_once(
        *[lambda m=m, r=r: m.addGroupMembers(group, MemberRole(user, r)) for m, r in wishes]
    )
    [winner] = [number for number, each in enumerate(outcomes) if isinstance(each, Group)]
    assert roles(alice, group)[user].name == wishes[winner][1]
    for each in outcomes:
        if isinstance(each, BrokerError):
            assert each.code in ("conflict", "invalid")
            assert each.outcome is WriteOutcome.NotStored
    after = seen(bob, group)
    assert after is not None
    assert after.version == 2


@both_engines
def test_a_member_who_is_added_and_removed_at_once_is_a_member_or_not_for_all_alike(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, user_pool: Users
) -> None:
    group, user = managed(alice, bob, carol), user_pool(3)[2].userId
    added, removed = good(
        at_once(
            lambda: alice.addGroupMembers(group, user), lambda: bob.removeGroupMembers(group, user)
        )
    )
    assert added.version == 2
    assert (user in roles(carol, group)) == (removed.epoch == 0)  # removed before, or after
    assert roles(alice, group) == roles(bob, group) == roles(carol, group)
