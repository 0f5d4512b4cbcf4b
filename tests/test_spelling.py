"""Which names look the same, and which names nobody may take."""

import pytest

from scbroker import errors
from scbroker.spelling import check_new, comparable
from tests.kit.cases import in_one_case


@in_one_case(
    "other",
    [
        "BOB JÖNES", " bob  jönes", "Bob Jo\u0308nes", "\uff22\uff4f\uff42 Jönes", "B\u200bob Jönes",
        "Bob\u034f Jönes", "Bob\ufe0f Jönes", "Bob\u17b4 Jönes", "Bob\u3164 Jönes", "\u115fBob Jönes",
        "Bob\u2800 Jönes", "Bob\u00a0Jönes", "\u200fBob Jönes", "Bob\U000e0041 Jönes", "Bo\u00adb Jönes",
    ],
)  # fmt: skip
def test_names_that_a_person_could_confuse_are_the_same(other: str) -> None:
    assert comparable(other) == comparable("Bob Jönes") == "bob jönes"


@in_one_case("name", ["", " ", "\u3164", "\u2800\u2800", "\u115f \u200d", "\ufe0f", "\U00013441"])
def test_a_name_that_nobody_sees_is_the_empty_one_and_is_refused(name: str) -> None:
    assert comparable(name) == ""
    with pytest.raises(errors.InvalidArgumentError, match="at least one visible"):
        check_new("name", name)


@in_one_case(
    "name",
    [
        "Bob\u034f", "Bob\ufe0f", "Bo\u17b4b", "Bob\u3164", "\u115fBob", "Bob\u2800", "Bo\u200db",
        "Bob\u200c", "\u200eBob", "Bo\u00adb", "Bob\U000e0041", "Bob\uffa0", "B\u1d3eob\u180b", "you", "YOU",
        " You ", "\uff39ou", "yo\u200bu", "Y\u2800ou", "12ab", "2026", "47c5156a", "deadbeef", "47C5156A-12",
        "47c5156a-1234-8abc-9def-0123456789ab",
    ],
)  # fmt: skip
def test_a_name_that_looks_like_another_one_or_like_an_id_is_refused(name: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        check_new("name", name)


@in_one_case(
    "name",
    [
        "Bob", "Young", "Zoë", "O\u2019Neil", "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627",
        "שרה", "김철수", "ｶﾀｶﾅ", "Ebba", "Becca", "Abba 2",
        "Team 🎉", "Dr. No (2)", "İpek", "\u0915\u094d\u200d\u0937",
    ],
)  # fmt: skip
def test_names_of_people_are_accepted(name: str) -> None:
    check_new("name", name)
