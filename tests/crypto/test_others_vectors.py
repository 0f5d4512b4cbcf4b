"""Vectors of others, through what we compose: those that `cryptography_vectors` brings, the test data of
the library that we stand on.

| vectors | run through |
|---|---|
| chunked encryption (C2SP) | by hand, with their hash; with ours, by hand against `seal` and `unseal` |
| ML-KEM-768 KAT, rejections too | `DecryptionKey.public`, and `.unwrap` of a wrap by hand |
| X25519 (RFC 7748) | `DecryptionKey.unwrap` of a wrap by hand |
| HPKE with MLKEM768-X25519 | `DecryptionKey.public`, `.unwrap` of a wrap by hand, the library's Suite |
| HPKE (RFC 9180), base mode | the key schedule by hand, the library's Suite |
| Ed25519 (RFC 8032, its authors' list) | `SigningKey.public`; the halves of SigningKey and VerifyingKey |
| ML-DSA-65 KAT | the same, with the vectors' context, which ours leave empty |
| HKDF-SHA256 (RFC 5869) | `seal._hkdf` where the salt is empty; else the library's HKDF |
| Argon2id (RFC 9106 and others) | the library's Argon2id: none has our parameters |
| AES-256-GCM (CAVS), our sizes | the library's AESGCM, which HPKE and Cobblestone use inside |

By hand is `tests.independent.keys`, written from the specifications. A wrap by hand leads a KEM's
vector through the whole of our unwrapping. Each test counts what it ran and what it left, and the sum is
what the file has. The package has nothing of Wycheproof's; the edge cases of Ed25519 and X25519 are
computed, in test_small_order.py and signatures.json.
"""

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP521R1,
    EllipticCurve,
    derive_private_key,
)
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scbroker.crypto import seal
from scbroker.crypto.seal import DecryptionKey, SigningKey, unseal
from scbroker.crypto.verify import VerifyingKey
from scbroker.errors import DecryptionError
from tests.independent import keys as by_hand
from tests.independent.encodings import RefusedError

SEED, KEM_SEED = bytes(range(32)), bytes(range(64))
KEY, INFO = bytes(range(32)), b"what a wrap is bound to"
Fields = dict[str, str]
each_step = pytest.mark.parametrize(
    "step", [20, pytest.param(1, marks=pytest.mark.long)], ids=["every twentieth", "all"]
)
"""For files of so many vectors that all of them take seconds."""


def text(path: str) -> str:
    return files("cryptography_vectors").joinpath(path).read_text("utf-8")


def listed(path: str, first: str) -> list[Fields]:
    """Vectors of `name = value` lines, of which each begins with `first`; headings in brackets go along."""
    found: list[Fields] = []
    headings: Fields = {}
    for line in text(path).splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if line.startswith("["):
            headings[name[1:]] = value.rstrip("]")
        elif name == first:
            found.append({**headings, name: value})
        elif line.strip() == "FAIL":
            found[-1]["FAIL"] = ""
        elif equals and not line.startswith("#"):
            found[-1][name] = value
    return found


def octets(digits: str) -> bytes:
    return bytes.fromhex(digits)


def wrap_by_hand(key: DecryptionKey, ss_m: bytes, ss_x: bytes, ct_m: bytes, ct_x: bytes) -> bytes:
    """KEY, wrapped by whoever encapsulated these."""
    shared = by_hand.xwing(ss_m, ss_x, ct_x, key.public[1184:])
    return by_hand.sealed_under(shared, ct_m + ct_x, INFO, KEY)


# Cobblestone


def test_cobblestone() -> None:
    """Nine messages open by hand; 25 that are damaged, of another key or of another context do not.

    These are of the scheme with SHA-256, which no library call takes; ours is with SHA-512, and opens none.
    """
    vectors = json.loads(text("chunked-encryption/vectors.json"))["vectors"]
    ran: Counter[str] = Counter()
    for vector in vectors:
        if vector["aead"] == "AEAD_AES_256_GCM":
            ran[vector["expect"]] += 1
            _cobblestone(vector)
        else:
            ran["another AEAD"] += 1
    assert ran == {"success": 9, "failure": 25, "another AEAD": 68}
    assert ran.total() == len(vectors) == 102


