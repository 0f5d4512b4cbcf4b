"""Each invalid vector has one fault.

A check is a call of `need` or `decodes` in this package, and is named by its message. The `rule` of a vector
is the first check that refuses it, so the removal of any other check does not make the vector acceptable. The
vector has one fault if either holds:

- The package accepts the vector if this check is removed.
- Even then the vector cannot be read: bytes do not decode, or a seal does not open. Then `beside` names a
  valid vector that differs in one spot.

`python -m tests.vectors.make` fills in both fields, and finds no vector beside another one otherwise.
"""

import ast
from pathlib import Path

import pytest

from tests.independent.encodings import TAKEN_OUT, RefusedError, UndecodableError
from tests.independent.readers import READERS
from tests.independent.vectors import Vector, load

ACCEPTED = "accepted"
NOTHING_LEFT = "nothing is left to accept"

TWICE: dict[str, str] = {
    "a second beginning": "a first record in the place of a later one breaks every rule of later ones",
    "K1, type": "no signature verifies under an encryption key",
}
"""Vectors whose one fault several checks find, with the reason."""

NO_VECTOR: dict[str, str] = {
    "a key of another length": "the formats give every key its length",
    "an author without a key chain": "the vectors give the keys of all authors",
    "a reader through a group is served a membership": "what this means depends on the membership that the "
    "device has verified before",
}
"""Checks that are not the rule of any vector, with the reason."""


def refusal_of(file: str, vector: Vector) -> tuple[str, str]:
    """Return the check that refuses a vector, and what becomes of the vector without that check.

    That is `ACCEPTED`, `NOTHING_LEFT`, or the next check that refuses it.
    """
    with pytest.raises(RefusedError) as refused:
        READERS[file](vector)
    rule = refused.value.why
    if isinstance(refused.value, UndecodableError):
        return rule, NOTHING_LEFT
    TAKEN_OUT.add(rule)
    try:
        READERS[file](vector)
    except UndecodableError:
        return rule, NOTHING_LEFT
    except RefusedError as error:
        return rule, error.why
    except (AssertionError, LookupError, TypeError):
        return rule, NOTHING_LEFT  # the reader used a value that the removed check had refused
    finally:
        TAKEN_OUT.clear()
    return rule, ACCEPTED


def invalid(file: str) -> list[Vector]:
    return [vector for vector in load(file)["vectors"] if vector["result"] == "invalid"]


@pytest.mark.parametrize("file", READERS)
def test_each_invalid_vector_is_accepted_without_its_rule_or_cannot_be_read_without_it(
    file: str,
) -> None:
    for vector in invalid(file):
        rule, then = refusal_of(file, vector)
        assert rule == vector["rule"], vector["id"]
        if vector["id"] in TWICE:
            assert then not in (ACCEPTED, NOTHING_LEFT), vector["id"]
        else:
            assert then == (NOTHING_LEFT if "beside" in vector else ACCEPTED), vector["id"]


def test_each_check_is_the_rule_of_a_vector() -> None:
    rules = {vector["rule"] for file in READERS for vector in invalid(file)}
    assert _checks() - rules == NO_VECTOR.keys()


def _checks() -> set[str]:
    """What the checks of this package say; those with numbers in their words are left out."""
    found = set()
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name("need" | "decodes" | "UndecodableError"),
                    args=[_, ast.Constant(value=str(why)), *_],
                ):
                    found.add(why)
    return found
