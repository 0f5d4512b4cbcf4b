"""Names, hashes, UUIDs and public keys: docs/spec/ids.md, 1.4, 1.5, 2.1, 2.4 and 3; container.md, 1."""

from typing import Any

from scbroker.crypto.verify import labelled_hash
from scbroker.records.canonical import (
    container_id_of,
    fingerprint_of,
    show_fingerprint,
    user_id_of,
    uuid8,
)
from tests.vectors.cast import cast, chosen, decryption_key, signing_key
from tests.vectors.files import Vector, invalid, store, valid

P = 2**255 - 19
# Points of small order, as tests/crypto/test_small_order.py computes them.
ED25519_ORDER_8 = (
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
)
X25519_ORDER_8 = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)


def make() -> None:
    store(
        "ids",
        "docs/spec/ids.md, 1.4 to 3, and container.md, 1. `kind` says what a vector is about. Public "
        "keys are given by the half in question and the user of people.json whose other half it is.",
        [*hashes(), *names(), *texts(), *signing_keys(), *encryption_keys()],
    )


def hashes() -> list[Vector]:
    found = []
    for name, message in (("fingerprint", b""), ("container-id", b"abc"), ("type", bytes(100))):
        found.append(
            valid(f"H {name}", "SHA-256 of L(name) || message.", kind="hash", name=name,
                  message=message, hash=labelled_hash(name, message))
        )  # fmt: skip
    for digest in (bytes(32), b"\xff" * 32, bytes(range(32)), chosen("uuid8")):
        found.append(
            valid(f"uuid8 {digest.hex()[:4]}", "The first 122 bits.", kind="uuid8", hash=digest,
                  uuid=str(uuid8(digest)))
        )  # fmt: skip
    return found


def names() -> list[Vector]:
    key = signing_key("alice").public
    fingerprint = fingerprint_of(key)
    nonce = chosen("story", "nonce")
    return [
        valid("alice", "A user's names.", kind="user", signingKey=key, fingerprint=fingerprint,
              userId=str(user_id_of(fingerprint)), shown=show_fingerprint(fingerprint)),
        valid("a container of hers", "The one of container_records.json.", kind="container",
              creator=fingerprint, nonce=nonce,
              containerId=str(container_id_of(fingerprint, nonce))),
    ]  # fmt: skip


def texts() -> list[Vector]:
    good = str(user_id_of(cast()["alice"].fingerprint))
    bad = {
        "upper case": good.upper(),
        "one upper case letter": "A0000000-0000-8000-8000-00000000000a".replace("a", "b"),
        "braces": "{" + good + "}",
        "urn": "urn:uuid:" + good,
        "no hyphens": good.replace("-", ""),
        "hyphens elsewhere": good[:7] + "-" + good[7] + good[9:],
        "a space before": " " + good,
        "a line feed behind": good + "\n",
        "too short": good[:-1],
        "too long": good + "0",
        "a letter beyond f": good[:-1] + "g",
        "digits of another script": good[:-1] + "٣",
        "empty": "",
    }
    every = "00000000-0000-0000-0000-000000000000"
    return [
        valid("UUID text", "The canonical spelling.", kind="uuid text", text=good),
        valid("UUID of zeros", "A reader of text judges the spelling alone.", kind="uuid text",
              text=every),
        *(
            invalid(f"UUID text, {name}", "Not the canonical spelling.", "invalid",
                    kind="uuid text", text=text)
            for name, text in bad.items()
        ),
    ]  # fmt: skip


def small_order_ys() -> dict[str, int]:
    first, second = (int.from_bytes(bytes.fromhex(item), "little") for item in ED25519_ORDER_8)
    return {"order 4": 0, "order 1": 1, "order 2": P - 1, "order 8": first, "order 8'": second}


def small_order_us() -> dict[str, int]:
    first, second = (int.from_bytes(bytes.fromhex(item), "little") for item in X25519_ORDER_8)
    return {"0": 0, "1": 1, "-1": P - 1, "order 8": first, "order 8'": second}


def signing_keys() -> list[Vector]:
    def key(half: int | bytes) -> dict[str, Any]:
        raw = half if isinstance(half, bytes) else half.to_bytes(32, "little")
        return {"kind": "signing key", "ed25519": raw, "mlDsaOf": "alice"}

    good = signing_key("alice").public[:32]
    found = [valid("signing key", "Alice's.", **key(good))]
    for name, y in small_order_ys().items():
        for sign in (0, 1):
            found.append(
                invalid(f"Ed25519, {name}, sign {sign}", "A point of small order.", "integrity",
                        **key(y | sign << 255))
            )  # fmt: skip
    for name, value in {"2^255-19": P, "2^255-18": P + 1, "2^255-1": 2**255 - 1}.items():
        found.append(
            invalid(f"Ed25519, y {name}", "Not a canonical encoding.", "integrity", **key(value))
        )
    found.append(
        invalid("Ed25519, y 2^255-19 with sign", "Not canonical.", "integrity",
                **key(P | 1 << 255))
    )  # fmt: skip
    found.append(invalid("signing key, a byte less", "1,983.", "integrity", **key(good[:31])))
    found.append(invalid("signing key, a byte more", "1,985.", "integrity", **key(good + b"\0")))
    return found


def encryption_keys() -> list[Vector]:
    def key(half: int | bytes) -> dict[str, Any]:
        raw = half if isinstance(half, bytes) else half.to_bytes(32, "little")
        return {"kind": "encryption key", "mlKemOf": "alice", "x25519": raw}

    public = decryption_key("alice").public
    good = public[1184:]
    found = [valid("encryption key", "Alice's.", **key(good))]
    for name, u in small_order_us().items():
        found.append(invalid(f"X25519, u {name}", "A point of small order.", "integrity", **key(u)))
    for name, value in {
        "2^255-19": P,
        "2^255-18": P + 1,
        "2^255-1": 2**255 - 1,
        "9 and bit 255": 9 | 1 << 255,
    }.items():
        found.append(
            invalid(f"X25519, u {name}", "Not a canonical encoding.", "integrity", **key(value))
        )
    found.append(invalid("encryption key, a byte less", "1,215.", "integrity", **key(good[:31])))
    found.append(invalid("encryption key, a byte more", "1,217.", "integrity", **key(good + b"\0")))
    for name, position, start in (
        ("0 of 3329", 0, bytes([0x01, 0x0D | public[1] & 0xF0])),
        ("0 of 4095", 0, bytes([0xFF, 0x0F | public[1] & 0xF0])),
        ("1 of 3329", 1, bytes([0x10 | public[1] & 0x0F, 0xD0])),
        ("1 of 4095", 1, bytes([0xF0 | public[1] & 0x0F, 0xFF])),
        ("767 of 3329", 1150, bytes([0x10 | public[1150] & 0x0F, 0xD0])),
    ):
        spoiled = public[:position] + start + public[position + 2 : 1184]
        found.append(
            invalid(f"ML-KEM, coefficient {name}", "FIPS 203, 7.2: not below q.", "integrity",
                    kind="encryption key", mlKem=spoiled, x25519=good)
        )  # fmt: skip
    return found
