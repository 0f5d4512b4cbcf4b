"""`scbroker admin check` reports what is damaged or missing of a group, each fault by its group."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.groups import MANAGER, READER, SHARER, WRITER, Group
from tests.kit.operators import admin
from tests.kit.tables import query
from tests.kit.writers import OWNER, Story, delete_user
from tests.server.conftest import NewUser

GROUP: Final = "group_id = ?"
ID: Final = "id = ?"
# What is done to the group's rows, and what the report says.
FAULTS: Final[dict[str, tuple[str, str]]] = {
    "a leaf's hash": (
        f"UPDATE leaves SET hash = zeroblob(32) WHERE {GROUP}",
        "not those that were signed",
    ),
    "a leaf": (f"DELETE FROM leaves WHERE {GROUP}", "another number of leaves"),
    "a leaf's salt": (
        f"UPDATE leaves SET salt = zeroblob(32) WHERE {GROUP}",
        "not the one that was signed",
    ),
    "the places of leaves": (
        f"UPDATE leaves SET place = zeroblob(32) WHERE {GROUP} AND version = 2",
        "",
    ),
    "a roster": (f"UPDATE rosters SET body = zeroblob(9) WHERE {GROUP}", "version 1"),
    "a roster's epoch": (f"UPDATE rosters SET epoch = 7 WHERE {GROUP}", "another epoch"),
    "all rosters": (f"DELETE FROM rosters WHERE {GROUP}", "version 1"),
    "a roster more": (
        "INSERT INTO rosters SELECT group_id, 99, author_id, epoch, type_salt, body, size "
        f"FROM rosters WHERE {GROUP} LIMIT 1",
        "rosters that no record names",
    ),
    "an info": (f"UPDATE group_infos SET info = zeroblob(9) WHERE {GROUP}", "info is not the one"),
    "no info": (f"DELETE FROM group_infos WHERE {GROUP}", "info is not the one"),
    "a role": (
        f"UPDATE group_members SET role = 1 WHERE {GROUP}",
        "does not agree with the roster",
    ),
    "no wrap": (f"UPDATE group_members SET wrap = NULL WHERE {GROUP}", "no wrap"),
    "no member": (
        f"DELETE FROM group_members WHERE {GROUP} AND role = 1",
        "not those of its roster",
    ),
    "a departure": (
        f"UPDATE group_members SET departure = x'01', departure_signature = x'02' WHERE {GROUP}",
        "has no effect",
    ),
    "its version": (
        f"UPDATE users SET group_version = 9 WHERE {ID}",
        "another name, epoch or version",
    ),
    "its end": (f"UPDATE users SET deleted = 1 WHERE {ID}", "do not agree whether"),
    "its type": (f"UPDATE containers SET type = 'x' WHERE {ID}", "type is not that of its roster"),
    "no list": ("DELETE FROM access_lists WHERE container_id = ?", "list is missing"),
    "a list more": (
        "INSERT INTO access_lists SELECT container_id, 99, entries FROM access_lists "
        "WHERE container_id = ?",
        "lists that no record names",
    ),
    "no record": (
        "DELETE FROM records WHERE container_id = ? AND version = 1",
        "Version 1 is missing",
    ),
    "a member's row": (
        "INSERT INTO members SELECT c.id, u.id, 1, 0, NULL, NULL, 0, NULL FROM containers c, users u "
        "WHERE c.id = ? LIMIT 1",
        "a group has neither",
    ),
    "its log": (f"UPDATE users SET last_event = 9 WHERE {ID}", "log has a gap"),
    "a purge": ("INSERT INTO pending_groups (group_id) VALUES (?)", "pending deletion"),
}


@contextmanager
def damaged(broker: BrokerProcess, group: Group, statement: str) -> Iterator[None]:
    """Run a statement with the group's id, and take back what it did."""
    url = broker.database_url
    kept = {table: query(url, f"SELECT rowid, * FROM {table}") for table in _TABLES}
    query(url, statement, group.id)
    try:
        yield
    finally:
        for table, rows in kept.items():
            query(url, f"DELETE FROM {table}")
            for row in rows:
                values = ", ".join("?" for _ in row)
                columns = ", ".join(["rowid", *_columns(url, table)])
                query(url, f"INSERT INTO {table} ({columns}) VALUES ({values})", *row)


_TABLES: Final = (
    "leaves", "rosters", "group_infos", "group_members", "group_authors", "pending_groups", "users",
    "containers", "access_lists", "records", "members",
)  # fmt: skip


def _columns(url: str, table: str) -> list[str]:
    found = query(url, f"SELECT name FROM pragma_table_info('{table}')")
    return [f'"{name}"' for (name,) in found]


@pytest.fixture(scope="module")
def scene(shared_brokers: Any) -> Iterator[tuple[BrokerProcess, Group, Story]]:
    from tests.kit.brokers import Wire
    from tests.kit.writers import User

    broker = shared_brokers("sqlite")
    with Wire(broker) as one, Wire(broker) as other:
        alice, bob = (
            User(ring, wire.log_in(ring)) for wire in (one, other) for ring in [broker.new_user()]
        )
        group = Group(alice).created({alice: SHARER, bob: READER})
        group.tell(alice, group.follow(alice, roles={bob: WRITER}))
        story = Story(alice).created({alice: OWNER, group: OWNER})
        story.tell(bob, story.follow(bob, content=b"new", via=group))
        yield broker, group, story


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_group_is_reported(
    name: str, scene: tuple[BrokerProcess, Group, Story]
) -> None:
    broker, group, _ = scene
    statement, said = FAULTS[name]
    with damaged(broker, group, statement):
        done = admin(broker, "check", "--quick")
    assert done.status == 1
    found = [line for line in done.lines if group.group_id in line]
    assert found, done.lines
    assert any(said in line for line in found), found


@pytest.mark.long
@pytest.mark.parametrize(
    "statement, said",
    [
        ("DELETE FROM group_authors WHERE group_id = ?", "groups' authors"),
        ("UPDATE containers SET groups = NULL WHERE groups = ?", "other groups"),
        ("DELETE FROM members WHERE user_id = ?", "is missing"),
        ("DELETE FROM rosters WHERE group_id = ?", "another epoch than"),
        ("DELETE FROM leaves WHERE group_id = ?", "The leaf of its author"),
        ("DELETE FROM records WHERE container_id = ?", "not stored (V2)"),
    ],
)
def test_a_container_whose_group_is_damaged_is_reported(
    statement: str, said: str, scene: tuple[BrokerProcess, Group, Story]
) -> None:
    broker, group, story = scene
    with damaged(broker, group, statement):
        done = admin(broker, "check", "--quick")
    assert done.status == 1
    found = [line for line in done.lines if str(story.uuid) in line]
    assert any(said in line for line in found), done.lines


@pytest.mark.long
def test_a_deleted_manager_without_a_wrap_is_no_fault_before_the_purge(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """A manager who is no owner raised the epoch meanwhile, and has to keep the leaf (C8)."""
    alice, bob, carol = (new_user() for _ in range(3))
    managers = {alice: OWNER, bob: MANAGER, carol: MANAGER}
    team = Group(alice).created({alice: SHARER, bob: WRITER, carol: WRITER}, managers=managers)
    delete_user(bob).expect(204)
    team.tell(carol, team.follow(carol, raises=True, left=[bob]))
    not_purged = "UPDATE group_members SET gone = ? WHERE user_id = ?"
    query(broker.database_url, not_purged, False, bob.ring.userId.bytes)
    admin(broker, "check").expect(0)
