"""Users and containers by hand: valid requests, and the means to spoil one in one place.

`Story` is a container as its writers make it. `begin` and `follow` sign a record and give the
request that appends it; nothing is part of the story before `tell` has sent it and it was taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg
import msgspec

from scbroker.client.core.sealing import NewPart, make_type
from scbroker.keys import KeyRing
from scbroker.records import batch
from scbroker.records.canonical import (
    ContainerId,
    Fingerprint,
    UserId,
    container_id_of,
    encode_object,
    encode_value,
)
from scbroker.records.container_record import (
    LABEL,
    SEGMENT,
    ContainerRecord,
    Entry,
    Governing,
    Link,
    Part,
    Role,
    Via,
    bare_body,
    key_commitment,
    list_hash,
    parse_record,
    record_hash,
    wrap_hash,
    wrap_info,
)
from scbroker.records.departure import LABEL as DEPARTURE_LABEL
from scbroker.records.departure import Departure
from scbroker.records.key_record import (
    ACTIVE,
    CLOSED,
    RETIRED,
    RETIREMENT_AHEAD,
    KeyChain,
    KeyRecord,
    Signed,
)
from scbroker.records.key_record import LABEL as KEY_LABEL
from scbroker.server.broker import SessionUser
from scbroker.server.containers.members import StoredList
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import (
    AccessEntry,
    ContainerView,
    DepartureRequest,
    RecordReceipt,
    RecordRequest,
    SignedRecord,
)
from scbroker.wire.events import Event, Events
from scbroker.wire.parts import CHUNK_SEGMENTS
from scbroker.wire.users import (
    NO_DIGEST,
    ORDER_LABEL,
    Authorization,
    KeyFileDeletion,
    KeyFileState,
    KeyFileStoring,
    KeyRecords,
    Order,
    UserDeletion,
)
from tests.kit.brokers import Answer, Wire, clock
from tests.kit.crypto import (
    DecryptionKey,
    SigningKey,
    labelled_hash,
    random_bytes,
    sha256,
    wrap_key,
)
from tests.kit.tables import query
from tests.kit.waiting import wait_until

OWNER: Final = int(Level.DefaultOwnerPermissions)
READER: Final = int(Level.Download | Level.Decrypt | Level.ViewAccess)
"""May read everything except the type."""
WRITER: Final = READER | Level.Upload
MINUTE: Final = 60_000_000
KEEP: Final[Any] = object()


def session_of(user: User, token_hash: bytes = bytes(32)) -> SessionUser:
    """Return the session of this user, as a broker finds it before they change their keys."""
    user_id = UserId(user.ring.userId.bytes)
    return SessionUser(user_id, Fingerprint(user.name), 2, token_hash)


def stored_list(items: Sequence[AccessEntry]) -> bytes:
    """A list with all of its entries, as a broker stores it."""
    salted = [item.salted for item in items]
    return StoredList.whole(b"".join(item.hash for item in salted), salted).encode()


class Recipient(Protocol):
    """A user or a group, as access lists name them."""

    @property
    def name(self) -> bytes: ...

    @property
    def encryption(self) -> Sequence[DecryptionKey]:
        """The keys by index, or those of the epochs."""


class Acting(Protocol):
    """A group through which a record is made."""

    @property
    def via(self) -> Via: ...


@dataclass(eq=False)
class User:
    """A registered user with a session."""

    ring: KeyRing
    wire: Wire

    @property
    def id(self) -> str:
        return str(self.ring.userId)

    @property
    def name(self) -> bytes:
        return self.ring.rawFingerprint

    @property
    def encryption(self) -> Sequence[DecryptionKey]:
        return self.ring.encryption

    def events(self, **query: object) -> list[Event]:
        """What the user's log has."""
        text = "&".join(f"{name}={value}" for name, value in query.items())
        answer = self.wire.call("GET", f"/v1/events?{text}").expect(200)
        return answer.message(Events).events

    def view(self, story: Story, query: str = "") -> ContainerView:
        return self.wire.call("GET", f"{story.path}?{query}").expect(200).message(ContainerView)


