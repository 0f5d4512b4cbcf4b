"""Containers as their writers make them: valid records, and the means to spoil one in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from scbroker.client.core.sealing import seal_part_key
from scbroker.crypto.seal import DecryptionKey, seal, wrap_key
from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records.canonical import container_id_of, encode_object, encode_value
from scbroker.records.container_record import (
    LABEL,
    ContainerRecord,
    Entry,
    Governing,
    Link,
    Part,
    Role,
    SaltedEntry,
    bare_body,
    key_commitment,
    list_hash,
    record_hash,
    segment_context,
    segments_hash,
    type_hash,
    wrap_hash,
    wrap_info,
)
from scbroker.records.departure import LABEL as DEPARTURE
from scbroker.records.departure import Departure
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from tests.vectors.cast import Person, cast, chosen


class Recipient(Protocol):
    """A user, or a group."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> bytes: ...
    def encryption(self, index: int) -> DecryptionKey: ...


@dataclass(frozen=True)
class Grant:
    """What one user or group is to have in a list."""

    person: Recipient
    permissions: int
    expiresAt: int | None = None  # noqa: N815 - as in an entry
    keyIndex: int = 0  # noqa: N815 - as in an entry
    wrapped: bool = True


@dataclass(frozen=True)
class Access:
    """A list with its wraps."""

    salted: list[SaltedEntry]
    wraps: dict[str, bytes]
    governing: Governing

    @property
    def shown(self) -> list[dict[str, bytes]]:
        """The entries in a file of vectors."""
        return [{"salt": item.salt, "entry": item.entry} for item in self.salted]


@dataclass(frozen=True, eq=False)
class Made:
    """A record as its author signed it, with all that belongs to it."""

    record: ContainerRecord
    signed: Signed
    access: Access | None = None
    sealed: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def hash(self) -> bytes:
        return record_hash(self.signed.body)

    @property
    def listed(self) -> Access:
        assert self.access is not None, "a record without a list"
        return self.access

    def seen(self, *people: Recipient) -> list[int]:
        """The positions of these people's entries in the list."""
        names = {one.fingerprint for one in people}
        return [n for n, item in enumerate(self.listed.salted) if item.entry[3:35] in names]

    @property
    def bare(self) -> Made:
        """The record in its bare form."""
        return replace(self, signed=Signed(bare_body(self.signed.body), self.signed.signature))

    def again(self, **changes: Any) -> Made:
        """The record with other fields, signed by its author, with the same list."""
        record, old = altered(self.record, **changes), self.record
        return sign(record, author_of(old), self.access, old.keyIndex)


@dataclass(frozen=True)
class Container:
    """The names of one container, and its secrets by name."""

    name: str
    creator: Person

    @property
    def nonce(self) -> bytes:
        return chosen(self.name, "nonce")

    @property
    def id(self) -> bytes:
        return container_id_of(self.creator.fingerprint, self.nonce).bytes

    def key(self, access_version: int) -> bytes:
        return chosen(self.name, "container key", access_version)

    def type(self, text: str | None) -> bytes:
        return type_hash(self.id, self.type_salt(text), text)

    def type_salt(self, text: str | None) -> bytes:
        return chosen(self.name, "type salt", text)

    def access(
        self, version: int, author: Person, grants: Sequence[Grant], text: str | None = "note"
    ) -> Access:
        key = self.key(version)
        governing = Governing(
            version, author.fingerprint, b"", key_commitment(self.id, key), self.type(text)
        )
        salted, wraps = [], {}
        for grant in sorted(grants, key=lambda item: item.person.fingerprint):
            who, digest = grant.person, None
            if grant.permissions & 2 and grant.wrapped:
                info = wrap_info(self.id, governing, who.fingerprint, grant.keyIndex)
                public = who.encryption(grant.keyIndex).public
                wraps[who.name] = wrap_key(public, info, key)
                digest = wrap_hash(wraps[who.name])
            entry = Entry(
                who.fingerprint, grant.keyIndex, grant.permissions, grant.expiresAt, digest
            )
            salt = chosen(self.name, "entry salt", version, who.name)
            salted.append(SaltedEntry(salt, encode_value(entry)))
        hashes = b"".join(item.hash for item in salted)
        named = msgspec.structs.replace(governing, accessList=list_hash(self.id, version, hashes))
        return Access(salted, wraps, named)

    def part_id(self, name: str) -> bytes:
        return chosen(self.name, "part id", name, size=16)

    def part_key(self, name: str) -> bytes:
        return chosen(self.name, "part key", name)

    def part(
        self, role: Role, author: Person, name: str, text: bytes, access_version: int, padding: int
    ) -> tuple[Part, bytes]:
        """A part of one segment, sealed, and the segment."""
        part_id, key = self.part_id(name), self.part_key(name)
        context = segment_context(self.id, part_id, role, author.fingerprint, 0, True)
        sealed, length = seal(key, context, text + bytes(padding)), len(text) + padding
        sealed_key = seal_part_key(
            self.key(access_version), self.id, part_id, role, author.fingerprint, key, len(text)
        )
        segments = segments_hash(length, sha256(sealed))
        return Part(part_id, author.fingerprint, length, segments, sealed_key), sealed

    def resealed(self, role: Role, part: Part, name: str, length: int, version: int) -> Part:
        """The same part with its key under another container key."""
        sealed_key = seal_part_key(
            self.key(version), self.id, part.partId, role, part.author, self.part_key(name), length
        )
        return msgspec.structs.replace(part, sealedKey=sealed_key)

    def begin(self, time: int, access: Access) -> ContainerRecord:
        return ContainerRecord(
            self.id, self.nonce, 1, None, self.creator.fingerprint, 0, time, None,
            access.governing, None, None, False,
        )  # fmt: skip

    def create(
        self, time: int, grants: Sequence[Grant], text: str = "note",
        sealed: Mapping[str, bytes] = MappingProxyType({}), **changes: Any,
    ) -> Made:  # fmt: skip
        """The first record, by the creator; `changes` are to its fields."""
        access = self.access(1, self.creator, grants, text)
        record = altered(self.begin(time, access), **changes)
        return sign(record, self.creator, access, sealed=sealed)

    def change(
        self, history: Sequence[Made], author: Person, time: int, grants: Sequence[Grant],
        text: str = "note", **changes: Any,
    ) -> Made:  # fmt: skip
        """A change of access; `changes` are to the fields of the record."""
        access = self.access(history[-1].record.version + 1, author, grants, text)
        record = altered(follow(history, author, time, governing=access.governing), **changes)
        return sign(record, author, access)

    def retype(
        self, history: Sequence[Made], author: Person, time: int, text: str, **changes: Any
    ) -> Made:
        """A change of type; `changes` are to its governing field."""
        governing = msgspec.structs.replace(in_force(history), type=self.type(text), **changes)
        return write(history, author, time, governing=governing)


