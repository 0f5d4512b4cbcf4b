"""group_chains.json: docs/spec/groups.md, 4."""

from collections.abc import Mapping
from typing import Any

from tests.independent import access_lists, container_records, group_chains, rosters
from tests.independent.access_lists import AccessList
from tests.independent.container_records import Judge
from tests.independent.group_chains import GroupChain, Served
from tests.independent.rosters import Leaf, Member, Roster
from tests.independent.test_rosters import leaf_of
from tests.independent.vectors import Vector, cases, chains, expect, load, octets, salted, signed


@cases("group_chains")
def test_chains_of_groups_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """C1 to C10 give the verdicts of the vectors on the last record of each chain."""
    read_chain(records(), vector["records"][:-1], vector["now"], vector)
    expect(vector, lambda: read(vector))


def records() -> dict[str, Vector]:
    stored: dict[str, Vector] = load("group_chains")["given"]["records"]
    return stored


def read(vector: Vector) -> GroupChain | None:
    names = vector["records"]
    chain = read_chain(records(), names, vector["now"], vector)
    assert chain is not None
    if "mark" in vector:
        mark = vector["mark"]
        group_chains.check_mark(chain, mark["version"], octets(mark["hash"]))
    if vector.get("members"):
        members = group_chains.check_members(chain, leaves_of(records(), names), chains())
        if "since" in vector:
            older = _verified(names[: names.index(vector["since"]) + 1], vector)
            group_chains.check_since(older, (chain.roster, members))
    if vector["result"] == "valid":
        assert chain.name == octets(load("group_chains")["given"]["groupName"])
        assert chain.roster.epoch == vector["epoch"]
    return chain


def _verified(names: list[str], vector: Vector) -> tuple[Roster, Mapping[bytes, Member]]:
    """The members that the device verified last."""
    chain = read_chain(records(), names, vector["now"], {})
    assert chain is not None
    return chain.roster, rosters.check_leaves(chain.roster, leaves_of(records(), names))


def read_chain(
    pool: dict[str, Vector], names: list[str], now: int, vector: Vector
) -> GroupChain | None:
    """C1 to C6 of records by name; None for no records."""
    if not names:
        return None
    judge = Judge(now, chains())
    return group_chains.judge(judge, [served(pool[name], _seen(vector, name)) for name in names])


def _seen(vector: Vector, name: str) -> list[int] | None:
    shown: list[int] | None = vector.get("disclosed", {}).get(name)
    return shown


def served(stored: dict[str, Any], seen: list[int] | None = None) -> Served:
    shown = stored.get("type")
    roster = stored.get("roster")
    return Served(
        signed(stored),
        _access(stored, seen),
        None if shown is None else (octets(shown["salt"]), shown["type"]),
        None if roster is None else octets(roster),
        len(stored.get("departures", [])),
    )


def _access(stored: dict[str, Any], seen: list[int] | None) -> AccessList | None:
    if "accessList" not in stored:
        return None
    record = container_records.parse(octets(stored["body"]))
    entries = [salted(one) for one in stored["accessList"]]
    positions = range(len(entries)) if seen is None else seen
    return access_lists.disclosed(
        record.container_id,
        record.version,
        b"".join(entry.hash for entry in entries),
        [(position, entries[position]) for position in positions],
    )


def leaves_of(pool: dict[str, Vector], names: list[str]) -> list[Leaf]:
    """Those of the roster in force."""
    introduced = [pool[name]["leaves"] for name in names if "leaves" in pool[name]]
    return [leaf_of(one) for one in introduced[-1]]