@dataclass(frozen=True)
class Grant:
    """What one user is to have. Key index and wrap are the right ones unless they are given."""

    permissions: int = OWNER
    expires_at: int | None = None
    key_index: int | None = None
    wrapped: bool | None = None


Grants = Mapping[Any, Grant | int]
"""By `Recipient`."""


@dataclass
class Story:
    """One container: its secrets, and its records as far as they were taken."""

    creator: User
    nonce: bytes = field(default_factory=lambda: random_bytes(32))
    records: list[ContainerRecord] = field(default_factory=list)
    requests: list[RecordRequest] = field(default_factory=list)
    key: bytes = field(default_factory=lambda: random_bytes(32))
    grants: dict[Recipient, Grant] = field(default_factory=dict)
    parts: dict[bytes, tuple[NewPart, int]] = field(default_factory=dict)
    _drafts: dict[bytes, tuple[ContainerRecord, bytes, dict[Recipient, Grant]]] = field(
        default_factory=dict
    )

    @property
    def id(self) -> ContainerId:
        return ContainerId(container_id_of(self.creator.name, self.nonce).bytes)

    @property
    def uuid(self) -> UUID:
        """The container's id as callers have it."""
        return UUID(bytes=self.id)

    @property
    def path(self) -> str:
        return f"/v1/containers/{self.uuid}"

    @property
    def head(self) -> ContainerRecord:
        return self.records[-1]

    @property
    def governing(self) -> ContainerRecord:
        return next(record for record in reversed(self.records) if record.governing)

    def hash(self, record: ContainerRecord) -> bytes:
        return record_hash(encode_object(record))

    def seal(self, role: Role, author: User, plaintext: bytes, key: bytes) -> tuple[Part, bytes]:
        """A new part of as many segments as it takes, and those, one after the other."""
        new = NewPart.begin(self.id, role, author.name)
        pieces = [plaintext[at : at + SEGMENT] for at in range(0, len(plaintext), SEGMENT)] or [b""]
        sealed = [new.seal_segment(n, n == len(pieces) - 1, p) for n, p in enumerate(pieces)]
        part = new.finish(key, len(plaintext), b"".join(map(sha256, sealed)))
        self.parts[new.part_id] = new, len(plaintext)
        return part, b"".join(sealed)

    def reseal(self, part: Part | None, key: bytes) -> Part | None:
        """A part that is carried over a change of access."""
        if part is None:
            return None
        new, length = self.parts[part.partId]
        sealed = new.finish(key, length, b"").sealedKey
        return msgspec.structs.replace(part, sealedKey=sealed)

    def access(
        self,
        version: int,
        author: User,
        grants: Grants,
        key: bytes,
        type_digest: bytes,
        via: Via | None = None,
    ) -> tuple[Governing, list[AccessEntry]]:
        group = None if via is None else via.group
        blank = Governing(
            version, author.name, bytes(32), key_commitment(self.id, key), type_digest, group
        )
        entries = []
        for user, given in sorted(grants.items(), key=lambda item: item[0].name):
            grant = given if isinstance(given, Grant) else Grant(given)
            index = len(user.encryption) - 1 if grant.key_index is None else grant.key_index
            decrypts = bool(grant.permissions & Level.Decrypt)
            wrap = None
            if decrypts if grant.wrapped is None else grant.wrapped:
                info = wrap_info(self.id, blank, user.name, index)
                wrap = wrap_key(user.encryption[-1].public, info, key)
            digest = None if wrap is None else wrap_hash(wrap)
            entry = Entry(user.name, index, grant.permissions, grant.expires_at, digest)
            entries.append(AccessEntry(salt=random_bytes(32), entry=encode_value(entry), wrap=wrap))
        hashes = b"".join(entry.salted.hash for entry in entries)
        named = msgspec.structs.replace(blank, accessList=list_hash(self.id, version, hashes))
        return named, entries

    def begin(
        self,
        grants: Grants | None = None,
        *,
        header: bytes | None = None,
        content: bytes | Part | None = b"content",
        type: str | None = None,
        author: User | None = None,
        **changes: Any,
    ) -> RecordRequest:
        """The first record, by default with all rights for the creator."""
        author = author or self.creator
        given = grants or {author: OWNER}
        text, digest = make_type(self.id, type)
        governing, entries = self.access(1, author, given, self.key, digest)
        header_part, sealed_header = self._new(Role.Header, author, header, self.key)
        content_part, sealed_content = self._new(Role.Content, author, content, self.key)
        record = ContainerRecord(
            self.id, self.nonce, 1, None, author.name, len(author.ring.signing) - 1, clock(), None,
            governing, header_part, content_part, False,
        )  # fmt: skip
        record = msgspec.structs.replace(record, **changes)
        request = self.sign(author, record)
        self._drafts[request.record.body] = record, self.key, _grants(given)
        return msgspec.structs.replace(
            request, accessList=entries, type=text, header=sealed_header, content=sealed_content
        )

    def follow(
        self,
        author: User,
        *,
        grants: Grants | None = None,
        header: bytes | Part | None = KEEP,
        content: bytes | Part | None = KEEP,
        type: str | None = KEEP,
        tombstone: bool = False,
        via: Acting | Via | None = None,
        **changes: Any,
    ) -> RecordRequest:
        """The record after the head: nothing is changed but what is named; `via` is the group to act for."""
        acting = via if via is None or isinstance(via, Via) else via.via
        head, old = self.head, self.governing
        assert old.governing is not None
        version, key, governing, entries, text = head.version + 1, self.key, None, None, None
        digest = old.governing.type
        if type is not KEEP:
            text, digest = make_type(self.id, type)
            governing = msgspec.structs.replace(old.governing, type=digest)
        if grants is not None:
            key = random_bytes(32)
            governing, entries = self.access(version, author, grants, key, digest, acting)
        parts: dict[Role, Part | None] = {}
        sealed: dict[Role, bytes | None] = {}
        for role, wanted in {Role.Header: header, Role.Content: content}.items():
            if wanted is KEEP and not tombstone:
                carried = head.part(role)
                parts[role] = self.reseal(carried, key) if grants is not None else carried
                sealed[role] = None
            else:
                new = None if wanted is KEEP else wanted
                parts[role], sealed[role] = self._new(role, author, new, key)
        record = ContainerRecord(
            self.id, None, version, self.hash(head), author.name, len(author.ring.signing) - 1,
            clock(), Link(old.version, self.hash(old)), governing,
            parts[Role.Header], parts[Role.Content], tombstone, acting,
        )  # fmt: skip
        record = msgspec.structs.replace(record, **changes)
        request = self.sign(author, record)
        self._drafts[request.record.body] = record, key, _grants(grants) or self.grants
        return msgspec.structs.replace(
            request,
            accessList=entries,
            type=text,
            header=sealed[Role.Header],
            content=sealed[Role.Content],
        )

    def sign(self, author: User, record: ContainerRecord, key_index: int = -1) -> RecordRequest:
        """A request with this record and nothing else."""
        body = encode_object(record)
        signature = author.ring.signing[key_index].sign(LABEL, bare_body(body))
        return RecordRequest(record=SignedRecord(body=body, signature=signature))

    def send(self, user: User, request: RecordRequest, version: int | None = None) -> Answer:
        if version is None:
            version = msgspec.msgpack.decode(request.record.body[1:])[2]
        return user.wire.call("PUT", f"{self.path}/records/{version}", request)

    def tell(self, user: User, request: RecordRequest) -> RecordReceipt:
        """Sends a record that is taken, and goes on from it."""
        receipt = self.send(user, request).expect(201).message(RecordReceipt)
        self.took(request)
        assert receipt == RecordReceipt(version=self.head.version, hash=self.hash(self.head))
        return receipt

    def took(self, request: RecordRequest) -> None:
        """Goes on from a record that was taken, also one that a program sent; later ones are dropped."""
        body = request.record.body
        drafted = self._drafts.get(body)
        record, self.key, self.grants = drafted or (parse_record(body), self.key, self.grants)
        self.records[record.version - 1 :] = [record]
        self.requests[record.version - 1 :] = [request]

    def altered(self, signer: User, request: RecordRequest, **changes: Any) -> RecordRequest:
        """The request with its record changed, and signed by any user."""
        body = request.record.body
        record = msgspec.structs.replace(parse_record(body), **changes)
        signed = self.sign(signer, record).record
        _, key, grants = self._drafts.get(body, (record, self.key, self.grants))
        self._drafts[signed.body] = record, key, grants
        return msgspec.structs.replace(request, record=signed)

    def twin(self) -> Story:
        """The same container so far, for forged records that this story does not go on from."""
        records, requests, parts = list(self.records), list(self.requests), dict(self.parts)
        return replace(self, records=records, requests=requests, parts=parts)

    def created(self, grants: Grants | None = None, **options: Any) -> Story:
        self.tell(self.creator, self.begin(grants, **options))
        return self

    def chunk(self, user: User, part: Part, index: int, sealed: bytes) -> Answer:
        path = f"{self.path}/parts/{UUID(bytes=part.partId)}/chunks/{index}"
        return user.wire.send("PUT", path, sealed, {"Content-Type": "application/octet-stream"})

    def upload(self, user: User, plaintext: bytes, key: bytes | None = None) -> Part:
        """A large part by this user, all chunks of it sent."""
        part, sealed = self.seal(Role.Content, user, plaintext, key or self.key)
        for index, piece in enumerate(chunks_of(sealed)):
            self.chunk(user, part, index, piece).expect(204)
        return part

    def _new(
        self, role: Role, author: User, content: bytes | Part | None, key: bytes
    ) -> tuple[Part | None, bytes | None]:
        if content is None or isinstance(content, Part):
            return content, None
        return self.seal(role, author, content, key)


