"""Parse, verify and extend the chain of a user's public keys.

Rules K1 to K8 are those of docs/spec/ids.md, section 4.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from scbroker.crypto import verify
from scbroker.crypto.verify import ENCRYPTION_KEY_SIZE, SIGNING_KEY_SIZE, VerifyingKey
from scbroker.errors import ClockError, ForkError, IntegrityError, RollbackError
from scbroker.records import canonical
from scbroker.records.canonical import Bin32, KeyIndex, Row, Time, Uint, decode_object
from scbroker.vocabulary import KeyType

LABEL: Final = "key-record"
MAX_KEY_RECORD: Final = 4096
CLOCK_TOLERANCE: Final = 300_000_000
"""Microseconds: a broker accepts records that are at most five minutes off its clock."""
READER_TOLERANCE: Final = 900_000_000
"""Microseconds: a reader's, larger so that a slow clock does not refuse what a broker accepted."""
RETIREMENT_AHEAD: Final = 600_000_000
"""Microseconds that a retirement is dated ahead: no record that was accepted before it is later than it."""
RETIREMENT_TOLERANCE: Final = 180_000_000
"""Microseconds by which a broker accepts a retirement earlier or later than that.

The earliest is two minutes after the latest record that a broker accepts. Brokers of one database whose
clocks differ by up to a minute use up half of this margin, and `signed_until` the other half.
"""
_CHAIN_TOLERANCE: Final = 1_200_000_000
_LOADED: Final = 128
"""Size of the cache of loaded signing keys. Each chain itself keeps its signing key 0."""
ACTIVE: Final = 0
RETIRED: Final = 1
CLOSED: Final = 2


class Signed(NamedTuple):
    """A stored object and its signature, as they were received."""

    body: bytes
    signature: bytes


