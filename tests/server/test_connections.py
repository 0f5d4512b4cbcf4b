"""A connection that makes the broker wait is closed, and a refusal costs the application nothing."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from scbroker.server import capacity
from scbroker.server.app import _repeat
from scbroker.server.capacity import Connection, Gate, Kind
from scbroker.server.requests import LargeAnswer
from tests.kit.waiting import PATIENCE, tick, until

GET = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"
PUT = b"PUT /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
MIB = 1_048_576


class Server:
    """Uvicorn with our connections, around an application of the test's."""

    def __init__(self, answer: Callable[[Receive], Awaitable[Response]], gate: Gate) -> None:
        self.gate, self.asked = gate, 0
        self._answer = answer
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await (await self._answer(receive))(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        config = uvicorn.Config(
            _with_state(self, self.gate), http=Connection, ws="none", log_config=None
        )
        bound = socket.create_server(("127.0.0.1", 0))
        self.port = bound.getsockname()[1]
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[bound]))
        checking = asyncio.ensure_future(_repeat("check", 0.02, self.gate.check))
        await until(lambda: server.started)
        try:
            async with asyncio.timeout(PATIENCE):
                yield self
        finally:
            checking.cancel()
            for writer in self._writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            server.should_exit = server.force_exit = True
            await serving

    async def open(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
        writer.write(sent)
        self._writers.append(writer)
        return reader, writer


def _with_state(app: ASGIApp, gate: Gate) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        scope["state"]["gate"] = gate
        for word in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{word}.complete"})

    return call


async def hello(_: Receive) -> Response:
    return Response(b"hello")


async def ends(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection is gone."""
    found = b""
    try:
        while piece := await reader.read(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The head and body of one answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head + await reader.readexactly(int(length))


def gate(max_requests: int = 8, max_connections: int = 100) -> Gate:
    return Gate(max_requests, max_connections)


@pytest.mark.sampled
@pytest.mark.parametrize("sent", [b"", b"GET /v1/x HTTP/1.1\r\nHost: "], ids=["nothing", "a piece"])
async def test_a_head_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(capacity, "_HEAD_SECONDS", 0.2)

    async with Server(hello, gate()).running() as server:
        reader, _ = await server.open(sent)
        assert await ends(reader) == b""
        assert server.asked == 0


@pytest.mark.sampled
@pytest.mark.parametrize(
    "end, answer",
    [(b"", b"HTTP/1.1 431 "), (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"")],
    ids=["head", "trailer"],
)
async def test_a_head_or_trailer_without_an_end_is_not_kept(end: bytes, answer: bytes) -> None:
    async def slow(receive: Receive) -> Response:
        while (await receive()).get("more_body"):
            pass
        return Response(b"")

    async with Server(slow, gate()).running() as server:
        reader, writer = await server.open(
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\n" + end + b"X-Long: "
        )
        writer.write(b"x" * 300_000)
        assert (await ends(reader)).startswith(answer)


async def test_a_body_of_many_small_chunks_is_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_MAX_HEAD", 200)

    async def count(receive: Receive) -> Response:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        return Response(str(size))

    async with Server(count, gate()).running() as server:
        reader, writer = await server.open(
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(50):
            writer.write(b"1\r\nx\r\n" * 100)
            await tick()
        writer.write(b"0\r\n\r\n")
        assert (await answer(reader)).endswith(b"\r\n\r\n5000")


@pytest.mark.long
async def test_who_reads_a_large_answer_slowly_but_steadily_gets_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For longer than a client may take that reads nothing: 48 seconds, of which none pass in fact."""
    loop = asyncio.get_running_loop()
    right, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: right() + ahead[0])

    async def large(_: Receive) -> Response:
        return LargeAnswer(Response(bytes(16 * MIB)), lambda: None)

    async with Server(large, gate()).running() as server:
        reader, _ = await server.open(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        size = 0
        while size < 16 * MIB:
            size += len(await reader.readexactly(MIB))
            ahead[0] += 3
            await server.gate.check()
        assert head.startswith(b"HTTP/1.1 200")


async def test_above_the_bound_a_head_is_answered_with_503_without_the_application() -> None:
    release = asyncio.Event()

    async def held(_: Receive) -> Response:
        await release.wait()
        return Response(b"done")

    async with Server(held, gate()).running() as server:
        first = [await server.open(GET) for _ in range(8)]
        await until(lambda: server.gate.present == 8)
        reader, writer = await server.open(PUT)  # its body has not come
        refusal = await answer(reader)
        assert refusal.startswith(b"HTTP/1.1 503")
        assert b"retry-after: " in refusal.lower()
        assert server.asked == 8
        writer.write(b"12345" + GET)  # what comes of the refused body is no request
        assert (await answer(reader)).startswith(b"HTTP/1.1 503")
        release.set()
        for reader, _ in first:
            assert (await answer(reader)).endswith(b"done")
        writer.write(GET)
        assert server.gate.present == 0


async def refused(server: Server, sent: bytes = GET) -> asyncio.StreamReader:
    """Send to a full broker; return once the refusal waits."""
    while server.gate.enter(Kind.Reading):
        pass
    waiting = server.gate.refusing
    reader, _ = await server.open(sent)
    while server.gate.refusing == waiting:
        await tick()
    return reader


async def test_a_refusal_waits_and_what_is_pipelined_behind_it_is_refused_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "_REFUSAL_SECONDS", 0.1)

    async with Server(hello, gate()).running() as server:
        reserved = GET.replace(b"/v1/x", b"/health/live")  # would be admitted
        reader = await refused(server, GET + reserved)
        for _ in range(2):
            assert (await answer(reader)).startswith(b"HTTP/1.1 503")
        assert (server.asked, server.gate.refusing) == (0, 0)


async def test_refusals_wait_on_three_quarters_of_the_connections_and_on_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "_REFUSAL_SECONDS", 2 * PATIENCE)

    async with Server(hello, gate(max_connections=8)).running() as server:
        for _ in range(6):
            await refused(server)
        reader, _ = await server.open(GET)
        assert (await answer(reader)).startswith(b"HTTP/1.1 503")
        assert server.gate.refusing == 6


