"""The people of the vectors and of the tests: their keys come from their names.

Everything that the formats allow to be deterministic is: seeds, nonces, salts, keys and times.
Signatures, seals and wraps are random by construction.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cache

from scbroker.crypto.seal import DecryptionKey, SigningKey
from scbroker.crypto.verify import labelled_hash
from scbroker.keys import KeyRing
from scbroker.records.canonical import encode_object, fingerprint_of
from scbroker.records.key_record import ACTIVE, LABEL, RETIRED, KeyChain, KeyRecord, Signed
from scbroker.vocabulary import KeyType

START = 1_800_000_000_000_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


def day(number: int) -> int:
    """So many days after the start."""
    return START + number * DAY


def chosen(*names: object, size: int = 32) -> bytes:
    """Bytes that stand for random ones: SHAKE-256 of the names."""
    text = " ".join(map(str, ("scbroker vectors", *names)))
    return hashlib.shake_256(text.encode()).digest(size)


@cache
def signing_key(name: str, index: int = 0) -> SigningKey:
    return SigningKey(chosen(name, "ed25519", index), chosen(name, "ml-dsa", index))


@cache
def decryption_key(name: str, index: int = 0) -> DecryptionKey:
    return DecryptionKey(chosen(name, "ml-kem", index, size=64), chosen(name, "x25519", index))


@dataclass(eq=False)
class Person:
    """A user with a chain that grows."""

    name: str
    records: list[Signed] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)

    @property
    def fingerprint(self) -> bytes:
        return fingerprint_of(signing_key(self.name).public)

    def encryption(self, index: int) -> DecryptionKey:
        return decryption_key(self.name, index)

    def next_record(
        self, kind: KeyType, index: int, time: int, state: int = ACTIVE, public: bytes | None = None
    ) -> KeyRecord:
        own = signing_key if kind is KeyType.Signing else decryption_key
        return KeyRecord(
            self.fingerprint,
            len(self.records),
            kind,
            index,
            own(self.name, index).public if public is None else public,
            state,
            time,
            self.hashes[-1] if self.hashes else None,
        )

    def sign(self, body: bytes, name: str = LABEL, index: int = 0) -> Signed:
        return Signed(body, signing_key(self.name, index).sign(name, body))

    def append(self, record: KeyRecord) -> None:
        body = encode_object(record)
        self.records.append(self.sign(body))
        self.hashes.append(labelled_hash(LABEL, body))

    def introduce(self, kind: KeyType, index: int, time: int) -> None:
        self.append(self.next_record(kind, index, time))

    def retire(self, kind: KeyType, index: int, time: int) -> None:
        self.append(self.next_record(kind, index, time, RETIRED))

    def chain(self, now: int = START + 1000 * DAY) -> KeyChain:
        return KeyChain.verify(self.records, now)

    def ring(self, generation: int = 1, signing: int = 1, encryption: int = 1) -> KeyRing:
        return KeyRing(
            generation,
            tuple(signing_key(self.name, n) for n in range(signing)),
            tuple(decryption_key(self.name, n) for n in range(encryption)),
        )


def person(name: str, time: int = START) -> Person:
    """A user with signing key 0 and encryption key 0, both of this time."""
    someone = Person(name)
    someone.introduce(KeyType.Signing, 0, time)
    someone.introduce(KeyType.Encryption, 0, time)
    return someone


@cache
def cast() -> dict[str, Person]:
    """Alice, Bob, Carol and Dora; Erin has rotated both keys, ten days after the start."""
    people = {name: person(name) for name in ("alice", "bob", "carol", "dora", "erin")}
    erin = people["erin"]
    erin.introduce(KeyType.Signing, 1, START + 10 * DAY)
    erin.introduce(KeyType.Encryption, 1, START + 10 * DAY)
    erin.retire(KeyType.Signing, 0, START + 20 * DAY)
    erin.retire(KeyType.Encryption, 0, START + 20 * DAY)
    return people
