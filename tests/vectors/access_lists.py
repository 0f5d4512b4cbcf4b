"""Entries and lists: docs/spec/container.md, section 4."""

from typing import Any

import msgspec

from scbroker.records.container_record import SaltedEntry, list_hash
from tests.vectors.cast import START, chosen
from tests.vectors.files import Vector, invalid, store, valid

INTEGRITY = "integrity"
BOX = chosen("list box", size=16)
USERS = sorted(chosen("list user", n) for n in range(4))
WRAP = chosen("wrap hash")


def make() -> None:
    store(
        "access_lists",
        "docs/spec/container.md, 4. `entries` is a whole list; `disclosed` are the entries that a "
        "reader sees, by position, of a list with `entryHashes`, or with `count` times the hash "
        "`repeated`. `hash` is what the record names.",
        [*wholes(), *entries(), *partial()],
        containerId=BOX,
        accessVersion=3,
    )


def encoded(*row: Any) -> bytes:
    return msgspec.msgpack.encode(list(row))


def row(n: int, permissions: int = 11, wrap: bytes | None = WRAP, end: Any = None) -> bytes:
    return encoded(USERS[n], 0, permissions, end, wrap)


def salted(*items: bytes) -> list[dict[str, bytes]]:
    return [{"salt": chosen("salt", n), "entry": item} for n, item in enumerate(items)]


def hashes_of(items: list[dict[str, bytes]]) -> bytes:
    return b"".join(SaltedEntry(item["salt"], item["entry"]).hash for item in items)


def wholes() -> list[Vector]:
    def listed(*items: bytes) -> dict[str, Any]:
        found = salted(*items)
        hashes = hashes_of(found)
        return {"entries": found, "entryHashes": hashes, "hash": list_hash(BOX, 3, hashes)}

    three = listed(row(0, 511), row(1, 15, end=START), row(2, 256, None))
    short = salted(row(0))
    short[0]["salt"] = short[0]["salt"][:31]
    return [
        valid("one entry", "The least.", **listed(row(0))),
        valid("three entries", "In ascending order.", **three),
        valid("without a wrap", "Decrypt and no wrapHash.", **listed(row(0, 11, None))),
        valid("key index 255", "The largest of a user.", **listed(encoded(USERS[0], 255, 11, None, WRAP))),
        valid("epoch 256", "Of a group. The list does not say whose entry it is.", **listed(
            encoded(USERS[0], 256, 11, None, WRAP))),
        valid("epoch 16,383", "The largest of a group.", **listed(
            encoded(USERS[0], 16_383, 11, None, WRAP))),
        valid("16 groups among users", "In ascending order, whatever the names are.", **listed(
            *(encoded(name, epoch, 11, None, WRAP) for name, epoch in mixed()))),
        invalid("no entry", "A list has at least one.", INTEGRITY, **listed()),
        invalid("descending", "1 before 0.", INTEGRITY, **listed(row(1), row(0))),
        invalid("user twice", "With other permissions.", INTEGRITY, **listed(row(0), row(0, 15))),
        invalid("short salt", "31 bytes.", INTEGRITY, entries=short, entryHashes=hashes_of(short),
                hash=list_hash(BOX, 3, hashes_of(short))),
    ]  # fmt: skip


def mixed() -> list[tuple[bytes, int]]:
    """Users and groups by name, each with a key index or an epoch."""
    users = [(name, 0) for name in USERS]
    groups = [(chosen("group of the list", n), 1000 * n) for n in range(16)]
    return sorted([*users, *groups])


