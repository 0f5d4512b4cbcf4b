"""Long chains, many groups, contradictions of a broker, and programs that share their marks."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, MemoryTrustStore
from scbroker.client.core.judging import Mark
from scbroker.client.groups import opening as kept
from scbroker.client.users.directory import Directory
from scbroker.records.canonical import encode_value
from scbroker.records.roster import Member
from scbroker.wire.groups import GroupViews
from scbroker.wire.users import KeyChainState
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.test_directory import directory, mark, members, run
from tests.client.groups.views import changed_membership, in_pages, serve, view_of
from tests.kit.groups import READER, SHARER, Group
from tests.kit.network import lying
from tests.kit.writers import User

VIEWS = (GroupViews,)
NewUser = Callable[[], User]


def test_a_roster_without_the_reader_is_refused(new_user: NewUser, device: Device) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, carol: READER})
    view = view_of(team, team.requests, reader=carol)
    with lying(serve(view), about=VIEWS):
        refusal(device(bob).getGroupMembers(team.uuid), BrokerError.integrityError, "leaf")


@pytest.mark.process
def test_another_program_that_reads_further_makes_this_one_read_again(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    store = MemoryTrustStore()
    one, other = device(bob, store), device(bob, store)
    left = [other]

    def read_further(answer: GroupViews) -> GroupViews:
        if left:
            team.tell(alice, team.follow(alice, name="Other"))
            raise_mark(left.pop()._session().marks, team)
        return answer

    with lying(read_further, about=VIEWS) as answers:
        assert members(one, team).keys() == {alice.ring.userId, bob.ring.userId}
    assert len(answers) == 2
    assert mark(one, team) == 2


@pytest.mark.process
def test_a_group_whose_mark_moves_all_the_time_is_a_conflict(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    provider = device(bob)
    marks = provider._session().marks

    def read_further(answer: GroupViews) -> GroupViews:
        team.tell(alice, team.follow(alice, name="Other"))
        raise_mark(marks, team)
        return answer

    with lying(read_further, about=VIEWS):
        refusal(provider.getGroupMembers(team.uuid), BrokerError.conflictError, "faster")
    with lying(lambda answer: in_pages(2)(read_further(answer)), about=VIEWS):
        refusal(provider.getGroupMembers(team.uuid), BrokerError.conflictError, "faster")


def raise_mark(marks: Any, team: Group) -> None:
    """As another program does that has read the group to its head."""
    stored, version = marks.get(kept.PIN, team.id), team.head.version
    pin = kept.pin_of(marks, team.uuid) or kept.Pin(team.name, first_mark(team))
    moved = replace(pin.mark, version=version, hash=team.hash(team.head))
    assert marks.swap(kept.PIN, team.id, stored, encode_value(replace(pin, mark=moved)))


def first_mark(team: Group) -> Mark:
    first = team.records[0]
    digest = team.hash(first)
    return Mark(1, digest, 1, digest, True, first.author, first.time)


def test_members_that_another_program_verified_later_are_kept(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    provider = device(bob)
    members(provider, team)
    marks, groups = provider._session().marks, directory(provider)
    first = run(groups.opened(team.uuid))
    team.tell(alice, team.follow(alice, roles={bob: SHARER}))
    members(provider, team)
    kept.keep_verified(marks, team.uuid, first.chain, first.leaves)
    found = kept.verified_of(marks, team.uuid)
    assert found is not None
    assert found.before[1][bob.name] == Member(bob.name, 0, SHARER, 2)
    kept.note(marks, team.uuid, departed=2)
    members(provider, team)
    again = kept.verified_of(marks, team.uuid)
    assert again is not None
    assert again.departed == 2


@pytest.mark.sampled
@pytest.mark.parametrize("keys", ["none", "unknown"])
@pytest.mark.parametrize("of", ["author", "leaver", "owed member"])
def test_a_broker_that_does_not_know_a_user_of_a_group_contradicts_itself(
    new_user: NewUser, device: Device, monkeypatch: pytest.MonkeyPatch, of: str, keys: str
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    provider = device(alice)
    if of != "author":
        members(provider, team)
    if of == "leaver":
        team.leave(bob).expect(204)
    owed = [KeyChainState(userId=bob.id, sequence=0)] if of == "owed member" else []

    async def answer(*_: object) -> dict[Any, Any]:
        if keys == "unknown" or of == "owed member":
            raise BrokerError.notFoundError("No such user.")
        return {}

    monkeypatch.setattr(Directory, "latest" if owed else "at_least", answer)
    with lying(changed_membership(owed=owed), about=VIEWS):
        refusal(provider.getGroupMembers(team.uuid), BrokerError.integrityError)
