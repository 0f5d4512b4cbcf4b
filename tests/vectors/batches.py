"""Signatures of batches: docs/spec/ids.md, section 2.7."""

from collections.abc import Callable
from typing import Any

from scbroker.crypto.verify import label, labelled_hash, sha256
from scbroker.records import batch
from scbroker.records.canonical import VERSION
from scbroker.records.container_record import LABEL, bare_body
from tests.independent import trees
from tests.independent.batches import node as node_of
from tests.vectors.cast import Person, cast, chosen, day, signing_key
from tests.vectors.container_records import ALL
from tests.vectors.files import Vector, encoded, flipped, invalid, put, store, valid
from tests.vectors.story import Container, Grant, Made, author_of

INTEGRITY = "integrity"
Leaf = Callable[[bytes, bytes], bytes]
Node = Callable[[bytes, bytes], bytes]


def make() -> None:
    alice, bob, erin = (cast()[name] for name in ("alice", "bob", "erin"))
    records = {
        "of Alice": created(alice),
        "of Alice, another": created(alice, "another"),
        "of Bob": created(bob),
        "of Erin, by her second key": created(erin, index=1),
    }
    store(
        "batches",
        "docs/spec/ids.md, 2.7. `batchSignature` is the signature of one of `records` (bodies). Their "
        "authors' key records: people.json. The records themselves are valid.",
        [*_valid(records), *_formats(records), *_paths(records), *_signatures(records)],
        records={name: made.signed.body for name, made in records.items()},
    )


def created(author: Person, name: str = "one", index: int = 0) -> Made:
    box = Container(f"{author.name}'s {name}", author)
    return box.create(day(12), [Grant(author, ALL, keyIndex=index)], keyIndex=index)


def signed(
    made: Made,
    size: int,
    index: int,
    *,
    leaf: Leaf = batch.leaf_of,
    node: Node = node_of,
    by: Callable[[bytes], bytes] | None = None,
) -> list[Any]:
    """Return the fields of a record's signature in a batch whose other leaves are chosen bytes.

    `leaf` and `node` may hash in another way, and `by` may sign something else than size and root.
    """
    salt = chosen("salt", size, index)
    leaves = [chosen("leaf", size, n) for n in range(size)]
    leaves[index] = leaf(salt, made.hash)
    root, path = trees.root_of(node, leaves), b"".join(trees.path_of(node, index, leaves))
    if by is None:
        key = signing_key(author_of(made.record).name, made.record.keyIndex)
        return [key.sign(batch.LABEL, encoded([size, root])), salt, size, index, path]
    return [by(root), salt, size, index, path]


def given(record: str, signature: bytes) -> dict[str, Any]:
    return {"record": record, "batchSignature": signature}


def _valid(records: dict[str, Made]) -> list[Vector]:
    sizes = [
        (2, 0), (2, 1), (3, 2), (5, 4), (7, 0), (7, 3), (7, 4), (7, 6), (33, 32), (63, 62), (64, 0), (64, 63),
    ]  # fmt: skip
    found = [
        valid(f"leaf {index} of {size}", f"A path of {len(fields[4]) // 32} hashes.",
              **given("of Alice", encoded(fields)))
        for size, index in sizes
        for fields in [signed(records["of Alice"], size, index)]
    ]  # fmt: skip
    name = "of Erin, by her second key"
    return [
        *found,
        valid("by a second key", "Erin's.", **given(name, encoded(signed(records[name], 3, 1)))),
    ]


