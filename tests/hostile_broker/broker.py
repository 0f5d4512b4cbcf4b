"""A real broker behind a layer that lies: what it serves is changed, replayed, withheld or invented.

    with HostileBroker(tmp_path) as mallory:
        alice = mallory.device(new user)
        with mallory.lying("GET /v1/containers/{containerId}", lambda view: replace(view, wrap=None)):
            ...

Clients speak to the layer over a real socket, and it to a real broker. It notes every byte that it was
sent, and gives sessions of accomplices.
"""

import asyncio
import io
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from scbroker import BrokerError, KeyRing, MemoryTrustStore, ServerProvider, TrustStore
from scbroker.server.operations import OPERATIONS, Operation
from scbroker.wire import codec
from scbroker.wire.codec import Message
from scbroker.wire.problems import Problem, problem_of
from scbroker.wire.users import canonical_origin
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

_HOP_BY_HOP: Final = {
    "connection",
    "content-length",
    "transfer-encoding",
    "date",
    "server",
    "keep-alive",
}


@dataclass
class Exchange:
    """One request and the answer to it, as the layer saw and changed them."""

    operation: Operation | None
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer_body: bytes = b""

    @property
    def name(self) -> str:
        """The operation as the protocol writes it: `GET /v1/containers/{containerId}`."""
        return f"{self.method} {self.operation.path if self.operation else self.path}"

    @property
    def message(self) -> Any:
        """The request's message."""
        assert self.operation is not None
        kind: Any = self.operation.message
        return codec.decode(kind, self.body)

    @property
    def answer(self) -> Any:
        """The answer's message, or its octets."""
        assert self.operation is not None
        kind: Any = self.operation.answer
        return self.answer_body if kind is bytes else codec.decode(kind, self.answer_body, 2**24)

    @answer.setter
    def answer(self, answer: Message | bytes) -> None:
        self.answer_body = answer if isinstance(answer, bytes) else codec.encode(answer)

    def invent(self, answer: Message | bytes, status: int = 200) -> None:
        """Make this the answer, whether or not the broker behind gets the request."""
        self.status, self.answer = status, answer
        kind = codec.OCTETS if isinstance(answer, bytes) else codec.MESSAGE
        self.answer_headers = {"content-type": kind}

    def fail(self, error: BrokerError | Problem) -> None:
        """Make this error the answer."""
        problem = problem_of(error) if isinstance(error, BrokerError) else error
        self.invent(msgspec.json.encode(problem), problem.status)
        self.answer_headers = {"content-type": codec.PROBLEM}

    @property
    def bytes_heard(self) -> bytes:
        """All that the client sent of it."""
        head = f"{self.method} {self.path}?{self.query}\n"
        lines = "".join(f"{name}: {value}\n" for name, value in self.headers.items())
        return (head + lines).encode("latin-1", "replace") + b"\n" + self.body


class CutError(Exception):
    """Raised by a rule: the connection breaks off without an answer."""


Rule = Callable[[Exchange], None]


@dataclass
class Behind:
    """The real broker, for requests past the layer that are signed for the layer's address."""

    api_key: uuid.UUID
    port: int
    url: str
    origin: str
    database_url: str