def departure(story: Story, user: User, seen: int = 0, **changes: Any) -> DepartureRequest:
    """What a user leaves a story's list in force with; `changes` are to the fields of the departure."""
    made = story.governing.governing
    assert made is not None
    fields: dict[str, Any] = {
        "containerId": story.id,
        "accessVersion": made.accessVersion,
        "accessList": made.accessList,
        "fingerprint": user.name,
        "keyIndex": len(user.ring.signing) - 1,
        "time": clock(),
        **changes,
    }
    body = encode_object(Departure(**fields))
    signature = user.ring.signing[fields["keyIndex"]].sign(DEPARTURE_LABEL, body)
    return DepartureRequest(departure=SignedObject(body=body, signature=signature), departures=seen)


def leave(story: Story, user: User, message: DepartureRequest | int = 0) -> Answer:
    """The answer to a departure: this one, or one of a user who has seen so many others."""
    sent = departure(story, user, message) if isinstance(message, int) else message
    return user.wire.call("POST", f"{story.path}/departure", sent)


def chunks_of(sealed: bytes) -> list[bytes]:
    size = CHUNK_SEGMENTS * (SEGMENT + 56 + 16 * (SEGMENT // 16_384 + 1))
    return [sealed[at : at + size] for at in range(0, len(sealed), size)]


def _grants(grants: Grants | None) -> dict[Recipient, Grant]:
    return {
        user: grant if isinstance(grant, Grant) else Grant(grant)
        for user, grant in (grants or {}).items()
    }


def rotate(url: str, user: User, *retired: tuple[KeyType, int], **fresh: int) -> User:
    """The user with further keys, published behind the broker's back; then these are retired.

    `signing` and `encryption` say how many keys come; they are dated ten minutes ago, retirements
    at this moment.
    """
    ring = user.ring
    signing = ring.signing + tuple(SigningKey.generate() for _ in range(fresh.get("signing", 0)))
    encryption = ring.encryption + tuple(
        DecryptionKey.generate() for _ in range(fresh.get("encryption", 0))
    )
    new = KeyRing(ring.generation + 1, signing, encryption)
    past, mine = clock() - 10 * MINUTE, ring.userId.bytes
    steps = [Step(KeyType.Signing, n, time=past) for n in range(len(ring.signing), len(signing))]
    steps += [
        Step(KeyType.Encryption, n, time=past) for n in range(len(ring.encryption), len(encryption))
    ]
    steps += [Step(kind, index, RETIRED) for kind, index in retired]
    stored = "SELECT body, signature FROM key_records WHERE user_id = ? ORDER BY sequence"
    chain = KeyChain.verify([Signed(*row) for row in query(url, stored, mine)], clock())
    made = key_records(new, chain, *steps)
    for sequence, signed in enumerate(made, len(chain.records)):
        row = "INSERT INTO key_records (user_id, sequence, body, signature) VALUES (?, ?, ?, ?)"
        query(url, row, mine, sequence, *signed)
    grown = chain.extend(made, clock())
    query(
        url,
        "UPDATE users SET chain_length = ?, encryption_index = ?, signing_sequence = ? WHERE id = ?",
        len(grown.records), len(encryption) - 1, grown.signing_sequence, mine,
    )  # fmt: skip
    return User(new, user.wire)


@dataclass(frozen=True)
class Step:
    """A key record to be: by default one that introduces a key, as of now."""

    kind: KeyType
    index: int
    state: int = ACTIVE
    time: int | None = None


def chain_of(user: User) -> KeyChain:
    """The user's published keys, as of now."""
    asked = {"users": [{"userId": user.id}]}
    answer = user.wire.call("POST", "/v1/key-records", asked).expect(200)
    [found] = answer.message(KeyRecords).users
    return KeyChain.verify([item.signed for item in found.keyRecords], clock())


def key_records(ring: KeyRing, chain: KeyChain, *steps: Step) -> list[Signed]:
    """Key records behind a chain, whatever a broker thinks of them; a KeyRing's own are `next_records`."""
    own = {
        KeyType.Signing: [key.public for key in ring.signing],
        KeyType.Encryption: [key.public for key in ring.encryption],
    }
    previous, found = chain.hashes[-1], []
    for sequence, step in enumerate(steps, start=len(chain.records)):
        record = KeyRecord(
            ring.rawFingerprint, sequence, step.kind, step.index, own[step.kind][step.index],
            step.state, clock() if step.time is None else step.time, previous,
        )  # fmt: skip
        body = encode_object(record)
        found.append(Signed(body, ring.signing[0].sign(KEY_LABEL, body)))
        previous = labelled_hash(KEY_LABEL, body)
    return found


def ordered(
    user: User,
    action: str,
    digest: bytes = NO_DIGEST,
    *,
    label: str = ORDER_LABEL,
    signed_by: SigningKey | None = None,
    **changes: Any,
) -> Authorization:
    """An order over a fresh nonce, signed with the user's latest key; `changes` are to its fields."""
    if "nonce" not in changes:
        changes["nonce"] = user.wire.nonce()
    fields: dict[str, Any] = {
        "origin": user.wire.broker.origin,
        "fingerprint": user.name,
        "keyIndex": len(user.ring.signing) - 1,
        "action": action,
        "digest": digest,
    }
    body = encode_object(Order(**(fields | changes)))
    key = signed_by or user.ring.signing[-1]
    return Authorization(order=body, signature=key.sign(label, body))


def storing(user: User, **fields: Any) -> KeyFileStoring:
    """What stores another KeyFile of the next generation, without its order."""
    answer = user.wire.call("GET", "/v1/key-file").expect(200)
    found = answer.message(KeyFileState)
    given: dict[str, Any] = {
        "keyFile": random_bytes(64),
        "generation": found.generation + 1,
        "auth": random_bytes(32),
        "replaces": found.hash,
        "authorization": Authorization(order=b"", signature=bytes(3373)),
    }
    records = [SignedObject.of(signed) for signed in fields.pop("keyRecords", ())]
    return KeyFileStoring(**(given | fields), keyRecords=records)


def authorized(user: User, message: KeyFileStoring, **changes: Any) -> KeyFileStoring:
    """The storing with the order that it needs."""
    order = ordered(user, "store-key-file", message.digest, **changes)
    return msgspec.structs.replace(message, authorization=order)


def store(user: User, message: KeyFileStoring) -> Answer:
    return user.wire.call("PUT", "/v1/key-file", message)


def renewed(user: User) -> tuple[User, list[Signed]]:
    """The user with another key of each type, and the records that publish them, as a client does it."""
    ring = user.ring.next(user.ring.generation + 1, fresh=True)
    return User(ring, user.wire), ring.next_records(chain_of(user), clock())


def delete_key_file(user: User, authorization: Authorization) -> Answer:
    message = KeyFileDeletion(authorization=authorization)
    return user.wire.call("POST", "/v1/key-file/deletion", message)


def signed_together(author: User, requests: Sequence[RecordRequest]) -> list[RecordRequest]:
    """The same records under one signature of the author (docs/spec/ids.md, 2.7)."""
    digests = [record_hash(request.record.body) for request in requests]
    salts = [random_bytes(32) for _ in requests]
    signatures = batch.sign_each(author.ring.signing[-1].sign, digests, salts)
    return [with_signature(*each) for each in zip(requests, signatures, strict=True)]


def with_signature(request: RecordRequest, signature: bytes) -> RecordRequest:
    record = msgspec.structs.replace(request.record, signature=signature)
    return msgspec.structs.replace(request, record=record)


def closing(user: User, *, signed_by: SigningKey | None = None, **changes: Any) -> SignedObject:
    """What closes the user's chain as the broker has it; `changes` are to its fields."""
    sequence, previous = _end_of_chain(user)
    key = user.ring.signing[0]
    record = KeyRecord(
        user.name, sequence + 1, KeyType.Signing, 0, key.public, CLOSED,
        clock() + RETIREMENT_AHEAD, labelled_hash(KEY_LABEL, previous),
    )  # fmt: skip
    body = encode_object(msgspec.structs.replace(record, **changes))
    return SignedObject(body=body, signature=(signed_by or key).sign(KEY_LABEL, body))


def _end_of_chain(user: User) -> tuple[int, bytes]:
    """Sequence and body of the last record; from the database where a user may have no session."""
    url = getattr(user.wire.broker, "database_url", None)
    if url is None:
        records = chain_of(user).records
        return len(records) - 1, records[-1].body
    statement = "SELECT sequence, body FROM key_records WHERE user_id = ?"
    return max(query(url, statement, user.ring.userId.bytes), default=(1, b""))


def deletion(user: User, key_record: SignedObject | None = None, **changes: Any) -> UserDeletion:
    """What deletes the user; `changes` are to its order."""
    key_record = key_record or closing(user)
    digest = labelled_hash(KEY_LABEL, key_record.body)
    order = ordered(user, "delete-user", **{"digest": digest, **changes})
    return UserDeletion(keyRecord=key_record, authorization=order)


def delete_user(user: User, message: UserDeletion | Authorization | None = None) -> Answer:
    """The deletion of a user, by what they send themselves unless something else is given."""
    if isinstance(message, Authorization):
        message = UserDeletion(keyRecord=closing(user), authorization=message)
    return user.wire.call("POST", f"/v1/users/{user.id}/deletion", message or deletion(user))


@contextmanager
def stalled(url: str, table: str) -> Iterator[Callable[[int], None]]:
    """PostgreSQL alone: whoever comes to write to this table waits until the block ends.

    Gives a function that returns once so many connections to this database wait for a lock.
    """
    with _asking(url) as ask:
        ask("BEGIN")
        ask(f"LOCK TABLE {table} IN SHARE MODE")
        yield lambda count: _wait_for_locks(ask, count)


@contextmanager
def _asking(url: str) -> Iterator[Callable[[str], Any]]:
    """One connection to PostgreSQL for several statements."""
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        connection = loop.run_until_complete(asyncpg.connect(url.replace("+asyncpg", "")))
        try:
            yield lambda statement: loop.run_until_complete(connection.fetchval(statement))
        finally:
            loop.run_until_complete(connection.close())


def _wait_for_locks(ask: Callable[[str], Any], count: int) -> None:
    def all_wait() -> bool:
        ask("SELECT pg_stat_clear_snapshot()")
        return bool(ask(_WAITING) >= count)

    wait_until(all_wait, "nobody waits")


def query_all(url: str, statements: Mapping[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    """What several statements give, over one connection."""
    if url.startswith("sqlite"):
        return {name: query(url, statement) for name, statement in statements.items()}

    async def ask() -> dict[str, list[tuple[Any, ...]]]:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            return {
                name: [tuple(row) for row in await connection.fetch(statement)]
                for name, statement in statements.items()
            }
        finally:
            await connection.close()

    return asyncio.run(ask())


_WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
