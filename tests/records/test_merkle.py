"""Trees of hashes: docs/spec/ids.md, 2.7, and docs/spec/groups.md, 3.1. The vectors have what is refused."""

import hashlib
from typing import Final

from scbroker.records import merkle
from tests.independent import trees
from tests.kit.cases import in_one_case

NODE: Final = b"node"


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(NODE + left + right).digest()


def leaves_of(count: int) -> list[bytes]:
    return [hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(count)]


@in_one_case("count", [*range(1, 35), 63, 64, 65, 1000, 1023, 1024])
def test_root_and_paths_are_those_of_the_second_implementation(count: int) -> None:
    leaves = leaves_of(count)
    root, paths = merkle.tree(NODE, leaves)
    assert root == trees.root_of(node, leaves)
    for index in range(0, count, 1 if count < 35 else 37):
        assert paths[index] == b"".join(trees.path_of(node, index, leaves))
        assert merkle.root_of_path(NODE, leaves[index], index, count, paths[index], "It") == root
