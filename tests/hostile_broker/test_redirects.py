"""Attacks that point a client elsewhere: redirects, and addresses in what is served.

Attack 36 of `catalogue`. A client knows one address, that of its own configuration, and asks no other.
"""

import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest

from scbroker import BrokerError, Promise, ServerProvider
from tests.hostile_broker.accomplices import RECORD, VIEW, device_of, editing, people
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import marks, refused
from tests.hostile_broker.test_sessions import some_file_of
from tests.kit.tcp import BadBroker, http
from tests.kit.writers import User

KEY_FILE: Final = "GET /v1/key-file"
OPEN: Final = "POST /v1/users/{userId}/key-file/open"
FAULT: Final = BrokerError.brokerFaultError


def act(name: str, device: ServerProvider, user: User, it: uuid.UUID) -> Promise[Any]:
    """With a token, with a secret, with sealed bytes."""
    if name == VIEW:
        return device.getContainer(it)
    if name == RECORD:
        return device.updateContainerContent(it, b"y")
    if name == KEY_FILE:
        return device.needToSyncAccount(user.ring.userId, some_file_of(user))
    return device.getKeyFile("battery Staple 8")


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


@attack(36, "stolen token")
@pytest.mark.parametrize("spoken", [True, False], ids=["as a broker", "as a proxy"])
def test_no_redirect_is_followed_with_or_without_a_token(
    mallory: HostileBroker, spoken: bool
) -> None:
    """To another place of this broker, and to another host: nothing is asked there."""
    alice = people(mallory, 1)[0]
    device = device_of(mallory, alice)
    made = device.createContainer(b"x").result(PATIENCE)
    error = FAULT if spoken else BrokerError.unsupportedVersionError
    with BadBroker([http(200)]) as other:
        for name, status, way in CASES:
            moved = {"location": WAYS[way](mallory.url, other.url)}
            if not spoken:
                moved["scbroker-protocol"] = ""
            before, count = marks(device), len(mallory.heard)
            with (
                mallory.meddling(name, before=redirecting(status, moved)),
                pytest.raises(BrokerError) as caught,
            ):
                act(name, device, alice, made.id).result(PATIENCE)
            assert type(caught.value) is error, caught.value
            assert marks(device) == before
            assert mallory.since(count)[-1] == name, "nothing came after it"
            assert mallory.since(count).count(name) == 1
        assert other.requests == []


def redirecting(status: int, headers: dict[str, str]) -> Callable[[Exchange], None]:
    def redirect(exchange: Exchange) -> None:
        exchange.status, exchange.answer_headers = status, dict(headers)

    return redirect


@attack(36, "stolen token")
def test_no_address_that_is_served_is_asked_and_nothing_of_ours_goes_there(
    mallory: HostileBroker,
) -> None:
    """Sealed segments come from the broker's own address; what points elsewhere is a fault or nothing."""
    alice = people(mallory, 1)[0]
    device = device_of(mallory, alice)
    made = device.createContainer(bytes(70_000)).result(PATIENCE)
    segments = "GET /v1/containers/{containerId}/parts/{partId}/segments"
    with BadBroker([http(200)]) as internal:

        def point(exchange: Exchange) -> None:
            address = f"{internal.url}/latest/meta-data"
            exchange.answer_headers |= {
                "location": address,
                "content-location": address,
                "refresh": f"0; url={address}",
                "link": f'<{address}>; rel="alternate"',
                "alt-svc": f'h2="{internal.url[7:]}"',
            }

        count = len(mallory.heard)
        with mallory.meddling("", after=point):
            assert device.getContainerContent(made.id).result(PATIENCE) == bytes(70_000)
        assert {e.headers["Host"] for e in mallory.heard[count:]} == {mallory.url[7:]}
        for field in ("url", "location", "href"):
            with (
                editing(mallory, VIEW, adding({field: internal.url})),
                refused(mallory, device, FAULT) as attempt,
            ):
                attempt(device.getContainer(made.id))
        with (
            mallory.lying(segments, lambda _: internal.url.encode()),
            refused(mallory, device, BrokerError.integrityError) as attempt,
        ):
            attempt(device.getContainerContent(made.id))
        assert internal.requests == []


def adding(fields: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer.update(fields)
