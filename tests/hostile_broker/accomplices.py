"""Users who work with the hostile broker: what they sign by hand is put in place and served.

    alice, bob = people(mallory, 2)
    story = Story(alice).created({alice: OWNER, bob: READER})
    plant(mallory, story, story.follow(bob, content=b"bob's"))
    with refused(mallory, device_of(mallory, alice, bob), BrokerError.integrityError) as attempt: ...

`plant` writes into the broker's database what the broker itself would have refused, so that the victim's
program is served it as it is served everything.
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, ContainerAccessLevel, FileTrustStore, KeyRing, ServerProvider
from scbroker.client.core.sealing import OpenPart
from scbroker.client.users.trust_store import TrustStore
from scbroker.crypto.verify import sha256
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import (
    ContainerRecord,
    Entry,
    Part,
    Role,
    SaltedEntry,
    encode_entry,
    list_hash,
    parse_entry,
    parse_record,
    wrap_hash,
    wrap_info,
)
from scbroker.records.key_record import Signed
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import ContainerView, ListView, RecordRequest
from scbroker.wire.users import Registration
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.kit.brokers import Answer, Wire, clock
from tests.kit.tables import query
from tests.kit.writers import MINUTE, WRITER, Grants, Story, User, chain_of, stored_list

VIEW: Final = "GET /v1/containers/{containerId}"
KEYS: Final = "POST /v1/key-records"
RECORD: Final = "PUT /v1/containers/{containerId}/records/{version}"
MANAGER: Final = WRITER | ContainerAccessLevel.ModifyAccess
HOUR: Final = 60 * MINUTE
_AGE: Final = 4 * MINUTE + MINUTE // 2

fresh_and_marked = pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])


# Who takes part.


def people(mallory: HostileBroker, count: int) -> list[User]:
    """New users; minutes old, so that what they sign may be dated back."""
    return [person(mallory, KeyRing.generate()) for _ in range(count)]


class Cast(NamedTuple):
    """Alice is the victim, Bob a member who works with the broker, Carol another, Eve nobody yet."""

    alice: User
    bob: User
    carol: User
    eve: User


def cast(mallory: HostileBroker) -> Cast:
    return Cast(*people(mallory, 4))


def person(mallory: HostileBroker, ring: KeyRing) -> User:
    with Wire(mallory.behind) as wire:
        wire.register(ring, time=clock() - _AGE).expect(201)
    return mallory.accomplice(ring)


def device_of(
    mallory: HostileBroker, user: User, *known: User, store: TrustStore | None = None
) -> ServerProvider:
    """A user's own device, which has met these users, and has seen no container."""
    device = mallory.device(user.ring, store)
    for other in known:
        device.getPublicKeys(other.ring.userId).result(PATIENCE)
    return device


def restarted_device_of(
    mallory: HostileBroker, user: User, story: Story, folder: Path, *known: User
) -> ServerProvider:
    """A user's own device, which has read the container, has met its members, and was started again."""
    met = {*story.grants, *known}
    with device_of(mallory, user, *met, store=FileTrustStore(folder)) as before:
        before.getContainerMetadata(id_of(story)).result(PATIENCE)
    return mallory.device(user.ring, FileTrustStore(folder))


def victim(
    mallory: HostileBroker, user: User, story: Story, folder: Path, *, marked: bool
) -> ServerProvider:
    """A device that has met all members; one that is marked has seen the container, and was restarted."""
    if marked:
        return restarted_device_of(mallory, user, story, folder)
    return device_of(mallory, user, *story.grants)


def id_of(story: Story) -> uuid.UUID:
    return uuid.UUID(bytes=story.id)


def level(
    user: User, permissions: int = ContainerAccessLevel.DefaultOwnerPermissions
) -> AccessLevel:
    return AccessLevel(user.ring.userId, ContainerAccessLevel(permissions))


def records_of(user: User) -> list[Signed]:
    """A user's published keys."""
    return list(chain_of(user).records)


def register(mallory: HostileBroker, *records: Signed) -> Answer:
    """Registers these key records at the real broker, as anybody can."""
    with Wire(mallory.behind) as wire:
        message = Registration(
            keyRecords=[SignedObject.of(record) for record in records], keyFile=b"k", auth=bytes(32)
        )
        return wire.call("POST", "/v1/users", message)


# What they put in place.


def begun(creator: User, grants: Grants, **options: Any) -> Story:
    """A container that the broker took, also one whose first record is dated back by `time`."""
    story = Story(creator)
    take(story, creator, story.begin(grants, **options))
    return story


