"""Departures from groups at the broker: which it stores, and what it serves then (groups.md, 9 and 12)."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tests.kit.brokers import BrokerProcess, clock
from tests.kit.groups import MANAGER, SHARER, WRITER, Group
from tests.kit.operators import admin
from tests.kit.tables import count_rows, query
from tests.kit.writers import OWNER, User, delete_user
from tests.server.conftest import NewUser, Unchanged, at_once
from tests.server.users.test_deletion_in_parts import check


class Team(NamedTuple):
    group: Group
    owner: User
    manager: User
    member: User


@pytest.fixture
def team(new_user: NewUser) -> Team:
    owner, manager, member = (new_user() for _ in range(3))
    group = Group(owner).created(
        {owner: SHARER, manager: WRITER, member: WRITER}, managers={owner: OWNER, manager: MANAGER}
    )
    return Team(group, owner, manager, member)


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["left", "deleted"])
def test_the_last_member_cannot_leave(how: str, new_user: NewUser, unchanged: Unchanged) -> None:
    alice, bob = new_user(), new_user()
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    if how == "left":
        group.leave(bob).expect(204)
    else:
        delete_user(bob).expect(204)
    with unchanged():
        group.leave(alice, 1 if how == "left" else 0).expect(422, "rejected")


def test_of_two_owners_who_leave_at_once_the_second_reads_again(new_user: NewUser) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    group = Group(alice).created(
        dict.fromkeys((alice, bob, carol), SHARER), managers={alice: OWNER, bob: OWNER}
    )
    statuses = [answer.status for answer in at_once(group.leave, [alice, bob])]
    assert sorted(statuses) == [204, 409]


def test_a_retirement_is_not_dated_before_a_departure_from_a_group(
    broker: BrokerProcess, team: Team
) -> None:
    before = clock()
    team.group.leave(team.member).expect(204)
    row = "SELECT signed_until FROM users WHERE id = ?"
    [(until,)] = query(broker.database_url, row, team.member.ring.userId.bytes)
    assert until > before


@pytest.mark.long
def test_the_keys_of_a_deleted_user_are_kept_as_long_as_a_departure_of_theirs(
    broker: BrokerProcess, team: Team
) -> None:
    group, member, url = team.group, team.member, broker.database_url
    group.leave(member).expect(204)
    delete_user(member).expect(204)
    of = "user_id = ?"
    assert count_rows(url, "key_records", of, member.ring.userId.bytes) > 0
    assert member.id in {state.userId for state in group.read(team.owner).keyChains}
    check(broker)
    group.tell(team.owner, replace(group.follow(team.owner, remove=[member]), departures=1))
    admin(broker, "sweep").expect(0)
    assert count_rows(url, "key_records", of, member.ring.userId.bytes) == 0
    check(broker)
