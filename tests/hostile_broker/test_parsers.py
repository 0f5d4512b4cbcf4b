"""Attacks on whatever reads bytes: spellings that some parsers take, and input that asks for memory.

Attack 40 of `catalogue`, as far as a client reads: what a broker serves, and what a member seals as a
header. One spelling of each value, a typed error for any other, and little memory for either.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pydantic
import pytest

from scbroker import BrokerError, Promise, ServerProvider
from scbroker.wire import codec
from tests.hostile_broker.accomplices import Mallory, marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import EVENTS, FAULT, KEYS, VIEW
from tests.hostile_broker.served import always
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

all_mount(__name__, 40, "parser ambiguity and bombs")

INVALID: Final = BrokerError.invalidArgumentError
MIB: Final = 1_048_576
ID: Final = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"

SPELLINGS: Final[dict[str, Callable[[str], str]]] = {
    "in capitals": str.upper,
    "in braces": lambda text: f"{{{text}}}",
    "as a URN": lambda text: f"urn:uuid:{text}",
    "without hyphens": lambda text: text.replace("-", ""),
    "with other hyphens": lambda text: f"{text[:4]}-{text[4:].replace('-', '')}",
    "with a line end": lambda text: f"{text}\n",
    "with a space": lambda text: f" {text}",
    "in wide digits": lambda text: text.translate({ord("0") + n: 0xFF10 + n for n in range(10)}),
}
"""Python's UUID takes most of these."""


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """The block allocates no more than this at any time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        assert tracemalloc.get_traced_memory()[1] - before < most
    finally:
        tracemalloc.stop()


NAMED: Final[dict[str, tuple[str, Callable[[Any], dict[str, Any]], str]]] = {
    "a user": (KEYS, lambda answer: answer["users"][0], "userId"),
    "an author": (VIEW, lambda answer: answer["keyChains"][0], "userId"),
    "a container": (EVENTS, lambda answer: answer["events"][0], "containerId"),
    "somebody": (EVENTS, lambda answer: answer["events"][0], "relatedUserId"),
}


def ask(device: ServerProvider, name: str, user: User, story: Story) -> Promise[Any]:
    if name == KEYS:
        return device.getPublicKeys(user.ring.userId)
    return device.getEvents() if name == EVENTS else device.getContainer(story.uuid)


@pytest.mark.parametrize("what", NAMED)
def test_an_id_that_is_served_in_another_spelling_is_a_fault(mallory: Mallory, what: str) -> None:
    [alice] = mallory.people(1)
    story = Story(alice).created()
    device = mallory.device_of(alice)
    name, place, field = NAMED[what]
    for spell in SPELLINGS.values():

        def edit(answer: Any, spell: Callable[[str], str] = spell) -> None:
            place(answer)[field] = spell(place(answer)[field])

        with mallory.editing(name, edit), mallory.refused(device, FAULT) as attempt:
            attempt(ask(device, name, alice, story))


def doubled(body: bytes) -> bytes:
    """The first field of a message once more, with another value."""
    assert body[0] & 0xF0 == 0x80
    name = msgspec.msgpack.encode(next(iter(msgspec.msgpack.decode(body))))
    return bytes([body[0] + 1]) + body[1:] + name + b"\xc0"


def alone(body: bytes) -> dict[str, bytes]:
    """Return bytes in place of a message that hold, or claim to hold, more than they should."""
    first = body[:1] + body[1 : 2 + (body[1] & 0x1F)]  # the map, and its first field's name
    return {
        "a field twice": doubled(body),
        "a map in a longer form": b"\xde\0" + bytes([body[0] & 0xF]) + body[1:],
        "something behind the end": body + b"\xc0",
        "an array of 4 G": first + b"\xdd\xff\xff\xff\xff",
        "a map of 4 G": first + b"\xdf\xff\xff\xff\xff",
        "bytes of 4 G": first + b"\xc6\xff\xff\xff\xff",
        "text of 4 G": first + b"\xdb\xff\xff\xff\xff",
        "a map of 4 G alone": b"\xdf\xff\xff\xff\xff",
        "arrays in arrays": first + b"\x91" * 500_000,
        "maps in maps": b"\x81\xa1n" * 300_000,
        "empty arrays": first + b"\xdd\0\x0f\xff\xff" + b"\x90" * MIB,
        "empty maps": first + b"\xdd\0\x0f\xff\xff" + b"\x80" * MIB,
        "not a number": first + b"\xcb\x7f\xf8" + bytes(6),
        "a timestamp": first + b"\xd6\xff" + bytes(4),
        "no UTF-8": first + b"\xa1\xff",
        "nothing": b"",
    }


@pytest.mark.sampled
@pytest.mark.parametrize("name", [VIEW, KEYS, EVENTS])
def test_an_answer_that_is_ambiguous_or_a_bomb_is_a_fault_and_takes_little_memory(
    mallory: Mallory, name: str, alice: User
) -> None:
    story = Story(alice).created()
    device = mallory.device_of(alice)
    ask(device, name, alice, story).result(PATIENCE)
    [good] = [each.answer_body for each in mallory.heard[-1:]]
    for bomb in alone(good).values():
        with (
            little_memory(24 * MIB),  # the layer and the client have it several times
            mallory.lying(name, always(bomb)),
            mallory.refused(device, FAULT) as attempt,
        ):
            attempt(ask(device, name, alice, story))


def problems() -> dict[str, bytes]:
    """Errors as they should not come."""
    whole = b'{"type":"about:blank","title":"x","status":409,"detail":"d","code":"conflict"'
    return {
        "another code": whole + b',"code":"rotate"}',
        "no number": whole.replace(b"409", b"NaN") + b"}",
        "5,000 digits": whole.replace(b"409", b"4" * 5000) + b"}",
        "lists in lists": b"[" * 8000,
        "objects in objects": b'{"detail":' * 800,
        "a list": b"[" + b"0," * 4000 + b"0]",
        "more than there may be": b'"' + b"x" * 2**20 + b'"',
    }


@pytest.mark.parametrize("what", problems())
def test_an_error_that_is_no_error_of_the_protocol_is_a_fault(mallory: Mallory, what: str) -> None:
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    body = problems()[what]
    error = BrokerError.tooLargeError if len(body) > 2**16 else FAULT

    def before(exchange: Exchange) -> None:
        exchange.status, exchange.answer_body = 409, body
        exchange.answer_headers = {"content-type": codec.PROBLEM, "retry-after": "9" * 5000}

    with (
        little_memory(16 * MIB),
        mallory.meddling(EVENTS, before=before),
        mallory.refused(device, error) as attempt,
    ):
        attempt(device.getEvents())


class Order(pydantic.BaseModel):
    amount: float = 0.0


HEADERS: Final = {
    "a name twice": b'{"amount":1,"amount":2}',
    "a name twice further in": b'{"amount":1,"x":[{"a":{"b":1,"b":1}}]}',
    "one name in two spellings": b'{"amount":1,"\\u0061mount":2}',
    "no number": b'{"amount":NaN}',
    "no end": b'{"amount":Infinity}',
    "more than a number": b'{"amount":1e999}',
    "400 digits": b'{"amount":%s}' % (b"1" * 400),
    "101 levels": b'{"amount":1,"x":' + b"[" * 100 + b"]" * 100 + b"}",
    "5,000 digits": b'{"amount":%s}' % (b"1" * 5000),
    "lists in lists": b'{"amount":' + b"[" * 100_000,
    "closed lists in lists": b'{"amount":1,"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "a byte order mark": b'\xef\xbb\xbf{"amount":1}',
    "in UTF-16": '{"amount":1}'.encode("utf-16"),
    "a comment": b'{"amount":1}//',
    "a comma": b'{"amount":1,}',
    "half a character": b'{"amount":1,"x":"\\ud800"}',
    "no UTF-8": b'{"amount":1,"x":"\xff"}',
    "a long list": b"[" + b"0," * 130_000 + b"0",
}


@pytest.mark.long
def test_a_header_that_two_programs_could_read_in_two_ways_is_read_by_none(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Sealed by a member: what one reader sees as 1 must not be 2 to another."""
    device = mallory.device_of(alice, bob)
    for header in HEADERS.values():
        story = Story(bob).created({bob: OWNER, alice: OWNER}, header=header)
        device.getContainerMetadata(story.uuid).result(PATIENCE)
        before = marks(device)
        for kind in (None, dict[str, Any], Order):
            with (
                little_memory(24 * MIB),
                pytest.raises(INVALID, match="The header is not") as caught,
            ):
                device.getContainerHeader(story.uuid, kind).result(PATIENCE)
            assert "amount" not in str(caught.value)
        assert marks(device) == before
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"


def test_no_header_is_written_that_would_not_be_read(mallory: Mallory, alice: User) -> None:
    device, count = mallory.device_of(alice), len(mallory.heard)
    for header in ({1: "a", "1": "b"}, {"x": [{True: 1, "true": 2}]}):
        with pytest.raises(INVALID, match="written as JSON"):
            device.createContainer(b"x", header).result(PATIENCE)
    assert mallory.since(count) == []
