"""Attacks on whatever reads bytes: other spellings, other versions, and input that asks for memory.

Attacks 39, 40, 42, 43 and 167 of attacks.toml. One spelling of each value, a typed error for any other, and
little memory for either.
"""

import contextlib
import copy
import re
import socket
import tracemalloc
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pydantic
import pytest
from msgspec.structs import replace

from scbroker import BrokerError, Promise, ServerProvider
from scbroker.records import container_record
from scbroker.records.key_record import LABEL, Signed
from scbroker.server.operations import OPERATIONS
from scbroker.wire import codec
from scbroker.wire.containers import ContainerView, SignedRecord
from scbroker.wire.problems import Problem
from scbroker.wire.users import Authorization, SessionRequest
from tests.hostile_broker.accomplices import Mallory, marks, records_of
from tests.hostile_broker.accounts import file_of
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import EVENTS, FAULT, INTEGRITY, KEYS, STATE, VIEW
from tests.hostile_broker.served import always
from tests.kit.crypto import labelled_hash
from tests.kit.tcp import BadBroker, http
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User, delete_user, ordered

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


# Requests that a user with a session sends to a broker.


@pytest.fixture
def eve(mallory: Mallory) -> Iterator[User]:
    """Has a session, and sends what no client sends; the broker is there still, and notes no fault."""
    [eve] = mallory.people(1)
    log = mallory.behind.log
    with broker_takes_little_memory(mallory, 96 * MIB):
        yield eve
    assert mallory.behind.log == log
    eve.wire.call("GET", "/v1/key-file").expect(200)


@contextmanager
def broker_takes_little_memory(mallory: Mallory, most: int) -> Iterator[None]:
    """The kernel counts the highest resident size; a system without /proc proves nothing."""
    process = Path(f"/proc/{mallory.behind.pid}")
    if not process.exists():  # pragma: no cover - systems without /proc
        yield
        return

    def resident(name: str) -> int:
        [line] = [at for at in (process / "status").read_text().splitlines() if at.startswith(name)]
        return int(line.split()[1]) * 1024

    (process / "clear_refs").write_text("5")
    before = resident("VmRSS")
    yield
    assert resident("VmHWM") - before < most


@pytest.mark.process
def test_an_id_that_is_sent_in_another_spelling_is_refused(mallory: Mallory, eve: User) -> None:
    story = Story(eve).created()
    for spell in SPELLINGS.values():
        name, user = spell(str(story.uuid)), spell(eve.id)
        quoted = urllib.parse.quote(name, safe="")
        eve.wire.call("GET", f"/v1/containers/{quoted}").expect(400, "invalid")
        eve.wire.call("GET", f"/v1/events?containerId={quoted}").expect(400, "invalid")
        eve.wire.call("POST", "/v1/key-records", {"users": [{"userId": user}]}).expect(400)
        path = f"/v1/users/{urllib.parse.quote(user, safe='')}/reminder"
        eve.wire.call("GET", path).expect(400, "invalid")
        key = spell(str(mallory.behind.api_key))
        if key.isascii() and key.isprintable() and key == key.strip():
            eve.wire.call("GET", "/v1/key-file", Scbroker_Api_Key=key).expect(401, "api-key")


@pytest.mark.process
def test_a_number_that_is_sent_in_another_spelling_or_without_end_is_refused(eve: User) -> None:
    story = Story(eve).created()
    for number in (
        "1" * 5000,
        "01",
        "+1",
        "-1",
        "1.0",
        "1e3",
        "0x1",
        "1_0",
        "%EF%BC%91",
        "NaN",
        str(2**53),
    ):
        for path in (f"{story.path}/records/{number}", f"{story.path}/parts/{ID}/chunks/{number}"):
            body = b"x" if "chunks" in path else b"\x80"
            kind = codec.OCTETS if "chunks" in path else codec.MESSAGE
            answer = eve.wire.send("PUT", path, body, {"Content-Type": kind})
            assert 400 <= answer.status < 500, (number, answer)
        for query in (
            f"{story.path}?since={number}",
            f"/v1/events?startId={number}&endId={number}",
        ):
            eve.wire.call("GET", query).expect(400, "invalid")
    for query in ("since=1&since=1", "since=1&since=2", "Since=1", "since=1;header=1"):
        eve.wire.call("GET", f"{story.path}?{query}").expect(400, "invalid")


@pytest.mark.process
def test_a_head_that_is_too_long_is_answered(mallory: Mallory) -> None:
    """tests/deploy sends some through the proxies."""
    with socket.create_connection(("127.0.0.1", mallory.behind.port), timeout=PATIENCE) as raw:
        answer = b""
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"x" * 200_000)
        with contextlib.suppress(ConnectionResetError):
            answer = raw.recv(4096)
    assert answer.startswith(b"HTTP/1.1 431 ")


