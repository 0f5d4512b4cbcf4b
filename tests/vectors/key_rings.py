"""KeyRings against chains: docs/spec/keyfile.md, section 4."""

from typing import Any

from scbroker.vocabulary import KeyType
from tests.vectors.cast import DAY, START, Person, cast, decryption_key, person, signing_key
from tests.vectors.files import invalid, store, valid

SUBSTITUTION, ROLLBACK = "key-substitution", "rollback"


def make() -> None:
    erin, alice = cast()["erin"], cast()["alice"]
    other = person("alice")
    other.append(other.next_record(KeyType.Encryption, 1, START + DAY,
                                   public=decryption_key("erin", 1).public))  # fmt: skip

    def given(ring: tuple[str, int, int], chain: Person) -> dict[str, Any]:
        name, signing, encryption = ring
        records = [{"body": one.body, "signature": one.signature} for one in chain.records]
        return {"ring": name, "signing": signing, "encryption": encryption,
                "now": START + 30 * DAY, "keyRecords": records}  # fmt: skip

    two = person("alice")
    two.introduce(KeyType.Signing, 1, START + DAY)
    two.introduce(KeyType.Encryption, 1, START + DAY)
    store(
        "key_rings",
        "docs/spec/keyfile.md, 4. The KeyRing has the first `signing` and `encryption` keys of the user "
        "`ring` (by seeds: people.json; those of Alice's keys 1 are given here). The chain is valid. A "
        "log-in compares the two.",
        [
            valid("one key of each type", "Alice.", **given(("alice", 1, 1), alice)),
            valid("two keys of each type", "Erin, who retired the first.",
                  **given(("erin", 2, 2), erin)),
            invalid("another user's chain", "Bob's.", SUBSTITUTION,
                    **given(("alice", 1, 1), cast()["bob"])),
            invalid("another encryption key 1", "Published in Alice's name.", SUBSTITUTION,
                    **given(("alice", 1, 2), other)),
            invalid("an old KeyRing", "The chain has a second key of each type.", ROLLBACK,
                    **given(("erin", 1, 1), erin)),
            invalid("an old list of signing keys", "The chain has one more.", ROLLBACK,
                    **given(("erin", 1, 2), erin)),
            invalid("an old list of encryption keys", "The chain has one more.", ROLLBACK,
                    **given(("erin", 2, 1), erin)),
            invalid("records withheld", "The KeyRing has a second key of each type.", ROLLBACK,
                    **given(("erin", 2, 2), _first_two(erin))),
            invalid("an encryption key withheld", "The last record.", ROLLBACK,
                    **given(("alice", 2, 2), Person("alice", two.records[:3], two.hashes[:3]))),
        ],
        seeds={"alice": [seeds("alice")]},
    )  # fmt: skip


def seeds(name: str) -> dict[str, bytes]:
    """Key 1 of each type."""
    ed25519, ml_dsa = signing_key(name, 1).seeds
    ml_kem, x25519 = decryption_key(name, 1).seeds
    return {
        "ed25519": bytes(ed25519), "mlDsa": bytes(ml_dsa), "mlKem": bytes(ml_kem),
        "x25519": bytes(x25519),
    }  # fmt: skip


def _first_two(someone: Person) -> Person:
    return Person(someone.name, someone.records[:2], someone.hashes[:2])
