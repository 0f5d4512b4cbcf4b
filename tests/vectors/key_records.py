"""Chains of key records: docs/spec/ids.md, section 4."""

from typing import Any

import msgspec

from scbroker.crypto.verify import labelled_hash
from scbroker.records.canonical import encode_object, fingerprint_of, user_id_of
from scbroker.records.key_record import CLOSED, LABEL, RETIRED, KeyRecord, Signed
from scbroker.vocabulary import KeyType
from tests.vectors.cast import DAY, MINUTE, START, Person, cast, decryption_key, signing_key
from tests.vectors.files import Vector, invalid, put, store, valid
from tests.vectors.ids import P

SIGNING, ENCRYPTION = KeyType.Signing, KeyType.Encryption
INTEGRITY = "integrity"


class Chains:
    """The vectors, and the records that they name."""

    def __init__(self) -> None:
        self.vectors: list[Vector] = []
        self.records: dict[str, dict[str, bytes]] = {}
        self._names: dict[bytes, str] = {}

    def _chain(self, name: str, records: list[Signed], fields: dict[str, Any]) -> dict[str, Any]:
        names = []
        for n, record in enumerate(records):
            key = record.body + record.signature
            if key not in self._names:
                self._names[key] = f"{name} {n}"
                self.records[f"{name} {n}"] = {
                    "body": record.body, "signature": record.signature,
                }  # fmt: skip
            names.append(self._names[key])
        return {"records": names, "now": START + 30 * DAY, **fields}

    def valid(self, name: str, comment: str, records: list[Signed], **fields: Any) -> None:
        self.vectors.append(valid(name, comment, **self._chain(name, records, fields)))

    def invalid(
        self, name: str, comment: str, records: list[Signed], error: str = INTEGRITY, **fields: Any
    ) -> None:
        self.vectors.append(invalid(name, comment, error, **self._chain(name, records, fields)))


def make() -> None:
    chains = Chains()
    for chapter in (first_records, followers, signatures, introductions, retirements, closings,
                    formats, marks):  # fmt: skip
        chapter(chains)
    store(
        "key_records",
        "docs/spec/ids.md, 4. Each vector is a chain by the names of its records, judged at `now`. "
        "Of an invalid one the last record alone is at fault, or the chain's end. With `mark`, the "
        "chain is valid and the mark decides; with `userId`, whether it is the chain of the user asked "
        "for; with `pin`, whether it has the fingerprint that was verified before. See people.json for "
        "valid chains with their seeds.",
        chains.vectors,
        records=chains.records,
    )


def signed(record: KeyRecord, by: str = "alice", index: int = 0, label: str = LABEL) -> Signed:
    body = encode_object(record)
    return Signed(body, signing_key(by, index).sign(label, body))


def first_two() -> list[Signed]:
    return list(cast()["alice"].records)


def alice(*more: str) -> Person:
    """Alice, whose chain goes on."""
    someone = Person("alice", first_two(), list(cast()["alice"].hashes))
    for n, step in enumerate(more):
        kind = SIGNING if "signing" in step else ENCRYPTION
        index = int(step[-1])
        act = someone.retire if "retire" in step else someone.introduce
        act(kind, index, START + (n + 1) * DAY)
    return someone