def _cobblestone(vector: dict[str, Any]) -> None:
    sealed = base64.b64decode(vector["ciphertext"] or "")  # no bytes at all are null
    sealed = zlib.decompress(sealed) if vector.get("compressed") else sealed
    key, context = octets(vector["key"]), vector["context"].encode()
    # A key of another length is the caller's fault: the library says so before it looks at anything.
    with pytest.raises(DecryptionError if len(key) == 32 else ValueError):
        unseal(key, context, sealed)
    if vector["expect"] == "failure":
        with pytest.raises(RefusedError):
            by_hand.cobblestone_open(key, context, sealed, "sha256")
        return
    plaintext = by_hand.cobblestone_open(key, context, sealed, "sha256")
    assert len(plaintext) == vector["payload_length"]
    assert hashlib.sha256(plaintext).hexdigest() == vector["payload_sha256"]
    aes, nonce, _ = by_hand.cobblestone_keys(key, sealed[:24], context, "sha256")
    assert (aes.hex(), nonce.hex()) == (vector["aead_key"], vector["base_nonce"])
    # The same plaintext, in our instance of the scheme.
    assert unseal(key, context, by_hand.cobblestone_seal(key, context, plaintext)) == plaintext
    assert by_hand.cobblestone_open(key, context, seal.seal(key, context, plaintext)) == plaintext


# KEMs and HPKE


@each_step
def test_ml_kem(step: int) -> None:
    """1,000 keys from their seeds; the wrap of each encapsulation opens, and of each rejected one too."""
    vectors = listed("asymmetric/MLKEM/kat_MLKEM_768.rsp", "count")
    other = X25519PrivateKey.generate()
    ct_x = other.public_key().public_bytes_raw()
    for vector in vectors[::step]:
        key = DecryptionKey(octets(vector["d"]) + octets(vector["z"]), SEED)
        assert key.public[:1184] == octets(vector["pk"])
        ss_x = other.exchange(X25519PrivateKey.from_private_bytes(SEED).public_key())
        for ct, ss in (("ct", "ss"), ("ct_n", "ss_n")):
            wrap = wrap_by_hand(key, octets(vector[ss]), ss_x, octets(vector[ct]), ct_x)
            assert key.unwrap(wrap, INFO) == KEY
    assert len(vectors) == 1000


def test_x25519() -> None:
    """The point of a vector as the sender's share, its scalar as the recipient's key."""
    vectors = listed("asymmetric/X25519/rfc7748.txt", "COUNT")
    ss_m, ct_m = MLKEM768PrivateKey.from_seed_bytes(KEM_SEED).public_key().encapsulate()
    for vector in vectors:
        key = DecryptionKey(KEM_SEED, octets(vector["INPUT_SCALAR"]))
        ct_x, ss_x = octets(vector["INPUT_U"]), octets(vector["OUTPUT_U"])
        assert key.unwrap(wrap_by_hand(key, ss_m, ss_x, ct_m, ct_x), INFO) == KEY
    assert len(vectors) == 3


def test_hpke_with_the_hybrid_kem() -> None:
    """Keys, shared secret, key schedule and messages; two of the 13 vectors have our KEM."""
    vectors = json.loads(text("HPKE/hpke-pq-test-vectors.json"))
    ours = [vector for vector in vectors if vector["kem_id"] == by_hand.MLKEM768_X25519]
    for vector in ours:
        _hybrid(vector)
    assert [(vector["kdf_id"], vector["aead_id"]) for vector in ours] == [(1, 3), (17, 3)]
    assert len(ours) + 11 == len(vectors)