def take(story: Story, author: User, request: RecordRequest) -> ContainerRecord:
    """Sends a record to the broker, which takes it; the story goes on from its very bytes."""
    story.send(author, request).expect(201)
    return go_on(story, request)


def go_on(story: Story, request: RecordRequest) -> ContainerRecord:
    """The story goes on from this record, wherever it is served."""
    record = parse_record(request.record.body)
    known = story._drafts.get(request.record.body)
    if known is not None:
        _, story.key, story.grants = known
    story.records[record.version - 1 :] = [record]
    story.requests[record.version - 1 :] = [request]
    return record


def twin(story: Story) -> Story:
    """The same container as far as it went, for what is forged and is to be forgotten again."""
    return dataclasses.replace(
        story, records=list(story.records), requests=list(story.requests), parts=dict(story.parts)
    )


def altered(story: Story, signer: User, request: RecordRequest, **changes: Any) -> RecordRequest:
    """The request with its record changed, and signed by whoever."""
    record = msgspec.structs.replace(parse_record(request.record.body), **changes)
    changed = replace(request, record=story.sign(signer, record).record)
    known = story._drafts.get(request.record.body)
    if known is not None:
        story._drafts[changed.record.body] = known
    return changed


def with_part(
    story: Story, signer: User, request: RecordRequest, role: Role, part: Part
) -> RecordRequest:
    """The request with another part in its record, signed again."""
    return altered(story, signer, request, **{role.name.lower(): part})


def with_wrap(
    story: Story, signer: User, request: RecordRequest, of: User, wrap: bytes, **changes: Any
) -> RecordRequest:
    """A change of access in which one user gets another wrap, with all that is signed made to fit."""
    record, entries = parse_record(request.record.body), list(request.accessList or ())
    for position, item in enumerate(entries):
        entry = parse_entry(item.entry)
        if entry.fingerprint == of.name:
            fitting = msgspec.structs.replace(entry, wrapHash=wrap_hash(wrap), **changes)
            entries[position] = replace(item, entry=encode_entry(fitting), wrap=wrap)
    hashes = b"".join(item.salted.hash for item in entries)
    assert record.governing is not None
    governing = msgspec.structs.replace(
        record.governing, accessList=list_hash(story.id, record.version, hashes)
    )
    changed = altered(story, signer, request, governing=governing)
    return replace(changed, accessList=entries)


def plant(mallory: HostileBroker, story: Story, request: RecordRequest) -> ContainerRecord:
    """Puts a record in place whatever the rules say; the story goes on from it.

    What came after the record before it is gone. Whoever was served before is served still, also where
    the new list lacks them.
    """

    def run(statement: str, *values: object) -> None:
        query(mallory.behind.database_url, statement, *values)

    record = go_on(story, request)
    version, governing = record.version, story.governing.governing
    assert governing is not None
    run("DELETE FROM records WHERE container_id = ? AND version >= ?", story.id, version)
    run(
        "INSERT INTO records (container_id, version, governing, body, signature)"
        " VALUES (?, ?, ?, ?, ?)",
        story.id, version, record.governing is not None,
        request.record.body, request.record.signature,
    )  # fmt: skip
    run(
        "INSERT INTO containers (id, version, governing_version, access_version, deleted, creator_id)"
        " VALUES (?, 0, 0, 0, 0, ?) ON CONFLICT DO NOTHING",
        story.id, user_id_of(story.creator.name).bytes,
    )  # fmt: skip
    run(
        "UPDATE containers SET version = ?, governing_version = ?, access_version = ?, deleted = ?"
        " WHERE id = ?",
        version, story.governing.version, governing.accessVersion, record.tombstone, story.id,
    )  # fmt: skip
    if request.type is not None:
        run(
            "UPDATE containers SET type_salt = ?, type = ? WHERE id = ?",
            request.type.salt, request.type.type, story.id,
        )  # fmt: skip
    if request.accessList is not None:
        run(
            "INSERT OR REPLACE INTO access_lists (container_id, access_version, entries)"
            " VALUES (?, ?, ?)",
            story.id, version, stored_list(request.accessList),
        )  # fmt: skip
    for item in request.accessList or ():
        entry = parse_entry(item.entry)
        run(
            "INSERT OR REPLACE INTO members (container_id, user_id, permissions, wrap, expiry_told)"
            " VALUES (?, ?, ?, ?, 0)",
            story.id, user_id_of(entry.fingerprint).bytes, entry.permissions, item.wrap,
        )  # fmt: skip
    for part, sealed in ((record.header, request.header), (record.content, request.content)):
        if part is not None and sealed is not None:
            run(
                "INSERT OR REPLACE INTO parts"
                " (part_id, container_id, user_id, touched_at, committed, received, inline, hashes)"
                " VALUES (?, ?, ?, ?, 1, ?, ?, ?)",
                part.partId, story.id, user_id_of(part.author).bytes, clock(),
                len(sealed), sealed, sha256(sealed),
            )  # fmt: skip
    return record