def first_records(chains: Chains) -> None:
    one = Person("alice").next_record(SIGNING, 0, START)
    second = cast()["alice"].records[1]
    chains.valid("two records", "Alice.", first_two())
    ids = {name: str(user_id_of(cast()[name].fingerprint)) for name in ("alice", "bob")}
    chains.valid("asked for Alice", "The chain is hers.", first_two(), userId=ids["alice"])
    chains.invalid("asked for Bob", "A chain that is valid, and Alice's.", first_two(),
                   "key-substitution", userId=ids["bob"])  # fmt: skip

    def spoiled(name: str, comment: str, **changes: Any) -> None:
        record = msgspec.structs.replace(one, **changes)
        body = encode_object(record)
        following = msgspec.structs.replace(
            Person("alice", [second], [labelled_hash(LABEL, body)]).next_record(
                ENCRYPTION, 0, START
            ),
            fingerprint=record.fingerprint,
        )
        chains.invalid(name, comment, [signed(record), signed(following)])

    chains.invalid("no records", "A chain has at least two.", [])
    chains.invalid("one record", "A chain has at least two.", first_two()[:1])
    spoiled("K1, sequence", "Record 0 has sequence 1.", sequence=1)
    spoiled("K1, index", "Signing key 1 as the first.", index=1)
    spoiled("K1, state", "Retired as the first.", state=1)
    spoiled("K1, previous", "A hash before the first.", previous=bytes(32))
    spoiled("K1, fingerprint", "Not that of the key.", fingerprint=cast()["bob"].fingerprint)
    key = decryption_key("alice").public
    spoiled("K1, type", "An encryption key as the first.", keyType=1, publicKey=key,
            fingerprint=fingerprint_of(key))  # fmt: skip
    base = Person("alice", first_two()[:1], list(cast()["alice"].hashes[:1]))
    other = base.next_record(SIGNING, 1, START)
    chains.invalid("K1, second record", "Signing key 1 before encryption key 0.",
                   [*first_two()[:1], signed(other)])  # fmt: skip


def followers(chains: Chains) -> None:
    good = alice().next_record(ENCRYPTION, 1, START + DAY)
    chains.valid("three records", "A second encryption key.", [*first_two(), signed(good)])
    chains.valid("a second signing key", "Signing key 1.", alice("signing 1").records)

    def spoiled(name: str, comment: str, **changes: Any) -> None:
        record = msgspec.structs.replace(good, **changes)
        chains.invalid(name, comment, [*first_two(), signed(record)])

    spoiled("K2, sequence skipped", "3 after 1.", sequence=3)
    spoiled("K2, sequence repeated", "1 after 1.", sequence=1)
    spoiled("K2, fingerprint", "Bob's in Alice's chain.", fingerprint=cast()["bob"].fingerprint)
    spoiled("K2, previous", "The hash of record 0.", previous=cast()["alice"].hashes[0])
    spoiled("K2, no previous", "nil.", previous=None)
    spoiled("K6, future", "More than 20 minutes ahead.", time=START + 30 * DAY + 20 * MINUTE + 1)
    chains.vectors[-1]["error"] = "clock"
    latest = msgspec.structs.replace(good, time=START + 30 * DAY + 20 * MINUTE)
    chains.valid("20 minutes ahead", "The latest time.", [*first_two(), signed(latest)])
    early = msgspec.structs.replace(good, time=0)
    chains.valid("no order of times", "Only retirements have an order.",
                 [*first_two(), signed(early)])  # fmt: skip


def signatures(chains: Chains) -> None:
    record = alice().next_record(ENCRYPTION, 1, START + DAY)
    good = signed(record)

    def spoiled(name: str, comment: str, signature: bytes) -> None:
        chains.invalid(name, comment, [*first_two(), Signed(good.body, signature)])

    foreign = signed(record, "bob").signature
    spoiled("K3, Ed25519 half", "Bob's.", foreign[:64] + good.signature[64:])
    spoiled("K3, ML-DSA half", "Bob's.", good.signature[:64] + foreign[64:])
    spoiled("K3, both halves", "Bob's.", foreign)
    spoiled("K3, label", "Signed as a container record.",
            signed(record, label="container-record").signature)  # fmt: skip
    rotated = alice("signing 1")
    following = rotated.next_record(ENCRYPTION, 1, START + 2 * DAY)
    chains.valid("signed by key 0", "With two signing keys.",
                 [*rotated.records, signed(following)])  # fmt: skip
    chains.invalid("K3, signed by key 1", "Key 0 alone signs key records.",
                   [*rotated.records, signed(following, index=1)])  # fmt: skip