class KeyRecord(Row, frozen=True):
    fingerprint: Bin32
    sequence: Uint
    keyType: Annotated[int, Meta(ge=0, le=1)]
    index: KeyIndex
    publicKey: Annotated[bytes, Meta(min_length=ENCRYPTION_KEY_SIZE, max_length=SIGNING_KEY_SIZE)]
    state: Annotated[int, Meta(ge=0, le=2)]
    time: Time
    previous: Bin32 | None


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key of a verified chain. Times in microseconds since 1970."""

    type: KeyType
    index: int
    public: bytes
    introduced: int
    retired: int | None = None

    def is_good_at(self, time: int) -> bool:
        return self.introduced <= time and (self.retired is None or time < self.retired)


KeyTable = MappingProxyType[tuple[int, int], KnownKey]


@dataclass(frozen=True, slots=True)
class KeyChain:
    """A user's verified key records, and the keys that result. Immutable: `extend` returns another."""

    fingerprint: bytes
    records: tuple[Signed, ...]
    hashes: tuple[bytes, ...]
    keys: KeyTable
    _root: VerifyingKey
    closed: bool = False
    """Whether the last record retired every key because the user was deleted (K8)."""

    @classmethod
    def verify(cls, records: Sequence[Signed], now: int) -> KeyChain:
        """Return the chain of all records of a user; raise `IntegrityError` at the first invalid one."""
        if not records:
            raise IntegrityError("A user was served without key records (K1).")
        first = parse_key_record(records[0])
        if first.keyType != KeyType.Signing or first.sequence != 0:
            raise IntegrityError("Key records begin with signing key 0 (K1).")
        if canonical.fingerprint_of(first.publicKey) != first.fingerprint:
            raise IntegrityError("The first key is not the one that the fingerprint names (K1).")
        root = VerifyingKey(first.publicKey)
        empty = cls(first.fingerprint, (), (), MappingProxyType({}), root)
        return empty.extend(records, now)

    def extend(self, records: Sequence[Signed], now: int) -> KeyChain:
        """Return this chain with more records, each verified."""
        chain = self
        for signed in records:
            chain = chain._append(signed, now)
        if len(chain.records) < 2:
            raise IntegrityError("A user was served without an encryption key (K1).")
        return chain

    def with_keys(self, keys: Collection[tuple[int, int]]) -> KeyChain:
        """Return a copy with these keys and no records; it verifies signatures and cannot be extended."""
        kept = {key: found for key, found in self.keys.items() if key in keys}
        return replace(self, records=(), hashes=(), keys=MappingProxyType(kept))

    def _append(self, signed: Signed, now: int) -> KeyChain:
        self._root.verify(LABEL, signed.body, signed.signature)
        record = parse_key_record(signed)
        previous = self.hashes[-1] if self.hashes else None
        expected = (self.fingerprint, len(self.records), previous)
        if (record.fingerprint, record.sequence, record.previous) != expected:
            raise IntegrityError("A key record does not follow the one before it (K2).")
        if self.closed:
            raise IntegrityError("A key record follows the one that closed the chain (K8).")
        if record.time > now + _CHAIN_TOLERANCE:
            raise ClockError(
                "A key record's time is more than 20 minutes ahead: set this machine's clock."
            )
        return replace(
            self,
            records=(*self.records, signed),
            hashes=(*self.hashes, verify.labelled_hash(LABEL, signed.body)),
            keys=MappingProxyType({**self.keys, **self._change(record)}),
            closed=record.state == CLOSED,
        )

    def _change(self, record: KeyRecord) -> dict[tuple[int, int], KnownKey]:
        if record.state == CLOSED:
            return self._close(record)
        kind, index = KeyType(record.keyType), record.index
        of_kind = self.of_type(kind)
        if record.state == RETIRED:
            if index >= len(of_kind) or of_kind[index].retired is not None:
                raise IntegrityError("A key record retires what is not an active key (K5).")
            if index == len(of_kind) - 1:
                raise IntegrityError("The newest key of a type cannot be retired (K5).")
            if of_kind[index].public != record.publicKey:
                raise IntegrityError(
                    "A key record retires a key and names another public key (K5)."
                )
            if record.time < of_kind[index].introduced:
                raise IntegrityError("A key record retires a key before it was introduced (K5).")
            return {(kind, index): replace(of_kind[index], retired=record.time)}
        expected = {0: (KeyType.Signing, 0), 1: (KeyType.Encryption, 0)}.get(record.sequence)
        if expected not in (None, (kind, index)) or index != len(of_kind):
            raise IntegrityError("A key record introduces a key out of order (K1, K4).")
        if any(key.public == record.publicKey for key in of_kind):
            raise IntegrityError("A key record introduces a key for a second time (K4).")
        if kind is KeyType.Signing:
            VerifyingKey(record.publicKey)
        else:
            verify.check_encryption_key(record.publicKey)
        return {(kind, index): KnownKey(kind, index, record.publicKey, record.time)}

    def _close(self, record: KeyRecord) -> dict[tuple[int, int], KnownKey]:
        if len(self.records) < 2:
            raise IntegrityError("A key record closes a chain before encryption key 0 (K1).")
        if (record.keyType, record.index, record.publicKey) != (KeyType.Signing, 0, self._root.raw):
            raise IntegrityError("A key record closes a chain without signing key 0 (K8).")
        active = {name: key for name, key in self.keys.items() if key.retired is None}
        if any(record.time < key.introduced for key in active.values()):
            raise IntegrityError("A key record retires a key before it was introduced (K8).")
        return {name: replace(key, retired=record.time) for name, key in active.items()}

    @property
    def userId(self) -> uuid.UUID:
        return canonical.user_id_of(self.fingerprint)

    @property
    def sequence(self) -> int:
        return len(self.records) - 1

    def of_type(self, kind: KeyType) -> list[KnownKey]:
        """Return all keys of a type, by index."""
        return [key for (found, _), key in sorted(self.keys.items()) if found == kind]

    def latest(self, kind: KeyType) -> KnownKey:
        """Return the newest key of a type, which is always active; a closed chain has none."""
        if self.closed:
            raise IntegrityError("This user was deleted and has no active key.")
        return max(
            (key for (found, _), key in self.keys.items() if found == kind),
            key=lambda key: key.index,
        )

    @property
    def signing_sequence(self) -> int:
        """Return the sequence of the record that introduced the newest signing key."""
        for sequence in range(self.sequence, 0, -1):
            record = parse_key_record(self.records[sequence])
            if (record.keyType, record.state) == (KeyType.Signing, ACTIVE):
                return sequence
        return 0

    def signing_key(self, index: int, time: int) -> VerifyingKey:
        """Return the signing key of this index; raise `IntegrityError` unless it was in force then."""
        key = self.keys.get((KeyType.Signing, index))
        if key is None or not key.is_good_at(time):
            raise IntegrityError("Signed with a key that was not in force at the record's time.")
        return self._root if index == 0 else _loaded(key.public)

    def check_active(self, index: int) -> None:
        """Raise `IntegrityError` if the signing key was retired, at any time."""
        key = self.keys.get((KeyType.Signing, index))
        if key is None or key.retired is not None:
            raise IntegrityError("Signed with a key that was retired.")

    def check_mark(self, sequence: int, digest: bytes) -> None:
        """Raise unless the chain contains the record that this device has verified before."""
        if self.sequence < sequence:
            raise RollbackError("This device has verified newer key records of this user before.")
        if self.hashes[sequence] != digest:
            raise ForkError("This device has verified other key records of this user before.")


@functools.lru_cache(_LOADED)
def _loaded(public: bytes) -> VerifyingKey:
    """Load a public signing key of a verified chain. Cached: one key signs many records."""
    return VerifyingKey(public)


def closing_fingerprint(signed: Signed) -> canonical.Fingerprint:
    """Return the user's fingerprint from a closing record, verified without their chain."""
    record = parse_key_record(signed)
    if record.state != CLOSED or canonical.fingerprint_of(record.publicKey) != record.fingerprint:
        raise IntegrityError("A key record does not close the chain of its user (K8).")
    VerifyingKey(record.publicKey).verify(LABEL, signed.body, signed.signature)
    return canonical.Fingerprint(record.fingerprint)


def parse_key_record(signed: Signed) -> KeyRecord:
    record = decode_object(KeyRecord, signed.body, MAX_KEY_RECORD)
    expected = SIGNING_KEY_SIZE if record.keyType == KeyType.Signing else ENCRYPTION_KEY_SIZE
    if len(record.publicKey) != expected:
        raise IntegrityError("A key record's public key has the wrong size for its type.")
    return record
