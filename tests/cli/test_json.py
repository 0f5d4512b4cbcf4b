"""What `--json` prints has the keys that the page of the command names: scripts rely on them."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

_EXTRA: Final = tomllib.loads(
    (Path(__file__).parents[2] / "docs" / "commands.toml").read_text("utf-8")
)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_each_command_prints_the_keys_that_its_page_names(person: Callable[[str], Person]) -> None:
    alice, bob = person("Alice"), person("Bob")
    card = bob.json("whoami")["card"]
    with alice.session() as hers, bob.session() as his:
        user = his.getUserId().result(PATIENCE)
        for name in ("Band", "Choir"):
            hers.createGroup(name, user).result(PATIENCE)
        his.acceptGroup(hers.createGroup("Club", user).result(PATIENCE)).result(PATIENCE)
    (alice.home / "letter.txt").write_text("Dear Bob")
    commands = {
        "whoami": ["--usage"], "keys": [], "put": ["letter.txt"], "get": ["letter.txt", "-o", "copy"],
        "info": ["letter.txt"], "ls": [], "card": [card], "contacts add": [card],
        "contacts ls": [], "contacts show": ["Bob"], "share": ["letter.txt", "Bob"],
        "link": ["letter.txt", "--until", "1d", "--name", "L"], "events": [],
        "verify": [], "doctor": [], "profiles": [], "mv": ["letter.txt", "b.txt"],
        "revoke": ["b.txt", "Bob"], "mark access": ["b.txt"], "groups create": ["Team"], "groups ls": [],
        "groups show": ["Team"], "groups members": ["Team"], "groups add": ["Team", "Bob"],
        "groups role": ["Team", "Bob", "reader"], "groups managers": ["Team", "Bob"],
        "groups rename": ["Team", "Blue"], "groups remove": ["Blue", "Bob"], "groups renew": ["Blue"],
        "groups replace": ["Blue", "Choir", "--yes"], "groups rm": ["Blue", "--yes"],
        "mark group": ["Choir"], "groups accept": ["Choir"], "groups decline": ["Band"],
        "groups leave": ["Club", "--yes"], "block": ["Bob"], "blocked": [], "unblock": ["Bob"],
        "reminder": [], "mark events": [], "rm": ["b.txt", "--yes"],
        "contacts rm": ["Bob"], "logout": [],
    }  # fmt: skip
    of_bob = {"groups accept", "groups decline", "groups leave"}
    known = {name for name in _EXTRA if {"json", "rows"} & set(_EXTRA[name])}
    endless = {"ui"}  # tests/cli/ui reads its line
    assert set(commands) == {n for n in known - endless if not n.startswith("admin ")}
    printed = {}
    for name, arguments in commands.items():
        found = (bob if name in of_bob else alice).json(*name.split(), *arguments)
        printed[name] = (
            {"rows": list(found[0])} if isinstance(found, list) else {"json": list(found)}
        )
        if name == "link":  # it lists the links without a container
            printed[name]["rows"] = list(alice.json("link")[0])
    named = {
        name: {key: keys for key, keys in _EXTRA[name].items() if key != "example"}
        for name in commands
    }
    assert printed == named
