"""`scbroker admin check` says nothing of a whole broker, and names each thing that is damaged."""

import asyncio
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from scbroker.records.container_record import SEGMENT, Role
from scbroker.server.admin.check import check
from scbroker.server.settings import Settings
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.objects import folder_of
from tests.kit.operators import admin
from tests.kit.tables import dump, query
from tests.kit.writers import (
    MINUTE,
    OWNER,
    READER,
    Grant,
    Grants,
    Story,
    User,
    delete_user,
    stored_list,
)

LARGE = SEGMENT + 10


@dataclass
class Kept:
    """A broker with something of every kind in it."""

    broker: BrokerProcess
    alice: User
    bob: User
    carol: User
    small: Story
    large: Story
    deleted: Story

    def run(self, statement: str, *values: object) -> None:
        query(self.broker.database_url, statement, *values)

    def of(self, name: object) -> object:
        """Return the id for the name of a container, of its content or of a user; else the value."""
        found = getattr(self, name.removesuffix(" content")) if isinstance(name, str) else name
        if isinstance(found, User):
            return found.ring.userId.bytes
        if isinstance(found, Story):
            return content_of(found) if str(name).endswith(" content") else found.id
        return found

    def objects(self) -> list[Path]:
        """Those of the large content."""
        names = query(
            self.broker.database_url,
            "SELECT blob FROM chunks JOIN parts USING (part_id) WHERE container_id = ? AND committed",
            self.large.id,
        )
        return [folder_of(self.broker) / name for (name,) in names]


@pytest.fixture
def kept(start_broker: StartBroker) -> Iterator[Kept]:
    with ExitStack() as stack:
        yield filled(start_broker(), stack)


