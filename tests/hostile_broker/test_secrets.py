"""Secrets stand nowhere but in the user's own program: canaries, looked for in every spelling.

Attack 41 of attacks.toml; and of 36, that no comparison tells by its time how much of a guess was right.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from assurance.mutations.engine import ROOT
from scbroker.crypto import verify
from tests.hostile_broker.canaries import Evidence, a_day

PLACES: Final = (
    "heard", "addresses", "answered", "kept", "broker's log", "client's log", "errors", "objects",
    "trust store", "cache", "session store",
)  # fmt: skip


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    with a_day(tmp_path_factory.mktemp("day")) as found:
        yield found


@pytest.mark.sampled
@pytest.mark.parametrize("place", PLACES)
def test_no_secret_stands_in_any_spelling_where_others_can_look(
    evidence: Evidence, place: str
) -> None:
    assert set(evidence.places) == set(PLACES)
    assert set(evidence.secrets) == {
        "passwords", "passphrases", "mistyped", "contents", "headers", "private keys",
        "trust store keys", "container and part keys", "KeyFile keys", "stretched", "links",
        "kept session keys", "groups",
    }  # fmt: skip
    assert all(len(each) >= 12 for wanted in evidence.secrets.values() for each in wanted)
    assert len(evidence.secrets["private keys"]) == 4 * 3, "Alice's, Bob's, and Alice's next"
    for name, wanted in evidence.secrets.items():
        assert evidence.found(place, wanted) == [], name


def test_what_is_no_secret_is_found_where_it_belongs(evidence: Evidence) -> None:
    """So that finding nothing means something."""
    for name, places in {
        "user id": {
            "heard",
            "addresses",
            "answered",
            "kept",
            "broker's log",
            "client's log",
            "objects",
            "errors",
        },
        "type": {"heard", "addresses", "answered", "kept", "objects"} - {"addresses"},
        "reminder": {"heard", "answered", "kept"},
        "auth": {"heard"},
        "token": {"heard", "answered"},
        "API key": {"heard"},
        "device pass": {"heard", "answered", "trust store"},
        "record": {"heard", "answered", "kept"},
    }.items():
        wanted = {evidence.sent[name]}
        assert {place for place in PLACES if evidence.found(place, wanted)} == places, name
    assert b"the table is broken" in evidence.places["broker's log"]
    assert b"The header is not" in evidence.places["errors"]
    assert len(evidence.places["client's log"]) > 10_000
    assert len(evidence.places["trust store"]) > 500
    assert len(evidence.places["cache"]) > 150_000, "a large content among others"
    assert b"scbroker.session" in evidence.places["session store"]


# What a comparison's time tells.

WATCHED: Final = ("crypto", "server", "records", "client", "keys.py")
GUESSABLE: Final = {
    "auth", "tag", "token", "verifier", "secret", "password", "passphrase", "mac", "key_check",
    "device_pass", "devicePass",
}  # fmt: skip
"""Names of what somebody could guess at byte by byte, if the time of a comparison told how far they got."""
MADE: Final = {"keyed", "keyed_hash", "key_commitment", "digest", "_mac", "derive_key", "stretch"}
"""Functions that make such values."""


def guessed_at(node: ast.expr) -> str | None:
    """Return the name of the secret that a comparison would give away."""
    if isinstance(node, ast.Subscript):
        return guessed_at(node.value)
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name if name in MADE else None
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name if name in GUESSABLE else None


def compared(source: str) -> Iterator[tuple[int, str]]:
    """Comparisons by ==, !=, in and not in of such values, but with None and what has no length."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        flat = [e for side in sides for e in (side.elts if isinstance(side, ast.Tuple) else [side])]
        by_value = any(isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for op in node.ops)
        empty = any(isinstance(e, ast.Constant) and e.value in (None, "", b"") for e in flat)
        for name in filter(None, map(guessed_at, flat)):
            if by_value and not empty:
                yield node.lineno, name


def sources() -> Iterator[Path]:
    for name in WATCHED:
        path = ROOT / "src" / "scbroker" / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


ALLOWED: Final = {
    ("session.py", "token")  # with the session's own token, in the user's own program
}


@pytest.mark.long
def test_nothing_that_can_be_guessed_at_is_compared_but_in_constant_time() -> None:
    found = {(path.name, name) for path in sources() for _, name in compared(path.read_text())}
    assert found == ALLOWED
    assert verify.equal.__code__.co_names == ("hmac", "compare_digest")
    used = {path.name for path in sources() if "equal(" in path.read_text()}
    assert used >= {"key_files.py", "keys.py", "judging.py"}