def take_back(mallory: HostileBroker, story: Story) -> None:
    """The broker serves again what it served before something was planted on a twin of this story."""
    story.records.pop()
    plant(mallory, story, story.requests.pop())


def serve_also(
    mallory: HostileBroker, container: uuid.UUID, user: User, wrap: bytes | None
) -> None:
    """The broker serves this user, and with this wrap, whatever list and clock say."""
    query(
        mallory.behind.database_url,
        "INSERT OR REPLACE INTO members (container_id, user_id, permissions, wrap, expiry_told)"
        " VALUES (?, ?, 511, ?, 0)",
        container.bytes, user.ring.userId.bytes, wrap,
    )  # fmt: skip


# What is served.


def instead(**fields: Any) -> Callable[[Any], Any]:
    """A lie: the answer with these fields in place of its own."""
    return lambda answer: replace(answer, **fields)


def entries_of(shown: ListView) -> list[Entry]:
    return [parse_entry(item.entry) for item in shown.disclosed]


def with_list(view: ContainerView, change: Callable[[ListView], ListView]) -> ContainerView:
    """The view with every access list in it changed."""
    views = [
        item if item.accessList is None else replace(item, accessList=change(item.accessList))
        for item in view.governing
    ]
    return replace(view, governing=views)


def relisted(entries: Sequence[Entry]) -> ListView:
    """A list of these entries, its hashes made to fit."""
    salted = [
        SaltedEntry(bytes(32), encode_entry(entry))
        for entry in sorted(entries, key=lambda entry: entry.fingerprint)
    ]
    return ListView.of(salted, range(len(salted)))


@contextmanager
def serving_keys(
    mallory: HostileBroker, of: User, records: Sequence[Signed], *, again: bool = False
) -> Iterator[None]:
    """Has these key records served for a user: from where each asks on, or `again` from the first."""

    def after(exchange: Exchange) -> None:
        if exchange.status >= 300:
            return
        start = {item.userId: 0 if again else item.from_ for item in exchange.message.users}
        users = [
            replace(item, keyRecords=[SignedObject.of(r) for r in records[start[item.userId] :]])
            if item.userId == of.id
            else item
            for item in exchange.answer.users
        ]
        exchange.answer = replace(exchange.answer, users=users)

    with mallory.meddling(KEYS, after=after):
        yield


@contextmanager
def editing(mallory: HostileBroker, name: str, edit: Callable[[Any], None]) -> Iterator[None]:
    """Has the good answers of an operation edited as plain maps and lists, whatever becomes of them."""

    def after(exchange: Exchange) -> None:
        if exchange.status < 300:
            plain = msgspec.msgpack.decode(exchange.answer_body)
            edit(plain)
            exchange.answer_body = msgspec.msgpack.encode(plain)

    with mallory.meddling(name, after=after):
        yield


# What they can open.


def sent_record(mallory: HostileBroker) -> RecordRequest:
    """The last record that any client sent."""
    sent = [exchange for exchange in mallory.heard if exchange.name == RECORD]
    request: RecordRequest = sent[-1].message
    return request


def wrap_of(request: RecordRequest, user: User) -> bytes:
    """The wrap that a change of access has for a user."""
    [wrap] = [
        item.wrap
        for item in request.accessList or ()
        if parse_entry(item.entry).fingerprint == user.name
    ]
    assert wrap is not None
    return wrap


def wrapped_key(request: RecordRequest, user: User, index: int = 0) -> bytes:
    """The container key that a change of access gives to a user."""
    record = parse_record(request.record.body)
    assert record.governing is not None
    info = wrap_info(record.containerId, record.governing, user.name, index)
    return user.ring.encryption[index].unwrap(wrap_of(request, user), info)


def opened(request: RecordRequest, container_key: bytes) -> bytes:
    """The small content that a record brought, for whoever has its container key."""
    record = parse_record(request.record.body)
    assert record.content is not None
    assert request.content is not None
    part = OpenPart.open(record.containerId, Role.Content, record.content, container_key)
    return part.open_segment(0, request.content, sha256(request.content))