def departure(made: Made, leaver: Person, time: int, key_index: int = 0) -> Departure:
    """A departure from the list that a record has, or keeps."""
    governing = governing_of(made.record)
    return Departure(
        made.record.containerId, governing.accessVersion, governing.accessList,
        leaver.fingerprint, key_index, time,
    )  # fmt: skip


def leave(made: Made, leaver: Person, time: int, key_index: int = 0) -> Signed:
    said = departure(made, leaver, time, key_index)
    return leaver.sign(encode_object(said), DEPARTURE, key_index)


def follow(history: Sequence[Made], author: Person, time: int, **changes: Any) -> ContainerRecord:
    """The record after these: both parts carried over, nothing changed but what is named."""
    last = history[-1]
    governing = next(made for made in reversed(history) if made.record.governing is not None)
    record = ContainerRecord(
        last.record.containerId, None, last.record.version + 1, last.hash, author.fingerprint, 0,
        time, Link(governing.record.version, governing.hash), None,
        last.record.header, last.record.content, False,
    )  # fmt: skip
    return altered(record, **changes)


def in_force(history: Sequence[Made]) -> Governing:
    """The governing field in force."""
    return next(made.record.governing for made in reversed(history) if made.record.governing)


def author_of(record: ContainerRecord) -> Person:
    return next(one for one in cast().values() if one.fingerprint == record.author)


def instead(grants: Sequence[Grant], person: Recipient, *entry: Any) -> list[Grant]:
    """The grants with another one of this person, or with none."""
    others = [grant for grant in grants if grant.person is not person]
    return [*others, Grant(person, *entry)] if entry else others


def altered(record: ContainerRecord, **changes: Any) -> ContainerRecord:
    """The record with other fields; a dict changes fields of what stands there."""
    values = {
        name: msgspec.structs.replace(getattr(record, name), **value)
        if isinstance(value, dict)
        else value
        for name, value in changes.items()
    }
    return msgspec.structs.replace(record, **values)


def write(history: Sequence[Made], author: Person, time: int, **changes: Any) -> Made:
    """The record after these, signed; `changes` are to its fields."""
    return sign(follow(history, author, time, **changes), author)


def delete(history: Sequence[Made], author: Person, time: int, **changes: Any) -> Made:
    """The tombstone after these."""
    dead = {"header": None, "content": None, "tombstone": True}
    return write(history, author, time, **{**dead, **changes})


def sign(
    record: ContainerRecord,
    author: Person,
    access: Access | None = None,
    key_index: int | None = None,
    sealed: Mapping[str, bytes] = MappingProxyType({}),
) -> Made:
    """The record, signed with the key that it names unless another one is given."""
    index = record.keyIndex if key_index is None else key_index
    return Made(record, sign_body(encode_object(record), author, index), access, sealed)


def sign_body(body: bytes, author: Person, key_index: int = 0) -> Signed:
    """A body with its author's signature."""
    return Signed(body, author.sign(signed_form(body), LABEL, key_index).signature)


def signed_form(body: bytes) -> bytes:
    """The bytes of a record that its signature covers; of anything else all of them."""
    try:
        return bare_body(body)
    except IntegrityError:
        return body


def plain(record: ContainerRecord) -> list[Any]:
    """The record as nested lists, for encodings that its grammar does not allow."""
    return list(msgspec.to_builtins(record, builtin_types=(bytes,)))
