"""Trees of hashes: the recursive definitions of RFC 9162, 2.1.1 and 2.1.3.1."""

from collections.abc import Callable, Sequence

Node = Callable[[bytes, bytes], bytes]


def root_of(node: Node, leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    k = _split(len(leaves))
    return node(root_of(node, leaves[:k]), root_of(node, leaves[k:]))


def path_of(node: Node, index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*path_of(node, index, leaves[:k]), root_of(node, leaves[k:])]
    return [*path_of(node, index - k, leaves[k:]), root_of(node, leaves[:k])]


def root_from(node: Node, digest: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    if size == 1:
        return digest
    k = _split(size)
    if index < k:
        return node(root_from(node, digest, index, k, path[:-1]), path[-1])
    return node(path[-1], root_from(node, digest, index - k, size - k, path[:-1]))


def levels(index: int, size: int) -> int:
    if size <= 1:
        return 0
    k = _split(size)
    return 1 + (levels(index, k) if index < k else levels(index - k, size - k))


def _split(size: int) -> int:
    """The largest power of two below the size."""
    k = 1
    while 2 * k < size:
        k *= 2
    return k
