"""What the vectors do not show of chains of groups: docs/spec/groups.md, 4, 6, 7 and 9."""

import dataclasses
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker.errors import ForkError, IntegrityError, RollbackError
from scbroker.records import group, roster
from scbroker.records.container_record import AccessList, Via
from scbroker.records.group import GroupChain, Moment, Moments, Served
from scbroker.records.judge import Known
from scbroker.vocabulary import GroupRole
from tests.vectors.cast import DAY, START, Person, chosen
from tests.vectors.groups import Group, Step, Team

TEAM = Team()
NOW = START + 100 * DAY


def served(step: Step, **changes: Any) -> Served:
    """A record of the story with what is served with it."""
    access = None if step.made.access is None else AccessList.whole(step.made.access.salted)
    text = (step.salt, step.text) if step.introduces else None
    stored = step.stored if step.introduces else None
    found = Served(Known.parse(step.made.signed.body), access, text, stored)
    return dataclasses.replace(found, **changes)


def chain_of(steps: list[Step]) -> GroupChain:
    chain = group.begin(served(steps[0]), NOW)
    for step in steps[1:]:
        chain = group.extend(chain, served(step), NOW)
    return chain


@pytest.fixture(name="whole", scope="module")
def whole_fixture() -> GroupChain:
    return chain_of(TEAM.steps)


def refused(says: str, step: Step, before: int, **changes: Any) -> None:
    act = partial(group.extend, chain_of(TEAM.upto(before))) if before else group.begin
    with pytest.raises(IntegrityError, match=says):
        act(served(step, **changes), NOW)


def test_a_chain_says_who_manages_the_group_and_who_owns_it() -> None:
    chain = chain_of(TEAM.upto(3))
    assert chain.managers.keys() == {TEAM.alice.fingerprint, TEAM.bob.fingerprint}
    owners = [
        one.name for one in (TEAM.alice, TEAM.bob, TEAM.carol) if chain.is_owner(one.fingerprint)
    ]
    assert owners == ["alice"]
    assert chain.creator == TEAM.alice.fingerprint


def test_a_chain_knows_when_each_epoch_began_and_ended(whole: GroupChain) -> None:
    began = [START + day * DAY for day in (1, 5, 6, 12, 13, 14)]
    assert list(whole.epochs) == began
    assert [whole.end_of(epoch) for epoch in range(7)] == [*began[1:], None, None]
    assert whole.ended == START + 15 * DAY
    assert chain_of(TEAM.upto(9)).ended is None


def test_a_chain_has_the_hash_of_every_version(whole: GroupChain) -> None:
    hashes = [step.made.hash for step in TEAM.steps]
    assert [whole.hash_at(version) for version in range(1, 12)] == [*hashes, None]


def test_a_chain_is_not_changed_by_the_record_that_extends_it() -> None:
    before = chain_of(TEAM.upto(4))
    versions = list(before.moments)
    after = group.extend(before, served(TEAM.steps[4]), NOW)
    assert before == chain_of(TEAM.upto(4))
    assert (list(before.moments), list(after.moments)) == (versions, [*versions, 5])


@pytest.mark.parametrize("first", [1, 300])
def test_of_a_long_chain_every_moment_is_found_in_both_directions(first: int) -> None:
    """A broker begins with the record that it judges, and not with version 1."""
    versions = range(first, first + 1000)
    moments = Moments()
    for version in versions:
        moments = moments.adding(version, moment_of(version))
    assert len(moments) == 1000
    assert list(moments) == [*versions]
    assert list(reversed(moments)) == [*reversed(versions)]
    assert all(moments[version] == moment_of(version) for version in versions)
    for missing in (first - 1, first - 300, first + 1000, first + 2000):
        assert moments.get(missing) is None
    assert Moments().get(1) is None


@pytest.mark.parametrize("length", [5, 256, 257])
def test_two_histories_that_part_share_nothing_after_that(length: int) -> None:
    moments = Moments()
    for version in range(1, length + 1):
        moments = moments.adding(version, moment_of(version))
    one, other = (moments.adding(length + 1, moment_of(time)) for time in (1, 2))
    assert (one[length + 1].time, other[length + 1].time) == (1, 2)
    assert one[length] == other[length]
    assert length + 1 not in moments


def moment_of(time: int) -> Moment:
    return Moment(b"h" * 32, time, 0, b"m" * 32, 1)


def test_the_first_record_comes_with_its_list() -> None:
    refused("without its list", TEAM.steps[0], 0, access=None)


def test_a_record_follows_the_one_before_it_without_a_gap() -> None:
    refused("does not follow", TEAM.steps[4], 3)
    refused("does not follow", TEAM.steps[2], 3)