def introductions(chains: Chains) -> None:
    def spoiled(name: str, comment: str, kind: KeyType, index: int, public: bytes) -> None:
        record = alice().next_record(kind, index, START + DAY, public=public)
        chains.invalid(name, comment, [*first_two(), signed(record)])

    key, own = decryption_key("alice", 1).public, signing_key("alice", 1).public
    spoiled("K4, index skipped", "2 after 0.", ENCRYPTION, 2, key)
    spoiled("K4, index taken", "0 after 0.", ENCRYPTION, 0, key)
    spoiled("K4, key introduced before", "Key 0 as key 1.", ENCRYPTION, 1,
            decryption_key("alice").public)  # fmt: skip
    spoiled("K4, small order Ed25519", "y = 1.", SIGNING, 1, (1).to_bytes(32, "little") + own[32:])
    spoiled("K4, small order X25519", "u = 0.", ENCRYPTION, 1, key[:1184] + bytes(32))
    spoiled("K4, not canonical", "u = 2^255-10, for 9.", ENCRYPTION, 1,
            key[:1184] + (P + 9).to_bytes(32, "little"))  # fmt: skip
    spoiled("K4, ML-KEM", "A coefficient of 4,095.", ENCRYPTION, 1, b"\xff\x0f" + key[2:])
    spoiled("signing key as encryption key", "1,984 bytes with keyType 1.", ENCRYPTION, 1, own)
    spoiled("encryption key as signing key", "1,216 bytes with keyType 0.", SIGNING, 1, key)


def retirements(chains: Chains) -> None:
    two = alice("encryption 1")

    def retires(
        name: str, comment: str, someone: Person, kind: KeyType, index: int,
        *, good: bool = False, time: int = START + 9 * DAY, public: bytes | None = None,
    ) -> None:  # fmt: skip
        record = someone.next_record(kind, index, time, RETIRED, public)
        (chains.valid if good else chains.invalid)(
            name, comment, [*someone.records, signed(record)]
        )

    retires("retirement", "Encryption key 0.", two, ENCRYPTION, 0, good=True)
    retires("K5, the newest", "Key 1; key 0 is active too.", two, ENCRYPTION, 1)
    later = alice("encryption 1", "encryption 2")
    retires("retirement at once", "At the time of the introduction.", later, ENCRYPTION, 1,
            good=True, time=START + DAY)  # fmt: skip
    retires("K5, before the introduction", "A microsecond earlier.", later, ENCRYPTION, 1,
            time=START + DAY - 1)  # fmt: skip
    retires("K5, unknown key", "Encryption key 2.", two, ENCRYPTION, 2,
            public=decryption_key("alice").public)  # fmt: skip
    retires("K5, another public key", "That of key 1 for key 0.", two, ENCRYPTION, 0,
            public=decryption_key("alice", 1).public)  # fmt: skip
    retires("K5, the only key", "Encryption key 0.", alice(), ENCRYPTION, 0)
    retires("K5, the only signing key", "Signing key 0.", alice(), SIGNING, 0)
    three = alice("encryption 1", "encryption 2", "retire encryption 0")
    retires("K5, retired before", "Encryption key 0 for a second time.", three, ENCRYPTION, 0)
    again = three.next_record(ENCRYPTION, 3, START + 9 * DAY,
                              public=decryption_key("alice").public)  # fmt: skip
    chains.invalid("K4, retired key returns", "Key 0 as key 3.",
                   [*three.records, signed(again)])  # fmt: skip