def _formats(records: dict[str, Made]) -> list[Vector]:
    fields = signed(records["of Alice"], 5, 2)
    whole = encoded(fields)
    found = [valid("leaf 2 of 5", "The next ones differ from it.", **given("of Alice", whole))]

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        if changed == whole:
            raise ValueError(f"{name} changes nothing.")
        found.append(invalid(name, comment, INTEGRITY, **given("of Alice", changed)))

    spoiled("wrong version byte", "02 in place of 01.", b"\x02" + whole[1:])
    spoiled("trailing byte", "One zero byte behind the value.", whole + b"\0")
    spoiled("truncated", "The last byte is missing.", whole[:-1])
    spoiled("empty", "No bytes.", b"")
    spoiled("no value", "The version byte alone.", VERSION)
    spoiled("array not shortest", "Five elements as dc 0005.", b"\x01\xdc\0\x05" + whole[2:])
    spoiled("bin not shortest", "The salt with c5 0020.", whole.replace(
        b"\xc4\x20" + fields[1], b"\xc5\0\x20" + fields[1]))  # fmt: skip
    spoiled("integer not shortest", "The size as cc 05.", whole.replace(
        fields[1] + b"\x05", fields[1] + b"\xcc\x05"))  # fmt: skip
    spoiled("one element more", "Six elements.", encoded([*fields, None]))
    spoiled("one element fewer", "No path.", encoded(fields[:-1]))
    spoiled("short signature", "3,372 bytes.", put(fields, 0, fields[0][:-1]))
    spoiled("long signature", "3,374 bytes.", put(fields, 0, fields[0] + b"\0"))
    spoiled("short salt", "31 bytes.", put(fields, 1, fields[1][:-1]))
    spoiled("salt nil", "No salt.", put(fields, 1, None))
    spoiled("size as text", '"5".', put(fields, 2, "5"))
    spoiled("size as bool", "true.", put(fields, 2, True))
    spoiled("index as float", "Floating point.", put(fields, 3, 2.0))
    spoiled("negative index", "-1.", put(fields, 3, -1))
    hashes = [fields[4][:32], fields[4][32:64], fields[4][64:]]
    spoiled("path as array", "An array of hashes.", put(fields, 4, hashes))
    spoiled("path as text", "A str of 96 bytes.", put(fields, 4, "a" * 96))
    spoiled("path nil", "No path.", put(fields, 4, None))
    spoiled("path cut by a byte", "The last hash has 31 bytes.", put(fields, 4, fields[4][:-1]))
    spoiled("path longer by a byte", "A zero byte.", put(fields, 4, fields[4] + b"\0"))
    spoiled("path cut by a hash", "The sibling is missing.", put(fields, 4, fields[4][32:]))
    spoiled("path of no hash", "No bytes.", put(fields, 4, b""))
    return found


def _paths(records: dict[str, Made]) -> list[Vector]:
    alice = records["of Alice"]
    found = list[Vector]()

    def spoiled(name: str, comment: str, fields: list[Any], record: str = "of Alice") -> None:
        found.append(invalid(name, comment, INTEGRITY, **given(record, encoded(fields))))

    def put(name: str, comment: str, position: int, value: Any, of: tuple[int, int]) -> None:
        fields = signed(alice, *of)
        if fields[position] == value:
            raise ValueError(f"{name} changes nothing.")
        fields[position] = value
        spoiled(name, comment, fields)

    spoiled("batch of one", "The root is the leaf.", signed(alice, 1, 0))
    spoiled("batch of 65", "One record too many.", signed(alice, 65, 3))
    last = signed(alice, 6, 5)
    spoiled("index beyond the batch", "6 of 6, with the path of the last.", [*last[:3], 6, last[4]])
    path = signed(alice, 7, 6)
    spoiled("path longer by a hash", "Before the sibling.", [*path[:4], chosen("more") + path[4]])
    put("another index", "The sibling's: 3 in place of 2.", 3, 3, (8, 2))
    put("another index, other subtree", "6 in place of 2.", 3, 6, (8, 2))
    put("another size", "8 in place of 7; the path is as long.", 2, 8, (7, 2))
    put("another salt", "Chosen.", 1, chosen("another salt"), (8, 2))
    reversed_path = signed(alice, 8, 2)[4]
    hashes = [reversed_path[at : at + 32] for at in range(0, 96, 32)]
    put(
        "path from the root",
        "Its hashes in the order from the root.",
        4,
        b"".join(hashes[::-1]),
        (8, 2),
    )
    put("another hash in the path", "A bit of the first.", 4,
        flipped(reversed_path, 0), (8, 2))  # fmt: skip
    spoiled("another record", "Of the same author.", signed(alice, 4, 1), "of Alice, another")
    both = [batch.leaf_of(chosen("salt", n), records[name].hash)
            for n, name in enumerate(("of Alice", "of Alice, another"))]  # fmt: skip
    root = node_of(*both)
    signature = signing_key("alice").sign(batch.LABEL, encoded([2, root]))
    own = [signature, chosen("salt", 0), 2, 0, both[1]]
    other = [signature, chosen("salt", 1), 2, 1, both[0]]
    found.append(valid("two records, first", "Of one batch.", **given("of Alice", encoded(own))))
    found.append(
        valid("two records, second", "Of it.", **given("of Alice, another", encoded(other)))
    )
    spoiled("signature of the other record", "Of the same batch.", other)
    return found