async def test_pipelined_requests_are_let_in_one_by_one_and_few_of_them_are_kept() -> None:
    async with Server(hello, gate(max_requests=1)).running() as server:
        reader, _ = await server.open(GET * 5)
        for _ in range(5):
            assert (await answer(reader)).endswith(b"hello")
        assert server.gate.present == 0
        reader, _ = await server.open(GET * 100)
        found = await ends(reader)
        assert found.count(b"hello") < 100


async def test_writes_leave_room_for_reads_and_all_leave_room_for_what_is_reserved() -> None:
    async with Server(hello, gate()).running() as server:
        for _ in range(6):
            assert server.gate.enter(Kind.Writing)
        assert not server.gate.enter(Kind.Writing)
        for _ in range(2):
            assert server.gate.enter(Kind.Reading)
        assert not server.gate.enter(Kind.Reading)
        for asked in (b"GET /health/live", b"GET /metrics", b"DELETE /v1/sessions/current"):
            reader, _ = await server.open(GET.replace(b"GET /v1/x", asked))
            assert (await answer(reader)).startswith(b"HTTP/1.1 200")


async def test_beyond_so_many_connections_each_is_answered_and_closed() -> None:
    async with Server(hello, gate(max_connections=3)).running() as server:
        kept = [await server.open(GET) for _ in range(3)]
        for reader, _ in kept:
            assert (await answer(reader)).endswith(b"hello")
        reader, _ = await server.open(GET)
        assert (await ends(reader)).startswith(b"HTTP/1.1 503")
        for asked in (b"GET /health/live", b"DELETE /v1/sessions/current"):
            reader, _ = await server.open(GET.replace(b"GET /v1/x", asked))
            assert (await ends(reader)).endswith(b"hello")
        kept[0][1].write(GET)
        assert (await answer(kept[0][0])).endswith(b"hello")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "line",
    [
        b"\0\1\2", b"GET http://[ HTTP/1.1", b"GET http://example.com?x=1 HTTP/1.1",
        b"GET / HTTP/9.9", b"GET /\xc3\xa9 HTTP/1.1", b"GET ?x HTTP/1.1", b"OPTIONS * HTTP/1.1",
        b"CONNECT example.com:443 HTTP/1.1", b"PRI * HTTP/2.0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [b"", GET], ids=["alone", "behind another"])
async def test_a_request_that_is_no_http_takes_no_room(line: bytes, before: bytes) -> None:
    async with Server(hello, gate(max_requests=1)).running() as server:
        for _ in range(3):
            reader, writer = await server.open(before + line + b"\r\nConnection: close\r\n\r\n")
            writer.write_eof()
            await ends(reader)
        await served(server)


async def served(server: Server) -> None:
    """A broker that takes on one request takes it on."""
    reader, _ = await server.open(GET)
    assert (await answer(reader)).startswith(b"HTTP/1.1 200")
    assert (server.gate.present, server.gate.waiting) == (0, 0)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "sent",
    [
        GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n") + GET,
        PUT.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n12345"),
        GET * 7 + PUT,
        GET + b"rubbish\r\n\r\n",
        PUT,
        PUT.replace(b"5", b"chunked").replace(b"Content-Length", b"Transfer-Encoding") + b"rubbish",
        PUT.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
    ],
    ids=["websocket", "h2c", "h2c with a body", "ahead", "no second", "no body", "rubbish body", "expect"],
)  # fmt: skip
async def test_a_connection_that_is_lost_meanwhile_leaves_no_room_taken(sent: bytes) -> None:
    async def read(receive: Receive) -> Response:
        while (await receive()).get("more_body"):
            pass
        return Response(b"done")

    async with Server(read, gate(max_requests=1)).running() as server:
        _, writer = await server.open(sent)
        await until(lambda: server.asked)
        writer.transport.abort()
        await until(lambda: not server.gate.connections)
        await served(server)


@pytest.mark.sampled
@pytest.mark.parametrize("ahead", [2, 3])
async def test_a_client_that_reads_no_answer_takes_no_slot_from_others(ahead: int) -> None:
    async def some(_: Receive) -> Response:
        return Response(bytes(4 * MIB))

    async with Server(some, gate(max_requests=1)).running() as server:
        await server.open(GET * ahead)
        await until(lambda: server.gate.waiting)
        assert server.gate.present == 0
        reader, _ = await server.open(GET)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