def closings(chains: Chains) -> None:
    def closes(
        name: str, comment: str, someone: Person, *, good: bool = False, time: int = START + 9 * DAY,
        kind: KeyType = SIGNING, index: int = 0, public: bytes | None = None,
    ) -> list[Signed]:  # fmt: skip
        record = someone.next_record(kind, index, time, CLOSED, public)
        records = [*someone.records, signed(record)]
        (chains.valid if good else chains.invalid)(name, comment, records)
        return records

    closed = closes("closed", "Alice's only keys.", alice(), good=True)
    rotated = alice("signing 1", "encryption 1", "retire signing 0")
    closes("closed after a rotation", "Three keys are active.", rotated, good=True)
    closes("closed at once", "At the time of the introductions.", alice(), good=True, time=START)
    closes("K8, before an introduction", "Of encryption key 1, by a microsecond.",
           alice("signing 1", "encryption 1"), time=START + 2 * DAY - 1)  # fmt: skip
    closes("K8, index 1", "With the public key of signing key 0.", alice("signing 1"), index=1,
           public=signing_key("alice").public)  # fmt: skip
    closes("K8, an encryption key", "Encryption key 0.", alice(), kind=ENCRYPTION)
    closes("K8, another public key", "That of key 1 for key 0.", alice("signing 1"),
           public=signing_key("alice", 1).public)  # fmt: skip
    first = Person("alice", first_two()[:1], list(cast()["alice"].hashes[:1]))
    closes("K1, closed as the second", "Before encryption key 0.", first)
    late = Person("alice", closed, [*cast()["alice"].hashes, labelled_hash(LABEL, closed[-1].body)])
    closes("K8, closed again", "Nothing follows.", late)
    after = late.next_record(ENCRYPTION, 1, START + 10 * DAY)
    chains.invalid("K8, introduced afterwards", "Nothing follows.", [*closed, signed(after)])
    two = alice("encryption 1")
    two.append(two.next_record(SIGNING, 0, START + 9 * DAY, CLOSED))
    after = two.next_record(ENCRYPTION, 0, START + 10 * DAY, RETIRED)
    chains.invalid("K8, retired afterwards", "Nothing follows.", [*two.records, signed(after)])


def formats(chains: Chains) -> None:
    good = alice().next_record(ENCRYPTION, 1, START + DAY)
    body = encode_object(good)

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        one = Signed(changed, signing_key("alice").sign(LABEL, changed))
        chains.invalid(name, comment, [*first_two(), one])

    row = msgspec.to_builtins(good, builtin_types=(bytes,))
    spoiled("wrong version byte", "00.", b"\0" + body[1:])
    spoiled("trailing byte", "c0 behind the value.", body + b"\xc0")
    spoiled("integer not shortest", "Sequence 2 as cc 02.", body[:36] + b"\xcc" + body[36:])
    spoiled("unknown type", "keyType 2.", put(row, 2, 2))
    spoiled("unknown state", "3.", put(row, 5, 3))
    spoiled("index too large", "256.", put(row, 3, 256))
    spoiled("state as bool", "false.", put(row, 5, False))


def marks(chains: Chains) -> None:
    records, hashes = first_two(), cast()["alice"].hashes
    third = signed(alice().next_record(ENCRYPTION, 1, START + DAY))
    mark = {"sequence": 1, "hash": hashes[1]}
    chains.valid("mark at the end", "Seen before.", records, mark=mark)
    chains.valid("mark before the end", "The chain went on.", [*records, third], mark=mark)
    chains.invalid("mark beyond the end", "The chain is shorter.", records, "rollback",
                   mark={"sequence": 2, "hash": hashes[1]})  # fmt: skip
    alice_is = cast()["alice"].fingerprint
    chains.valid("pinned", "The fingerprint is the pin.", records, pin=alice_is)
    chains.invalid("another pin", "A fingerprint with the same userId was verified before.", records,
                   "key-substitution", pin=alice_is[:31] + bytes([alice_is[31] ^ 1]))  # fmt: skip
    chains.invalid("another record at the mark", "The chain was another.", records, "fork",
                   mark={"sequence": 1, "hash": bytes(32)})  # fmt: skip
