"""Fuzz the answers that a client reads: problems, headers of containers, pages of the event log."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import itertools
import json
import uuid
from collections.abc import Iterator
from typing import Any, Final, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import strategies as st

from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import write
from assurance.fuzz.messages import ID, named
from assurance.fuzz.target import Target, kept
from scbroker import errors
from scbroker.client import events
from scbroker.client.arguments import decode_header, encode_header
from scbroker.client.http.requests import Requests
from scbroker.client.http.transport import Endpoint
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.wire.codec import encode
from scbroker.wire.events import NO_EVENTS, Event, Events
from scbroker.wire.problems import MAX_PROBLEM, STATUS, error_of, problem_of
from tests.vectors.cast import START, cast

# Problems.

_ANSWER: Final = msgspec.msgpack.Decoder(tuple[int, bytes, str | None])


def _problem(data: bytes) -> None:
    """[status, body, Retry-After]: every answer becomes an error object, and none is raised."""
    try:
        status, body, retry_after = _ANSWER.decode(data)
    except (ValueError, RecursionError):
        return
    found = error_of(status, body, retry_after)
    kept(type(found) in {*STATUS, errors.UnreachableError}, "an error that the protocol lacks")
    words = str(found)
    kept(words.isprintable() and 0 < len(words) <= 600, "a message that cannot be shown")
    if isinstance(found, errors.BrokerUnavailableError) and (wait := found.retryAfter) is not None:
        given = str(int(retry_after or ""))
        kept(0 <= wait < 100_000 and str(int(wait)) == given, "another Retry-After than was sent")
    if type(found) in STATUS:
        again = error_of(status, msgspec.json.encode(problem_of(found)), retry_after)
        kept((type(again), str(again)) == (type(found), words), "it does not come back as it was")
    code = _code_of(body)
    kept(code is None or code == found.code, "another error than was sent")


def _code_of(body: bytes) -> str | None:
    """Return the code of a body that any JSON parser reads as a problem of the protocol."""
    try:
        found = json.loads(body.decode("utf-8")) if len(body) <= MAX_PROBLEM else None
    except (ValueError, RecursionError):
        return None
    kinds = {"type": str, "title": str, "detail": str, "code": str, "status": int}
    if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != kinds:
        return None
    # Parsers differ over doubled keys, escaped quotes and integers beyond 64 bits.
    if body.count(b'"') != 2 * (len(kinds) + 4) or abs(found["status"]) >= 2**63:
        return None
    return found["code"] if found["code"] in {kind.code for kind in STATUS} else None


_BODY: Final = (
    b'{"type":"about:blank","title":"t","status":429,"detail":"d","code":"throttled"}',
    b'{"type":"about:blank","title":"t","status":404,"detail":"d","code":"not-found"}',
    b"<html>", b"{}", b"",
)  # fmt: skip


def _problems() -> list[bytes]:
    statuses = zip((429, 404, 502, 500, 503), _BODY, ("17", None, None, None, "1"), strict=True)
    return [write(list(answer)) for answer in statuses]


def _any_problem() -> st.SearchStrategy[bytes]:
    status = st.sampled_from((200, 400, 401, 404, 409, 429, 500, 503, 0, -1, 2**40)) | st.integers(
        0, 999
    )
    wait = st.none() | st.sampled_from(("17", "", "-1", "1e3", "99999999", "\u0661")) | st.text()
    answers = st.tuples(status, v.in_json(_BODY[:2]) | v.in_words(_BODY), wait)
    return answers.map(write) | v.in_messagepack(_problems())


def _problem_bombs() -> Iterator[bytes]:
    body = b'{"type":"about:blank","title":"t","status":429,"code":"throttled","detail":%s}'
    for bomb in v.bombs_in_json():
        yield write([429, bomb, None])
        yield write([429, body % bomb, "1" * 1000])


# Headers.


class Struct(msgspec.Struct):
    name: str
    count: int = 0


class Tagged(msgspec.Struct, tag="a", forbid_unknown_fields=True):
    pass


class Other(msgspec.Struct, tag="b"):
    inner: list[Struct] = []


@dataclasses.dataclass
class DataClass:
    name: str
    count: int


@attrs.define
class Attrs:
    name: str
    count: int


class Typed(TypedDict, total=False):
    name: str
    count: int


class Model(pydantic.BaseModel):
    name: str
    count: int
    when: dt.datetime | None = None


class Colour(enum.Enum):
    Red = "red"


HEADERS: Final[dict[str, Any]] = {
    "Any": Any, "dict": dict, "list[int]": list[int], "dict[str, int]": dict[str, int], "set[str]": set[str],
    "tuple[int, str]": tuple[int, str], "int": int, "float": float, "str": str, "bytes": bytes, "bool": bool,
    "Decimal": decimal.Decimal, "datetime": dt.datetime, "date": dt.date, "time": dt.time,
    "timedelta": dt.timedelta, "UUID": uuid.UUID, "Colour": Colour, "Literal": Literal["red", 1],
    "Struct": Struct, "DataClass": DataClass, "Attrs": Attrs, "Typed": Typed, "Model": Model,
    "Tagged | Other": Tagged | Other, "dict[int, Decimal]": dict[int, decimal.Decimal],
    "list[Struct]": list[Struct], "frozenset[int]": frozenset[int], "int | None": int | None,
    "dict[datetime, bytes]": dict[dt.datetime, bytes], "dict[UUID, float]": dict[uuid.UUID, float],
}  # fmt: skip


def _header(data: bytes) -> None:
    name, text = named(data)
    if name not in HEADERS:
        return
    found = decode_header(text, HEADERS[name])
    written = encode_header(found)
    if written is None:
        kept(text.strip(b" \t\r\n") == b"null", "a value passed for null")
        return
    again = decode_header(written, HEADERS[name])
    # Compared as text: NaN does not equal itself.
    kept(_shown(again) == _shown(found), "it does not come back as it was")


def _shown(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return str(sorted(map(repr, value)))
    return repr(value)


_TEXTS: Final[dict[str, bytes]] = dict.fromkeys(HEADERS, b'{"name":"x","count":1}') | {
    "Any": b'{"name":[1,null,true,0.5,"x"]}', "dict": b'{"name":{}}', "list[int]": b"[1,2]",
    "dict[str, int]": b'{"a":1}', "set[str]": b'["a","b"]', "tuple[int, str]": b'[1,"a"]', "int": b"1",
    "float": b"1.5", "str": b'"a"', "bytes": b'"AA=="', "bool": b"true", "Decimal": b'"1.5"',
    "datetime": b'"2026-01-01T00:00:00Z"', "date": b'"2026-01-01"', "time": b'"00:00:00"',
    "timedelta": b'"PT1S"', "UUID": b'"' + ID.encode() + b'"', "Colour": b'"red"', "Literal": b"1",
    "Tagged | Other": b'{"type":"b","inner":[{"name":"x","count":1}]}',
    "dict[int, Decimal]": b'{"1":"2.5"}', "list[Struct]": b'[{"name":"x"}]', "frozenset[int]": b"[1]",
    "int | None": b"null", "dict[datetime, bytes]": b'{"2026-01-01T00:00:00Z":"AA=="}',
    "dict[UUID, float]": b'{"' + ID.encode() + b'":1.5}',
    "Model": b'{"name":"x","count":1,"when":"2026-01-01T00:00:00Z"}',
}  # fmt: skip


def _headers() -> list[bytes]:
    return [*(name.encode() + b"\n" + text for name, text in _TEXTS.items()), b"int\n?"]


def _any_header() -> st.SearchStrategy[bytes]:
    """Draw a text with faults for its own type, or now and then for another."""

    def of(name: str) -> st.SearchStrategy[bytes]:
        texts = v.in_json([_TEXTS[name]]) | st.sampled_from(list(_TEXTS.values()))
        return texts.map(lambda text: name.encode() + b"\n" + text)

    return st.sampled_from(list(HEADERS)).flatmap(of)


def _header_bombs() -> Iterator[bytes]:
    for number, name in enumerate(HEADERS):
        for bomb in itertools.islice(v.bombs_in_json(), number % 5, None, 5):
            yield name.encode() + b"\n" + bomb


# The event log, page by page.


_PAGES: Final = msgspec.msgpack.Decoder(tuple[bool, list[bytes], list[bytes]])


class _Pages(Requests):
    def __init__(self, pages: list[bytes]) -> None:
        super().__init__(
            Endpoint("https://broker.example", uuid.UUID(int=1), "fuzz", None, None, 1.0)
        )
        self._pages = pages[::-1]

    async def send(self, *_: object, **__: object) -> bytes:
        return (
            self._pages.pop() if self._pages else write({"events": [], "firstId": 1, "lastId": 1})
        )


def _events(data: bytes) -> None:
    """[filtered, [page, ...], [page, ...]]: the answers to a first getEvents, and to a second one."""
    try:
        filtered, first, second = _PAGES.decode(data)
    except (ValueError, RecursionError):
        return
    session = Session(
        _Pages([]), cast()["alice"].ring(), MemoryTrustStore().open(uuid.UUID(int=1), b"")
    )
    session.token.value, session.token.expires = "token", float("inf")
    logs, highest = [], 0
    for pages in (first, second):
        session.requests = _Pages(pages)
        criteria: events.Filters = {"containerType": "note"} if filtered else {}
        logs.append(asyncio.run(events.events(events.Source(session), criteria)))
        ids = [event.id for event in logs[-1]]
        kept(ids == sorted(set(ids)), "events out of order")
        highest = max(highest, *ids, 0)
        if not filtered and ids:
            kept(ids == list(range(ids[0], ids[-1] + 1)), "a gap in the log")
    if not filtered and logs[0] and logs[1]:
        again = [event for event in logs[1] if event.id <= logs[0][-1].id]
        kept(logs[1][0].id >= logs[0][0].id, "dropped events are back")
        kept(again == logs[0][len(logs[0]) - len(again) :], "another log than was seen before")
        kept(logs[1][-1].id >= highest, "a shorter log than was seen before")


def _page(
    count: int, last: int | None = None, first: int = 1, version: int = 1, kept: int = 1,
    dropped: bytes = NO_EVENTS,
) -> bytes:  # fmt: skip
    found = [
        Event(
            id=first + n, eventType="Updated", containerId=ID, containerType="note", date=START,
            version=version, relatedUserId=None, applicationName="a", changes=["header"],
            salt=bytes(16),
        )
        for n in range(count)
    ]  # fmt: skip
    end = first + count - 1 if last is None else last
    return encode(Events(events=found, firstId=kept, lastId=end, droppedDigest=dropped))


def _event_pages() -> list[bytes]:
    return [
        write([False, [_page(2)], [_page(3)]]),
        write([True, [_page(1, 3, 2)], [_page(1, 3, 3)]]),
        write([False, [_page(2)], [_page(1)]]),
        write([False, [_page(2)], [_page(2, None, 1, 2)]]),
        write([False, [_page(1, 2)], []]),
        write([False, [_page(2)], [_page(1, None, 3, 1, 3, b"x" * 32)]]),
        write([False, [_page(2, None, 3, 1, 3)], [_page(3, None, 3, 1, 3)]]),
        write([False, [], []]),
    ]


def _any_pages() -> st.SearchStrategy[bytes]:
    """Draw pages that fit together more or less, some with faults of their own."""
    small = st.sampled_from((0, 1, 2, 3))
    valid = st.builds(_page, small, st.none() | small, small, small, small)
    pages = st.lists(valid | v.in_messagepack([_page(1), _page(2, None, 3, 1, 3)]), max_size=2)
    return st.builds(lambda *answers: write(list(answers)), st.booleans(), pages, pages)


@contextlib.contextmanager
def _few_events() -> Iterator[None]:
    """Lower the client's limit from a million events to 2,500, so that a test reaches it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(events, "_MOST", 2500)
        yield


def _event_bombs() -> Iterator[bytes]:
    full = [_page(1000, 10**6, 1 + 1000 * n) for n in range(3)]
    yield write([False, full, full])
    yield from v.bombs_in_messagepack(write([False, [_page(1)], []]))
    for bomb in v.bombs_in_messagepack(_page(1)):
        yield write([False, [bomb], []])
    yield write([False, [_page(1000, 2**53 - 1)] * 3, []])


TARGETS: Final = (
    Target("problem", _problem, (), _problems, _any_problem, _problem_bombs),
    # An empty dict has 64 bytes.
    Target(
        "header", _header, (errors.InvalidArgumentError,), _headers, _any_header, _header_bombs,
        memory=80,
    ),
    # 160 bytes become two objects, each with several more.
    Target(
        "events", _events,
        (errors.BrokerFaultError, errors.IntegrityError, errors.RollbackError, errors.ForkError,
         errors.TooLargeError),
        lambda: [*_event_pages(), write([False, [_page(1000, 10**6, 1 + 1000 * n) for n in range(3)], []])],
        _any_pages, _event_bombs, _few_events, memory=60,
    ),
)  # fmt: skip