def test_a_record_that_keeps_the_type_comes_without_a_roster() -> None:
    refused("keeps the type", TEAM.steps[2], 2, roster=TEAM.steps[1].stored)


def test_a_record_that_changes_the_type_comes_with_type_and_roster() -> None:
    for name in ("type", "roster"):
        refused("without its type or its roster", TEAM.steps[1], 1, **{name: None})


@pytest.mark.parametrize("version", [1, 2, 4, 5, 9])
def test_a_via_names_a_governing_record_by_version_and_hash(
    version: int, whole: GroupChain
) -> None:
    step = TEAM.steps[version - 1]
    found = whole.at(TEAM.group.via(step))
    assert (found.hash, found.epoch) == (step.made.hash, step.roster.epoch)


def test_a_via_of_another_record_group_or_version_is_refused(whole: GroupChain) -> None:
    via, last = TEAM.group.via(TEAM.steps[4]), TEAM.steps[9].made.hash
    refusals: list[tuple[type[Exception], Via]] = [
        (IntegrityError, replace(via, group=chosen("another group"))),
        (ForkError, replace(via, hash=last)),
        (ForkError, replace(via, version=0)),
        (ForkError, replace(via, version=10)),
        (IntegrityError, replace(via, version=10, hash=last)),
        (RollbackError, replace(via, version=11)),
    ]
    for kind, changed in refusals:
        with pytest.raises(kind) as caught:
            whole.at(changed)
        assert caught.type is kind


def test_the_actor_is_the_member_whom_the_proof_shows(whole: GroupChain) -> None:
    step = TEAM.named("add")
    via, proof = TEAM.group.via(step), TEAM.group.prove(step, TEAM.carol)
    acting = whole.acting(via, TEAM.carol.fingerprint, proof)
    assert (acting.group, acting.role) == (TEAM.group.fingerprint, GroupRole.Sharer)
    assert (acting.since, acting.ended) == (START + 2 * DAY, START + 5 * DAY)
    assert acting.deleted == START + 15 * DAY
    assert chain_of(TEAM.upto(4)).acting(via, TEAM.carol.fingerprint, proof).ended is None
    with pytest.raises(IntegrityError, match="no membership is proved"):
        whole.acting(via, TEAM.carol.fingerprint, None)
    with pytest.raises(IntegrityError, match="not the member who was proved"):
        whole.acting(via, TEAM.bob.fingerprint, proof)


def test_a_former_member_stands_only_by_a_proof_for_the_latest_epoch() -> None:
    team, carol = TEAM.group, TEAM.carol
    chain = chain_of(TEAM.upto(7))  # Carol is a reader since version 6; 7 begins another epoch
    latest, before = TEAM.steps[6], TEAM.steps[5]

    def stands(author: Person, role: GroupRole, step: Step | None, who: Person) -> bool:
        proof = None if step is None else team.prove(step, who)
        return chain.stands(author.fingerprint, role, proof)

    assert stands(carol, GroupRole.Reader, latest, carol)
    assert not stands(carol, GroupRole.Writer, latest, carol)
    assert not stands(carol, GroupRole.Reader, None, carol)
    assert not stands(carol, GroupRole.Reader, before, carol)
    assert not stands(carol, GroupRole.Reader, latest, TEAM.bob)


def test_a_proof_for_an_earlier_roster_of_the_latest_epoch_stands() -> None:
    """Within an epoch nobody loses a leaf, and no role falls."""
    chain, early = chain_of(TEAM.upto(4)), TEAM.group.prove(TEAM.steps[0], TEAM.carol)
    assert chain.stands(TEAM.carol.fingerprint, GroupRole.Sharer, early)
    strange = roster.prove(Team("strangers").steps[0].leaves, [0])[0]
    assert not chain.stands(TEAM.carol.fingerprint, GroupRole.Reader, strange)


def test_a_departure_is_verified_by_the_keys_of_its_user_alone() -> None:
    step = TEAM.steps[1]
    chain = chain_of(TEAM.upto(2))
    members = roster.parse_leaves(step.roster, step.leaves)
    signed = TEAM.group.leave(step, TEAM.carol, START + 3 * DAY)
    keys = TEAM.carol.chain()
    assert group.verify_departure(signed, chain, members, keys, NOW) == TEAM.carol.fingerprint
    with pytest.raises(IntegrityError, match="another user's keys"):
        group.verify_departure(signed, chain, members, TEAM.bob.chain(), NOW)


def test_two_groups_of_one_creator_have_different_names() -> None:
    names = {Group(name, TEAM.alice).fingerprint for name in ("team", "others", "strangers")}
    assert len(names) == 3
    assert chain_of(TEAM.upto(1)).name == TEAM.group.fingerprint
