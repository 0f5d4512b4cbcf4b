"""A hostile broker with users who work with it: it serves what they sign by hand.

    story = Story(alice).created({alice: OWNER, bob: READER})
    mallory.plant(story, story.follow(bob, content=b"bob's"))
    mallory.check_refused(mallory.device_of(alice, bob), story, INTEGRITY)

`plant` writes into the broker's database what the broker itself would have refused, so that the victim's
program is served it as it is served everything.
"""

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    FileTrustStore,
    KeyRing,
    MemoryTrustStore,
    Promise,
    ServerProvider,
)
from scbroker.client.containers import sending
from scbroker.client.users.trust_store import TrustStore
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import ContainerRecord, parse_entry
from scbroker.records.key_record import Signed
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import RecordRequest
from scbroker.wire.users import Registration
from tests.hostile_broker.broker import Exchange, HostileBroker
from tests.hostile_broker.protocol import GROUPS, KEYS, LIST, RECORD, VIEW
from tests.kit import state
from tests.kit.brokers import Answer, Wire, clock
from tests.kit.crypto import sha256
from tests.kit.groups import Group
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, WRITER, Recipient, Story, User, chain_of, stored_list

MANAGER: Final = WRITER | ContainerAccessLevel.ModifyAccess
HOUR: Final = 60 * MINUTE
NO_LIST: Final = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
"""Reads contents, and does not see the access list."""
_AGE: Final = 4 * MINUTE + MINUTE // 2
_ASKING: Final = {
    "POST /v1/session-challenges",
    "POST /v1/sessions",
    "DELETE /v1/sessions/current",
    KEYS,
    LIST,
    GROUPS,
}
"""Requests that a client may still send after it found a lie: it renews its session, or asks again."""
_NEVER_WRITTEN: Final = Path(tempfile.gettempdir()) / "of a refused container"
OPERATIONS: Final[Mapping[str, Callable[[ServerProvider, uuid.UUID], Promise[Any]]]] = {
    "getContainer": lambda device, it: device.getContainer(it),
    "getContainerHeader": lambda device, it: device.getContainerHeader(it),
    "getContainerContent": lambda device, it: device.getContainerContent(it),
    "saveContainerContent": lambda device, it: device.saveContainerContent(it, _NEVER_WRITTEN),
    "openContainerContent": lambda device, it: device.openContainerContent(it),
    "getContainerMetadata": lambda device, it: device.getContainerMetadata(it),
    "getSecuredContainer": lambda device, it: device.getSecuredContainer(it),
    "getSentChanges": lambda device, it: device.getSentChanges(it),
    "confirmAccess": lambda device, it: device.confirmAccess(it),
    "updateContainer": lambda device, it: device.updateContainer(
        it, content=b"secret", customHeaderObject=None, accessLevels=None, type=None
    ),
    "updateContainerHeader": lambda device, it: device.updateContainerHeader(it, "secret"),
    "updateContainerContent": lambda device, it: device.updateContainerContent(it, b"secret"),
    "updateContainerAccessLevels": lambda device, it: device.updateContainerAccessLevels(it),
    "updateContainerType": lambda device, it: device.updateContainerType(it, "secret"),
    "deleteContainer": lambda device, it: device.deleteContainer(it),
    "leaveContainer": lambda device, it: device.leaveContainer(it, abandon=True),
}
"""Every operation on one container."""
READS: Final = "getContainer", "getContainerMetadata", "getSecuredContainer"
WRITES: Final = "updateContainerContent", "updateContainerHeader", "updateContainerAccessLevels"
fresh_and_marked = pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])


class Cast(NamedTuple):
    """Alice is the victim, Bob a member who works with the broker, Carol another, Eve nobody yet."""

    alice: User
    bob: User
    carol: User
    eve: User