def entries() -> list[Vector]:
    def one(entry: bytes) -> dict[str, Any]:
        found = salted(entry)
        hashes = hashes_of(found)
        return {"entries": found, "entryHashes": hashes, "hash": list_hash(BOX, 3, hashes)}

    good = row(0)
    combinations = {
        "Upload without Decrypt": 4 | 8,
        "Upload without ViewAccess": 4 | 2,
        "ModifyType without Upload": 32 | 2 | 8,
        "ModifyAccess without Upload": 16 | 2 | 8,
        "ModifyAccess without Decrypt": 16 | 4 | 8,
    }
    found = [
        invalid(name, "Not an allowed combination.", INTEGRITY,
                **one(row(0, bits, WRAP if bits & 2 else None)))
        for name, bits in combinations.items()
    ]  # fmt: skip
    faults = {
        "permissions 0": ("At least one.", row(0, 0, None)),
        "permissions 512": ("At most 511.", row(0, 512, None)),
        "wrap without Decrypt": ("wrapHash is nil then.", row(0, 1, WRAP)),
        "index 16,384": ("At most 16,383.", encoded(USERS[0], 16_384, 11, None, WRAP)),
        "short fingerprint": ("31 bytes.", encoded(USERS[0][:31], 0, 11, None, WRAP)),
        "short wrapHash": ("31 bytes.", encoded(USERS[0], 0, 11, None, WRAP[:31])),
        "time too large": ("The year 10000.", row(0, end=253402300800000000)),
        "negative time": ("-1.", row(0, end=-1)),
        "time as float": ("1.0.", row(0, end=1.0)),
        "four elements": ("No wrapHash.", encoded(USERS[0], 0, 11, None)),
        "six elements": ("One too many.", encoded(USERS[0], 0, 11, None, WRAP, None)),
        "version byte": ("Entries have none.", b"\x01" + good),
        "trailing byte": ("00.", good + b"\0"),
        "truncated": ("A byte is missing.", good[:-1]),
        "not shortest": ("keyIndex 0 as cc 00.", good[:35] + b"\xcc" + good[35:]),
        "empty": ("No bytes.", b""),
    }
    found += [
        invalid(f"entry, {name}", comment, INTEGRITY, **one(entry))
        for name, (comment, entry) in faults.items()
    ]
    for bits in (1, 2, 8, 11, 15, 31, 47, 63, 64, 128, 256, 511):
        found.append(
            valid(
                f"permissions {bits}", "Allowed.", **one(row(0, bits, WRAP if bits & 2 else None))
            )
        )
    return found


def partial() -> list[Vector]:
    items = salted(row(0, 511), row(1, 15), row(2, 11), row(3, 1, None))
    hashes = hashes_of(items)

    def shown(*which: int, **more: Any) -> dict[str, Any]:
        return {
            "entryHashes": hashes,
            "disclosed": [{"position": n, **items[n]} for n in which],
            "hash": list_hash(BOX, 3, hashes),
            **more,
        }

    wrong = shown(1)
    wrong["disclosed"][0]["salt"] = items[2]["salt"]
    moved = shown(1)
    moved["disclosed"][0]["position"] = 2
    beyond = shown(3)
    beyond["disclosed"][0]["position"] = 4

    def repeated(count: int) -> dict[str, Any]:
        once = chosen("hash of an entry")
        return {"repeated": once, "count": count, "disclosed": [],
                "hash": list_hash(BOX, 3, once * count)}  # fmt: skip

    backwards = salted(row(1), row(0))
    both = {
        "entryHashes": hashes_of(backwards),
        "disclosed": [{"position": n, **item} for n, item in enumerate(backwards)],
        "hash": list_hash(BOX, 3, hashes_of(backwards)),
    }
    return [
        valid("nothing disclosed", "All entries hidden.", complete=False, **shown()),
        valid("two disclosed", "1 and 3.", complete=False, **shown(1, 3)),
        valid("all disclosed", "As good as the whole.", complete=True, **shown(0, 1, 2, 3)),
        invalid("positions descend", "3 before 1.", INTEGRITY, **shown(3, 1)),
        invalid("position twice", "1 and 1.", INTEGRITY, **shown(1, 1)),
        invalid("position beyond the end", "4 of 0 to 3.", INTEGRITY, **beyond),
        invalid("entry at another position", "1 as 2.", INTEGRITY, **moved),
        invalid("salt of another entry", "2's for 1.", INTEGRITY, **wrong),
        invalid("disclosed users descend", "In the order of the list.", INTEGRITY, **both),
        invalid("hashes cut", "127 bytes.", INTEGRITY, **shown(0, entryHashes=hashes[:-1])),
        valid("1,024 entries", "The most; each has the hash in `repeated`.", complete=False,
              **repeated(1024)),
        invalid("1,025 entries", "One more than the most.", INTEGRITY, **repeated(1025)),
        invalid("no hashes", "An empty list.", INTEGRITY, **shown(entryHashes=b"")),
    ]  # fmt: skip
