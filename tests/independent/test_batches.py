"""batches.json: docs/spec/ids.md, 2.7."""

import hashlib
from collections.abc import Sequence

import pytest

from tests.independent import batches, container_records
from tests.independent.batches import path_of, root_from, root_of
from tests.independent.vectors import Vector, cases, chains, expect, load, octets


@cases("batches")
def test_signatures_of_batches_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A signature of a batch is for one record, at one position of a tree of one size."""
    expect(vector, lambda: check(vector))


@cases("batches", "valid")
def test_signatures_of_batches_are_written_as_they_were_read(vector: Vector) -> None:
    stored = octets(vector["batchSignature"])
    assert batches.parse(stored).stored() == stored


@pytest.mark.parametrize("size", range(2, 65))
def test_the_path_of_each_leaf_leads_to_the_root(size: int) -> None:
    leaves = [hashlib.sha256(bytes([n])).digest() for n in range(size)]
    roots = {root_from(leaf, n, size, path_of(n, leaves)) for n, leaf in enumerate(leaves)}
    assert roots == {root_of(leaves)}


def test_the_tree_of_seven_leaves_is_that_of_the_rfc() -> None:
    """RFC 9162, 2.1.5: the figure, with the names of its nodes."""
    d = [bytes([n]) * 32 for n in range(7)]
    node = batches.node
    g, h, i, j = node(d[0], d[1]), node(d[2], d[3]), node(d[4], d[5]), d[6]
    k, l = node(g, h), node(i, j)  # noqa: E741 - as in the figure
    assert root_of(d) == node(k, l)
    paths: dict[int, Sequence[bytes]] = {
        0: [d[1], h, l],
        3: [d[2], g, l],
        4: [d[5], j, k],
        6: [i, k],
    }
    assert {n: path_of(n, d) for n in paths} == paths


def check(vector: Vector) -> None:
    body = octets(load("batches")["given"]["records"][vector["record"]])
    record = container_records.parse(body)
    public = chains()[record.author].signing_key(record.key_index, record.time)
    signature = octets(vector["batchSignature"])
    batches.check(public, container_records.record_hash(body), signature)
