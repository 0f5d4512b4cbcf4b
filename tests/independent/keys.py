"""Suite 1: docs/spec/ids.md, 2.

The primitives are the library's; what is composed of them, HKDF, HPKE with its KEM, and Cobblestone,
is composed here by hand from RFC 5869, RFC 9180, ids.md 2.5 and c2sp.org/chunked-encryption. The
checks of public keys are arithmetic and have no tables.
"""

import functools
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey, MLDSA65PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from tests.independent.encodings import UndecodableError, decodes, label, need

P = 2**255 - 19
"""The field of both curves."""


# Derivation and passwords


def extract(salt: bytes, key: bytes) -> bytes:
    """HKDF-Extract with SHA-256."""
    return hmac.digest(salt, key, "sha256")


def expand(prk: bytes, info: bytes, length: int, algorithm: str = "sha256") -> bytes:
    """HKDF-Expand."""
    output, block, counter = b"", b"", 0
    while len(output) < length:
        counter += 1
        block = hmac.digest(prk, block + info + bytes([counter]), algorithm)
        output += block
    return output[:length]


def hkdf(key: bytes, info: bytes) -> bytes:
    return expand(extract(b"", key), info, 32)


@functools.lru_cache
def argon2id(secret: bytes, salt: bytes) -> bytes:
    kdf = Argon2id(salt=salt, length=32, iterations=3, lanes=4, memory_cost=65_536)
    return kdf.derive(secret)


# 2.1, 2.2 Signatures


@dataclass(frozen=True)
class SigningKey:
    ed25519: bytes
    ml_dsa: bytes

    @classmethod
    def fresh(cls) -> "SigningKey":
        return cls(secrets.token_bytes(32), secrets.token_bytes(32))

    @functools.cached_property
    def _halves(self) -> tuple[Ed25519PrivateKey, MLDSA65PrivateKey]:
        return (
            Ed25519PrivateKey.from_private_bytes(self.ed25519),
            MLDSA65PrivateKey.from_seed_bytes(self.ml_dsa),
        )

    @functools.cached_property
    def public(self) -> bytes:
        ed25519, ml_dsa = self._halves
        return ed25519.public_key().public_bytes_raw() + ml_dsa.public_key().public_bytes_raw()

    def sign(self, name: str, signed: bytes) -> bytes:
        ed25519, ml_dsa = self._halves
        message = label(name) + signed
        return ed25519.sign(message) + ml_dsa.sign(message)


def check_signing_key(public: bytes) -> None:
    need(len(public) == 1984, "a signing key of another length")
    y = int.from_bytes(public[:32], "little") & 2**255 - 1
    need(y < P, "an Ed25519 key that is not canonical")
    # The curves are one: a point's u on Curve25519 is (1 + y) / (1 - y).
    need(y >= P or not _has_small_order(1 + y, 1 - y), "an Ed25519 key of small order")


def check_signature(public: bytes, name: str, signed: bytes, signature: bytes) -> None:
    message = label(name) + signed
    fits = len(signature) == 3373 and len(public) == 1984
    need(fits and all(_halves_hold(public, message, signature)), "a signature does not hold")


def _halves_hold(public: bytes, message: bytes, signature: bytes) -> list[bool]:
    ed25519 = Ed25519PublicKey.from_public_bytes(public[:32])
    ml_dsa = MLDSA65PublicKey.from_public_bytes(public[32:])
    held = []
    for key, half in ((ed25519, signature[:64]), (ml_dsa, signature[64:])):
        try:
            key.verify(half, message)
            held.append(True)
        except InvalidSignature:
            held.append(False)
    return held


def _has_small_order(x: int, z: int) -> bool:
    """Return whether eight times the point with u = x / z is none: doubled three times on Curve25519."""
    for _ in range(3):
        square = (x * x - z * z) ** 2
        x, z = square % P, 4 * x * z * (x * x + 486_662 * x * z + z * z) % P
    return z == 0


# 2.4 Encryption keys