# Other versions, and fields that nobody specified: there is one version of everything and nothing to
# negotiate.


VERSION: Final = BrokerError.unsupportedVersionError
BEGINNINGS: Final = (b"\x00", b"\x02", b"\xff", b"")
"""Other versions, and none at all."""


def resigned(user: User, label: str, body: bytes) -> Signed:
    return Signed(body, user.ring.signing[0].sign(label, body))


@pytest.mark.parametrize("spoken", ["0", "2", "1.0", "01", "1, 0", ""])
def test_an_answer_of_another_protocol_is_refused_and_nothing_is_tried_instead(
    mallory: Mallory, spoken: str, alice: User
) -> None:
    device = mallory.device_of(alice)
    made = device.createContainer(b"x").result(PATIENCE)

    def speak(exchange: Exchange) -> None:
        exchange.answer_headers["scbroker-protocol"] = spoken

    count = len(mallory.heard)
    with mallory.meddling("", after=speak), mallory.refused(device, VERSION) as attempt:
        attempt(device.getContainer(made.id))
        attempt(device.updateContainerContent(made.id, b"secret"))
        attempt(device.getEvents())
    assert mallory.since(count) == [VIEW, VIEW, EVENTS]


def of_other_versions(user: User) -> Iterator[list[Signed]]:
    """A user's key records as another version would have them, signed by the user."""
    first, second = records_of(user)
    for beginning in BEGINNINGS:
        one = resigned(user, LABEL, beginning + first.body[1:])
        row = msgspec.msgpack.decode(second.body[1:])
        row[-1] = labelled_hash(LABEL, one.body)
        two = resigned(user, LABEL, beginning + msgspec.msgpack.encode(row))
        yield [one, two]


def with_record(signed: SignedRecord) -> Callable[[ContainerView], ContainerView]:
    return lambda view: replace(view, governing=[replace(view.governing[0], record=signed)])


def test_the_broker_speaks_one_version_and_keeps_objects_of_one(mallory: Mallory) -> None:
    alice, eve = mallory.people(2)
    story = Story(alice).created({alice: OWNER})
    draft = story.follow(alice, content=b"2")
    order = ordered(alice, "delete-user")
    log_in = alice.wire.log_in_request(alice.ring)
    for beginning in BEGINNINGS:
        body = beginning + draft.record.body[1:]
        signed = SignedRecord.of(resigned(alice, container_record.LABEL, body))
        story.send(alice, replace(draft, record=signed), 2).expect(422, "rejected")
        taken = resigned(alice, "order", beginning + order.order[1:])
        delete_user(alice, Authorization(order=taken.body, signature=taken.signature)).expect(401)
        taken = resigned(alice, "session", beginning + log_in.statement[1:])
        request = SessionRequest(statement=taken.body, signature=taken.signature)
        alice.wire.call("POST", "/v1/sessions", request).expect(401, "challenge")
    for records in of_other_versions(eve):
        mallory.register(*records).expect(422, "rejected")
    for spoken in ("0", "2", "1.0", "", None):
        answer = alice.wire.call("GET", "/v1/key-file", Scbroker_Protocol=spoken)
        answer.expect(400, "version")
    for operation in OPERATIONS:
        assert operation.path.startswith("/v1/")
        for prefix in ("", "/v0", "/v2", "/V1"):
            path = re.sub(r"\{\w+\}", "1", operation.path)
            other = alice.wire.call(operation.method, prefix + path.removeprefix("/v1"))
            other.expect(404, "not-found")


MORE: Final[dict[str, Any]] = {
    "recovery": {"publicKey": bytes(1216)},
    "policy": "rotate",
    "rotateKeys": True,
    "recoveryKey": None,
}


