"""Headers from and to the caller's types, and errors that keep the header's text to themselves."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from typing import Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from scbroker import AccessLevel, BrokerError
from scbroker.client.arguments import decode_header, encode_header
from scbroker.records.container_record import MAX_HEADER
from tests.kit.cases import in_one_case

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
    wrong = "Expected `int`, got `str` at "
    with pytest.raises(BrokerError.invalidArgumentError, match=rf"{wrong}header\.count$"):
        decode_header(b'{"name":"x","count":"y"}', Struct)
    with pytest.raises(BrokerError.invalidArgumentError, match=rf"{wrong}header\.inner\.count$"):
        decode_header(b'{"inner":{"name":"x","count":"y"}}', Outer)
    with pytest.raises(BrokerError.invalidArgumentError, match="missing required field `count`"):
        decode_header(b'{"name":"x"}', Struct)


def test_what_is_no_json_is_an_error_that_does_not_quote_it() -> None:
    """Another member's program can seal any bytes as a header."""
    for data in (CANARY.encode(), b"\xff", b"", b"[" * 200_000):
        for kind in (Any, Struct, Model):
            with pytest.raises(BrokerError.invalidArgumentError) as caught:
                decode_header(data, kind)
            assert CANARY not in str(caught.value)


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


class Points(msgspec.Struct):
    anything: Any = None
    number: float | None = None
    pair: tuple[int, int] = (1, 2)
    key: bytes = b""
    names: dict[int, str] = {}
    when: dt.datetime | None = None


class Private(pydantic.BaseModel):
    title: str
    number: float | None = None
    cached: str = pydantic.Field(default="", exclude=True)
    _opened: int = pydantic.PrivateAttr(default=0)


class Named(NamedTuple):
    name: str
    number: int


WHEN = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
NAN, INFINITY = math.nan, math.inf


@in_one_case("header, why", [
        (b"x", "bytes would come back as str"), ({CANARY: [b"x"]}, "bytes would come back as str"),
        ((1, 2), "tuple would come back as list"), ([{"a": (1, 2)}], "tuple would come back as list"),
        ({1, 2}, "set would come back as list"), ({1: 2}, "key of type int"), ({0: 1}, "key of type int"),
        ({"a": {1.5: 2}}, "key of type float"), ({1: "a", "1": "a"}, "stands twice"),
        (NAN, "nan and infinity"), ([INFINITY], "nan and infinity"), ({"a": -INFINITY}, "nan and inf"),
        ({"when": WHEN}, "datetime would come back as str"), ({"id": uuid.UUID(int=1)}, "UUID would"),
        ({"price": decimal.Decimal("1.5")}, "Decimal would come back as str"),
        ({"of": DataClass(CANARY, 1)}, "DataClass would come back as dict"),
        ({"of": Colour.Red}, "Colour would come back as str"),
        (Points(anything=(1, 2)), "tuple would come back as list"),
        (Points(anything=b"x"), "bytes would come back as str"),
        (Points(anything={1: CANARY}), "key of type int"), (Points(anything=WHEN), "datetime would"),
        (Points(number=NAN), "nan and infinity"), (Points(pair=(1, CANARY)), r"header\.pair"),  # type: ignore[arg-type] # wrong on purpose
        (Private(title=CANARY, number=NAN), "nan and infinity"),
        (DataClass(name=CANARY, count=NAN), r"Expected `int`, got `null` at header\.count"),  # type: ignore[arg-type] # as above
    ])  # fmt: skip
def test_a_header_that_would_not_come_back_equal_is_refused_and_not_quoted(
    header: object, why: str
) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match=why) as caught:
        encode_header(header)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        Points("any", 1.5, (3, 4), b"bytes", {1: "one"}, WHEN), Points([1, {"a": None}]), Named("n", 1),
        Private(title="t", cached="not written"), WHEN, uuid.UUID(int=1), Colour.Red,
    ],
    ids=range(7),
)  # fmt: skip
def test_an_object_of_a_class_is_read_back_by_that_class(header: Any) -> None:
    data = encode_header(header)
    assert data is not None
    found = decode_header(data, type(header))
    assert found == header or found.title == header.title
