"""Prove that a hash is a leaf of a Merkle tree of the shape of RFC 9162, 2.1.

The caller hashes the leaves. The hash of an inner node is SHA-256 of `node`, a label, and the hashes of its
left and its right subtree. Spec: docs/spec/ids.md, 2.7, and docs/spec/groups.md, 3.1.
"""

from collections.abc import Sequence

from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import IntegrityError


def levels(node: bytes, leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the hashes of a tree level by level, from its leaves to its root (RFC 9162, 2.1.1).

    The last of an odd number of hashes goes to the next level unchanged. So the number of leaves in the left
    subtree of a node is the largest power of two below the number of the node's leaves.
    """
    found = [list(leaves)]
    while len(below := found[-1]) > 1:
        pairs = zip(below[::2], below[1::2], strict=False)
        above = [sha256(node + left + right) for left, right in pairs]
        found.append(above + below[len(below) - len(below) % 2 :])
    return found


def root(node: bytes, leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree."""
    return levels(node, leaves)[-1][0]


def path(found: Sequence[Sequence[bytes]], index: int) -> bytes:
    """Return the path of a leaf in a tree, given by `levels` (RFC 9162, 2.1.3.1)."""
    hashes = list[bytes]()
    for level in found[:-1]:
        if (index ^ 1) < len(level):
            hashes.append(level[index ^ 1])
        index >>= 1
    return b"".join(hashes)


def tree(node: bytes, leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the root of a tree, and the path of each leaf."""
    found = levels(node, leaves)
    return found[-1][0], [path(found, index) for index in range(len(leaves))]


def root_of_path(node: bytes, leaf: bytes, index: int, size: int, path: bytes, name: str) -> bytes:
    """Return the root to which a path leads from a leaf of a tree with `size` leaves (RFC 9162, 2.1.3.2).

    Raises `IntegrityError` unless the tree has a leaf of this index, and the path has one hash for each of
    its levels. `name` names the proof in the message.
    """
    last, root = size - 1, leaf
    if index > last:
        raise IntegrityError(f"{name} is for a leaf beyond the end of its tree.")
    if len(path) % HASH_SIZE:
        raise IntegrityError(f"{name} has a path that is not of whole hashes.")
    for at in range(0, len(path), HASH_SIZE):
        other = path[at : at + HASH_SIZE]
        if last == 0:
            raise IntegrityError(f"{name} has a path that is too long.")
        if index % 2 or index == last:
            root = sha256(node + other + root)
            while index % 2 == 0 and index:
                index, last = index >> 1, last >> 1
        else:
            root = sha256(node + root + other)
        index, last = index >> 1, last >> 1
    if last:
        raise IntegrityError(f"{name} has a path that is too short.")
    return root
