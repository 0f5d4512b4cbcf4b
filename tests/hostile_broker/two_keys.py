"""A sealed message for two keys at once, as a partitioning oracle needs it (Len et al., 2021).

AES-GCM does not commit to its key: from two keys one can make one ciphertext with one tag that is right
under both, by solving for one block. What Cobblestone puts before it, a commitment to the key, is what the
attacker has to choose one key for. Layout: c2sp.org/chunked-encryption, one chunk.
"""

import os
from functools import reduce
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_SIZE: Final = 1024
_INFO: Final = b"c2sp.org/chunked-encryption@v1+AEAD_AES_256_GCM\0"
_POLYNOMIAL: Final = 0xE1 << 120
_ONE: Final = 1 << 127


class _Schedule(NamedTuple):
    """The values that a key gives for a message with this salt and context."""

    aes: bytes
    nonce: bytes
    commitment: bytes

    @property
    def stream(self) -> bytes:
        """The key stream that a plaintext is combined with."""
        counter = CTR(self.nonce + (2).to_bytes(4, "big"))
        return Cipher(AES256(self.aes), counter).encryptor().update(bytes(_SIZE))

    def block(self, plain: bytes) -> int:
        cipher = Cipher(AES256(self.aes), ECB())
        return int.from_bytes(cipher.encryptor().update(plain), "big")

    @property
    def hash_key(self) -> int:
        return self.block(bytes(16))

    @property
    def mask(self) -> int:
        return self.block(self.nonce + (1).to_bytes(4, "big"))


def for_two_keys(keys: tuple[bytes, bytes], context: bytes) -> tuple[bytes, bytes]:
    """The same ciphertext and tag, once with the commitment to each key.

    Under either key its plaintext ends with 80, so that it is the padding of a secret of 1,023 bytes.
    """
    while True:
        salt = os.urandom(24)
        one, two = (_schedule(key, salt, context) for key in keys)
        if one.stream[-1] == two.stream[-1]:
            break
    body = bytearray(os.urandom(_SIZE))
    body[-1] = one.stream[-1] ^ 0x80
    body[:16] = bytes(16)
    # The tags differ by what the first block has to make up for, being 0 as yet.
    wanted = _tag(one, body) ^ _tag(two, body)
    powers = _power(one.hash_key, _SIZE // 16 + 1) ^ _power(two.hash_key, _SIZE // 16 + 1)
    body[:16] = _times(wanted, _inverse(powers)).to_bytes(16, "big")
    tag = _tag(one, body)
    assert tag == _tag(two, body)
    sealed = bytes(body) + tag.to_bytes(16, "big")
    return salt + one.commitment + sealed, salt + two.commitment + sealed


def _schedule(key: bytes, salt: bytes, context: bytes) -> _Schedule:
    okm = HKDFExpand(SHA512(), 76, _INFO + salt + context).derive(key)
    return _Schedule(okm[:32], okm[32:44], okm[44:])


def _tag(schedule: _Schedule, body: bytes | bytearray) -> int:
    """GCM's tag of a ciphertext without associated data."""
    lengths = (8 * len(body)).to_bytes(16, "big")
    found = 0
    for at in range(0, len(body), 16):
        block = int.from_bytes(body[at : at + 16], "big")
        found = _times(found ^ block, schedule.hash_key)
    return _times(found ^ int.from_bytes(lengths, "big"), schedule.hash_key) ^ schedule.mask


def _times(a: int, b: int) -> int:
    """In GCM's field, whose bits are reflected."""
    found = 0
    for bit in range(127, -1, -1):
        if a >> bit & 1:
            found ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return found


def _power(a: int, exponent: int) -> int:
    return reduce(lambda found, _: _times(found, a), range(exponent), _ONE)


def _inverse(a: int) -> int:
    """a to the power of 2^128 - 2."""
    found, square = _ONE, a
    for _ in range(127):
        square = _times(square, square)
        found = _times(found, square)
    return found
