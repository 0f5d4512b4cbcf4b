"""What the client leaves to aiohttp, and would have to do itself if that did not."""

import asyncio
import importlib
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from scbroker import BrokerError
from scbroker.client.calls.tasks import io_thread
from scbroker.client.http.requests import Requests, StoreError
from scbroker.client.http.transport import PIECE
from tests.client.http.test_transport import device_of
from tests.kit.impatience import be_impatient
from tests.kit.tcp import PROTOCOL, BadBroker
from tests.kit.waiting import PATIENCE

_LINES = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(64))
_ENOUGH = 64 * 1_048_576
BODY = bytes(range(256)) * 8192
WHOLE = b"HTTP/1.1 200 OK\r\n%sContent-Length: 0\r\n\r\n" % PROTOCOL


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    be_impatient(monkeypatch)


def flood(start: bytes, sent: list[int]) -> Callable[[socket.socket], None]:
    """Header lines behind this beginning until nobody listens any more, or it was far too much."""

    def answer(connection: socket.socket) -> None:
        total = 0
        with suppress(OSError):
            connection.sendall(start)
            while total < _ENOUGH:
                connection.sendall(_LINES)
                total += len(_LINES)
        sent.append(total)

    return answer


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n0\r\n" % PROTOCOL,
    ],
    ids=["headers", "trailers"],
)
def test_headers_and_trailers_without_end_are_not_read_on(start: bytes) -> None:
    """With traces: a span notes an error of aiohttp, whose `code` is deprecated."""
    importlib.import_module("opentelemetry.trace")
    sent: list[int] = []
    with BadBroker([flood(start, sent)]) as broker, device_of(broker) as provider:
        requests: Requests = provider._requests
        asked = requests.send("GET", "/v1/anything")
        with pytest.raises(BrokerError.unreachableError):
            io_thread.submit("get", asked).result(PATIENCE)
    assert sent
    assert max(sent) < _ENOUGH // 4, "what the sockets hold, and no more"


class Dropping:
    """Keeps a connection for a second request, of which it reads so much before it drops it."""

    def __init__(self, read: int) -> None:
        self._read = read
        self.dropped = 0

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(WHOLE)
        got = 0
        while got < self._read and (piece := connection.recv(65_536)):
            got += len(piece)
        self.dropped += bool(got)


@pytest.mark.parametrize("read", [1, PIECE, len(BODY)], ids=["at once", "midway", "at the end"])
@pytest.mark.parametrize("to", ["broker", "store"])
def test_a_body_whose_connection_was_dropped_is_sent_again_whole_or_not_at_all(
    read: int, to: str
) -> None:
    drop = Dropping(read)
    with BadBroker([drop, WHOLE]) as broker, device_of(broker) as provider:
        requests: Requests = provider._requests

        async def put(body: bytes) -> None:
            if to == "broker":
                await requests.send("PUT", "/v1/anything", octets=body)
            else:
                from yarl import URL

                await requests.store.put(URL(broker.url), memoryview(body))

        async def both() -> None:
            await put(b"first")
            with suppress(StoreError):
                await put(BODY)

        io_thread.submit("put", asyncio.wait_for(both(), PATIENCE)).result(PATIENCE)
    first, *others = broker.requests
    assert first.body == b"first"
    assert drop.dropped == 1
    assert {len(request.body) for request in others} <= {len(BODY)}
    assert all(request.body == BODY for request in others)
    assert others or to == "store", "the client itself tries again"
