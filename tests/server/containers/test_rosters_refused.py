"""Records of groups that the broker refuses, each with the code of groups.md, 11."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from scbroker.records.canonical import encode_object
from scbroker.records.key_record import READER_TOLERANCE
from scbroker.records.roster import group_type
from scbroker.wire.containers import MAX_GOVERNING, MAX_GOVERNING_WITHOUT_DELETE, RecordRequest
from scbroker.wire.rosters import Leaf
from tests.kit.brokers import Answer, BrokerProcess, clock
from tests.kit.fixtures import StartBroker
from tests.kit.groups import MANAGER, READER, SHARER, WRITER, Group
from tests.kit.quotas import leave_free
from tests.kit.tables import query
from tests.kit.writers import MINUTE, OWNER, Story, User, delete_user, rotate
from tests.server.conftest import NewUser, Unchanged


class Team(NamedTuple):
    """A group of an owner, a manager and a member, and a user who is not in it."""

    group: Group
    owner: User
    manager: User
    member: User
    other: User


@pytest.fixture
def team(new_user: NewUser) -> Team:
    owner, manager, member, other = (new_user() for _ in range(4))
    group = Group(owner).created(
        {owner: SHARER, manager: WRITER, member: READER}, managers={owner: OWNER, manager: MANAGER}
    )
    return Team(group, owner, manager, member, other)


def refused(unchanged: Unchanged, answer: Callable[[], Answer], code: str) -> None:
    with unchanged():
        assert answer().code == code


Make = Callable[[Team], tuple[User, RecordRequest]]


def _by(who: str, **changes: Any) -> Make:
    def make(team: Team) -> tuple[User, RecordRequest]:
        given = {name: each(team) if callable(each) else each for name, each in changes.items()}
        author = getattr(team, who)
        return author, team.group.follow(author, **given)

    return make


def _of(made: Make, change: Callable[[Team, User, RecordRequest], RecordRequest]) -> Make:
    def make(team: Team) -> tuple[User, RecordRequest]:
        author, request = made(team)
        return author, change(team, author, request)

    return make


def _message(**changes: Any) -> Callable[[Team, User, RecordRequest], RecordRequest]:
    return lambda _team, _author, request: replace(request, **changes)


def _request(change: Callable[[Team, Any], dict[str, Any]]) -> Callable[..., RecordRequest]:
    """Change what comes with a roster; the roster stays as it is signed."""

    def changed(team: Team, _author: User, request: RecordRequest) -> RecordRequest:
        assert request.roster is not None
        return replace(request, roster=replace(request.roster, **change(team, request.roster)))

    return changed


_ADD = _by("owner", add=lambda team: {team.other: WRITER})
_REMOVE = _by("owner", remove=lambda team: [team.member])
_RENAME = _by("owner", name="Another")

INVALID: dict[str, Make] = {
    "a user both removed and with a leaf": _of(
        _ADD, _request(lambda team, _: {"removed": [team.other.name]})
    ),
    "a leaf that is stored already": _of(
        _RENAME, _request(lambda team, _: {"leaves": [Leaf.of(team.group.state.leaf(team.member))]})
    ),
    "an epoch without a wrap for each member": _of(
        _REMOVE, _request(lambda _team, r: {"wraps": r.wraps[:1]})
    ),
    "a header": _of(_RENAME, _message(header=bytes(100))),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", INVALID)
def test_a_request_with_a_roster_that_lacks_or_has_too_much_is_invalid(
    name: str, team: Team, unchanged: Unchanged
) -> None:
    author, request = INVALID[name](team)
    refused(unchanged, lambda: team.group.send(author, request), "invalid")


def test_a_manager_who_has_left_is_not_found(team: Team, unchanged: Unchanged) -> None:
    team.group.leave(team.manager).expect(204)
    request = team.group.follow(team.manager, name="Mine")
    refused(unchanged, lambda: team.group.send(team.manager, request), "not-found")


def test_an_old_key_in_a_new_leaf_is_stale(
    broker: BrokerProcess, team: Team, unchanged: Unchanged
) -> None:
    rotate(broker.database_url, team.other, encryption=1)
    request = team.group.follow(team.owner, add={team.other: READER})
    refused(unchanged, lambda: team.group.send(team.owner, request), "stale-keys")


@pytest.mark.sampled
@pytest.mark.parametrize("why", ["a newer key", "left", "deleted"])
def test_a_record_with_a_roster_that_does_not_raise_an_owed_epoch_is_stale(
    why: str, broker: BrokerProcess, team: Team, unchanged: Unchanged
) -> None:
    seen = 0
    if why == "a newer key":
        rotate(broker.database_url, team.member, encryption=1)
    elif why == "left":
        team.group.leave(team.member).expect(204)
        seen = 1
    else:
        delete_user(team.member).expect(204)
    request = team.group.follow(team.owner, add={team.other: READER})
    request = replace(request, departures=seen)
    refused(unchanged, lambda: team.group.send(team.owner, request), "stale-keys")
    membership = team.group.read(team.owner).membership
    assert membership is not None
    assert [state.userId for state in membership.owed] == [team.member.id]


def test_a_leaf_of_a_user_who_left_goes_with_the_next_epoch(
    team: Team, unchanged: Unchanged
) -> None:
    group = team.group
    group.leave(team.member).expect(204)
    kept = replace(group.follow(team.owner, raises=True, left=[team.member]), departures=1)
    refused(unchanged, lambda: group.send(team.owner, kept), "rejected")
    group.tell(team.owner, replace(group.follow(team.owner, remove=[team.member]), departures=1))


def test_the_leaf_of_a_manager_who_left_stays_until_an_owner_drops_it(
    team: Team, unchanged: Unchanged, new_user: NewUser
) -> None:
    group, manager = team.group, new_user()
    managers = {team.owner: OWNER, team.manager: MANAGER, manager: MANAGER}
    group.tell(team.owner, group.follow(team.owner, add={manager: READER}, managers=managers))
    group.leave(manager).expect(204)
    kept = replace(group.follow(team.manager, raises=True, left=[manager]), departures=1)
    group.tell(team.manager, kept)
    membership = group.read(team.manager).membership
    assert membership is not None
    assert membership.owed == []
    by_owner = replace(group.follow(team.owner, name="Another", left=[manager]), departures=1)
    refused(unchanged, lambda: group.send(team.owner, by_owner), "rejected")
    dropped = group.follow(
        team.owner, remove=[manager], managers={team.owner: OWNER, team.manager: MANAGER}
    )
    group.tell(team.owner, replace(dropped, departures=1))


def test_a_leaf_of_a_deleted_user_is_not_found(team: Team, unchanged: Unchanged) -> None:
    delete_user(team.other).expect(204)
    request = team.group.follow(team.owner, add={team.other: READER})
    refused(unchanged, lambda: team.group.send(team.owner, request), "not-found")


@pytest.mark.sampled
@pytest.mark.parametrize("tombstone", [False, True])
def test_an_epoch_does_not_end_before_a_record_that_was_made_in_it(
    tombstone: bool, broker: BrokerProcess, team: Team, unchanged: Unchanged
) -> None:
    group = team.group
    story = Story(team.member).created({team.member: OWNER, group: OWNER})
    story.tell(team.manager, story.follow(team.manager, content=b"new", via=group))
    if tombstone:
        alone = group.follow(
            team.owner, remove=[team.manager, team.member], managers={team.owner: OWNER}
        )
        group.tell(team.owner, alone)
    # As after a fault of a clock: a record made through the group is dated far ahead.
    ahead = clock() + READER_TOLERANCE + MINUTE
    query(broker.database_url, "UPDATE users SET signed_until = ? WHERE id = ?", ahead, group.id)
    change: dict[str, Any] = {"tombstone": True} if tombstone else {"remove": [team.member]}
    request = group.follow(team.owner, **change)
    refused(unchanged, lambda: group.send(team.owner, request), "clock")


@pytest.mark.long
def test_a_broker_limits_members_epochs_and_grants(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(max_group_members=2, max_new_epochs=1, max_new_grants=3)
    alice, bob, carol = (new_user(at=broker) for _ in range(3))
    group = Group(alice)
    three = dict.fromkeys((alice, bob, carol), READER)
    group.send(alice, group.begin(three)).expect(413, "too-large")
    group.created({alice: SHARER, bob: READER})
    group.send(alice, group.follow(alice, add={carol: READER})).expect(413, "too-large")
    group.tell(alice, group.follow(alice, remove=[bob]))
    group.send(alice, group.follow(alice, raises=True)).expect(429, "throttled")
    group.tell(alice, group.follow(alice, add={bob: READER}))
    others = [Group(alice).created({alice: SHARER, carol: READER}), Group(alice)]
    last = others[1].begin({alice: SHARER, carol: READER})
    others[1].send(alice, last).expect(429, "throttled")


def test_the_last_epochs_are_for_owners(broker: BrokerProcess, team: Team) -> None:
    group = team.group
    # As after so many records: the broker compares a record with the stored roster in force alone.
    for epoch, code in ((15_359, "too-large"), (15_358, "invalid")):
        stored = encode_object(replace(group.state.roster, epoch=epoch))
        query(
            broker.database_url, "UPDATE rosters SET body = ? WHERE group_id = ?", stored, group.id
        )
        request = group.follow(team.manager, raises=True)
        request = group.altered_roster(team.manager, request, epoch=epoch + 1)
        assert group.send(team.manager, request).code == code
    query(broker.database_url, "UPDATE rosters SET body = ? WHERE group_id = ?",
          encode_object(replace(group.state.roster, epoch=15_359)), group.id)  # fmt: skip
    request = group.follow(team.owner, raises=True)
    request = group.altered_roster(team.owner, request, epoch=15_360)
    assert group.send(team.owner, request).code == "invalid"  # its info has no 15,360 secrets


def test_the_records_of_a_group_have_a_bound_and_a_lower_one_for_managers(
    broker: BrokerProcess, team: Team
) -> None:
    group, row = team.group, "UPDATE containers SET governing_bytes = ? WHERE id = ?"
    query(broker.database_url, row, MAX_GOVERNING_WITHOUT_DELETE, group.id)
    by_manager = group.follow(team.manager, name="Another")
    group.send(team.manager, by_manager).expect(413, "too-large")
    group.tell(team.owner, group.follow(team.owner, name="Another"))
    query(broker.database_url, row, MAX_GOVERNING, group.id)
    renamed = group.follow(team.owner, name="A third")
    group.send(team.owner, renamed).expect(413, "too-large")


def test_a_group_counts_for_the_quota_of_its_author(
    broker: BrokerProcess, team: Team, unchanged: Unchanged
) -> None:
    leave_free(broker.database_url, team.owner, 3_000)
    request = team.group.follow(team.owner, add={team.other: READER})
    refused(unchanged, lambda: team.group.send(team.owner, request), "quota")


def test_a_container_of_another_kind_takes_no_type_of_a_group(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    story = Story(alice).created()
    request = story.follow(alice, type=group_type(b"roster"))
    refused(unchanged, lambda: story.send(alice, request), "rejected")
    first = Story(alice)
    refused(
        unchanged, lambda: first.send(alice, first.begin(type=group_type(b"roster"))), "invalid"
    )