class Mallory(HostileBroker):
    """A hostile broker with accomplices among its users."""

    def people(self, count: int) -> list[User]:
        """Return new users; minutes old, so that what they sign may be dated back."""
        return [self.person(KeyRing.generate()) for _ in range(count)]

    def person(self, ring: KeyRing) -> User:
        with Wire(self.behind) as wire:
            wire.register(ring, time=clock() - _AGE).expect(201)
        return self.accomplice(ring)

    def register(self, *records: Signed) -> Answer:
        """Registers these key records at the real broker, as anybody can."""
        signed = [SignedObject.of(record) for record in records]
        with Wire(self.behind) as wire:
            message = Registration(keyRecords=signed, keyFile=b"k", auth=bytes(32))
            return wire.call("POST", "/v1/users", message)

    # The victims' programs.

    def device_of(
        self, user: User, *known: Recipient, store: TrustStore | None = None
    ) -> ServerProvider:
        """Return a user's own device, which has met those of these who are users, and no container."""
        device = self.device(user.ring, store)
        for other in (each for each in known if isinstance(each, User)):
            device.getPublicKeys(other.ring.userId).result(PATIENCE)
        return device

    def new_store(self) -> FileTrustStore:
        """Return a trust store in a folder of its own."""
        return FileTrustStore(Path(tempfile.mkdtemp(dir=self._directory)))

    def restarted(self, device: ServerProvider) -> ServerProvider:
        """Return the device of the same user once it was started again, with what it keeps in files."""
        ring, store = device.getKeyRing().result(PATIENCE), device._trust_store
        assert isinstance(store, FileTrustStore)
        device.close()
        return self.device(ring, FileTrustStore(store.directory))

    def restarted_device_of(self, user: User, story: Story, *known: Recipient) -> ServerProvider:
        """Return a device that has read the container, has met its members, and was started again."""
        device = self.device_of(user, *{*story.grants, *known}, store=self.new_store())
        device.getContainerMetadata(story.uuid).result(PATIENCE)
        return self.restarted(device)

    def victim(self, user: User, story: Story, *, marked: bool) -> ServerProvider:
        """Return a device that has met all members; a marked one has read the container."""
        if marked:
            return self.restarted_device_of(user, story)
        return self.device_of(user, *story.grants)

    @contextmanager
    def refused(
        self, device: ServerProvider, error: type[BrokerError]
    ) -> Iterator[Callable[[Promise[Any]], BrokerError]]:
        """`with mallory.refused(alice, Error) as attempt: attempt(alice.getContainer(id))`.

        Each attempt fails with exactly this error, no pin or mark moved, and nothing was sent that depends
        on a key: no record, no chunk, no KeyFile.
        """
        before, count = marks(device), len(self.heard)
        attempts: list[BrokerError] = []

        def attempt(promise: Promise[Any]) -> BrokerError:
            with pytest.raises(BrokerError) as caught:
                promise.result(PATIENCE)
            assert type(caught.value) is error, caught.value
            attempts.append(caught.value)
            return caught.value

        yield attempt
        assert attempts, "nothing was attempted"
        assert marks(device) == before
        sent = {name for name in self.since(count) if not name.startswith("GET ")}
        assert sent <= _ASKING

    def check_refused(
        self,
        device: ServerProvider,
        container: Story | uuid.UUID,
        error: type[BrokerError],
        *operations: str,
    ) -> None:
        """These operations are refused, by default a reading and a writing one; see `refused`."""
        it = container.uuid if isinstance(container, Story) else container
        with self.refused(device, error) as attempt:
            for name in operations or ("getContainer", "updateContainerContent"):
                attempt(OPERATIONS[name](device, it))
        assert not _NEVER_WRITTEN.exists()

    def check_lie_refused(
        self,
        device: ServerProvider,
        container: Story | uuid.UUID,
        lie: Callable[[Any], Any],
        error: type[BrokerError],
        *operations: str,
    ) -> None:
        """The operations are refused while the container's view is served with this lie."""
        with self.lying(VIEW, lie):
            self.check_refused(device, container, error, *operations)

    def check_keys_refused(
        self, device: ServerProvider, of: User, served: Sequence[Signed], error: type[BrokerError]
    ) -> None:
        """These key records are refused as a user's, and nothing is shared with that user."""
        with self.serving_keys(of, served), self.refused(device, error) as attempt:
            attempt(device.getPublicKeys(of.ring.userId))
            attempt(device.createContainer(b"secret", accessLevels=[level(of)]))

    # What the broker stores whatever its rules say.

    def force(
        self,
        story: Story,
        author: User,
        request: RecordRequest,
        status: int,
        code: str | None = None,
    ) -> None:
        """An honest broker refuses this record; then it is planted."""
        story.send(author, request).expect(status, code)
        self.plant(story, request)

    def plant(self, story: Story, request: RecordRequest) -> ContainerRecord:
        """Stores a record whatever the rules say; the story goes on from it.

        What came after the record before it is deleted. Users who were served before are served still,
        also where the new list lacks them.
        """
        story.took(request)
        record, governing = story.head, story.governing.governing
        assert governing is not None
        version = record.version
        self.query("DELETE FROM records WHERE container_id = ? AND version >= ?", story.id, version)
        self._insert(
            "records", container_id=story.id, version=version, governing=record.governing is not None,
            body=request.record.body, signature=request.record.signature,
        )  # fmt: skip
        self.query(
            "INSERT INTO containers"
            " (id, version, governing_version, access_version, governing_bytes, deleted, creator_id)"
            " VALUES (?, 0, 0, 0, 0, 0, ?) ON CONFLICT DO NOTHING",
            story.id, user_id_of(story.creator.name).bytes,
        )  # fmt: skip
        self.query(
            "UPDATE containers SET version = ?, governing_version = ?, access_version = ?, deleted = ?"
            " WHERE id = ?",
            version, story.governing.version, governing.accessVersion, record.tombstone, story.id,
        )  # fmt: skip
        if request.type is not None:
            kept = request.type.salt, request.type.type, story.id
            self.query("UPDATE containers SET type_salt = ?, type = ? WHERE id = ?", *kept)
        if request.accessList is not None:
            entries = stored_list(request.accessList)
            self._insert(
                "access_lists", container_id=story.id, access_version=version, entries=entries
            )
            named = sorted(each.id for each in story.grants if isinstance(each, Group))
            groups = b"".join(named) or None
            self.query("UPDATE containers SET groups = ? WHERE id = ?", groups, story.id)
        for item in request.accessList or ():
            entry = parse_entry(item.entry)
            self._insert(
                "members", container_id=story.id, user_id=user_id_of(entry.fingerprint).bytes,
                permissions=entry.permissions, key_index=entry.keyIndex, wrap=item.wrap,
                expiry_recorded=False,
            )  # fmt: skip
        for part, sealed in ((record.header, request.header), (record.content, request.content)):
            if part is not None and sealed is not None:
                self._insert(
                    "parts", part_id=part.partId, container_id=story.id,
                    user_id=user_id_of(part.author).bytes, touched_at=clock(), committed=True,
                    received=len(sealed), inline=sealed, hashes=sha256(sealed),
                )  # fmt: skip
        in_force = [part.partId if part else b"" for part in (record.header, record.content)]
        self.query(
            "UPDATE parts SET replaced_at = CASE WHEN part_id IN (?, ?) THEN NULL ELSE ? END"
            " WHERE container_id = ?",
            *in_force, clock(), story.id,
        )  # fmt: skip
        return record

    def take_back(self, story: Story) -> None:
        """Serves again what it served before something was planted on a twin of this story."""
        story.records.pop()
        self.plant(story, story.requests.pop())

    def rewind(self, story: Story, version: int) -> Story:
        """Goes back to what it had at this version, with the wraps of that time."""
        older = story.twin()
        for request in story.requests[:version]:
            self.plant(older, request)
        return older

    def serve_also(
        self, container: uuid.UUID, user: User, wrap: bytes | None, permissions: int = 511
    ) -> None:
        """Serves this user, and with this wrap, whatever list and clock say."""
        self._insert(
            "members", container_id=container.bytes, user_id=user.ring.userId.bytes,
            permissions=int(permissions), key_index=0, wrap=wrap, expiry_recorded=False,
        )  # fmt: skip

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs a statement on the database of the broker behind."""
        return query(self.behind.database_url, statement, *values)

    def _insert(self, table: str, **columns: object) -> None:
        places = ", ".join("?" * len(columns))
        statement = f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({places})"
        self.query(statement, *columns.values())

    # What is served, and what was sent.

    @contextmanager
    def serving_keys(
        self, of: User, records: Sequence[Signed], *, again: bool = False
    ) -> Iterator[None]:
        """Serves these key records for a user: from where a client asks on, or `again` from the first."""

        def lie(exchange: Exchange) -> None:
            if exchange.status >= 300:
                return
            start = {item.userId: 0 if again else item.from_ for item in exchange.message.users}
            users = [
                replace(
                    item, keyRecords=[SignedObject.of(r) for r in records[start[item.userId] :]]
                )
                if item.userId == of.id
                else item
                for item in exchange.answer.users
            ]
            exchange.answer = replace(exchange.answer, users=users)

        with self.meddling(KEYS, after=lie):
            yield

    @contextmanager
    def editing(self, name: str, edit: Callable[[Any], None]) -> Iterator[None]:
        """Edits the good answers of an operation as plain maps and lists, also into malformed ones."""

        def after(exchange: Exchange) -> None:
            if exchange.status < 300:
                plain = msgspec.msgpack.decode(exchange.answer_body)
                edit(plain)
                exchange.answer_body = msgspec.msgpack.encode(plain)

        with self.meddling(name, after=after):
            yield

    def sent_record(self) -> RecordRequest:
        """Return the last record that any client sent."""
        sent = [exchange for exchange in self.heard if exchange.name == RECORD]
        request: RecordRequest = sent[-1].message
        return request


def marks(provider: ServerProvider) -> dict[tuple[str, bytes], bytes]:
    """Return all pins and marks of a device; of one that keeps them in a file, the rows of its log."""
    store = provider._trust_store
    if isinstance(store, FileTrustStore):
        rows = state.read(store.directory, "SELECT id, body FROM entry")
        return {(str(number), b""): body for number, body in rows}
    assert isinstance(store, MemoryTrustStore)
    kinds = [each for user in store._users.values() for each in user._values.items()]
    return {(kind, key): value for kind, values in kinds for key, value in values.items()}


def verified_marks(provider: ServerProvider) -> dict[tuple[str, bytes], bytes]:
    """Return what a device that keeps its marks in memory has verified, without what it only sent."""
    return {name: value for name, value in marks(provider).items() if name[0] != sending.KIND}


def level(
    user: User, permissions: int = ContainerAccessLevel.DefaultOwnerPermissions
) -> AccessLevel:
    return AccessLevel(user.ring.userId, ContainerAccessLevel(permissions))


def records_of(user: User) -> list[Signed]:
    """Return a user's published keys."""
    return list(chain_of(user).records)


def save(device: ServerProvider, container: uuid.UUID, path: Path) -> None:
    path.write_bytes(device.getContainerContent(container).result(PATIENCE) or b"")


def check_no_file(
    device: ServerProvider, container: uuid.UUID, folder: Path, error: type[BrokerError]
) -> None:
    """Saving fails, and leaves nothing in the folder of temporary and of new files."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(work)
        patched.setattr(tempfile, "tempdir", str(work))
        with pytest.raises(error):
            save(device, container, work / "content")
    assert list(work.iterdir()) == []
