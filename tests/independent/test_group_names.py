"""group_names.json: docs/spec/groups.md, 1."""

from collections.abc import Callable

from tests.independent import group_chains
from tests.independent.encodings import uuid8, uuid_of_text, uuid_text
from tests.independent.ids import group_name_of, shown
from tests.independent.test_group_chains import read_chain
from tests.independent.vectors import Vector, cases, expect, load, octets, people


@cases("group_names")
def test_names_are_proved_as_the_vectors_say(vector: Vector) -> None:
    """Record 1 proves the name of a group, and the key chain the name of a user."""
    expect(vector, lambda: READERS[vector["kind"]](vector))


def check_name(vector: Vector) -> None:
    name = group_name_of(octets(vector["creator"]), octets(vector["nonce"]))
    assert name == octets(vector["name"])
    assert uuid_text(uuid8(name)) == vector["groupId"]
    assert shown(name) == vector["shown"]


def check_group(vector: Vector) -> None:
    given = load("group_names")["given"]
    chain = read_chain(given["records"], [vector["record"]], given["now"], {})
    assert chain is not None
    group_chains.check_asked(chain, uuid_of_text(vector["asked"]))
    if vector["pin"] is not None:
        group_chains.check_pin(chain, octets(vector["pin"]))
    if vector["result"] == "valid":
        assert chain.name == octets(vector["name"])


def check_user(vector: Vector) -> None:
    chain = people()[vector["user"]].chain
    chain.check_user(uuid_of_text(vector["asked"]))
    if vector["result"] == "valid":
        assert chain.fingerprint == octets(vector["name"])


READERS: dict[str, Callable[[Vector], None]] = {
    "name": check_name,
    "group": check_group,
    "user": check_user,
}
