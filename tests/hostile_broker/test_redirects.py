"""Attacks that point a client elsewhere: redirects, and addresses in what is served.

Attack 36 of `catalogue`. A client knows one address, that of its own configuration, and asks no other.
"""

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from scbroker import BrokerError, MemoryTrustStore, Promise, ServerProvider
from tests.hostile_broker.accomplices import Mallory, verified_marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import FAULT, OPEN, RECORD, VIEW
from tests.hostile_broker.test_sessions import some_file_of
from tests.kit.tcp import PROTOCOL, BadBroker, http
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

all_mount(__name__, 36, "stolen token")

KEY_FILE: Final = "GET /v1/key-file"


def act(name: str, device: ServerProvider, user: User, it: uuid.UUID) -> Promise[Any]:
    """Start a request that carries a token, a secret or sealed bytes."""
    if name == VIEW:
        return device.getContainer(it)
    if name == RECORD:
        return device.updateContainerContent(it, b"y")
    if name == KEY_FILE:
        return device.needToSyncAccount(user.ring.userId, some_file_of(user))
    return device.getKeyFile("battery Staple 8")


def redirect(exchange: Exchange, status: int, headers: dict[str, str]) -> None:
    exchange.status, exchange.answer_headers = status, dict(headers)


WAYS: Final[dict[str, Callable[[str, str], str]]] = {
    "elsewhere": lambda _, other: f"{other}/v1/elsewhere",
    "here": lambda own, _: f"{own}/v1/elsewhere",
    "by a path": lambda _, __: "/v1/elsewhere",
    "by a host": lambda _, other: f"//{other.partition('//')[2]}/v1/elsewhere",
}
STATUSES: Final = (301, 302, 303, 307, 308)
CASES: Final = [
    *((VIEW, status, way) for status in STATUSES for way in WAYS),
    *((name, 307, way) for name in (RECORD, KEY_FILE) for way in WAYS),
    (OPEN, 307, "elsewhere"),
    (OPEN, 308, "here"),
]


@pytest.mark.parametrize("status", STATUSES)
def test_no_redirect_is_followed_on_a_connection(status: int) -> None:
    with BadBroker([http(200)]) as other:
        location = b"Location: %s/v1/elsewhere\r\n" % other.url.encode()
        with (
            BadBroker([http(status, headers=PROTOCOL + location)]) as broker,
            ServerProvider(uuid.uuid4(), broker.url, "d", trustStore=MemoryTrustStore()) as device,
        ):
            with pytest.raises(FAULT):
                device.getReminder(uuid.uuid4()).result(PATIENCE)
            assert len(broker.requests) == 1
        assert other.requests == []


@pytest.mark.sampled
@pytest.mark.parametrize("spoken", [True, False], ids=["as a broker", "as a proxy"])
def test_no_redirect_is_followed_with_or_without_a_token(mallory: Mallory, spoken: bool) -> None:
    """The client asks neither another path of this broker nor another host."""
    alice = mallory.people(1)[0]
    device = mallory.device_of(alice)
    made = device.createContainer(b"x").result(PATIENCE)
    error = FAULT if spoken else BrokerError.unsupportedVersionError
    with BadBroker([http(200)]) as other:
        for name, status, way in CASES:
            moved = {"location": WAYS[way](mallory.url, other.url)}
            if not spoken:
                moved["scbroker-protocol"] = ""
            before, count = verified_marks(device), len(mallory.heard)
            with (
                mallory.meddling(name, before=partial(redirect, status=status, headers=moved)),
                pytest.raises(BrokerError) as caught,
            ):
                act(name, device, alice, made.id).result(PATIENCE)
            assert type(caught.value) is error, caught.value
            assert verified_marks(device) == before
            assert mallory.since(count)[-1] == name, "nothing came after it"
            assert mallory.since(count).count(name) == 1
        assert other.requests == []
