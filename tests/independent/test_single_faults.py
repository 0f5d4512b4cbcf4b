"""Each invalid vector names the check that refuses it, and without that check it is accepted.

A check is a `need` of this package, by the words that it says. They are the `rule` of the vectors, which
`python -m tests.vectors.make` fills in. Where other checks find the same fault, the vector names them in
`also`.
"""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.independent import (
    headers,
    messages,
    test_access_lists,
    test_container_records,
    test_events,
    test_ids,
    test_key_files,
    test_key_records,
    test_key_rings,
    test_segments,
    test_sessions,
    test_signatures,
    test_views,
    test_wraps,
)
from tests.independent.encodings import TAKEN_OUT, RefusedError
from tests.independent.vectors import Vector, load, octets

READERS: dict[str, Callable[[Vector], object]] = {
    "access_lists": test_access_lists._check,
    "container_records": test_container_records.read,
    "events": test_events.check,
    "headers": lambda vector: headers.parse(octets(vector["header"])),
    "ids": lambda vector: test_ids.READERS[vector["kind"]](vector),
    "key_files": test_key_files._open,
    "key_records": test_key_records._read,
    "key_rings": test_key_rings.check,
    "messages": lambda vector: messages.read(vector["kind"], octets(vector["message"])),
    "orders": test_sessions._check_order,
    "segments": lambda vector: test_segments.READERS[vector["kind"]](vector),
    "sessions": test_sessions._check_statement,
    "signatures": test_signatures.check,
    "types": test_container_records.check_type,
    "views": test_views.check,
    "wraps": test_wraps._open,
}


PACKAGE = Path(__file__).parent
_LIMITS = "a limit that follows from the others, or that the vectors' messages do not reach"
_DECODED = "what is wrong with the bytes is wrong in a second way, or nothing is left to accept"
_TWICE = "one thing said twice: the second check refuses it as well"
TOGETHER: dict[str, str] = {
    "K8: no active key": "a statement by a deleted user; chains in people.json are not closed",
    "a header without byte order mark": _DECODED,
    "a key of another length": "the formats give every key its length",
    "a message without trailing bytes": _DECODED,
    "a record too long": _LIMITS,
    "a second beginning": _TWICE,
    "a secret has 1 to 1,023 bytes": "a writer's check; a reader meets it as padding",
    "a statement of at most 1,024 bytes": "a longer one has another origin",
    "a wrap for a reader with Decrypt": _TWICE,
    "a wrap has 1,168 bytes": _DECODED,
    "an action that exists": _TWICE,
    "an author without a key chain": "a client's: the vectors give the keys of all authors",
    "an order of at most 1,024 bytes": "a longer one has another origin",
    "another container key": "wraps.json says by `commits` whether the commitment is the key's",
    "another number of segments": _TWICE,
    "another user's KeyFile": _DECODED,
    "field names are text": _DECODED,
    "governing records govern": _TWICE,
    "nested too deep": _LIMITS,
    "no part key with a length": _LIMITS,
    "not the fingerprint of its signing key 0": _TWICE,
    "not the first record": _TWICE,
    "positions do not ascend": _TWICE,
    "signed with a published key": _TWICE,
    "too long": _LIMITS,
    "too short": _LIMITS,
    "trailing bytes": _DECODED,
    "truncated": _DECODED,
    "users is an array": _DECODED,
}
"""Checks of which no vector has only this fault, with the reason."""


def rules_of(file: str, vector: Vector) -> list[str]:
    """The check that refuses a vector, then those that refuse it once the ones before are taken out.

    A failure to decode or to decrypt ends the list: nothing is left that could be accepted.
    """
    found: list[str] = []
    try:
        for _ in range(20):
            try:
                READERS[file](vector)
            except RefusedError as error:
                if error.why in found:
                    break
                found.append(error.why)
                TAKEN_OUT.add(error.why)
            except (
                AssertionError,
                ArithmeticError,
                AttributeError,
                LookupError,
                TypeError,
                ValueError,
            ):
                break  # what a reader without the check would go on with
            else:
                break
    finally:
        TAKEN_OUT.clear()
    return found


@pytest.mark.parametrize("file", READERS)
def test_each_invalid_vector_names_the_checks_that_refuse_it(file: str) -> None:
    """With these checks taken out, and no others, it is accepted; mostly it is one."""
    for vector in load(file)["vectors"]:
        if vector["result"] == "invalid":
            assert rules_of(file, vector) == [vector["rule"], *vector.get("also", [])], vector["id"]


def test_each_check_alone_is_the_fault_of_a_vector() -> None:
    """A reader without one of them accepts a vector that it has to refuse."""
    alone = {
        vector["rule"]
        for file in READERS
        for vector in load(file)["vectors"]
        if vector["result"] == "invalid" and "also" not in vector
    }
    assert _checks() - alone == TOGETHER.keys()


def _checks() -> set[str]:
    """What the checks of this package say; those with numbers in their words are left out."""
    found = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name("need"), args=[_, ast.Constant(value=str(why)), *_]):
                    found.add(why)
    return found
