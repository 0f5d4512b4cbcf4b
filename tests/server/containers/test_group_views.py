"""Views and lists of groups at the broker, page by page (groups.md, 12)."""

from scbroker.wire.groups import MAX_ACCEPTED, GroupList
from tests.kit.brokers import BrokerProcess
from tests.kit.groups import READER, SHARER, WRITER, Group, groups_of
from tests.kit.tables import query
from tests.server.conftest import NewUser


def test_a_members_view_has_departures_and_what_is_owed_for_managers_alone(
    new_user: NewUser,
) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    group = Group(alice).created({alice: SHARER, bob: WRITER, carol: READER})
    group.leave(carol).expect(204)
    for user, owed in ((alice, [carol.id]), (bob, [])):
        membership = group.read(user).membership
        assert membership is not None
        assert [state.userId for state in membership.owed] == owed
        assert len(membership.departures) == 1
        assert len(membership.leaves) == 3


def test_groups_are_listed_page_by_page(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    groups = [Group(alice).created({alice: SHARER, bob: READER}) for _ in range(3)]
    names = sorted(group.group_id for group in groups)
    first = groups_of(bob, "limit=2")
    assert [each.groupId for each in first.groups] == names[:2]
    assert first.next == names[1]
    last = groups_of(bob, f"limit=2&after={first.next}")
    assert ([each.groupId for each in last.groups], last.next) == (names[2:], None)
    assert all(each.accepted for each in groups_of(alice).groups)
    assert isinstance(last, GroupList)


def test_a_user_takes_part_in_at_most_1024_groups(broker: BrokerProcess, new_user: NewUser) -> None:
    """A list of containers goes through each of them."""
    alice, bob = new_user(), new_user()
    offers = [Group(bob).created({bob: SHARER, alice: READER}) for _ in range(2)]
    row, url = offers[0], broker.database_url
    number = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    some = "CAST(printf('%016d', i) AS BLOB)"
    if broker.engine != "sqlite":
        some = "convert_to(lpad(CAST(i AS text), 16, '0'), 'UTF8')"
    of_users = "fingerprint, chain_length, encryption_index, signing_sequence, signed_until, "
    of_users += (
        "registered_at, deleted, last_event, first_event, key_file_generation, group_version"
    )
    query(
        url,
        f"INSERT INTO users (id, {of_users}) {number} SELECT {some}, {of_users} "
        "FROM n, users WHERE id = ?",
        MAX_ACCEPTED,
        row.id,
    )
    of_members = "user_id, version, role, key_index, permissions, gone"
    query(
        url,
        f"INSERT INTO group_members (group_id, accepted, {of_members}) {number} "
        f"SELECT {some}, NOT gone, {of_members} FROM n, group_members "
        "WHERE group_id = ? AND user_id = ?",
        MAX_ACCEPTED,
        row.id,
        alice.ring.userId.bytes,
    )
    offers[0].accept(alice).expect(204)
    offers[1].accept(alice).expect(413, "too-large")
    offers[0].accept(alice).expect(204)
    another = Group(alice)
    another.send(alice, another.begin()).expect(413, "too-large")
    offers[0].leave(alice).expect(204)
    offers[1].accept(alice).expect(204)
