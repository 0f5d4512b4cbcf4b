"""Attacks through addresses of an object store: the broker names them, and the caller allows origins.

Part of attack 36 of `catalogue`. A client asks no origin that its caller did not allow, and tells the ones
that it asks nothing of its session.
"""

import gzip
import logging
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from scbroker import BrokerError, ServerProvider
from scbroker.crypto.seal import random_bytes
from scbroker.errors import BrokerError as Error
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from scbroker.wire.parts import Transfer, Transfers
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import CHUNK, INTEGRITY, SEGMENTS, SENT, TO_READ, TO_SEND
from tests.kit.tcp import Answer, BadBroker, cut, hang, http
from tests.kit.waiting import PATIENCE

SECRET: Final = "X-Amz-Signature=0123456789abcdef"
CONTENT: Final = random_bytes(70_000)
TWO_CHUNKS: Final = random_bytes(9 * SEGMENT)


def asked_for(exchange: Exchange) -> list[int]:
    """The chunks whose URLs a client asks for."""
    if exchange.method == "POST":
        return list(exchange.message.chunks)
    query = dict(pair.split("=") for pair in exchange.query.split("&"))
    first = int(query["first"])
    return list(range(first, first + int(query["count"])))


@contextmanager
def addressing(mallory: Mallory, address: Callable[[int], str], shift: int = 0) -> Iterator[None]:
    """Has a broker on a folder give this address for each chunk, whichever way it goes."""

    name = f"parts/00/{'0' * 32}-{'0' * 32}"

    def lie(exchange: Exchange) -> None:
        given = [Transfer(index=n + shift, name=name, url=address(n)) for n in asked_for(exchange)]
        exchange.answer = Transfers(transfers=given, seconds=900)

    with mallory.meddling(TO_SEND, after=lie), mallory.meddling(TO_READ, after=lie):
        yield


def device_at(
    mallory: Mallory, *stores: BadBroker, ring: Any = None, **options: Any
) -> ServerProvider:
    origins = [store.url for store in stores]
    return mallory.device(ring or mallory.new_user(), objectStoreOrigins=origins, **options)


WAYS: Final[dict[str, Callable[[str, str], str]]] = {
    "another host": lambda _, other: f"http://{other}/latest/meta-data",
    "a user that looks like a host": lambda own, other: f"http://{own}@{other}/",
    "a user and a password": lambda own, other: f"http://{own}:x@{other}/",
    "a user at the allowed host": lambda own, _: f"http://user:word@{own}/",
    "behind a backslash": lambda own, other: f"http://{own}\\@{other}/",
    "behind a fragment": lambda own, other: f"http://{other}#@{own}/",
    "behind a query": lambda own, other: f"http://{other}?@{own}/",
    "another name of this machine": lambda own, _: f"http://localhost:{own.partition(':')[2]}/",
    "another address of this machine": lambda own, _: f"http://127.0.0.2:{own.partition(':')[2]}/",
    "a short address": lambda _, other: f"http://127.1:{other.partition(':')[2]}/",
    "a number": lambda _, other: f"http://2130706433:{other.partition(':')[2]}/",
    "a name under the allowed one": lambda own, _: f"http://{own.replace(':', '.evil.example:')}/",
    "another scheme": lambda own, _: f"https://{own}/",
    "a file": lambda _, __: "file:///etc/passwd",
    "without a scheme": lambda own, _: f"//{own}/",
    "a second line": lambda own, other: f"http://{own}/ HTTP/1.1\r\nHost: {other}\r\n\r\n",
    "a line's end behind it": lambda own, _: f"http://{own}/\n",
    "a tab in the host": lambda own, other: f"http://{other}\t.{own}/",
    "wide digits": lambda own, _: f"http://{own}/".replace("127", "\uff11\uff12\uff17"),
    "an open bracket": lambda own, _: f"http://[{own}/",
    "nothing": lambda _, __: "x",
}


@pytest.mark.sampled
@attack(36, "stolen token")
@pytest.mark.parametrize("way", WAYS)
def test_an_address_that_the_caller_does_not_allow_is_not_asked(mallory: Mallory, way: str) -> None:
    """The client uses none of the addresses beside it either: everything goes through the broker."""
    with BadBroker([http(200)]) as store, BadBroker([http(200)]) as internal:
        alice = device_at(mallory, store)
        wrong = WAYS[way](store.url[7:], internal.url[7:])
        count, found = len(mallory.heard), None
        with (
            suppress(BrokerError),
            addressing(mallory, lambda chunk: wrong if chunk else f"{store.url}/right"),
        ):
            made = alice.createContainer(TWO_CHUNKS).result(PATIENCE)
            found = alice.getContainerContent(made.id).result(PATIENCE)
        assert internal.requests == []
        assert store.requests == []
        assert found == TWO_CHUNKS
        names = mallory.since(count)
        assert names.count(CHUNK) == names.count(SEGMENTS) == 2
        assert names.count(TO_SEND) == names.count(TO_READ) == 1


