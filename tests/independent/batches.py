"""The signature of a batch: docs/spec/ids.md, 2.7."""

import functools
from dataclasses import dataclass
from typing import Annotated

from tests.independent import encodings as e
from tests.independent import trees
from tests.independent.encodings import decodes, labelled_hash, need
from tests.independent.keys import check_signature

LARGEST = 64
OWN = 3373
"""The length of a signature that is a record's own."""
SHORTEST = 3448
"""The length of a BatchSignature with one hash in its path."""


@dataclass(frozen=True)
class BatchSignature(e.Object):
    signature: Annotated[bytes, lambda value: e.octets(value, OWN)]
    salt: e.Hash
    size: e.UInt
    index: e.UInt
    path: Annotated[bytes, lambda value: e.octets_to(value, 3608)]

    @property
    def hashes(self) -> list[bytes]:
        return [self.path[at : at + 32] for at in range(0, len(self.path), 32)]


def parse(stored: bytes) -> BatchSignature:
    # The limit of 3,608 bytes needs no check: nothing of this grammar is longer.
    found = BatchSignature.parse(stored)
    decodes(len(found.path) % 32 == 0, "a path that is not of whole hashes")
    return found


def check(public: bytes, digest: bytes, stored: bytes) -> None:
    """The signature of the record with this hash."""
    found = parse(stored)
    check_form(found)
    root = root_from(leaf(found.salt, digest), found.index, found.size, found.hashes)
    check_signature(public, "batch", _batch(found.size, root), found.signature)


def check_form(found: BatchSignature) -> None:
    """Size, index and number of hashes fit together."""
    need(2 <= found.size <= LARGEST, "a batch of another size")
    need(found.index < found.size, "a leaf beyond the batch")
    levels = trees.levels(found.index, found.size)
    need(len(found.hashes) == levels, "a path of another length")


def check_record(public: bytes, bare: bytes, signature: bytes) -> None:
    """A record's signature, of either kind."""
    if len(signature) < SHORTEST:
        check_signature(public, "container-record", bare, signature)
    else:
        check(public, labelled_hash("container-record", bare), signature)


def leaf(salt: bytes, digest: bytes) -> bytes:
    return labelled_hash("batch-leaf", salt + digest)


def node(left: bytes, right: bytes) -> bytes:
    return labelled_hash("batch-node", left + right)


root_from = functools.partial(trees.root_from, node)


def _batch(size: int, root: bytes) -> bytes:
    return e.store([size, root])