def _hybrid(vector: dict[str, Any]) -> None:
    """The seed of the draft expands to our two private keys: docs/spec/ids.md, 2.5."""
    expanded = hashlib.shake_256(octets(vector["skRm"])).digest(96)
    key = DecryptionKey(expanded[:64], expanded[64:])
    assert key.public == octets(vector["pkRm"])
    enc, shared, info = (octets(vector[name]) for name in ("enc", "shared_secret", "info"))
    assert by_hand.DecryptionKey(*map(bytes, key.seeds)).decapsulate(enc) == shared
    # None of the vectors has our AEAD: of what they share with us, a wrap of ours is made.
    assert key.unwrap(by_hand.sealed_under(shared, enc, INFO, KEY), INFO) == KEY
    if vector["kdf_id"] == by_hand.HKDF_SHA256:
        scheduled = by_hand.key_schedule(shared, info, aead=vector["aead_id"])
        assert scheduled == (octets(vector["key"]), octets(vector["base_nonce"]))
    kdf = {1: KDF.HKDF_SHA256, 17: KDF.SHAKE256}[vector["kdf_id"]]
    _opens(Suite(KEM.MLKEM768_X25519, kdf, AEAD.CHACHA20_POLY1305), key._key, vector)


AEADS = {1: AEAD.AES_128_GCM, 2: AEAD.AES_256_GCM, 3: AEAD.CHACHA20_POLY1305}
KEY_SIZES = {1: 16, 2: 32, 3: 32}
KDFS = {1: KDF.HKDF_SHA256, 3: KDF.HKDF_SHA512}
CURVES: dict[int, tuple[KEM, EllipticCurve | None]] = {
    0x10: (KEM.P256, SECP256R1()),
    0x12: (KEM.P521, SECP521R1()),
    0x20: (KEM.X25519, None),
}


def test_hpke_of_the_rfc() -> None:
    """Base mode, the one that we use: the schedule by hand where the KDF is ours, and the library's Suite.

    The library has neither X448 nor suites that only export.
    """
    vectors = json.loads(text("HPKE/test-vectors.json"))
    ran: Counter[str] = Counter()
    for vector in vectors:
        kem, kdf, aead = vector["kem_id"], vector["kdf_id"], vector["aead_id"]
        if vector["mode"] != 0 or aead not in AEADS:
            ran["another mode" if vector["mode"] else "exports only"] += 1
            continue
        if kdf == by_hand.HKDF_SHA256:
            ran["scheduled"] += 1
            shared, info = octets(vector["shared_secret"]), octets(vector["info"])
            found = by_hand.key_schedule(shared, info, kem, aead, KEY_SIZES[aead])
            assert found == (octets(vector["key"]), octets(vector["base_nonce"]))
        if kem in CURVES:
            ran["opened"] += 1
            _opens(Suite(CURVES[kem][0], KDFS[kdf], AEADS[aead]), _private(vector), vector)
        ran["base mode"] += 1
    assert ran == {
        "base mode": 24, "scheduled": 12, "opened": 18, "exports only": 8, "another mode": 96,
    }  # fmt: skip
    assert ran["base mode"] + ran["exports only"] + ran["another mode"] == len(vectors) == 128


def _private(vector: dict[str, Any]) -> Any:
    private, (_, curve) = octets(vector["skRm"]), CURVES[vector["kem_id"]]
    if curve is None:
        return X25519PrivateKey.from_private_bytes(private)
    return derive_private_key(int.from_bytes(private, "big"), curve)


def _opens(suite: Suite, private: Any, vector: dict[str, Any]) -> None:
    """The first message: the library's own name is for its tests, since vectors have an aad and we none."""
    first = vector["encryptions"][0]
    sealed = octets(vector["enc"] + first["ct"])
    opened = openssl.hpke._decrypt_with_aad(
        suite, sealed, private, octets(vector["info"]), octets(first["aad"])
    )
    assert opened == octets(first["pt"])
    with pytest.raises(InvalidTag):
        suite.decrypt(sealed, private, octets(vector["info"]))


# Signatures


@each_step
def test_ed25519(step: int) -> None:
    """1,024 keys and signatures, which are the same bytes, and hold for no other message."""
    lines = text("asymmetric/Ed25519/sign.input").splitlines()
    own = SigningKey(SEED, SEED).public[32:]
    for line in lines[::step]:
        secret, public, message, signed, _ = line.split(":")
        key = SigningKey(octets(secret[:64]), SEED)
        assert key.public[:32] == octets(public)
        signature = octets(signed)[:64]
        assert key._ed25519.sign(octets(message)) == signature
        verifying = VerifyingKey(octets(public) + own)
        verifying._ed25519.verify(signature, octets(message))
        with pytest.raises(InvalidSignature):
            verifying._ed25519.verify(signature, octets(message) + b"\0")
    assert len(lines) == 1024


