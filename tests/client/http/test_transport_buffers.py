"""The memory that transfers share: nothing of one transfer gets into another's hands."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from multidict import CIMultiDict
from yarl import URL

from scbroker.client.calls.tasks import io_thread
from scbroker.client.http.requests import Buffers, ObjectStore, Requests
from scbroker.client.http.transport import PIECE, Response, checked_endpoint
from tests.client.http.test_transport import KEY, device_of
from tests.kit.tcp import PROTOCOL, BadBroker
from tests.kit.waiting import PATIENCE, wait_until

EARLY = b"HTTP/1.1 204 X\r\n%sContent-Length: 0\r\n\r\n" % PROTOCOL


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def test_memory_that_was_not_given_back_is_never_handed_out_again() -> None:
    async def work() -> None:
        shared = Buffers(1, 8)
        with shared.transfer() as other:
            with shared.transfer() as failed:
                kept = await failed.take()
            another = await other.take()  # does not wait for ever either
            assert another.obj is not kept.obj
            other.give_back(another)
            assert (await other.take()).obj is another.obj

    run(work())


class Early:
    """A broker that answers at the head of a request, and reads the body once it is let."""

    def __init__(self) -> None:
        self.read_on = threading.Event()
        self.body: bytearray | None = None

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(EARLY)
        self.read_on.wait(PATIENCE)
        body = bytearray()
        with suppress(OSError):
            while piece := connection.recv(65_536):
                body += piece
        self.body = body


class _Unread(BadBroker):
    """Reads no body of a request itself."""

    def _answer(self, connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1)
        answer = self.answers[0]
        assert callable(answer)
        answer(connection)


def test_a_broker_that_answers_early_never_gets_what_the_memory_has_afterwards() -> None:
    early = Early()
    memory = memoryview(bytearray(b"a" * 16_000_000))
    with _Unread([early]) as broker, device_of(broker) as provider:
        requests: Requests = provider._requests
        io_thread.submit("put", requests.send("PUT", "/v1/x", octets=memory)).result(PATIENCE)
        memory[:] = b"b" * len(memory)
        early.read_on.set()
        wait_until(lambda: early.body is not None)
    assert early.body
    assert set(early.body) == set(b"a")
    assert len(early.body) < len(memory)


class _Keeping:
    """A transport that keeps the body of a request, and sends nothing."""

    def __init__(self) -> None:
        self.body: Any = None
        self.given: Any = None

    @contextlib.asynccontextmanager
    async def request(self, *request: Any) -> AsyncIterator[Response]:
        self.body = request[-1]
        self.given = self.body if isinstance(self.body, bytes) else await anext(self.body)
        yield Response(204, CIMultiDict(), self._nothing(), lambda: None)

    async def close(self) -> None: ...

    async def _nothing(self) -> AsyncIterator[bytes]:
        yield b""


@pytest.mark.parametrize("size", [1000, 2 * PIECE], ids=["small", "large"])
def test_a_connection_gets_copies_of_a_body_and_none_after_its_request(size: int) -> None:
    """From Python 3.12 on, asyncio keeps references to bytes that it could not write at once."""
    keeping, memory = _Keeping(), memoryview(bytearray(b"a" * size))

    async def work() -> None:
        endpoint = checked_endpoint(KEY, "http://localhost", "x", None, None, 9)
        store = ObjectStore(endpoint)
        store._transport = keeping
        await store.put(URL("http://localhost"), memory)
        memory[:] = b"b" * size
        assert set(keeping.given) == set(b"a")
        if size > PIECE:
            with pytest.raises(ValueError, match="released"):
                await anext(keeping.body)

    run(work())
