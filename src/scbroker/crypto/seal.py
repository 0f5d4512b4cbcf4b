"""Seal, wrap, sign and derive keys from passwords: everything that needs a secret.

Only clients import this module. It does no I/O and reads no clock. The format version fixes every algorithm
and parameter (docs/spec/ids.md, section 2). Every failure to open has the same message, which does not reveal
the cause.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import unicodedata
from collections.abc import Callable
from typing import Final

from cryptography.cobblestone import Cobblestone256Decryptor, Cobblestone256Encryptor
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hpke
from cryptography.hazmat.primitives.asymmetric import ed25519, mldsa, mlkem, x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scbroker.crypto.verify import HASH_SIZE, MLKEM_KEY_SIZE, WRAP_SIZE, check_encryption_key, label
from scbroker.errors import DecryptionError, IntegrityError

KEY_SIZE: Final = 32
MLKEM_SEED_SIZE: Final = 64
MAX_SECRET_SIZE: Final = 1023
_SECRET_BLOCK: Final = 128
_GCM_NONCE: Final = 12
_RECIPIENTS: Final = 1024
_SUITE: Final = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
_stretching: Final[dict[int, threading.Lock]] = {}
"""One lock for each process id. A child forked while a thread holds the lock would never see it released."""
Octets = bytes | bytearray | memoryview
_CANNOT_OPEN: Final = "It cannot be opened: a wrong secret, or damaged data."


random_bytes: Callable[[int], bytes] = os.urandom
"""Return bytes from the operating system's generator."""


def seal(key: bytes, context: bytes, plaintext: Octets) -> bytes:
    """Return one Cobblestone-256 message, which opens under the same key and context only."""
    encryptor = Cobblestone256Encryptor(key, context)
    return encryptor.update(plaintext) + encryptor.finalize()


def unseal(key: bytes, context: bytes, sealed: Octets) -> bytes:
    """Return the plaintext once the whole message verified; raise `DecryptionError` otherwise."""
    decryptor = Cobblestone256Decryptor(key, context)
    try:
        return decryptor.update(sealed) + decryptor.finalize()
    except InvalidTag:
        raise DecryptionError(_CANNOT_OPEN) from None


def seal_into(target: memoryview, key: bytes, context: bytes, plaintext: Octets) -> int:
    """Seal into a buffer and return the size; allocating new memory costs more than sealing."""
    encryptor = Cobblestone256Encryptor(key, context)
    size = encryptor.update_into(plaintext, target)
    rest = encryptor.finalize()
    target[size : size + len(rest)] = rest
    return size + len(rest)


def unseal_into(target: memoryview, key: bytes, context: bytes, sealed: Octets) -> int:
    """Unseal into a buffer and return the size. After a `DecryptionError` the buffer must not be used."""
    decryptor = Cobblestone256Decryptor(key, context)
    try:
        size = decryptor.update_into(sealed, target)
        rest = decryptor.finalize()
    except InvalidTag:
        raise DecryptionError(_CANNOT_OPEN) from None
    target[size : size + len(rest)] = rest
    return size + len(rest)


def checksum(key: bytes, number: int, data: Octets) -> bytes:
    """Return a MAC of 16 bytes: the tag of AES-256-GCM over data that is not encrypted, which is fast.

    GMAC, NIST SP 800-38D: one number must not be used for two different data under one key.
    """
    return AESGCM(key).encrypt(number.to_bytes(_GCM_NONCE, "big"), b"", data)


def wrap_key(public_key: bytes, info: bytes, key: bytes) -> bytes:
    """Wrap a 32-byte key to a public encryption key: 1,168 bytes, bound to `info`."""
    try:
        return _SUITE.encrypt(key, _recipient(public_key), info=info)
    except ValueError:
        raise IntegrityError(
            "A key could not be wrapped to a public encryption key: its ML-KEM half is invalid."
        ) from None


@functools.lru_cache(_RECIPIENTS)
def _recipient(public_key: bytes) -> hpke.MLKEM768X25519PublicKey:
    """Check and load a public encryption key. Cached, since loading takes as long as wrapping."""
    check_encryption_key(public_key)
    return hpke.MLKEM768X25519PublicKey(
        mlkem.MLKEM768PublicKey.from_public_bytes(public_key[:MLKEM_KEY_SIZE]),
        x25519.X25519PublicKey.from_public_bytes(public_key[MLKEM_KEY_SIZE:]),
    )


class _PrivateKey:
    """Base of both kinds of private keys. Keys are equal if their public keys are: no secret is compared.

    The seeds are overwritten when the key is freed: Python does not clear freed memory, in which they would
    stay readable until it is reused.
    """

    __slots__ = ("_first", "_seeds", "public")

    def __init__(self, public: bytes, seeds: tuple[Octets, Octets]) -> None:
        self.public: bytes = public
        self._first = len(seeds[0])
        # Filled in place, so that no copy stays in memory.
        self._seeds = bytearray(sum(map(len, seeds)))
        self._seeds[: self._first], self._seeds[self._first :] = seeds

    @property
    def seeds(self) -> tuple[memoryview, memoryview]:
        """Return both seeds without copying them, in the order of the constructor's arguments."""
        both = memoryview(self._seeds).toreadonly()
        return both[: self._first], both[self._first :]

    def __del__(self) -> None:
        if hasattr(self, "_seeds"):  # not set if the constructor refused a seed
            self._seeds[:] = bytes(len(self._seeds))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.public == other.public

    def __hash__(self) -> int:
        return hash(self.public)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __reduce__(self) -> str:
        raise TypeError("A private key cannot be pickled: keep the KeyFile.")