@pytest.fixture(scope="module")
def _stopped(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The same on SQLite, made once, and stopped."""
    with BrokerProcess(tmp_path_factory.mktemp("checked")) as broker, ExitStack() as stack:
        return filled(broker, stack)


@pytest.fixture
def copied(_stopped: Kept, tmp_path: Path) -> Kept:
    """A copy of that, to be damaged."""
    directory = tmp_path / "data"
    shutil.copytree(_stopped.broker.directory, directory)
    return replace(_stopped, broker=BrokerProcess(directory))


def filled(broker: BrokerProcess, stack: ExitStack) -> Kept:
    """A broker's users and containers, of each kind one."""

    def new_user() -> User:
        ring = broker.new_user()
        return User(ring, stack.enter_context(Wire(broker)).log_in(ring))

    alice, bob, carol = (new_user() for _ in range(3))
    both: Grants = {alice: OWNER, bob: READER}
    small = Story(alice).created(both, header=b"{}", type="note")
    small.tell(alice, small.follow(alice, content=b"2"))
    small.tell(alice, small.follow(alice, grants={**both, carol: OWNER}, type="letter"))
    small.tell(carol, small.follow(carol, content=b"4"))
    large = Story(alice)
    part = large.upload(alice, bytes(LARGE))
    large.tell(alice, large.begin(both, content=part))
    large.tell(alice, large.follow(alice, header=b"{}"))
    replaced = Story(alice)
    old = replaced.upload(alice, bytes(LARGE))
    replaced.tell(alice, replaced.begin(content=old))
    replaced.tell(alice, replaced.follow(alice, content=b"small now"))
    deleted = Story(alice).created({alice: OWNER, bob: OWNER})
    deleted.tell(bob, deleted.follow(bob, content=b"by bob"))
    deleted.tell(alice, deleted.follow(alice, grants={alice: OWNER, bob: READER}))
    deleted.tell(alice, deleted.follow(alice, tombstone=True))
    ending: Grants = {alice: OWNER, bob: Grant(READER, clock() + MINUTE // 100)}
    Story(alice).created(ending)
    Story(carol).created({carol: OWNER})  # goes with her
    pending = Story(alice)
    part, sealed = pending.seal(Role.Content, alice, bytes(100_000), pending.key)
    pending.chunk(alice, part, 0, sealed).expect(204)
    alice.events()
    delete_user(carol).expect(204)
    return Kept(broker, alice, bob, carol, small, large, deleted)


LINE = re.compile(
    r"Checked \d+ audit entries, \d+ chunks, 5 containers, \d+ objects, \d+ records, 3 users: "
    r"nothing is wrong\."
)


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--quick"]], ids=["whole", "quick"])
@both_engines
def test_a_check_of_a_whole_broker_counts_everything_and_changes_nothing(
    kept: Kept, options: list[str]
) -> None:
    before = dump(kept.broker.database_url)
    done = admin(kept.broker, "check", *options).expect(0)
    assert LINE.fullmatch(done.last), done
    assert done.lines == [done.last]
    assert dump(kept.broker.database_url) == before
    kept.broker.stop()
    assert admin(kept.broker, "check", *options).expect(0).lines == done.lines


def _flip(kept: Kept) -> None:
    path = kept.objects()[0]
    octets = bytearray(path.read_bytes())
    octets[SEGMENT // 2] ^= 1
    path.write_bytes(octets)


def _strange(kept: Kept) -> None:
    path = kept.objects()[0]
    name = f"{path.name[:32]}-{'0' * 32}"
    (path.parent / name).write_bytes(b"strange")


def _sql(statement: str, *names: object) -> Callable[[Kept], None]:
    return lambda kept: kept.run(statement, *map(kept.of, names))


def _byte(table: str, column: str, where: str, *names: object) -> Callable[[Kept], None]:
    """The last byte of a column is another one."""

    def change(kept: Kept) -> None:
        url, values = kept.broker.database_url, [kept.of(name) for name in names]
        [(data,)] = query(url, f"SELECT {column} FROM {table} WHERE {where}", *values)
        other = bytes(data[:-1]) + bytes([data[-1] ^ 1])
        query(url, f"UPDATE {table} SET {column} = ? WHERE {where}", other, *values)

    return change


def _unneeded(kept: Kept) -> None:
    for table in ("key_files", "authors"):
        kept.run(f"DELETE FROM {table} WHERE user_id = ?", kept.of(BOB))
    kept.run("UPDATE users SET deleted = true WHERE id = ?", kept.of(BOB))


_RECORD = "container_id = ? AND version = 2"
_LIST = "container_id = ? AND access_version = 3"
SMALL, LARGE_ONE, DELETED, BOB, ALICE, CAROL = "small", "large", "deleted", "bob", "alice", "carol"
# What is done, whom it is said of, a part of what is said, and whether --quick says so as well.
DAMAGE: dict[str, tuple[Callable[[Kept], None], str, str, bool]] = {
    "an object is gone": (lambda k: k.objects()[0].unlink(), "", "its object is missing", True),
    "a byte of an object is another": (_flip, "", "its object has other bytes", False),
    "an object that no row names": (_strange, "object ", "no row names it", True),
    "a record's body": (_byte("records", "body", _RECORD, SMALL), SMALL, "version 2", True),
    "a record in the middle is gone": (
         _sql("DELETE FROM records WHERE container_id = ? AND version = 2", SMALL),
         SMALL, "Version 2 is missing", True),
    "the last record is gone": (
         _sql("DELETE FROM records WHERE container_id = ? AND version = 4", SMALL),
         SMALL, "does not agree with its records", True),
    "all records are gone":
        (_sql("DELETE FROM records WHERE container_id = ?", SMALL), SMALL, "records are missing", True),
    "a record is listed as another": (
        _sql("UPDATE records SET governing = NOT governing WHERE container_id = ? AND version = 2",
             SMALL), SMALL, "whether it is a governing record", True,
    ),
    "a container's row is gone":
        (_sql("DELETE FROM containers WHERE id = ?", SMALL), "records ", "does not exist", True),
    "a container's type":
        (_sql("UPDATE containers SET type = 'other' WHERE id = ?", SMALL), SMALL, "type", True),
    "an access list": (_byte("access_lists", "entries", _LIST, SMALL), SMALL, "version 3", True),
    "an access list is gone": (
         _sql("DELETE FROM access_lists WHERE container_id = ? AND access_version = 3", SMALL),
         SMALL, "access list is missing", True),
    "an access list that no record names": (
        _sql("INSERT INTO access_lists SELECT container_id, 2, entries FROM access_lists"
             " WHERE container_id = ? AND access_version = 1", SMALL),
        SMALL, "no record names", True,
    ),
    "a member is gone": (_sql("DELETE FROM members WHERE container_id = ? AND user_id = ?", SMALL, BOB),
         SMALL, "member of its access list is missing", True),
    "a member who is in no list": (
        _sql("INSERT INTO members SELECT container_id, ?, permissions, key_index, expires_at, wrap,"
             " expiry_recorded, type FROM members WHERE container_id = ? AND user_id = ?",
             b"x" * 16, SMALL, BOB),
        SMALL, "members whom its access list does not name", True,
    ),
    "the size of its governing records": (
        _sql("UPDATE containers SET governing_bytes = governing_bytes + 1 WHERE id = ?", SMALL),
        SMALL, "another size of its governing records", True,
    ),
    "a member's rights": (
        _sql("UPDATE members SET permissions = 511 WHERE container_id = ? AND user_id = ?", SMALL, BOB),
        SMALL, "agree with its access list", True,
    ),
    "an inline content":
        (_byte("parts", "inline", "part_id = ?", "small content"), SMALL, "list of segment hashes", True),
    "a part is gone": (_sql("DELETE FROM parts WHERE part_id = ?", "small content"),
         SMALL, "part that its record names is missing", True),
    "a part that no record names": (
         _sql("UPDATE parts SET replaced_at = NULL WHERE container_id = ?", SMALL),
         SMALL, "parts that its record does not name", True),
    "a chunk's row is gone":
        (_sql("DELETE FROM chunks WHERE part_id = ?", "large content"), LARGE_ONE, "size", True),
    "a chunk's hashes": (_byte("chunks", "hashes", "part_id = ?", "large content"),
         LARGE_ONE, "list of segment hashes", True),
    "a chunk's hash": (_byte("chunks", "chunk_hash", "part_id = ?", "large content"), "content ",
         "segments' hashes", True),
    "chunks of no part":
        (_sql("DELETE FROM parts WHERE part_id = ?", "large content"), "chunks ", "does not exist", True),
    "a key record":
        (_byte("key_records", "signature", "user_id = ? AND sequence = 1", BOB), BOB, "", True),
    "a key record is gone": (_sql("DELETE FROM key_records WHERE user_id = ? AND sequence = 1", BOB),
         BOB, "1 of 2 key records", True),
    "a KeyFile": (_byte("key_files", "key_file", "user_id = ?", BOB), BOB, "KeyFile", True),
    "the latest signing key": (_sql("UPDATE users SET signing_sequence = 1 WHERE id = ?", BOB),
         BOB, "other keys than their latest", True),
    "a user's row is gone":
        (_sql("DELETE FROM users WHERE id = ?", BOB), "key_records ", "does not exist", True),
    "a gap in the event log":
        (_sql("DELETE FROM events WHERE user_id = ? AND id = 2", ALICE), ALICE, "gap", True),
    "the digest of dropped events": (
         _sql("UPDATE users SET dropped_digest = fingerprint WHERE id = ?", ALICE), ALICE, "digest",
         True),
    "an author whom no row names":
        (_sql("DELETE FROM authors WHERE container_id = ?", SMALL), SMALL, "table of authors", True),
    "key records of a deleted user whom no container needs":
        (_unneeded, BOB, "key records were not", True),
    "a deleted user's key records that a container needs are gone": (
         _sql("UPDATE users SET deleted = true, fingerprint = NULL WHERE id = ?", CAROL),
         CAROL, "which are missing", True),
    "a user who is to go and was not deleted":
        (_sql("INSERT INTO pending_users VALUES (?)", BOB), BOB, "not deleted", True),
    "a deleted container has its type still":
        (_sql("UPDATE containers SET type = 'x' WHERE id = ?", DELETED), DELETED, "type", True),
    "a record was not deleted with the container": (
        _sql("INSERT INTO records SELECT container_id, 2, false, body, signature FROM records"
             " WHERE container_id = ? AND version = 3", DELETED),
        DELETED, "Version 2 was not deleted", True,
    ),
    "the parts of a record were not deleted with the container": (
        lambda k: k.run("UPDATE records SET body = ? WHERE container_id = ? AND version = 1",
             k.deleted.requests[0].record.body, k.deleted.id),
        DELETED, "version 1: Its parts were not deleted", True,
    ),
    "a governing record before the tombstone is gone": (
         _sql("DELETE FROM records WHERE container_id = ? AND version = 3", DELETED),
         DELETED, "does not link", True),
    "a part was not deleted with the container": (
         _sql("UPDATE parts SET container_id = ? WHERE part_id = ?", DELETED, "small content"),
         DELETED, "parts that its record does not name", True),
    "a member's type": (
         _sql("UPDATE members SET type = 'other' WHERE container_id = ? AND user_id = ?", SMALL, BOB),
         SMALL, "another type than the member may see", True),
    "a member's type was not deleted with the container": (
         _sql("UPDATE members SET type = 'other' WHERE container_id = ?", DELETED),
         DELETED, "members' rights, wraps or type", True),
    "entries were not deleted with the container": (
        lambda k: k.run("UPDATE access_lists SET entries = ? WHERE container_id = ?"
             " AND access_version = 1", stored_list(k.deleted.requests[0].accessList or ()), k.deleted.id),
        DELETED, "entries of its access lists", True,
    ),
    "a note of a fetch was not deleted with the container": (
         _sql("INSERT INTO accesses (container_id, user_id, recorded_at) VALUES (?, ?, 1)", DELETED, BOB),
         DELETED, "records of its fetches", True),
    "an event was not deleted with the container": (
         _sql("UPDATE events SET version = 1 WHERE container_id = ?", DELETED),
         DELETED, "details in its events", True),
}  # fmt: skip


def content_of(story: Story) -> bytes:
    assert story.head.content is not None
    return story.head.content.partId


def _name(kept: Kept, whose: str) -> str:
    found = getattr(kept, whose or "none", None)
    if isinstance(found, Story):
        return f"container {uuid.UUID(bytes=found.id)}: "
    return f"user {found.id}: " if isinstance(found, User) else whose


@pytest.mark.sampled
@pytest.mark.parametrize("what", DAMAGE)
def test_each_kind_of_damage_is_found_and_named_by_its_name_alone(copied: Kept, what: str) -> None:
    damage, whose, said, by_quick = DAMAGE[what]
    damage(copied)
    right, lines = checked(copied)
    found = [line for line in lines[:-1] if line.startswith(_name(copied, whose)) and said in line]
    assert found, lines
    assert not right
    assert re.search(r": \d+ wrong\.$", lines[-1])
    assert "letter" not in str(lines), "a type is not for an operator's screen"
    assert checked(copied, quick=True)[0] is not by_quick


def checked(kept: Kept, *, quick: bool = False) -> tuple[bool, list[str]]:
    lines: list[str] = []
    settings = Settings(data_dir=str(kept.broker.directory))
    right = asyncio.run(check(settings, lines.append, lambda *_: None, quick=quick))
    return right, lines


@pytest.mark.long
def test_a_check_that_finds_a_fault_exits_with_status_1(copied: Kept) -> None:
    _flip(copied)
    assert admin(copied.broker, "check").expect(1).last.endswith(": 1 wrong.")
    admin(copied.broker, "check", "--quick").expect(0)


@pytest.mark.long
def test_a_missing_database_or_one_of_another_version_is_refused_and_nothing_is_created(
    copied: Kept, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere"
    for command in ("check", "sweep"):
        assert (
            "is not a broker's database"
            in admin(copied.broker, command, at=nowhere).expect(2).error
        )
    assert not nowhere.exists()
    copied.run("UPDATE alembic_version SET version_num = '0000'")
    for command in ("check", "sweep"):
        assert "revision 0000" in admin(copied.broker, command).expect(2).error
