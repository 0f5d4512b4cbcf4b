"""Trees of hashes: docs/spec/ids.md, 2.7, and docs/spec/groups.md, 3.1. The vectors have what is refused."""

import hashlib

import pytest

from scbroker.errors import IntegrityError
from scbroker.records import merkle
from tests.independent import trees
from tests.kit.cases import in_one_case


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"node" + left + right).digest()


def leaves_of(count: int) -> list[bytes]:
    return [hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(count)]


@in_one_case("count", [*range(1, 35), 63, 64, 65, 1000, 1023, 1024])
def test_root_and_paths_are_those_of_the_second_implementation(count: int) -> None:
    leaves = leaves_of(count)
    root, paths = merkle.tree(node, leaves)
    assert root == trees.root_of(node, leaves)
    for index in range(0, count, 1 if count < 35 else 37):
        assert paths[index] == b"".join(trees.path_of(node, index, leaves))
        assert merkle.root_of_path(node, leaves[index], index, count, paths[index], "It") == root


@in_one_case("count", range(1, 18))
def test_a_path_leads_to_the_root_from_no_other_index(count: int) -> None:
    leaves = leaves_of(count)
    root, paths = merkle.tree(node, leaves)
    for index, path in enumerate(paths):
        for other in set(range(count + 3)) - {index}:
            try:
                found = merkle.root_of_path(node, leaves[index], other, count, path, "It")
            except IntegrityError:
                continue
            assert found != root


@pytest.mark.parametrize("size", [0, 1, 5])
def test_a_leaf_beyond_the_end_is_refused(size: int) -> None:
    with pytest.raises(IntegrityError, match="beyond the end of its tree"):
        merkle.root_of_path(node, bytes(32), size, size, b"", "It")


@pytest.mark.parametrize("size", [1, 31, 33, 63])
def test_a_path_has_whole_hashes(size: int) -> None:
    with pytest.raises(IntegrityError, match="not of whole hashes"):
        merkle.root_of_path(node, bytes(32), 0, 5, bytes(size), "It")


def test_a_path_is_as_long_as_its_place_in_the_tree_demands() -> None:
    leaves = leaves_of(5)
    _, paths = merkle.tree(node, leaves)
    for index, path in enumerate(paths):
        with pytest.raises(IntegrityError, match="too short"):
            merkle.root_of_path(node, leaves[index], index, 5, path[:-32], "It")
        with pytest.raises(IntegrityError, match="too long"):
            merkle.root_of_path(node, leaves[index], index, 5, path + bytes(32), "It")
