"""Every vector is judged by the second implementation as its file says."""

from functools import partial
from typing import Any

import pytest

from tests.independent import key_files
from tests.independent.encodings import uuid_of_text
from tests.independent.key_records import ENCRYPTION, SIGNING
from tests.independent.readers import READERS, holds_by_formulas
from tests.independent.vectors import Person, expect, load, octets

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
    "as ids.md says": ({}, set()),
}  # fmt: skip


@pytest.mark.parametrize("file", READERS)
def test_vectors_are_judged_as_they_say(file: str, subtests: pytest.Subtests) -> None:
    for vector in load(file)["vectors"]:
        with subtests.test(vector["id"]):
            expect(vector, partial(READERS[file], vector))


@pytest.mark.parametrize("name", WAYS)
def test_each_other_way_to_verify_fails_vectors_of_its_own(name: str) -> None:
    """A reader that verifies in another way gives another result for exactly these vectors."""
    way, expected = WAYS[name]
    vectors = load("signatures")["vectors"]
    other = {v["id"] for v in vectors if holds_by_formulas(v, **way) != (v["result"] == "valid")}
    assert other == expected


def test_a_persons_seeds_give_the_keys_that_their_chain_publishes() -> None:
    for person in map(Person, load("people")["vectors"]):
        published = person.chain.keys
        assert [key.public for key in published[SIGNING]] == [key.public for key in person.signing]
        assert [key.public for key in published[ENCRYPTION]] == [
            key.public for key in person.encryption
        ]


def test_a_password_opens_a_key_file_alone() -> None:
    vector = next(v for v in load("key_files")["vectors"] if v.get("password"))
    file, user_id = octets(vector["keyFile"]), uuid_of_text(vector["userId"])
    ring = key_files.open_with_password(file, user_id, vector["password"])
    assert ring.stored() == octets(vector["keyRing"])
