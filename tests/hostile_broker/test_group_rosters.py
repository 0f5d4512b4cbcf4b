"""Attacks on the roster of a group: a broker serves a part of a change, or a manager signs a wrong one.

Attacks 136 to 139 of attacks.toml. One record names list, members, key and info of a group. A member compares
each of them with the record, and the secret with the signed key, before they use the group.
"""

from collections.abc import Callable, Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ServerProvider
from scbroker.records import roster as grammar
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import RecordRequest
from scbroker.wire.groups import GroupView, GroupViewRequest
from scbroker.wire.rosters import MemberWrap
from tests.hostile_broker.accomplices import Mallory, records_of
from tests.hostile_broker.protocol import DECRYPTION, INTEGRITY
from tests.hostile_broker.served import same
from tests.hostile_broker.teams import Stage, fork, member_device, view_of_group
from tests.kit.brokers import clock
from tests.kit.crypto import WRAP_SIZE, DecryptionKey, random_bytes, sha256, wrap_key
from tests.kit.groups import MANAGER, SHARER, WRITER, Group
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, Story, User, rotate


def begun(alice: User, bob: User, carol: User) -> Group:
    """Alice's group, four minutes old. Bob manages it as well, and Carol is a member."""
    team, members = Group(alice), {alice: SHARER, bob: SHARER, carol: WRITER}
    managers = {alice: OWNER, bob: MANAGER}
    team.took(team.begin(members, managers=managers, time=clock() - 4 * MINUTE))
    return team


def check_refused(
    mallory: Mallory, device: ServerProvider, story: Story, team: Group, error: type[BrokerError]
) -> None:
    """Nothing of the group is shown, and nothing is read or sealed through it.

    The mark of its records is kept once these were verified; nothing else changes.
    """
    with pytest.raises(BrokerError) as caught:
        device.getGroupMembers(team.uuid).result(PATIENCE)
    assert type(caught.value) is error
    with mallory.refused(device, error) as attempt:
        attempt(device.getGroupMembers(team.uuid))
        attempt(device.getContainerContent(story.uuid))
        attempt(device.updateContainerContent(story.uuid, b"secret"))


Half = Callable[[GroupView, GroupView], GroupView]
"""From the views before and after a removal, what the broker serves."""


def _of_membership(*names: str) -> Half:
    """Serve these parts of the membership as they were before."""

    def lie(before: GroupView, after: GroupView) -> GroupView:
        assert before.membership is not None
        assert after.membership is not None
        old = {name: getattr(before.membership, name) for name in names}
        return replace(after, membership=replace(after.membership, **old))

    return lie


def _of_record(*names: str) -> Half:
    """Serve these parts of the last record as they were before."""

    def lie(before: GroupView, after: GroupView) -> GroupView:
        *others, last = after.records
        old = {name: getattr(before.records[-1], name) for name in names}
        return replace(after, records=[*others, replace(last, **old)])

    return lie


def _without(name: str) -> Half:
    def lie(_: GroupView, after: GroupView) -> GroupView:
        *others, last = after.records
        return replace(after, records=[*others, replace(last, **{name: None})])

    return lie


def _without_a_record(_: GroupView, after: GroupView) -> GroupView:
    return replace(after, records=[after.records[0], *after.records[2:]])


def _without_membership(_: GroupView, after: GroupView) -> GroupView:
    return replace(after, membership=None)


def _without_wrap(_: GroupView, after: GroupView) -> GroupView:
    assert after.membership is not None
    return replace(after, membership=replace(after.membership, wrap=None))


def _all(*some: Half) -> Half:
    def lie(before: GroupView, after: GroupView) -> GroupView:
        for half in some:
            after = half(before, after)
        return after

    return lie


HALVES: Final[Mapping[str, tuple[Half, type[BrokerError]]]] = {
    "the members of before": (_of_membership("leaves"), INTEGRITY),
    "the wrap of before": (_of_membership("wrap"), DECRYPTION),
    "no wrap": (_without_wrap, DECRYPTION),
    "the info of before": (_of_membership("info"), INTEGRITY),
    "members, wrap and info of before": (_of_membership("leaves", "wrap", "info"), INTEGRITY),
    "the roster of before": (_of_record("roster"), INTEGRITY),
    "type and roster of before": (_of_record("type", "roster"), INTEGRITY),
    "everything but the record": (
        _all(_of_record("type", "roster"), _of_membership("leaves", "wrap", "info")),
        INTEGRITY,
    ),
    "no roster": (_without("roster"), INTEGRITY),
    "no type": (_without("type"), INTEGRITY),
    "the removal left out": (_without_a_record, INTEGRITY),
    "no membership": (_without_membership, INTEGRITY),
}


