"""Attacks with other versions, and with fields that nobody specified.

Attacks 39 and 42 of `catalogue`. There is one version of everything and nothing to negotiate; what the
protocol does not name is a fault.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.crypto.verify import labelled_hash
from scbroker.records import container_record
from scbroker.records.key_record import LABEL, Signed
from scbroker.server.operations import OPERATIONS
from scbroker.wire.containers import ContainerView, SignedRecord
from scbroker.wire.problems import Problem
from scbroker.wire.users import Authorization, SessionRequest
from tests.hostile_broker.accomplices import Mallory, marks, records_of
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import EVENTS, FAULT, INTEGRITY, KEYS, VIEW
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User, delete_user, ordered

VERSION: Final = BrokerError.unsupportedVersionError
BEGINNINGS: Final = (b"\x00", b"\x02", b"\xff", b"")
"""Other versions, and none at all."""


def resigned(user: User, label: str, body: bytes) -> Signed:
    return Signed(body, user.ring.signing[0].sign(label, body))


@attack(39, "version and suite downgrade")
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


@attack(39, "version and suite downgrade")
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


@attack(42, "recovery or policy injected")
@pytest.mark.parametrize("name", ["POST /v1/session-challenges", "POST /v1/sessions", KEYS])
def test_no_log_in_goes_on_with_a_field_that_nobody_specified(mallory: Mallory, name: str) -> None:
    [alice] = mallory.people(1)
    for field in MORE:
        device, count = mallory.device(), len(mallory.heard)
        with mallory.editing(name, with_more((), field)), pytest.raises(FAULT):
            device.logIn(keyRing=alice.ring, userId=alice.ring.userId).result(PATIENCE)
        assert mallory.since(count)[-1] == name
        assert marks(device) == {}


@attack(42, "recovery or policy injected")
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