def _signatures(records: dict[str, Made]) -> list[Vector]:
    alice, bare = records["of Alice"], bare_body(records["of Alice"].signed.body)
    key = signing_key("alice")
    found = list[Vector]()

    def spoiled(name: str, comment: str, fields: list[Any], record: str = "of Alice") -> None:
        found.append(invalid(name, comment, INTEGRITY, **given(record, encoded(fields))))

    def by(sign: Callable[[bytes], bytes]) -> list[Any]:
        return signed(alice, 4, 1, by=sign)

    good = signed(alice, 4, 1)
    spoiled("Ed25519 half", "A bit of it.", [flipped(good[0], 0), *good[1:]])
    spoiled("ML-DSA half", "A bit of it.", [flipped(good[0], 100), *good[1:]])
    spoiled("signed by another user", "Bob.", by(
        lambda root: signing_key("bob").sign(batch.LABEL, encoded([4, root]))))  # fmt: skip
    spoiled("record of another author", "Bob's, in a batch of Alice.", signed(
        records["of Bob"], 4, 1, by=lambda root: key.sign(batch.LABEL, encoded([4, root]))),
        "of Bob")  # fmt: skip
    name = "of Erin, by her second key"
    spoiled("key of another index", "Erin's first, for a record that names the second.", signed(
        records[name], 4, 1,
        by=lambda root: signing_key("erin").sign(batch.LABEL, encoded([4, root]))), name)  # fmt: skip
    spoiled(
        "another label", "That of records.", by(lambda root: key.sign(LABEL, encoded([4, root])))
    )
    spoiled(
        "size not signed",
        "The root alone.",
        by(lambda root: key.sign(batch.LABEL, encoded([root]))),
    )
    spoiled("root without its object", "32 bytes.", by(lambda root: key.sign(batch.LABEL, root)))
    spoiled(
        "signature of the record",
        "In place of the batch's.",
        by(lambda _root: key.sign(LABEL, bare)),
    )
    spoiled("leaf without salt", "H of the record's hash.", signed(
        alice, 4, 1, leaf=lambda _salt, digest: labelled_hash("batch-leaf", digest)))  # fmt: skip
    spoiled("leaf is the hash", "The record's hash itself.", signed(
        alice, 4, 1, leaf=lambda _salt, digest: digest))  # fmt: skip
    spoiled("leaf of the body", "The bare form in place of its hash.", signed(
        alice, 4, 1, leaf=lambda salt, _digest: labelled_hash("batch-leaf", salt, bare)))  # fmt: skip
    spoiled("leaf hashed as a node", "The label of nodes.", signed(alice, 4, 1, leaf=node_of))
    spoiled(
        "nodes hashed as leaves", "The label of leaves.", signed(alice, 4, 1, node=batch.leaf_of)
    )
    spoiled("prefixes of the RFC", "00 and 01, no labels.", signed(
        alice, 4, 1, leaf=lambda *both: sha256(b"\0" + b"".join(both)),
        node=lambda *both: sha256(b"\1" + b"".join(both))))  # fmt: skip
    spoiled("prefixes besides the labels", "00 and 01 after them.", signed(
        alice, 4, 1, leaf=lambda *both: labelled_hash("batch-leaf", b"\0", *both),
        node=lambda *both: sha256(label("batch-node") + b"\1" + b"".join(both))))  # fmt: skip
    spoiled("nodes turned around", "Right before left.", signed(
        alice, 4, 1, node=lambda left, right: node_of(right, left)))  # fmt: skip
    return found
