"""Chains of groups, as far as no vector shows it: docs/spec/groups.md, 4, 7 and 9."""

import dataclasses

import pytest
from msgspec.structs import replace

from scbroker.errors import IntegrityError
from scbroker.records import group, roster
from scbroker.records.container_record import AccessList
from scbroker.records.group import Moment, Moments, Served
from scbroker.records.judge import Known
from tests.vectors.cast import DAY, START
from tests.vectors.groups import Step, Team


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


def served(step: Step) -> Served:
    """A record of the story with what is served with it."""
    access = None if step.made.access is None else AccessList.whole(step.made.access.salted)
    text = (step.salt, step.text) if step.introduces else None
    stored = step.stored if step.introduces else None
    return Served(Known.parse(step.made.signed.body), access, text, stored)


def test_what_is_served_beside_a_record_of_a_group_belongs_to_it() -> None:
    team, now = Team(), START + 100 * DAY
    first, second, third = (served(step) for step in team.steps[:3])
    chain = group.extend(group.begin(first, now), second, now)
    via = replace(team.group.via(team.steps[1]), group=bytes(32))
    members = roster.parse_leaves(team.steps[1].roster, team.steps[1].leaves)
    left = team.group.leave(team.steps[1], team.carol, START + 3 * DAY)
    for act in (
        lambda: group.begin(dataclasses.replace(first, access=None), now),
        lambda: group.extend(chain, second, now),
        lambda: group.extend(chain, dataclasses.replace(third, roster=second.roster), now),
        lambda: chain.at(via),
        lambda: group.verify_departure(left, chain, members, team.bob.chain(), now),
    ):
        with pytest.raises(IntegrityError):
            act()
