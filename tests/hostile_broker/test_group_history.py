"""Attacks on the history of a group, by former managers and members with a broker that helps them.

Attacks 125 to 128 of attacks.toml. A group is its container: no key of its own goes on after a manager was
removed, nobody else can make records of it, and no other container takes its place.
"""

import pytest

from scbroker.errors import NotFoundError
from scbroker.records.key_record import RETIRED
from scbroker.vocabulary import KeyType
from scbroker.wire.groups import GroupOutcome, GroupViews
from tests.hostile_broker.accomplices import Mallory, fresh_and_marked
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import FORK, GROUPS, INTEGRITY, KEYS, ROLLBACK
from tests.hostile_broker.teams import Stage, everything, fork, member_device, view_of_group
from tests.kit.groups import MANAGER, SHARER, WRITER, Group
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Step, Story, User, chain_of, key_records


def begun(alice: User, bob: User, carol: User) -> Group:
    """Alice's group, with Bob as a manager and Carol as a writer."""
    team = Group(alice)
    members = {alice: SHARER, bob: SHARER, carol: WRITER}
    team.took(team.begin(members, managers={alice: OWNER, bob: MANAGER}))
    return team


def without_bob(team: Group, alice: User, bob: User) -> Group:
    """The group once Alice has removed Bob."""
    after = fork(team)
    after.took(after.follow(alice, remove=[bob], managers={alice: OWNER}))
    return after


def reached_by(team: Group, alice: User) -> Story:
    """A container of Alice that the group can reach."""
    story = Story(alice)
    story.took(story.begin({alice: OWNER, team: OWNER}))
    return story


@pytest.mark.sampled
@pytest.mark.parametrize("who", ["a former manager", "an accomplice"])
@fresh_and_marked
def test_what_a_user_adds_to_a_group_who_is_not_a_manager_at_that_moment_is_refused(
    mallory: Mallory, marked: bool, who: str, alice: User, bob: User, carol: User, eve: User
) -> None:
    removed = without_bob(begun(alice, bob, carol), alice, bob)
    story = reached_by(removed, alice)
    device = (
        member_device(mallory, carol, removed, known=[eve])
        if marked
        else mallory.device_of(carol, alice, bob, eve)
    )
    removed.took(removed.follow(bob if who == "a former manager" else eve, add={eve: SHARER}))
    with Stage(mallory, carol, [story], [removed], through=removed):
        mallory.check_refused(device, story, INTEGRITY)


def test_a_group_before_the_removal_is_a_rollback_for_a_device_that_saw_it(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team = begun(alice, bob, carol)
    story = reached_by(team, alice)
    device = member_device(mallory, carol, without_bob(team, alice, bob))
    with Stage(mallory, carol, [story], [team], through=team):
        mallory.check_refused(device, story, ROLLBACK)


def test_a_fresh_device_that_meets_the_broker_and_a_former_manager_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User, eve: User
) -> None:
    """The device accepts the forged group until a record names a version that the broker cannot serve."""
    team = begun(alice, bob, carol)
    story, removed, forged = reached_by(team, alice), without_bob(team, alice, bob), fork(team)
    forged.took(forged.follow(bob, add={eve: SHARER}))
    device = mallory.device_of(carol, alice, bob)
    with Stage(mallory, carol, [story], [forged], [removed], through=forged):
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
        story.took(story.follow(alice, content=b"new", via=removed))
        mallory.check_refused(device, story, FORK)


@fresh_and_marked
def test_a_signing_key_that_a_former_manager_retires_back_in_time_is_the_limit(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """A device without marks refuses the group from his first record on: the rest is withheld for good."""
    team = begun(alice, bob, carol)
    team.took(team.follow(bob, name="Renamed"))
    story, removed = reached_by(team, alice), without_bob(team, alice, bob)
    device = member_device(mallory, carol, removed) if marked else mallory.device_of(carol, alice)
    ring, keys = bob.ring.next(2, fresh=True), chain_of(bob)
    introduced = keys.keys[KeyType.Signing, 0].introduced
    retired = key_records(
        ring,
        keys,
        Step(KeyType.Signing, 1, time=introduced),
        Step(KeyType.Signing, 0, RETIRED, introduced),
    )
    with (
        Stage(mallory, carol, [story], [removed], through=removed),
        mallory.serving_keys(bob, [*keys.records, *retired]),
    ):
        if marked:
            assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
        else:
            with pytest.raises(INTEGRITY):  # Bob's keys are pinned, and nothing of the group
                device.getContainer(story.uuid).result(PATIENCE)
            mallory.check_refused(device, story, INTEGRITY)


@pytest.mark.long
def test_a_roster_of_another_group_is_refused(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Bob manages both groups, and signs a record of the one with the roster of the other."""
    team = begun(alice, bob, carol)
    story, other = reached_by(team, alice), Group(bob)
    other.took(other.begin({bob: SHARER, carol: WRITER}))
    device = member_device(mallory, carol, team)
    forged = team.altered_roster(bob, team.follow(bob, rerolls=True), group=other.name)
    team.took(forged)
    with Stage(mallory, carol, [story], [team], through=team):
        mallory.check_refused(device, story, INTEGRITY)


def test_two_records_of_one_version_of_a_group_are_a_fork_for_a_device_that_saw_one(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The broker refused Alice's first removal of Bob, kept it, and shows it to Carol alone."""
    team = begun(alice, bob, carol)
    story = reached_by(team, alice)
    first, second = without_bob(team, alice, bob), without_bob(team, alice, bob)
    device = member_device(mallory, carol, first)
    with Stage(mallory, carol, [story], [second], through=second):
        mallory.check_refused(device, story, FORK)


def test_nothing_is_wrapped_to_the_key_of_a_group_in_place_of_a_user(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team, device = begun(alice, bob, carol), mallory.device_of(alice)

    def lie(exchange: Exchange) -> None:
        [asked] = exchange.message.groups
        view = view_of_group(team, alice, asked)
        exchange.invent(GroupViews(groups=[GroupOutcome(view=view, problem=None)]))

    with (
        mallory.failing(KEYS, NotFoundError("No such user.")),
        mallory.meddling(GROUPS, before=lie),
        mallory.refused(device, INTEGRITY) as attempt,
    ):
        attempt(device.createContainer(b"secret", accessLevels=[everything(bob)]))