@pytest.mark.long
@attack(36, "stolen token")
def test_an_object_store_is_told_nothing_of_who_asks(mallory: Mallory) -> None:
    """No header names the user, no cookie comes back, and the bytes are sealed."""
    with BadBroker([http(200, headers=b"Set-Cookie: it=1\r\n")]) as store:
        alice = device_at(mallory, store)
        made = alice.createContainer(CONTENT).result(PATIENCE)
        with addressing(mallory, lambda n: f"{store.url}/bucket/{n}?{SECRET}"):
            with (
                mallory.answering(SENT, b"", 204),
                pytest.raises(BrokerError.incompleteUploadError),
            ):
                alice.createContainer(TWO_CHUNKS).result(PATIENCE)
            with pytest.raises(BrokerError.unreachableError):
                alice.getContainerContent(made.id).result(PATIENCE)
        host, methods = store.url[7:], set()
        for request in store.requests:
            method, target, _ = request.head.split(b"\r\n")[0].split()
            methods.add(method)
            assert target in {f"/bucket/{n}?{SECRET}".encode() for n in (0, 1)}
            if method == b"PUT":
                length = str(len(request.body))
                assert request.headers == {"host": host, "content-length": length}
                assert TWO_CHUNKS[:64] not in request.body
            else:
                asked = f"bytes=0-{SEALED_SEGMENT - 1}"
                assert request.headers == {"host": host, "range": asked}
        assert methods == {b"PUT", b"GET"}


def sealed_of(mallory: Mallory, device: ServerProvider) -> tuple[Any, bytes]:
    """A content, and its sealed bytes as the broker gives them to anybody who may download."""
    made = device.createContainer(CONTENT).result(PATIENCE)
    before = len(mallory.heard)
    device.getContainerContent(made.id).result(PATIENCE)
    [sealed] = [e.answer_body for e in mallory.heard[before:] if e.name == SEGMENTS]
    return made.id, sealed


@pytest.mark.long
@attack(16, "chunks moved or cut")
def test_what_an_object_store_serves_is_verified_as_if_the_broker_had(mallory: Mallory) -> None:
    ring = mallory.new_user()
    it, sealed = sealed_of(mallory, mallory.device(ring))
    flipped = sealed[:5000] + bytes([sealed[5000] ^ 1]) + sealed[5001:]
    zipped = gzip.compress(sealed)
    encoded = b"Content-Encoding: gzip\r\n"
    lies: dict[str, Answer] = {
        "flipped": http(206, flipped),
        "cut": http(206, sealed[:-1]),
        "empty": http(206, b""),
        "longer": http(206, sealed + b"x"),
        "without an end": _endless,
        "encoded": http(206, zipped, headers=encoded),
    }
    for name, answer in lies.items():
        with BadBroker([answer]) as store:
            device = device_at(mallory, store, ring=ring)
            with addressing(mallory, lambda _, url=store.url: url):  # type: ignore[misc]
                with pytest.raises(INTEGRITY):
                    device.getContainerContent(it).result(PATIENCE)
                assert len(store.requests) == 1, name
    with BadBroker([http(206, sealed)]) as store:
        device = device_at(mallory, store, ring=ring)
        with addressing(mallory, lambda _: store.url):
            assert device.getContainerContent(it).result(PATIENCE) == CONTENT


def _endless(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 206 X\r\n\r\n")
        while True:
            connection.sendall(bytes(SEGMENT))


FAILURES: Final[dict[str, tuple[Any, type[Error], int]]] = {
    "refused": (http(403, b"<Error/>"), Error.unreachableError, 4),
    "busy": (http(503), Error.unreachableError, 4),
    "no such object": (http(404), Error.brokerFaultError, 4),
    "cut": (cut, Error.unreachableError, 4),
    "torn": (http(206, b"x" * 100, length=5000), Error.unreachableError, 4),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n", Error.unreachableError, 4),
    "silent": (hang, Error.unreachableError, 1),
}


@pytest.mark.long
@attack(36, "stolen token")
@pytest.mark.parametrize("failure", FAILURES)
def test_a_store_that_fails_is_tried_again_by_a_fresh_address_and_no_address_is_told(
    mallory: Mallory,
    failure: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    answer, error, times = FAILURES[failure]
    ring = mallory.new_user()
    made = mallory.device(ring).createContainer(CONTENT).result(PATIENCE)
    with BadBroker([answer]) as store:
        device = device_at(mallory, store, ring=ring)
        if times == 1:  # an answer that never comes ends by the timeout
            endpoint = replace(device._endpoint, timeout=3.0)
            monkeypatch.setattr(device._requests, "endpoint", endpoint)
        count = len(mallory.heard)
        with addressing(mallory, lambda _: f"{store.url}/it?{SECRET}"):
            for attempt in (
                lambda: device.getContainerContent(made.id),
                lambda: device.createContainer(CONTENT),
            ):
                with pytest.raises(BrokerError) as caught:
                    attempt().result(PATIENCE)
                assert type(caught.value) is error, caught.value
                told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
                assert SECRET not in told
                assert "/it?" not in told
        names = mallory.since(count)
        assert names.count(TO_READ) == times
        assert SEGMENTS not in names
        assert CHUNK not in names
    assert SECRET not in caplog.text