@pytest.mark.sampled
@pytest.mark.parametrize("half", HALVES)
def test_no_part_of_a_group_is_served_as_it_was_before_a_change(
    mallory: Mallory, half: str, alice: User, bob: User, carol: User
) -> None:
    lie, error = HALVES[half]
    before = begun(alice, bob, carol)
    story, team = Story(alice), fork(before)
    story.took(story.begin({alice: OWNER, before: OWNER}))
    team.took(team.follow(alice, remove=[bob], managers={alice: OWNER}))
    if half == "the removal left out":
        team.took(team.follow(alice, name="Renamed"))
    device = member_device(mallory, carol, team)
    asked = GroupViewRequest(groupId=team.group_id, membership=True)
    old = view_of_group(before, carol, asked)
    stage = Stage(mallory, carol, [story], [team], through=team)
    stage.group = lambda view: lie(old, view)
    with stage:
        check_refused(mallory, device, story, team, error)
        stage.group = same
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"


def _by_bob(team: Group, bob: User, carol: User) -> SignedObject:
    """Carol's departure, signed by Bob."""
    said = team.departure(carol).departure
    signature = bob.ring.signing[0].sign(grammar.DEPARTURE_LABEL, said.body)
    return SignedObject(body=said.body, signature=signature)


DEPARTURES: Final[Mapping[str, Callable[[Group, User, User], SignedObject]]] = {
    "signed by another member": _by_bob,
    "from another group": lambda team, _, carol: team.departure(carol, group=bytes(32)).departure,
    "from another membership": lambda team, _, carol: team.departure(carol, version=9).departure,
    "from before the membership": lambda team, _, carol: (
        team.departure(carol, time=team.head.time - 1).departure
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("departure", DEPARTURES)
def test_no_member_leaves_by_a_departure_that_they_did_not_sign_for_this_membership(
    mallory: Mallory, departure: str, alice: User, bob: User, carol: User
) -> None:
    """With it, the broker would have a manager drop Carol."""
    team = begun(alice, bob, carol)
    device = member_device(mallory, alice, team)
    said = DEPARTURES[departure](team, bob, carol)
    stage = Stage(mallory, alice, [], [team], departures={team: [said]})
    with stage, mallory.refused(device, INTEGRITY) as attempt:
        attempt(device.getGroupMembers(team.uuid))
        attempt(device.renameGroup(team.uuid, "Renamed"))


def test_no_manager_wraps_a_groups_key_to_a_key_that_a_member_has_replaced(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The broker serves Alice's fresh device a shortened chain of Carol's, which ends with the stolen key."""
    team, old_keys = begun(alice, bob, carol), records_of(carol)
    renewed = rotate(mallory.behind.database_url, carol, encryption=1)
    team.took(team.follow(alice, keys={carol: renewed}))
    device = mallory.device_of(alice, bob)
    stage = Stage(mallory, alice, [], [team])
    with stage, mallory.serving_keys(carol, old_keys):
        device.getPublicKeys(carol.ring.userId).result(PATIENCE)
        with pytest.raises(INTEGRITY):
            device.getGroupMembers(team.uuid).result(PATIENCE)
        with mallory.refused(device, INTEGRITY) as attempt:
            attempt(device.getGroupMembers(team.uuid))
            attempt(device.removeGroupMembers(team.uuid, bob.ring.userId))


Spoil = Callable[[Group, User, RecordRequest, User], RecordRequest]


def _with_wrap(make: Callable[[Group, User], bytes]) -> Spoil:
    def spoil(team: Group, _: User, request: RecordRequest, carol: User) -> RecordRequest:
        assert request.roster is not None
        wraps = [
            MemberWrap(fingerprint=item.fingerprint, wrap=make(team, carol))
            if item.fingerprint == carol.name
            else item
            for item in request.roster.wraps
        ]
        return replace(request, roster=replace(request.roster, wraps=wraps))

    return spoil


def _of_another_secret(team: Group, carol: User) -> bytes:
    """A wrap for Carol that is right, but for what it holds."""
    state = team._made[next(reversed(team._made))]
    commitment = state.epochs[-1].commitment
    info = grammar.wrap_info(team.name, state.epoch, commitment, carol.name, 0)
    return wrap_key(carol.ring.encryption[0].public, info, random_bytes(32))


def _another_public_key(team: Group, bob: User, request: RecordRequest, _: User) -> RecordRequest:
    return team.altered_roster(bob, request, publicKey=DecryptionKey.generate().public)


def _another_commitment(team: Group, bob: User, request: RecordRequest, _: User) -> RecordRequest:
    return team.altered_roster(bob, request, commitment=random_bytes(32))


SPOILT: Final[Mapping[str, tuple[Spoil, type[BrokerError]]]] = {
    "rubbish as a wrap": (_with_wrap(lambda *_: bytes(WRAP_SIZE)), DECRYPTION),
    "a wrap of another secret": (_with_wrap(_of_another_secret), INTEGRITY),
    "a key that is not the secret's": (_another_public_key, INTEGRITY),
    "a commitment to another secret": (_another_commitment, DECRYPTION),
}


@pytest.mark.sampled
@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_secret_that_is_not_the_one_that_was_signed_is_not_used(
    mallory: Mallory, spoilt: str, alice: User, bob: User, carol: User
) -> None:
    """Bob manages the group, and gives Carol something else than he signed."""
    spoil, error = SPOILT[spoilt]
    team = begun(alice, bob, carol)
    story = Story(alice)
    story.took(story.begin({alice: OWNER, team: OWNER}))
    team.took(spoil(team, bob, team.follow(bob, raises=True), carol))
    device = mallory.device_of(carol, alice, bob)
    with Stage(mallory, carol, [story], [team], through=team):
        check_refused(mallory, device, story, team, error)
        # Another manager mends it by another epoch.
        team.took(team.follow(alice, raises=True))
        device.getGroupMembers(team.uuid).result(PATIENCE)


def test_no_secret_of_an_ended_epoch_is_used_that_is_not_the_one_that_was_signed(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Bob hands on another one in the info of the next epoch. Carol's new device has no other source."""
    team = begun(alice, bob, carol)
    story = Story(alice)
    story.took(story.begin({alice: OWNER, team: OWNER}))
    request = team.follow(bob, raises=True)
    newest = team._made[request.record.body].epochs[-1]
    sealed = team.sealed_info((team.new_epoch(0), newest), "Team", "")
    team.took(team.altered_roster(bob, request, info=sha256(sealed)))
    device = mallory.device_of(carol, alice, bob)

    def lie(view: GroupView) -> GroupView:
        if view.membership is None:
            return view
        return replace(view, membership=replace(view.membership, info=sealed))

    with Stage(mallory, carol, [story], [team], through=team, group=lie):
        device.getGroupMembers(team.uuid).result(PATIENCE)
        with pytest.raises(BrokerError) as caught:
            device.getContainerContent(story.uuid).result(PATIENCE)
        assert type(caught.value) is INTEGRITY


@pytest.mark.sampled
@pytest.mark.parametrize("who", ["an owner", "a member who keeps the key"])
def test_a_list_of_members_that_devices_refuse_shuts_the_group_which_is_the_limit(
    mallory: Mallory, who: str, alice: User, bob: User, carol: User
) -> None:
    """Bob leaves somebody out whom he must not leave out. Nobody acts through the group, or repairs it."""
    gone, reader = (alice, carol) if who == "an owner" else (carol, alice)
    team, story = begun(alice, bob, carol), Story(alice)
    story.took(story.begin({alice: OWNER, team: OWNER}))
    device = member_device(mallory, reader, team)
    team.took(team.follow(bob, remove=[gone], raises=gone is alice))
    with Stage(mallory, reader, [story], [team], through=team):
        check_refused(mallory, device, story, team, INTEGRITY)
        with mallory.refused(device, INTEGRITY) as attempt:
            attempt(device.renameGroup(team.uuid, "Repaired", "with another key"))


def test_an_epoch_that_a_manager_dates_back_makes_readers_refuse_records_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The records are withheld for good, but readers accept nothing else in their place."""
    team = begun(alice, bob, carol)
    story = Story(alice)
    story.took(story.begin({alice: OWNER, team: OWNER}))
    device = member_device(mallory, carol, team, story)
    story.took(story.follow(alice, content=b"honest", via=team, time=clock() + 14 * MINUTE))
    team.took(team.follow(bob, raises=True, time=team.head.time))
    with Stage(mallory, carol, [story], [team], through=team):
        device.getGroupMembers(team.uuid).result(PATIENCE)
        mallory.check_refused(device, story, INTEGRITY)


def test_an_honest_broker_takes_no_epoch_that_is_dated_back(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = Group(alice).created({alice: SHARER, bob: SHARER}, managers={alice: OWNER, bob: MANAGER})
    bob = rotate(
        mallory.behind.database_url, bob, signing=1
    )  # with a key that is older than the date
    late = team.follow(bob, raises=True, time=clock() - 6 * MINUTE)
    team.send(bob, late).expect(422, "clock")


def test_an_honest_broker_ends_no_epoch_before_a_record_that_was_made_in_it(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """It has a record of the epoch that was dated when a clock was ahead."""
    team = Group(alice).created({alice: SHARER, bob: SHARER}, managers={alice: OWNER, bob: MANAGER})
    ahead, time = "UPDATE users SET signed_until = ? WHERE id = ?", clock()
    mallory.query(ahead, time + 15 * MINUTE, team.id)
    raised = team.follow(bob, raises=True, time=time)
    team.send(bob, raised).expect(422, "clock")
    mallory.query(ahead, time + 15 * MINUTE - 1, team.id)
    team.tell(bob, raised)