def maps_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there are maps in an answer."""
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items if isinstance(value, (dict, list)) else ():
        if isinstance(inner, (dict, list)):
            yield from maps_in(inner, (*path, key))


def with_more(path: Sequence[Any], name: str) -> Callable[[Any], None]:
    def edit(answer: Any) -> None:
        for key in path:
            answer = answer[key]
        answer[name] = copy.deepcopy(MORE[name])

    return edit


@pytest.mark.parametrize("name", ["POST /v1/session-challenges", "POST /v1/sessions", KEYS])
def test_no_log_in_goes_on_with_a_field_that_nobody_specified(mallory: Mallory, name: str) -> None:
    [alice] = mallory.people(1)
    for field in MORE:
        device, count = mallory.device(), len(mallory.heard)
        with mallory.editing(name, with_more((), field)), pytest.raises(FAULT):
            device.logIn(keyRing=alice.ring, userId=alice.ring.userId).result(PATIENCE)
        assert mallory.since(count)[-1] == name
        assert marks(device) == {}


def test_a_value_that_nobody_specified_is_refused_and_unknown_headers_are_nothing(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = mallory.device_of(alice, bob)

    def command(exchange: Exchange) -> None:
        exchange.answer_headers |= {
            "scbroker-policy": "rotate",
            "set-cookie": "a=b",
            "x-retire": "0",
        }

    count = len(mallory.heard)
    with mallory.meddling("", after=command):
        device.getContainer(story.uuid).result(PATIENCE)
    assert set(mallory.since(count)) == {VIEW}
    for edit, ask in (
        (lambda log: log["events"][0].update(eventType="Recover"), device.getEvents),
        (lambda log: log["events"][0].update(changes=["keys"]), device.getEvents),
    ):
        with mallory.editing(EVENTS, edit), mallory.refused(device, FAULT) as attempt:
            attempt(ask())
    for code in ("rotate-keys", "recover", ""):
        with mallory.failing(VIEW, Problem(title="x", status=409, detail="", code=code)):
            mallory.check_refused(device, story, FAULT)
    row = msgspec.msgpack.decode(records_of(bob)[1].body[1:])
    row[2] = 2  # a third kind of key
    third = resigned(bob, LABEL, b"\x01" + msgspec.msgpack.encode(row))
    fresh = mallory.device_of(alice)
    mallory.check_keys_refused(fresh, bob, [records_of(bob)[0], third], INTEGRITY)
    record = story.requests[0].record
    longer = b"\x01" + msgspec.msgpack.encode([*msgspec.msgpack.decode(record.body[1:]), {}])
    lie = with_record(SignedRecord(body=longer, signature=record.signature))
    mallory.check_lie_refused(fresh, story, lie, INTEGRITY)


# Data that asks to be obeyed: what was decrypted is for the caller, and for nobody else.


def commands(folder: Path, address: str) -> dict[str, bytes]:
    """Headers that a member can seal, each of which some program somewhere has obeyed."""
    out = folder / "out"
    return {
        "a path": msgspec.json.encode({"fileName": "../../x", "name": str(out), "path": "~/x"}),
        "an address": msgspec.json.encode(
            {"url": address, "$ref": address, "@context": address, "href": f"file://{out}"}
        ),
        "an object": msgspec.json.encode({"py/object": "os.system", "__class__": "pathlib.Path"}),
        "a program": f"__import__('pathlib').Path({str(out)!r}).write_text('x')".encode(),
        "a pickle": b"cpathlib\nPath\n(V" + str(out).encode() + b"\ntR.",
        "a document": f"!!python/object/apply:os.system ['touch {out}']".encode(),
        "entities": f'<!DOCTYPE x [<!ENTITY e SYSTEM "{address}">]><x>&e;</x>'.encode(),
    }


def test_nothing_that_was_decrypted_touches_a_file_or_an_address(
    mallory: Mallory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alice: User, bob: User
) -> None:
    (work := tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(work)
    device = mallory.device_of(alice, bob)
    with BadBroker([http(200, b"{}")]) as internal:
        for what, header in commands(tmp_path, f"{internal.url}/x").items():
            grants = {bob: OWNER, alice: OWNER}
            story = Story(bob).created(grants, header=header, content=header, type="../../x")
            for read in (device.getContainer, device.getContainerHeader):
                read_or_refused(read(story.uuid), what)
            assert device.getContainerContent(story.uuid).result(PATIENCE) == header
        device.getEvents(containerType="../../x").result(PATIENCE)
        assert internal.requests == []
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", work]


def read_or_refused(promise: Promise[Any], what: str) -> None:
    if what in ("a path", "an address", "an object"):
        assert promise.result(PATIENCE)
    else:
        with pytest.raises(BrokerError.invalidArgumentError, match="The header is not"):
            promise.result(PATIENCE)


def test_what_a_broker_says_of_an_error_moves_no_cursor_and_ends_no_line(mallory: Mallory) -> None:
    """It is printed to terminals and into logs."""
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    said = "no\x1b]0;owned\x07\x1b[2J\r\n2026 INFO all is well\x9b31m\u202e\u2028" + "x" * 9000
    with (
        mallory.failing(STATE, Problem(title="x", status=409, detail=said[:2000], code="conflict")),
        pytest.raises(BrokerError.conflictError) as caught,
    ):
        device.needToSyncAccount(
            alice.ring.userId, file_of([alice.name, bytes(32), b"p", b"p"])
        ).result(PATIENCE)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 500
