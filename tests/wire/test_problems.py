"""Errors on the wire: docs/spec/protocol.md, section 1."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scbroker import errors
from scbroker.errors import BrokerError, BrokerFaultError, BrokerUnavailableError, OverloadedError
from scbroker.wire.codec import decode, encode
from scbroker.wire.problems import (
    MAX_PROBLEM,
    STATUS,
    ItemProblem,
    Problem,
    error_of,
    error_of_item,
    item_problem_of,
    problem_of,
)
from tests.kit.cases import in_one_case

PAGE = Path(__file__).parents[2] / "docs" / "spec" / "protocol.md"
TABLE = dict(re.findall(r"^\| `([a-z-]+)` \| ([0-9]{3}) \|", PAGE.read_text("utf-8"), re.MULTILINE))


def subclasses(kind: type[BrokerError]) -> set[type[BrokerError]]:
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def answer(**members: object) -> bytes:
    return json.dumps(
        {"type": "about:blank", "title": "t", "status": 400, "detail": "d", "code": "invalid",
         **members}
    ).encode()  # fmt: skip


def test_the_codes_and_statuses_are_those_of_the_specification() -> None:
    assert {kind.code: str(status) for kind, status in STATUS.items()} == TABLE


@in_one_case("kind", STATUS)
def test_every_error_of_the_protocol_comes_back_as_itself(kind: type[BrokerError]) -> None:
    problem = problem_of(kind("What is wrong: ö."))
    assert (problem.type, problem.status, problem.code) == ("about:blank", STATUS[kind], kind.code)
    found = error_of(problem.status, msgspec.json.encode(problem), None)
    assert type(found) is kind
    assert str(found) == "What is wrong: ö."


@in_one_case("kind", STATUS)
def test_every_error_of_an_item_comes_back_as_itself(kind: type[BrokerError]) -> None:
    sent = encode(item_problem_of(kind("What is wrong: ö.\0" + "x" * 1000)))
    found = error_of_item(decode(ItemProblem, sent))
    assert type(found) is kind
    assert str(found) == ("What is wrong: ö." + "x" * 1000)[:500]


def test_what_an_item_is_said_to_be_is_text_for_one_line_and_a_short_wait() -> None:
    waiting = item_problem_of(OverloadedError("so", retryAfter=0.2))
    assert waiting.retryAfter == 1
    for seconds, expected in ((7, 7.0), (2**53 - 1, 99_999.0), (None, None)):
        found = error_of_item(
            ItemProblem(code="overloaded", detail="a\n\x1b[2Jb", retryAfter=seconds)
        )
        assert isinstance(found, BrokerUnavailableError)
        assert (str(found), found.retryAfter) == ("a[2Jb", expected)
    assert type(error_of_item(ItemProblem(code="none", detail="secret"))) is BrokerFaultError


@in_one_case("kind", sorted(subclasses(BrokerError) - set(STATUS), key=str))  # fmt: skip
def test_an_error_without_a_place_on_the_wire_is_a_fault_that_says_nothing(
    kind: type[BrokerError],
) -> None:
    problem = problem_of(kind("a secret of the broker's"))
    assert (problem.status, problem.code) == (500, "internal")
    assert "secret" not in problem.detail + problem.title


@pytest.mark.parametrize("text, seconds", [("0", 0), ("17", 17), ("99999", 99999)])
@pytest.mark.parametrize("code", ["throttled", "overloaded"])
def test_retry_after_comes_with_the_errors_that_pass(code: str, text: str, seconds: int) -> None:
    found = error_of(429, answer(code=code), text)
    assert isinstance(found, BrokerUnavailableError)
    assert found.retryAfter == seconds


@in_one_case("text", [None, "", "-1", "1.5", "\u0661", "1e3", "100000", " 1", "soon",
             "Wed, 21 Oct 2026 07:28:00 GMT", "inf", "nan"])  # fmt: skip
def test_a_strange_retry_after_is_none(text: str | None) -> None:
    for body in (answer(code="throttled"), b""):
        found = error_of(503, body, text)
        assert isinstance(found, BrokerUnavailableError)
        assert found.retryAfter is None


HOSTILE = {
    "nothing": b"",
    "a page": b"<html>502 Bad Gateway</html>",
    "no UTF-8": b'{"detail":"\xff"}',
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "no code": b'{"title":"t","status":400,"detail":"d"}',
    "code null": answer(code=None),
    "an unknown code": answer(code="teapot"),
    "a code of the client's": answer(code="integrity"),
    "a code of no case": answer(code="unavailable"),
    "a list as code": answer(code=["invalid"]),
    "status as text": answer(status="400"),
    "status beyond all": answer().replace(b"400", b"1" * 5000),
    "status as a float beyond all": answer().replace(b"400", b"1e999"),
    "depth": b'{"code":' + b"[" * 4000,
    "depth in an unknown member": b'{"x":' + b"[" * 4000,
    "cut off": answer(detail="x" * MAX_PROBLEM),
    "a lone surrogate": answer().replace(b'"d"', b'"\\ud800"'),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "status, kind",
    [(400, BrokerFaultError), (200, BrokerFaultError), (500, BrokerFaultError),
     (503, OverloadedError), (502, errors.UnreachableError), (504, errors.UnreachableError)],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)  # fmt: skip
def test_an_answer_that_the_protocol_does_not_know_is_a_fault_by_its_status(
    name: str, status: int, kind: type[BrokerError]
) -> None:
    found = error_of(status, HOSTILE[name], None)
    assert type(found) is kind
    assert found.retryable


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=600))
@example("\x1b[31mred\x07\r\nSet-Cookie: a=b")
@example("\u202eright to left")
def test_a_detail_is_printable_text_of_bounded_length(detail: str) -> None:
    problem = Problem(title="t", status=404, detail=detail, code="not-found")
    try:
        body = msgspec.json.encode(problem)
    except UnicodeEncodeError:
        return
    found = error_of(404, body, None)
    assert type(found) in (errors.NotFoundError, BrokerFaultError)
    assert str(found).isprintable()
    assert len(str(found)) <= 500