class SigningKey(_PrivateKey):
    """A private signing key: the seeds of Ed25519 and ML-DSA-65 (docs/spec/ids.md, 2.1)."""

    __slots__ = ("_ed25519", "_mldsa")

    def __init__(self, ed25519_seed: Octets, mldsa_seed: Octets) -> None:
        self._ed25519 = ed25519.Ed25519PrivateKey.from_private_bytes(ed25519_seed)
        self._mldsa = mldsa.MLDSA65PrivateKey.from_seed_bytes(mldsa_seed)
        super().__init__(
            self._ed25519.public_key().public_bytes_raw()
            + self._mldsa.public_key().public_bytes_raw(),
            (ed25519_seed, mldsa_seed),
        )

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(random_bytes(KEY_SIZE), random_bytes(KEY_SIZE))

    def sign(self, name: str, signed: bytes) -> bytes:
        """Return both signatures over L(name) || signed: 3,373 bytes."""
        message = label(name) + signed
        return self._ed25519.sign(message) + self._mldsa.sign(message)

    def derive(self, name: str) -> bytes:
        """Return a 32-byte secret for a purpose, derived from this key."""
        return _hkdf(self._seeds, label(name))


class DecryptionKey(_PrivateKey):
    """A private encryption key: the ML-KEM-768 seed and the X25519 key (docs/spec/ids.md, 2.4)."""

    __slots__ = ("_key",)

    def __init__(self, mlkem_seed: Octets, x25519_key: Octets) -> None:
        first = mlkem.MLKEM768PrivateKey.from_seed_bytes(mlkem_seed)
        second = x25519.X25519PrivateKey.from_private_bytes(x25519_key)
        self._key = hpke.MLKEM768X25519PrivateKey(first, second)
        super().__init__(
            first.public_key().public_bytes_raw() + second.public_key().public_bytes_raw(),
            (mlkem_seed, x25519_key),
        )

    @classmethod
    def generate(cls) -> DecryptionKey:
        return cls(random_bytes(MLKEM_SEED_SIZE), random_bytes(KEY_SIZE))

    def unwrap(self, wrap: bytes, info: bytes) -> bytes:
        """Return the wrapped key; raise `DecryptionError` unless key, wrap and info belong together."""
        try:
            if len(wrap) == WRAP_SIZE:
                return _SUITE.decrypt(wrap, self._key, info=info)
        except (InvalidTag, ValueError):
            pass
        raise DecryptionError(_CANNOT_OPEN)


def secret_bytes(secret: str) -> bytes:
    """Return a password or passphrase as bytes: NFKC of Unicode 3.2, UTF-8 (docs/spec/keyfile.md, 2.1).

    Only characters of Unicode 3.2 are normalized: their normal forms are the same in every Unicode version
    from 4.1 on. A later character may have no normal form in this Python and another one in the next.
    """
    if str.isascii(secret):
        return secret.encode("ascii")
    runs = itertools.groupby(secret, _is_of_unicode_3)
    texts = ((is_old, "".join(run)) for is_old, run in runs)
    normal = (unicodedata.normalize("NFKC", text) if is_old else text for is_old, text in texts)
    return "".join(normal).encode("utf-8")


def _is_of_unicode_3(character: str) -> bool:
    return unicodedata.ucd_3_2_0.category(character) != "Cn"


def stretch(secret: bytes, salt: bytes) -> bytes:
    """Return 32 bytes of Argon2id with 64 MiB, 3 passes and 4 lanes, in about 0.15 s.

    A lock serializes calls: two at a time can deadlock, each with some of OpenSSL's threads and too few.
    """
    with _stretching.setdefault(os.getpid(), threading.Lock()):
        return Argon2id(
            salt=salt, length=HASH_SIZE, iterations=3, lanes=4, memory_cost=65_536
        ).derive(secret)


def derive_key(root: bytes, name: str, binding: bytes) -> bytes:
    """Return a 32-byte key derived from a root and L(name) || binding."""
    return _hkdf(root, label(name) + binding)


def pad_secret(secret: bytes) -> bytes:
    """Pad a secret with 80 00 00 … to a multiple of 128 bytes, which hides its length."""
    return secret + b"\x80" + bytes(-(len(secret) + 1) % _SECRET_BLOCK)


def unpad_secret(padded: bytes) -> bytes:
    """Undo `pad_secret`; raise `DecryptionError` for any other padding."""
    secret = padded.rstrip(b"\0")[:-1]
    if not 1 <= len(secret) <= MAX_SECRET_SIZE or pad_secret(secret) != padded:
        raise DecryptionError(_CANNOT_OPEN)
    return secret


def _hkdf(root: Octets, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=KEY_SIZE, salt=None, info=info).derive(root)
