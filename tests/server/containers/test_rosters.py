"""Records of groups at the broker: which it stores, and what it serves of them (groups.md, 11 and 12)."""

import pytest

from scbroker.records.roster import parse_leaves
from scbroker.wire.rosters import salted
from tests.kit.groups import READER, SHARER, WRITER, Group, groups_of
from tests.server.conftest import NewUser


@pytest.mark.long
def test_a_new_group_is_served_to_its_members_with_wrap_and_info(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created(
        {alice: SHARER, bob: READER}, name="Rocket", description="To the moon"
    )
    view = team.read(bob)
    [record] = view.records
    assert view.last == 1
    assert record.roster == team.state.body
    assert view.membership is not None
    assert view.membership.wrap is not None
    members = parse_leaves(team.state.roster, salted(view.membership.leaves))
    assert members == {user.name: member for user, member in team.state.members.items()}
    info = team.opened(bob, view.membership.wrap, view.membership.info)
    assert (info.name, info.description, info.secrets) == ("Rocket", "To the moon", [])
    assert not view.membership.accepted


def test_everybody_may_read_the_records_of_a_group_and_no_leaf(new_user: NewUser) -> None:
    alice, stranger = new_user(), new_user()
    team = Group(alice).created()
    team.tell(alice, team.follow(alice, name="Renamed"))
    view = team.read(stranger)
    assert [record.roster is not None for record in view.records] == [True, True]
    assert view.membership is None


def test_a_removed_member_is_served_no_membership_and_the_others_get_a_new_secret(
    new_user: NewUser,
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: WRITER, carol: READER})
    team.tell(alice, team.follow(alice, remove=[bob]))
    assert team.read(bob).membership is None
    membership = team.read(carol).membership
    assert membership is not None
    assert membership.wrap is not None
    info = team.opened(carol, membership.wrap, membership.info)
    assert info.secrets == [team.state.epochs[0].secret]


def test_the_groups_of_a_user_are_listed_until_they_are_removed(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: WRITER})
    [listed] = groups_of(bob).groups
    assert (listed.groupId, listed.version, listed.accepted) == (team.group_id, 1, False)
    team.accept(bob).expect(204)
    assert [each.accepted for each in groups_of(bob).groups] == [True]
    team.tell(alice, team.follow(alice, remove=[bob]))
    assert groups_of(bob).groups == []
    assert [each.version for each in groups_of(alice).groups] == [2]