class HostileBroker:
    """The layer and the broker behind it, on SQLite and a folder."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._stack = ExitStack()
        self._scene = ExitStack()
        self._before: list[tuple[str, Rule]] = []
        self._after: list[tuple[str, Rule]] = []
        self._numbers = 0
        self.heard: list[Exchange] = []
        """Every exchange, in the order in which the requests came."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        origins = f"http://localhost:{self.port}"
        self.behind = BrokerProcess(self._directory / "broker", origins=origins, **self._settings)
        self._stack.enter_context(self.behind)
        self._run(self._serve(listener))
        return self

    def __exit__(self, *_: object) -> None:
        self._scene.close()
        self._stack.close()
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def scene(self) -> Iterator[Self]:
        """The devices of one test: they are closed at its end, and the broker goes on."""
        with ExitStack() as self._scene:
            yield self
        assert not self._before
        assert not self._after

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        """Return the origin that a log-in signs for this broker."""
        return canonical_origin(self.url)

    def new_user(self) -> KeyRing:
        return self.behind.new_user()

    def device(
        self, ring: KeyRing | None = None, store: TrustStore | None = None, **options: Any
    ) -> ServerProvider:
        """A user's client, with a trust store of its own unless it is given one; logged in."""
        self._numbers += 1
        provider = ServerProvider(
            self.behind.api_key,
            self.url,
            f"device {self._numbers}",
            trustStore=store or MemoryTrustStore(),
            **{"timeout": PATIENCE, **options},
        )
        self._scene.enter_context(provider)
        if ring is not None:
            provider.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
        return provider

    def accomplice(self, ring: KeyRing) -> User:
        """A user who works with the broker: raw requests to the broker behind the layer."""
        behind = self.behind
        address = Behind(behind.api_key, behind.port, behind.url, self.origin, behind.database_url)
        return User(ring, self._scene.enter_context(Wire(address)).log_in(ring))

    # What it does to what passes.

    @contextmanager
    def meddling(
        self, name: str, *, before: Rule | None = None, after: Rule | None = None
    ) -> Iterator[None]:
        """Rules for an operation, by its name in the protocol; "" is every one.

        `before` sees the request, and keeps it from the broker by setting a status; `after` sees the
        answer as well. Either may raise `CutError`.
        """
        assert not name or name in {f"{o.method} {o.path}" for o in OPERATIONS}
        entries = [(self._before, before), (self._after, after)]
        for rules, rule in entries:
            if rule is not None:
                rules.append((name, rule))
        try:
            yield
        finally:
            for rules, rule in entries:
                if rule is not None:
                    rules.remove((name, rule))

    @contextmanager
    def lying(self, name: str, lie: Callable[[Any], Any]) -> Iterator[list[Any]]:
        """Has `lie(answer)` served in place of each good answer of an operation; gives the true ones."""
        told: list[Any] = []

        def after(exchange: Exchange) -> None:
            if exchange.status < 300:
                told.append(exchange.answer)
                exchange.answer = lie(exchange.answer)

        with self.meddling(name, after=after):
            yield told

    @contextmanager
    def answering(self, name: str, answer: Message | bytes, status: int = 200) -> Iterator[None]:
        """Answers an operation by itself; the broker behind never hears of it."""

        with self.meddling(name, before=lambda exchange: exchange.invent(answer, status)):
            yield

    @contextmanager
    def failing(self, name: str, error: BrokerError | Problem) -> Iterator[None]:
        """Answers an operation by this error."""
        with self.meddling(name, before=lambda exchange: exchange.fail(error)):
            yield

    def since(self, count: int) -> list[str]:
        """The names of the operations heard after the first `count`."""
        return [exchange.name for exchange in self.heard[count:]]

    # The layer itself.

    def _run(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(PATIENCE)

    async def _serve(self, listener: socket.socket) -> None:
        self._client = aiohttp.ClientSession(
            auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        server = web.Server(self._pass)
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = Exchange(
            _operation(request.method, request.path),
            request.method,
            request.path,
            request.rel_url.raw_query_string,
            dict(request.headers),
            await request.content.read(),  # of any length; `read` stops at a megabyte
        )
        self.heard.append(exchange)
        try:
            self._apply(self._before, exchange)
            if not exchange.status:
                await self._forward(exchange)
                self._apply(self._after, exchange)
        except CutError:
            assert request.transport is not None
            request.transport.abort()
        headers = {codec.PROTOCOL_HEADER.lower(): codec.PROTOCOL, **exchange.answer_headers}
        return web.Response(
            status=exchange.status or 500, body=exchange.answer_body, headers=headers
        )

    def _apply(self, rules: list[tuple[str, Rule]], exchange: Exchange) -> None:
        for name, rule in list(rules):
            if name in ("", exchange.name):
                rule(exchange)

    async def _forward(self, exchange: Exchange) -> None:
        url = f"{self.behind.url}{exchange.path}" + (f"?{exchange.query}" if exchange.query else "")
        headers = {
            k: v for k, v in exchange.headers.items() if k.lower() not in _HOP_BY_HOP | {"host"}
        }
        async with self._client.request(
            exchange.method,
            URL(url, encoded=True),
            data=io.BytesIO(exchange.body) if exchange.body else None,
            headers=headers,
            allow_redirects=False,
            skip_auto_headers=["Content-Type", "User-Agent", "Accept", "Accept-Encoding"],
        ) as answer:
            exchange.status = answer.status
            exchange.answer_headers = {
                k.lower(): v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP
            }
            exchange.answer_body = await answer.read()


def _operation(method: str, path: str) -> Operation | None:
    for operation in OPERATIONS:
        pattern = re.sub(r"\{\w+\}", "[^/]+", operation.path)
        if operation.method == method and re.fullmatch(pattern, path):
            return operation
    return None
