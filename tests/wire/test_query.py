"""Paths and query strings: docs/spec/protocol.md, sections 1 and 5."""

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.wire.codec import Message, NoQuery, parse_number, parse_query
from scbroker.wire.containers import BodiesQuery, GoverningQuery, ViewQuery
from scbroker.wire.events import EventQuery
from scbroker.wire.parts import ChunksQuery, SegmentsQuery
from tests.kit.cases import in_one_case

ID = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"
MAX = str(2**53 - 1)
STRANGE = [
    "", " ", "+1", "-1", "-0", "+0", "00", "01", "007", "1 ", " 1", "1\n", "\n1", "1_000", "1,000",
    "1.0", "1e3", "0x1", "0b1", "\uff11", "\u0661", "\u00b2", "\u00bd", "\u2167",
    "1\0", "\u0967", "99999999999999999", "1" * 5000,
    "null", "true", "NaN", "Infinity",
]  # fmt: skip


@in_one_case("text", STRANGE)
def test_a_number_in_any_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_number(text)
    for name in ("since", "header"):
        with pytest.raises(InvalidArgumentError):
            parse_query(ViewQuery, [(name, text)])


def items(**values: str) -> list[tuple[str, str]]:
    return [(name.rstrip("_"), value) for name, value in values.items()]


def test_parameters_are_read_as_what_they_are() -> None:
    found = parse_query(ViewQuery, items(since=MAX, header="1", content="0"))
    assert found == ViewQuery(since=2**53 - 1, header=1, content=0)
    assert parse_query(GoverningQuery, items(from_="1", to="2")) == GoverningQuery(from_=1, to=2)
    assert parse_query(BodiesQuery, items(from_="3", count="4")) == BodiesQuery(from_=3, count=4)
    several = [("eventType", "Added"), ("containerId", ID), ("eventType", "Deleted"),
               ("containerType", "7"), ("limit", "1000")]  # fmt: skip
    expected = EventQuery(
        eventType=["Added", "Deleted"], containerId=ID, containerType="7", limit=1000
    )
    assert parse_query(EventQuery, several) == expected


REFUSED: list[tuple[type[Message], list[tuple[str, str]]]] = [
    (NoQuery, [("a", "1")]), (NoQuery, [("", "")]), (ViewQuery, [("unknown", "1")]),
    (ViewQuery, [("Since", "1")]), (ViewQuery, [("since", "1"), ("since", "1")]),
    (ViewQuery, [("since", "1"), ("since", "2")]), (ViewQuery, [("since", "0")]),
    (ViewQuery, [("since", str(2**53))]), (ViewQuery, [("header", "2")]),
    (ViewQuery, [("content", "2")]), (GoverningQuery, []), (GoverningQuery, [("from", "1")]),
    (GoverningQuery, [("from_", "1"), ("to", "1")]),
    (GoverningQuery, [("from", "0"), ("to", "1")]),
    (BodiesQuery, [("from", "1"), ("count", "0")]),
    (BodiesQuery, [("from", "1"), ("count", "1001")]),
    (SegmentsQuery, [("first", "0"), ("count", "9")]),
    (SegmentsQuery, [("first", "0"), ("count", "0")]),
    (SegmentsQuery, [("first", str(2**20)), ("count", "1")]),
    (ChunksQuery, [("first", str(2**17))]),
    (ChunksQuery, [("first", "-1")]),
    (ChunksQuery, [("count", "1")]),
    (EventQuery, [("eventType", "added")]),
    (EventQuery, [("eventType", "Added"), ("eventType", "")]),
    (EventQuery, [("containerId", ID.upper())]),
    (EventQuery, [("containerId", ID + "\n")]),
    (EventQuery, [("containerId", "{" + ID + "}")]),
    (EventQuery, [("containerId", "")]),
    (EventQuery, [("containerType", "x" * 257)]),
    (EventQuery, [("containerType", "\0")]),
    (EventQuery, [("limit", "0")]),
    (EventQuery, [("limit", "1001")]),
    (EventQuery, [("startId", "1"), ("startId", "1")]),
]  # fmt: skip


@in_one_case("kind, query", REFUSED)
def test_a_query_that_the_protocol_does_not_define_is_refused(
    kind: type[Message], query: list[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_query(kind, query)
    assert caught.type is InvalidArgumentError


def test_an_unknown_parameter_is_named_but_not_at_length() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_query(NoQuery, [("x" * 10_000, "1")])
    assert len(str(caught.value)) < 120
