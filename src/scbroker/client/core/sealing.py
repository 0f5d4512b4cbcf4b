"""Make what a writer signs: parts, access lists with their wraps, types. Open sealed parts again.

Without I/O and without a clock; the inputs are verified already. Spec: docs/spec/container.md, 3 to 6 and 9.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from msgspec.structs import replace

from scbroker.crypto.seal import (
    KEY_SIZE,
    Octets,
    random_bytes,
    seal,
    seal_into,
    unseal,
    unseal_into,
    wrap_key,
)
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import IntegrityError, KeySubstitutionError
from scbroker.records import container_record as records
from scbroker.records.canonical import encode_value
from scbroker.records.container_record import (
    SEGMENT,
    AccessList,
    Entry,
    Governing,
    Part,
    Role,
    SaltedEntry,
)
from scbroker.records.judge import Grant
from scbroker.records.key_record import KeyChain
from scbroker.vocabulary import ContainerAccessLevel, KeyType
from scbroker.wire.containers import AccessEntry, TypeText

_LENGTH_SIZE = 8


_Binding = tuple[bytes, bytes, Role, bytes]
"""Container id, part id, role and author. A part's key and segments are bound to these when they are
sealed."""


@dataclass(frozen=True, slots=True, repr=False)
class NewPart:
    """A part that is being sealed: its key, and the fields that its segments are bound to."""

    container_id: bytes
    role: Role
    author: bytes
    part_id: bytes
    key: bytes

    @classmethod
    def begin(cls, container_id: bytes, role: Role, author: bytes) -> Self:
        return cls(container_id, role, author, random_bytes(16), random_bytes(KEY_SIZE))

    @property
    def _binding(self) -> _Binding:
        return self.container_id, self.part_id, self.role, self.author

    def seal_segment(self, index: int, last: bool, plaintext: Octets) -> bytes:
        return seal(self.key, records.segment_context(*self._binding, index, last), plaintext)

    def seal_into(self, target: memoryview, index: int, last: bool, plaintext: Octets) -> int:
        """Seal a segment into a buffer; return the sealed size."""
        return seal_into(
            target, self.key, records.segment_context(*self._binding, index, last), plaintext
        )

    def finish(self, container_key: bytes, length: int, hashes: bytes) -> Part:
        """Return the part as a record names it, its key sealed under the container key."""
        sealed_key = seal_part_key(container_key, *self._binding, self.key, length)
        segments = records.segments_hash(length, hashes)
        return Part(self.part_id, self.author, length, segments, sealed_key)


@dataclass(frozen=True, slots=True, repr=False)
class OpenPart:
    """A part with its key; opens segments after checking them against the signed hashes.

    `length` is that of the plaintext in bytes, without padding.
    """

    container_id: bytes
    role: Role
    part: Part
    key: bytes
    length: int

    @classmethod
    def open(cls, container_id: bytes, role: Role, part: Part, container_key: bytes) -> Self:
        """Open a part's key; raise `DecryptionError` or `IntegrityError` if the author sealed another."""
        context = records.part_key_context(container_id, part.partId, role, part.author)
        opened = unseal(container_key, context, part.sealedKey)
        length = int.from_bytes(opened[KEY_SIZE:], "big")
        if len(opened) != KEY_SIZE + _LENGTH_SIZE or length > part.paddedLength:
            raise IntegrityError("A sealed part key has another format than the specification's.")
        return cls(container_id, role, part, opened[:KEY_SIZE], length)

    @property
    def _binding(self) -> _Binding:
        return self.container_id, self.part.partId, self.role, self.part.author

    def open_segment(self, index: int, sealed: Octets, expected_hash: bytes) -> bytes:
        """Return a segment's plaintext without padding, once the whole segment verified."""
        plaintext = memoryview(bytearray(self._padded_size(index)))
        return bytes(plaintext[: self.open_segment_into(plaintext, index, sealed, expected_hash)])

    def open_segment_into(
        self, target: memoryview, index: int, sealed: Octets, expected_hash: bytes
    ) -> int:
        """Open a segment into a buffer; return its length. After an error the buffer must not be used."""
        if sha256(sealed) != expected_hash:
            raise IntegrityError("A segment is not the one that was signed.")
        padded = self._padded_size(index)
        if len(sealed) != records.sealed_size(padded):
            raise IntegrityError("A segment has another length than its position gives.")
        is_last = index == records.segment_count(self.part.paddedLength) - 1
        unseal_into(
            target, self.key, records.segment_context(*self._binding, index, is_last), sealed
        )
        real = max(0, min(padded, self.length - index * SEGMENT))
        if bytes(target[real:padded]) != bytes(padded - real):  # `any` takes 100 times as long
            raise IntegrityError("A part's padding is not zero.")
        return real

    def reseal(self, container_key: bytes) -> Part:
        """Return the same part with its key under another container key."""
        sealed_key = seal_part_key(container_key, *self._binding, self.key, self.length)
        return replace(self.part, sealedKey=sealed_key)

    def _padded_size(self, index: int) -> int:
        return min(SEGMENT, self.part.paddedLength - index * SEGMENT)


