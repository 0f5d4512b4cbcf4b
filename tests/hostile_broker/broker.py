"""A real broker behind a layer that lies: what it serves is changed, replayed, withheld or invented.

    with HostileBroker(tmp_path) as mallory:
        alice = mallory.device(new user)
        with mallory.lying("GET /v1/containers/{containerId}", lambda view: replace(view, wrap=None)):
            ...

The layer is a transport of the clients, above that of a real broker. It notes every byte that it was sent,
and gives sessions of accomplices.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from scbroker import BrokerError, KeyRing, MemoryTrustStore, ServerProvider, TrustStore
from scbroker.client.http.transport import Body, Response, checked_endpoint, mounted, transport_to
from scbroker.server.operations import OPERATIONS, Operation
from scbroker.wire import codec
from scbroker.wire.codec import Message
from scbroker.wire.problems import Problem, problem_of
from tests.kit.brokers import BrokerProcess, InProcess, Wire
from tests.kit.waiting import PATIENCE, on_io_thread
from tests.kit.writers import User

_UNSENT: Final = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")
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


class HostileBroker:
    """The layer and the broker behind it, on SQLite and a folder.

    Clients in this process reach the layer at the broker's own address, of whatever kind that is.
    """

    def __init__(
        self, directory: Path, kind: type[BrokerProcess] = InProcess, **settings: Any
    ) -> None:
        self._directory = directory
        self.behind = kind(directory / "broker", **settings)
        self._stack = ExitStack()
        self._scene = ExitStack()
        self._before: list[tuple[str, Rule]] = []
        self._after: list[tuple[str, Rule]] = []
        self._numbers = 0
        self.heard: list[Exchange] = []
        """Every exchange, in the order in which the requests came."""
        # Rules wait for clients, so they run outside the loop; one after the other.
        self._rules = ThreadPoolExecutor(1, "layer")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._rules)
            stack.enter_context(self.behind)
            arguments = self.behind.api_key, self.behind.url, "layer", None, None, PATIENCE
            self._way = transport_to(checked_endpoint(*arguments), 0, _UNSENT)
            stack.callback(_run, self._way.close)
            stack.enter_context(mounted(self.url, self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._scene.close()
        self._stack.close()

    @contextmanager
    def scene(self) -> Iterator[Self]:
        """The devices of one test: they are closed at its end, and the broker goes on."""
        with ExitStack() as self._scene:
            yield self
        assert not self._before
        assert not self._after

    @property
    def url(self) -> str:
        return self.behind.url

    @property
    def origin(self) -> str:
        """Return the origin that a log-in signs for this broker."""
        return self.behind.origin

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
        return User(ring, self._scene.enter_context(Wire(self.behind)).log_in(ring))

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

    async def close(self) -> None: ...

    @asynccontextmanager
    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body
    ) -> AsyncIterator[Response]:
        whole = body if isinstance(body, bytes) else b"".join([p async for p in body or _none()])
        exchange = Exchange(
            _operation(method, url.path),
            method,
            url.path,
            url.raw_query_string,
            {"Host": url.host_port_subcomponent or "", **headers},
            whole,
        )
        self.heard.append(exchange)
        try:
            await self._apply(self._before, exchange)
            if not exchange.status:
                await self._forward(exchange)
                await self._apply(self._after, exchange)
        except CutError:
            raise aiohttp.ServerDisconnectedError from None
        lines = {
            codec.PROTOCOL_HEADER.lower(): codec.PROTOCOL,
            "date": formatdate(usegmt=True),
            **exchange.answer_headers,
        }
        pieces = _none(exchange.answer_body)
        yield Response(exchange.status or 500, CIMultiDict(lines), pieces, lambda: None)

    async def _apply(self, rules: list[tuple[str, Rule]], exchange: Exchange) -> None:
        for name, rule in list(rules):
            if name in ("", exchange.name):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._rules, rule, exchange)

    async def _forward(self, exchange: Exchange) -> None:
        url = f"{self.behind.url}{exchange.path}" + (f"?{exchange.query}" if exchange.query else "")
        headers = {
            k: v for k, v in exchange.headers.items() if k.lower() not in _HOP_BY_HOP | {"host"}
        }
        body = None
        if exchange.body:
            headers["Content-Length"] = str(len(exchange.body))
            body = _sent(exchange.body)
        async with self._way.request(
            exchange.method, URL(url, encoded=True), headers, body
        ) as answer:
            exchange.status = answer.status
            exchange.answer_headers = {
                k.lower(): v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP
            }
            exchange.answer_body = b"".join([piece async for piece in answer.pieces])


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    on_io_thread(work())


async def _sent(body: bytes) -> AsyncIterator[memoryview]:
    yield memoryview(body)


async def _none(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _operation(method: str, path: str) -> Operation | None:
    for operation in OPERATIONS:
        pattern = re.sub(r"\{\w+\}", "[^/]+", operation.path)
        if operation.method == method and re.fullmatch(pattern, path):
            return operation
    return None