@dataclass(frozen=True)
class DecryptionKey:
    ml_kem: bytes
    x25519: bytes

    @classmethod
    def fresh(cls) -> "DecryptionKey":
        return cls(secrets.token_bytes(64), secrets.token_bytes(32))

    @functools.cached_property
    def _halves(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        return (
            MLKEM768PrivateKey.from_seed_bytes(self.ml_kem),
            X25519PrivateKey.from_private_bytes(self.x25519),
        )

    @functools.cached_property
    def public(self) -> bytes:
        ml_kem, x25519 = self._halves
        return ml_kem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()

    def decapsulate(self, encapsulation: bytes) -> bytes:
        ml_kem, x25519 = self._halves
        ct_x = encapsulation[1088:]
        ss_x = x25519.exchange(X25519PublicKey.from_public_bytes(ct_x))
        return xwing(ml_kem.decapsulate(encapsulation[:1088]), ss_x, ct_x, self.public[1184:])


def check_encryption_key(public: bytes) -> None:
    need(len(public) == 1216, "an encryption key of another length")
    u = int.from_bytes(public[1184:], "little")
    need(u < P, "an X25519 key that is not canonical")
    need(u >= P or not _has_small_order(u, 1), "an X25519 key of small order")
    # FIPS 203, 7.2: three polynomials of 256 coefficients of 12 bits, below q; then a seed.
    coefficients = int.from_bytes(public[:1152], "little")
    for _ in range(768):
        need(coefficients & 0xFFF < 3329, "an ML-KEM key that is no encoding")
        coefficients >>= 12


# 2.5 HPKE with MLKEM768-X25519


def encapsulate(public: bytes) -> tuple[bytes, bytes]:
    ss_m, ct_m = MLKEM768PublicKey.from_public_bytes(public[:1184]).encapsulate()
    ephemeral, pk_x = X25519PrivateKey.generate(), public[1184:]
    ct_x = ephemeral.public_key().public_bytes_raw()
    ss_x = ephemeral.exchange(X25519PublicKey.from_public_bytes(pk_x))
    return xwing(ss_m, ss_x, ct_x, pk_x), ct_m + ct_x


def xwing(ss_m: bytes, ss_x: bytes, ct_x: bytes, pk_x: bytes) -> bytes:
    return hashlib.sha3_256(ss_m + ss_x + ct_x + pk_x + bytes.fromhex("5c2e2f2f5e5c")).digest()


def hpke_seal(public: bytes, info: bytes, plaintext: bytes) -> bytes:
    return sealed_under(*encapsulate(public), info, plaintext)


def sealed_under(shared: bytes, encapsulation: bytes, info: bytes, plaintext: bytes) -> bytes:
    """What the sender makes of an encapsulation."""
    key, nonce = key_schedule(shared, info)
    return encapsulation + AESGCM(key).encrypt(nonce, plaintext, b"")


def hpke_open(private: DecryptionKey, info: bytes, sealed: bytes) -> bytes:
    try:
        key, nonce = key_schedule(private.decapsulate(sealed[:1120]), info)
        return AESGCM(key).decrypt(nonce, sealed[1120:], b"")
    except (InvalidTag, ValueError):  # ValueError: an all-zero ss_X
        raise UndecodableError("decryption", "a wrap does not open") from None


MLKEM768_X25519, HKDF_SHA256, AES_256_GCM = 0x647A, 0x0001, 0x0002


def key_schedule(
    shared_secret: bytes,
    info: bytes,
    kem: int = MLKEM768_X25519,
    aead: int = AES_256_GCM,
    key_size: int = 32,
) -> tuple[bytes, bytes]:
    """RFC 9180, 5.1, base mode: the key, and the nonce of the first and only message."""
    suite = b"HPKE" + b"".join(n.to_bytes(2, "big") for n in (kem, HKDF_SHA256, aead))

    def labelled_extract(salt: bytes, name: bytes, key: bytes) -> bytes:
        return extract(salt, b"HPKE-v1" + suite + name + key)

    def labelled_expand(prk: bytes, name: bytes, context: bytes, length: int) -> bytes:
        head = length.to_bytes(2, "big") + b"HPKE-v1" + suite
        return expand(prk, head + name + context, length)

    psk_id_hash = labelled_extract(b"", b"psk_id_hash", b"")
    context = b"\x00" + psk_id_hash + labelled_extract(b"", b"info_hash", info)
    secret = labelled_extract(shared_secret, b"secret", b"")
    return (
        labelled_expand(secret, b"key", context, key_size),
        labelled_expand(secret, b"base_nonce", context, 12),
    )


# Cobblestone-256: c2sp.org/chunked-encryption with SHA-512 and AES-256-GCM

CHUNK = 16_384
TAG = 16


def cobblestone_size(length: int) -> int:
    return length + 56 + TAG * (length // CHUNK + 1)


def cobblestone_seal(key: bytes, context: bytes, plaintext: bytes) -> bytes:
    salt = secrets.token_bytes(24)
    aes_key, base, commitment = cobblestone_keys(key, salt, context)
    aes = AESGCM(aes_key)
    chunks = (
        aes.encrypt(_nonce(base, index), plaintext[index * CHUNK : (index + 1) * CHUNK], b"")
        for index in range(len(plaintext) // CHUNK + 1)
    )
    return salt + commitment + b"".join(chunks)


def cobblestone_open(key: bytes, context: bytes, sealed: bytes, algorithm: str = "sha512") -> bytes:
    decodes(len(key) == 32, "a key of another length", "decryption")
    salt, commitment, chunks = sealed[:24], sealed[24:56], sealed[56:]
    aes_key, base, expected = cobblestone_keys(key, salt, context, algorithm)
    aes = AESGCM(aes_key)
    full, rest = divmod(len(chunks), CHUNK + TAG)
    fits = len(sealed) >= 56 and rest >= TAG  # the last chunk is shorter than the others
    opens = fits and hmac.compare_digest(commitment, expected)
    decodes(opens, "it does not open", "decryption")
    try:
        return b"".join(
            aes.decrypt(_nonce(base, index), chunks[at : at + CHUNK + TAG], b"")
            for index, at in enumerate(range(0, (full + 1) * (CHUNK + TAG), CHUNK + TAG))
        )
    except InvalidTag:
        raise UndecodableError("decryption", "it does not open") from None


def cobblestone_keys(
    key: bytes, salt: bytes, context: bytes, algorithm: str = "sha512"
) -> tuple[bytes, bytes, bytes]:
    """The AES key, the base nonce and the commitment."""
    info = b"c2sp.org/chunked-encryption@v1+" + b"AEAD_AES_256_GCM" + b"\0" + salt + context
    okm = expand(key, info, 32 + 12 + 32, algorithm)
    return okm[:32], okm[32:44], okm[44:]


def _nonce(base: bytes, index: int) -> bytes:
    return (int.from_bytes(base, "big") ^ index).to_bytes(12, "big")
