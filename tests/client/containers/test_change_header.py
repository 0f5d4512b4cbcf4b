"""Headers from and to the caller's types, and errors that keep the header's text to themselves."""

import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from typing import Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from scbroker import AccessLevel, BrokerError
from scbroker.client.containers.change import decode_header, encode_header
from scbroker.records.container_record import MAX_HEADER

CANARY = "CANARY-of-the-header"


@dataclasses.dataclass
class DataClass:
    name: str
    count: int


@attrs.define
class Attrs:
    name: str
    count: int


class Struct(msgspec.Struct):
    name: str
    count: int


class Outer(msgspec.Struct):
    inner: Struct


class Typed(TypedDict):
    name: str
    count: int


class Model(pydantic.BaseModel):
    name: str
    count: int


KINDS: list[Any] = [DataClass, Attrs, Struct, Typed, Model]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_header_comes_back_as_the_type_that_is_asked_for(kind: Any) -> None:
    header = kind(name="ä", count=3)
    data = encode_header(header)
    assert data is not None
    assert json.loads(data) == {"name": "ä", "count": 3}
    assert decode_header(data, kind) == header
    assert decode_header(data, Any) == {"name": "ä", "count": 3}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x", "count": CANARY},
        {"name": CANARY},
        {"name": [CANARY], "count": 1},
        [CANARY],
        CANARY,
    ],
    ids=["text for a number", "missing", "a list for text", "a list", "text"],
)
def test_what_is_not_of_the_type_is_an_error_that_does_not_quote_it(kind: Any, wrong: Any) -> None:
    data = encode_header(wrong)
    assert data is not None
    with pytest.raises(BrokerError.invalidArgumentError, match=kind.__name__) as caught:
        decode_header(data, kind)
    assert CANARY not in str(caught.value)


class Colour(enum.Enum):
    Red = "red"


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""


class TaggedA(msgspec.Struct, tag="a"):
    pass


class TaggedB(msgspec.Struct, tag="b"):
    pass


@pytest.mark.parametrize(
    "header, kind",
    [
        (CANARY, Colour), (CANARY, Literal["red"]), ({CANARY: 1}, Strict),
        ({f"{CANARY} - at `$.x": 1}, Strict), ({"type": CANARY}, TaggedA | TaggedB),
        ({CANARY: CANARY}, dict[str, int]), (CANARY, uuid.UUID), (CANARY, dt.datetime),
        ("x" * 5000, int),
    ],
    ids=range(9),
)  # fmt: skip
def test_no_kind_of_mismatch_quotes_the_header(header: Any, kind: Any) -> None:
    """msgspec's own messages quote enum values, tags and unknown fields."""
    data = encode_header(header)
    assert data is not None
    with pytest.raises(BrokerError.invalidArgumentError) as caught:
        decode_header(data, kind)
    assert "CANARY" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_error_says_what_was_expected_and_where() -> None:
    with pytest.raises(
        BrokerError.invalidArgumentError, match=r"header\.count must be int, not str"
    ):
        decode_header(b'{"name":"x","count":"y"}', Struct)
    with pytest.raises(BrokerError.invalidArgumentError, match=r"header\.inner\.count must be int"):
        decode_header(b'{"inner":{"name":"x","count":"y"}}', Outer)
    with pytest.raises(BrokerError.invalidArgumentError, match=r"header\.count is missing"):
        decode_header(b'{"name":"x"}', Struct)


def test_what_is_no_json_is_an_error_that_does_not_quote_it() -> None:
    """Another member's program can seal any bytes as a header."""
    for data in (CANARY.encode(), b"\xff", b"", b"[" * 200_000):
        for kind in (Any, Struct, Model):
            with pytest.raises(BrokerError.invalidArgumentError) as caught:
                decode_header(data, kind)
            assert CANARY not in str(caught.value)


@pytest.mark.parametrize("kind", [7, object(), lambda: None], ids=["7", "object", "function"])
def test_a_header_type_that_is_no_type_is_an_argument_error(kind: Any) -> None:
    with pytest.raises(BrokerError.invalidArgumentError):
        decode_header(b"{}", kind)


def circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "header", [object(), {1, object()}, circular(), {"a": object}, "\ud800"], ids=range(5)
)
def test_what_json_cannot_hold_is_an_argument_error(header: object) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="written as JSON"):
        encode_header(header)


def test_no_header_is_none_and_an_empty_one_is_not() -> None:
    assert encode_header(None) is None
    assert encode_header({}) == b"{}"
    assert encode_header(0) == b"0"
    assert encode_header(math.pi) == str(math.pi).encode()


def test_a_header_has_a_largest_size() -> None:
    fits = "x" * (MAX_HEADER - 2)
    assert len(encode_header(fits) or b"") == MAX_HEADER
    with pytest.raises(BrokerError.invalidArgumentError, match="262145 bytes"):
        encode_header(fits + "x")


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda levels: levels[0]], ids=["list", "tuple", "one"]
)
def test_access_levels_in_the_headers_place_are_refused(kind: Any) -> None:
    """`createContainer(data, [AccessLevel(...)])` would share with nobody and tell nobody."""
    with pytest.raises(BrokerError.invalidArgumentError, match="accessLevels="):
        encode_header(kind([AccessLevel(uuid.uuid4())]))
    assert encode_header(["any", "other", "list"]) == b'["any","other","list"]'
