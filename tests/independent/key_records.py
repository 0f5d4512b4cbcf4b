"""Chains of key records and their rules K1 to K7: docs/spec/ids.md, 4."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, NamedTuple

from tests.independent import encodings as e
from tests.independent.encodings import labelled_hash, need
from tests.independent.ids import fingerprint_of, user_id_of
from tests.independent.keys import (
    DecryptionKey,
    SigningKey,
    check_encryption_key,
    check_signature,
    check_signing_key,
)

SIGNING, ENCRYPTION = 0, 1
ACTIVE, RETIRED, CLOSED = 0, 1, 2
LENGTHS = {SIGNING: 1984, ENCRYPTION: 1216}
CHECKS = {SIGNING: check_signing_key, ENCRYPTION: check_encryption_key}
MINUTE = 60_000_000


class Signed(NamedTuple):
    """An object as it is stored.

    Without a signature it is a vector's, which says that its signatures are taken to hold.
    """

    body: bytes
    signature: bytes | None


class Signable(e.Object):
    name: ClassVar[str]
    """That of the label under which it is signed."""

    def signed_by(self, key: SigningKey) -> Signed:
        return Signed(self.stored(), key.sign(self.name, self.stored()))


@dataclass(frozen=True)
class KeyRecord(Signable):
    name = "key-record"
    fingerprint: e.Hash
    sequence: e.UInt
    key_type: Annotated[int, lambda value: e.integer(value, SIGNING, ENCRYPTION)]
    index: e.KeyIndex
    public_key: Annotated[bytes, lambda value: value]
    """Its length depends on the type."""
    state: Annotated[int, lambda value: e.integer(value, ACTIVE, CLOSED)]
    time: e.Time
    previous: e.Hash | None


def parse(body: bytes) -> KeyRecord:
    record = KeyRecord.parse(body)
    e.octets(record.public_key, LENGTHS[record.key_type])
    return record


def record_hash(body: bytes) -> bytes:
    return labelled_hash("key-record", body)


@dataclass(frozen=True)
class PublishedKey:
    public: bytes
    introduced: int
    retired: int | None = None

    def is_good_at(self, time: int) -> bool:
        return self.introduced <= time and (self.retired is None or self.retired > time)


class Mark(NamedTuple):
    sequence: int
    hash: bytes


@dataclass
class KeyChain:
    """The keys of one user, by type and index, of the records that were judged so far."""

    fingerprint: bytes
    hashes: list[bytes] = field(default_factory=list)
    keys: dict[int, list[PublishedKey]] = field(
        default_factory=lambda: {SIGNING: [], ENCRYPTION: []}
    )
    closed: int | None = None
    """The time from which no key is active."""

    @property
    def mark(self) -> Mark:
        return Mark(len(self.hashes) - 1, self.hashes[-1])

    def public_keys(self, key_type: int) -> list[bytes]:
        return [key.public for key in self.keys[key_type]]

    def latest_active(self, key_type: int) -> int:
        """The index; there is one by K5, unless the chain is closed."""
        need(self.closed is None, "K8: no active key")
        keys = self.keys[key_type]
        return max(index for index, key in enumerate(keys) if key.retired is None)

    def signing_key(self, index: int, time: int) -> bytes:
        """The key that may have signed at that time."""
        keys = self.keys[SIGNING]
        good = self.closed is None or self.closed > time
        good = good and index < len(keys) and keys[index].is_good_at(time)
        need(good, "no signing key that is good")
        return keys[index].public

    def check_mark(self, mark: Mark) -> None:
        need(mark.sequence < len(self.hashes), "shorter than it was", "rollback")
        need(self.hashes[mark.sequence] == mark.hash, "another chain than it was", "fork")

    def check_user(self, user_id: bytes) -> None:
        need(user_id_of(self.fingerprint) == user_id, "another user's chain", "key-substitution")

    def check_pin(self, fingerprint: bytes) -> None:
        need(self.fingerprint == fingerprint, "two users with one id", "key-substitution")


def judge(records: Sequence[Signed], now: int) -> KeyChain:
    need(len(records) >= 2, "K2: fewer than two records")
    chain = KeyChain(parse(records[0].body).fingerprint)
    for signed in records:
        append(chain, signed, now)
    return chain


def append(chain: KeyChain, signed: Signed, now: int) -> None:
    record = parse(signed.body)
    keys = chain.keys[record.key_type]
    first = not chain.hashes
    need(chain.closed is None, "K8: after the end")
    if first:
        # Its index and state need no check here: no key exists that K5 or K8 could end, and K4 counts.
        shape = (record.sequence, record.key_type, record.previous)
        need(shape == (0, SIGNING, None), "K1: no first record")
        need(fingerprint_of(record.public_key) == record.fingerprint, "K1: another fingerprint")
    else:
        need(record.sequence == len(chain.hashes), "K2: not the next sequence")
        need(record.fingerprint == chain.fingerprint, "K2: another user's")
        need(record.previous == chain.hashes[-1], "K2: another previous record")
    if len(chain.hashes) == 1:
        introduced = (record.key_type, record.index, record.state)
        need(introduced == (ENCRYPTION, 0, ACTIVE), "K1: encryption key 0 comes second")
    if record.state == ACTIVE:
        need(record.index == len(keys), "K4, K7: not the next index")
        CHECKS[record.key_type](record.public_key)
        known = record.public_key in [key.public for key in keys]
        need(not known, "K4: introduced before")
    root = record.public_key if first else chain.keys[SIGNING][0].public
    if signed.signature is not None:
        check_signature(root, "key-record", signed.body, signed.signature)  # K3
    need(record.time <= now + 20 * MINUTE, "K6: of the future", "clock")
    if record.state == ACTIVE:
        keys.append(PublishedKey(record.public_key, record.time))
    elif record.state == CLOSED:
        _close(chain, record)
    else:
        need(record.index < len(keys) - 1, "K5: the newest, or no key")
        key = keys[record.index]
        need(key.retired is None, "K5: retired before")
        need(key.public == record.public_key, "K5: another public key")
        need(key.introduced <= record.time, "K5: before it was introduced")
        keys[record.index] = replace(key, retired=record.time)
    chain.hashes.append(record_hash(signed.body))


def _close(chain: KeyChain, record: KeyRecord) -> None:
    roots = chain.public_keys(SIGNING)[:1]
    named = (record.key_type, record.index, [record.public_key])
    need(named == (SIGNING, 0, roots), "K8: another key than signing key 0")
    active = [key for keys in chain.keys.values() for key in keys if key.retired is None]
    introduced = all(key.introduced <= record.time for key in active)
    need(introduced, "K8: before an introduction")
    chain.closed = record.time


class Writer:
    """A user who writes their own chain."""

    def __init__(self, time: int) -> None:
        self.signing = [SigningKey.fresh()]
        self.encryption = [DecryptionKey.fresh()]
        self.fingerprint = fingerprint_of(self.signing[0].public)
        self.records: list[Signed] = []
        self._append(SIGNING, 0, ACTIVE, time)
        self._append(ENCRYPTION, 0, ACTIVE, time)

    def rotate(self, time: int, retirement: int) -> None:
        """A new key of each type, and the retirement of those that they replace."""
        self.signing.append(SigningKey.fresh())
        self.encryption.append(DecryptionKey.fresh())
        for key_type, keys in ((SIGNING, self.signing), (ENCRYPTION, self.encryption)):
            self._append(key_type, len(keys) - 1, ACTIVE, time)
            self._append(key_type, len(keys) - 2, RETIRED, retirement)

    def _append(self, key_type: int, index: int, state: int, time: int) -> None:
        keys = self.signing if key_type == SIGNING else self.encryption
        record = KeyRecord(
            self.fingerprint,
            len(self.records),
            key_type,
            index,
            keys[index].public,
            state,
            time,
            record_hash(self.records[-1].body) if self.records else None,
        )
        self.records.append(record.signed_by(self.signing[0]))