@each_step
def test_ml_dsa(step: int) -> None:
    """100 keys from their seeds, and signatures that hold under the vectors' context alone."""
    vectors = listed("asymmetric/MLDSA/kat_MLDSA_65_det_pure.rsp", "count")
    for vector in vectors[::step]:
        key = SigningKey(SEED, octets(vector["xi"]))
        assert key.public[32:] == octets(vector["pk"])
        half = VerifyingKey(key.public)._mldsa
        signature, message = octets(vector["sm"])[:3309], octets(vector["msg"])
        half.verify(signature, message, octets(vector["ctx"]))
        for context in (None, b"", octets(vector["ctx"])[1:]):
            with pytest.raises(InvalidSignature):
                half.verify(signature, message, context)
        half.verify(key._mldsa.sign(message), message, b"")
    assert len(vectors) == 100


# Derivation


def test_hkdf() -> None:
    """Ours has no salt and 32 bytes, with which the longer output of a vector begins."""
    paths = ["KDF/rfc-5869-HKDF-SHA256.txt", "KDF/hkdf-generated.txt"]
    vectors = [vector for path in paths for vector in listed(path, "COUNT")]
    ours = 0
    for vector in vectors:
        assert vector["Hash"] == "SHA-256"
        salt, info = octets(vector["salt"]), octets(vector["info"])
        secret, length = octets(vector["IKM"]), int(vector["L"])
        expected = octets(vector["OKM"])
        assert HKDF(SHA256(), length, salt, info).derive(secret) == expected
        assert by_hand.expand(by_hand.extract(salt, secret), info, length) == expected
        if not salt:
            ours += 1
            assert seal._hkdf(secret, info) == expected[:32]
    assert (ours, len(vectors)) == (2, 4)


@pytest.mark.long
def test_argon2id() -> None:
    """Parameters from one pass over 8 KiB to one over 128 MiB, with secret and data and without."""
    vectors = listed("KDF/argon2id.txt", "COUNT")
    for vector in vectors:
        kdf = Argon2id(
            salt=octets(vector["salt"]),
            length=int(vector["length"]),
            iterations=int(vector["iter"]),
            lanes=int(vector["lanes"]),
            memory_cost=int(vector["memcost"]),
            ad=octets(vector["ad"]) if "ad" in vector else None,
            secret=octets(vector["secret"]) if "secret" in vector else None,
        )
        assert kdf.derive(octets(vector["pass"])) == octets(vector["output"])
    assert len(vectors) == 6


# AES


def encrypted(vector: Fields) -> None:
    cipher = AESGCM(octets(vector["Key"]))
    sealed = cipher.encrypt(octets(vector["IV"]), octets(vector["PT"]), octets(vector["AAD"]))
    assert sealed == octets(vector["CT"] + vector["Tag"])


def decrypted(vector: Fields) -> None:
    cipher, sealed = AESGCM(octets(vector["Key"])), octets(vector["CT"] + vector["Tag"])
    nonce, data = octets(vector["IV"]), octets(vector["AAD"])
    if "FAIL" not in vector:
        assert cipher.decrypt(nonce, sealed, data) == octets(vector["PT"])
        return
    with pytest.raises(InvalidTag):
        cipher.decrypt(nonce, sealed, data)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name, run", [("gcmEncryptExtIV256", encrypted), ("gcmDecrypt256", decrypted)]
)
def test_aes_256_gcm(name: str, run: Callable[[Fields], None]) -> None:
    """375 of each file have our sizes; the others differ in nonce or tag."""
    vectors = listed(f"ciphers/AES/GCM/{name}.rsp", "Count")
    ours = [one for one in vectors if (one["IVlen"], one["Taglen"]) == ("96", "128")]
    for vector in ours:
        run(vector)
    assert (len(ours), len(vectors)) == (375, 7875)
    assert {one["Keylen"] for one in vectors} == {"256"}