def seal_part_key(
    container_key: bytes,
    container_id: bytes,
    part_id: bytes,
    role: Role,
    author: bytes,
    key: bytes,
    length: int,
) -> bytes:
    context = records.part_key_context(container_id, part_id, role, author)
    return seal(container_key, context, key + length.to_bytes(_LENGTH_SIZE, "big"))


class Recipient(NamedTuple):
    """A user or group to whom a container key is wrapped, with their latest key."""

    name: bytes
    """The user's fingerprint, or the name of the group."""
    key_index: int
    """The index of the user's key, or the epoch of the group."""
    public: bytes


def recipient_of(chain: KeyChain) -> Recipient:
    """Return a user with their latest active key; `IntegrityError` if they were deleted."""
    key = chain.latest(KeyType.Encryption)
    return Recipient(chain.fingerprint, key.index, key.public)


@dataclass(frozen=True, slots=True)
class NewAccess:
    """A change of access: the governing field of its record, its list, and the entries as they are sent."""

    governing: Governing
    list: AccessList
    entries: Sequence[AccessEntry]


def make_access(
    container_id: bytes,
    version: int,
    author: bytes,
    type_digest: bytes,
    container_key: bytes,
    grants: Mapping[uuid.UUID, Grant],
    recipients: Mapping[uuid.UUID, Recipient],
    members: Mapping[uuid.UUID, Entry],
    via: bytes | None = None,
) -> NewAccess:
    """Return an access list with a wrap of the new container key for each user and group with Decrypt.

    Members without a key were deleted: their entries stay without a wrap, under the fingerprint and the
    key index that they had in the list before (section 4). `via` is the group for which the author acts.
    Raises `IntegrityError` for a list that readers would refuse.
    """
    commitment = records.key_commitment(container_id, container_key)
    # A wrap is bound to version and author alone, so it can be made before the list's hash is known.
    unlisted = Governing(version, author, bytes(HASH_SIZE), commitment, type_digest, via)
    listed = []
    for user, grant in grants.items():
        recipient, wrap = recipients.get(user), None
        if recipient is None:
            name, index = members[user].fingerprint, members[user].keyIndex
        else:
            name, index, public = recipient
            before = members.get(user)
            if before is not None and before.fingerprint != name:
                raise KeySubstitutionError(
                    f"{user} is another user or group than the list names so far."
                )
            if grant.fingerprint not in (None, name):
                raise KeySubstitutionError(
                    f"The keys of {user} do not have the fingerprint of the contact, card or group that was "
                    "given: compare the fingerprint with the person before you share anything."
                )
            if grant.permissions & ContainerAccessLevel.Decrypt:
                info = records.wrap_info(container_id, unlisted, name, index)
                wrap = wrap_key(public, info, container_key)
        digest = None if wrap is None else records.wrap_hash(wrap)
        listed.append((Entry(name, index, grant.permissions, grant.expiresAt, digest), wrap))
    listed.sort(key=lambda item: item[0].fingerprint)
    salted = [SaltedEntry(random_bytes(HASH_SIZE), encode_value(entry)) for entry, _ in listed]
    access = AccessList.made([entry for entry, _ in listed], [each.hash for each in salted])
    digest = records.list_hash(container_id, version, access.entryHashes)
    entries = [
        AccessEntry(salt=each.salt, entry=each.entry, wrap=wrap)
        for each, (_, wrap) in zip(salted, listed, strict=True)
    ]
    return NewAccess(replace(unlisted, accessList=digest), access, entries)


def make_type(container_id: bytes, text: str | None) -> tuple[TypeText, bytes]:
    salt = random_bytes(HASH_SIZE)
    return TypeText(salt=salt, type=text), records.type_hash(container_id, salt, text)
