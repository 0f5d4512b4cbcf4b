"""Sign many records at once: one signature of a Merkle tree, and a path to its root for each record.

The tree has the shape of RFC 9162, 2.1. Each leaf is salted, so that a path tells nothing about the other
records. Spec: docs/spec/ids.md, section 2.7.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Final

from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, SIGNATURE_SIZE, VerifyingKey, label, labelled_hash
from scbroker.records import merkle
from scbroker.records.canonical import Bin32, Row, Uint, decode_object, encode_object

LABEL: Final = "batch"
NODE: Final = label("batch-node")
MAX_SIZE: Final = 64
MAX_PATH: Final = (MAX_SIZE - 1).bit_length() * HASH_SIZE
MIN_SIGNATURE: Final = SIGNATURE_SIZE + 75
"""Bytes of a BatchSignature with one hash in its path."""
MAX_SIGNATURE: Final = MIN_SIGNATURE - HASH_SIZE + MAX_PATH
_HEAD: Final = 5
"""Bytes of a BatchSignature before the signature: the version, and the heads of array and bin."""
_VERIFIED: Final = 512
"""Number of verified batches that are remembered, of about 6 kB each. Failures are not remembered."""
Size = Annotated[int, Meta(ge=2, le=MAX_SIZE)]


class Batch(Row, frozen=True):
    """The object that is signed: the number of leaves, and the root of their tree."""

    size: Size
    root: Bin32


class BatchSignature(Row, frozen=True):
    """The signature of a batch, and the proof that one record is in it."""

    signature: Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]
    salt: Bin32
    size: Size
    index: Uint
    path: Annotated[bytes, Meta(min_length=HASH_SIZE, max_length=MAX_PATH)]
    """Hashes of 32 bytes, from the leaf upwards."""


def sign_each(
    sign: Callable[[str, bytes], bytes], digests: Sequence[bytes], salts: Sequence[bytes]
) -> list[bytes]:
    """Sign 2 to 64 records at once, given by their hashes; return a BatchSignature for each.

    `sign` signs an object under a label. The salts are random, one for each record. Raises `ValueError` for
    any other number of records.
    """
    if not 2 <= len(digests) <= MAX_SIZE:
        raise ValueError(
            f"A batch has 2 to {MAX_SIZE} records, not {len(digests)}: sign one alone."
        )
    leaves = [leaf_of(salt, digest) for salt, digest in zip(salts, digests, strict=True)]
    root, paths = merkle.tree(NODE, leaves)
    size = len(leaves)
    signature = sign(LABEL, encode_object(Batch(size, root)))
    return [
        encode_object(BatchSignature(signature, salt, size, index, path))
        for index, (salt, path) in enumerate(zip(salts, paths, strict=True))
    ]


def verify(key: bytes, digest: bytes, encoded: bytes) -> None:
    """Raise `IntegrityError` unless a public signing key verifies this BatchSignature of a record's hash."""
    proof = decode_object(BatchSignature, encoded, MAX_SIGNATURE)
    batch = encode_object(Batch(proof.size, root_of_path(leaf_of(proof.salt, digest), proof)))
    _verify_batch(key, batch, proof.signature)


def signature_of(encoded: bytes) -> bytes:
    """Return the bytes that two records of one batch have in common, whatever follows them.

    Nothing is verified, and the bytes need not be a signature.
    """
    if len(encoded) <= SIGNATURE_SIZE:
        return encoded
    return encoded[_HEAD : _HEAD + SIGNATURE_SIZE]


def leaf_of(salt: bytes, digest: bytes) -> bytes:
    return labelled_hash("batch-leaf", salt, digest)


@functools.lru_cache(_VERIFIED)
def _verify_batch(key: bytes, batch: bytes, signature: bytes) -> None:
    """Verify a batch's signature, once for all of its records.

    The signature is a part of the cache's key. Otherwise an invalid signature of a batch that was verified
    before would pass, and a broker would store a record that every reader refuses.
    """
    VerifyingKey(key).verify(LABEL, batch, signature)


def root_of_path(leaf: bytes, proof: BatchSignature) -> bytes:
    """Return the root to which the path of a BatchSignature leads from its leaf."""
    name = "A batch's signature"
    return merkle.root_of_path(NODE, leaf, proof.index, proof.size, proof.path, name)
