"""signatures.json: docs/spec/ids.md, 2.2."""

import base64
from typing import Any

import pytest

from tests.independent import edwards
from tests.independent.encodings import label
from tests.independent.keys import check_signature, check_signing_key
from tests.independent.vectors import Vector, cases, expect, load, octets, people

WAYS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "with the cofactor": (
        {"cofactored": True, "decoded": True},
        {"k not reduced", "by the cofactor, key", "by the cofactor, R", "R not canonical",
         "R not canonical, sign"},
    ),
    "with k not reduced": ({"reduced": False}, {"k reduced", "k not reduced"}),
    "with R decoded": ({"decoded": True}, {"R not canonical", "R not canonical, sign"}),
    "with any S": ({"bounded": False}, {"S plus L"}),
    "without an R of small order": ({"refuses_small_r": True}, {"R of small order"}),
}  # fmt: skip


@cases("signatures")
def test_signatures_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """The library verifies as ids.md says, and so do the formulas."""
    expect(vector, lambda: check(vector))
    assert _by_formulas(vector) == (vector["result"] == "valid")


@pytest.mark.parametrize("name", WAYS)
def test_each_other_way_to_verify_fails_vectors_of_its_own(name: str) -> None:
    """A reader that verifies in another way gives another result for exactly these vectors."""
    way, expected = WAYS[name]
    vectors = load("signatures")["vectors"]
    other = {v["id"] for v in vectors if _by_formulas(v, **way) != (v["result"] == "valid")}
    assert other == expected


def check(vector: Vector) -> None:
    public = octets(vector["ed25519"]) + people()[vector["mlDsaOf"]].signing[0].public[32:]
    check_signing_key(public)
    signature = base64.b64decode(vector["signature"])
    check_signature(public, vector["name"], octets(vector["object"]), signature)


def _by_formulas(vector: Vector, **way: bool) -> bool:
    message = label(vector["name"]) + octets(vector["object"])
    half = base64.b64decode(vector["signature"])[:64]
    return edwards.verifies(octets(vector["ed25519"]), message, half, **way)
