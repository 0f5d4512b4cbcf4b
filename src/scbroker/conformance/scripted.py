"""Run a real broker behind a layer that changes chosen answers, as a script says.

A lie is data: it names an operation of the protocol, and what is changed in its good answers. The head of
scenes.toml lists the kinds of lies.
"""

import asyncio
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from scbroker.errors import BrokerError, UnreachableError
from scbroker.records.container_record import parse_record, record_hash
from scbroker.wire import codec
from scbroker.wire.problems import STATUS, problem_of

T = TypeVar("T")
_PATIENCE: Final = 30.0
_PIECE: Final = 1_048_576
_ENDLESS: Final = 64 * _PIECE
"""Bytes of an endless answer: twice what a client may read of any (docs/spec/protocol.md, section 4)."""
_FORWARDED: Final = ("content-type", "retry-after", codec.PROTOCOL_HEADER.lower())
_ERRORS: Final = {kind.code: kind for kind in STATUS}


@dataclass
class _Reply:
    """A mutable answer; a `Lie` edits it before it is sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    endless: bool = False

    @property
    def is_message(self) -> bool:
        return self.headers.get("content-type") == codec.MESSAGE


@dataclass
class Lie:
    """A change to the good answers of one operation."""

    operation: str
    change: Mapping[str, Any]
    times: int


@dataclass
class ScriptedBroker:
    """A broker on SQLite and a temporary folder, and the layer that clients speak to."""

    lies: list[Lie] = field(default_factory=list)
    secrets: set[bytes] = field(default_factory=set)
    """Bytes that no request may contain."""
    breaches: list[str] = field(default_factory=list)
    """Requests of clients that no client may send."""
    _served: dict[str, list[bytes]] = field(default_factory=dict)
    _swallowed: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.api_key: uuid.UUID = uuid.uuid4()
        self._loop = asyncio.new_event_loop()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            self.url: str = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._behind = self._start(stack, folder)
            thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            thread.start()
            stack.callback(self._loop.close)
            stack.callback(thread.join)
            stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
            self._await(self._serve(listener))
            stack.callback(lambda: self._await(self._stop()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def honest(self) -> None:
        """End all lies, and forget the answers that were served and the records that were swallowed."""
        self.lies.clear()
        self._served.clear()
        self._swallowed.clear()

    def lie(self, operation: str, change: Mapping[str, Any], times: int = 2**31) -> None:
        """Change the next good answers of an operation, named as `GET /v1/containers/{containerId}`."""
        self.lies.append(Lie(operation, change, times))

    def _start(self, stack: ExitStack, folder: Path) -> str:
        """Start the real broker, to which the layer forwards requests, and return its URL."""
        settings = {k: v for k, v in os.environ.items() if not k.startswith("SCBROKER_")}
        settings |= {"SCBROKER_API_KEY": str(self.api_key), "SCBROKER_ORIGINS": self.url}
        log = stack.enter_context((folder / "log").open("wb"))
        program = "from scbroker.cli import main; main()"
        process = subprocess.Popen(  # noqa: S603 - our own program, with fixed arguments
            [sys.executable, "-c", program, "serve", "--port", "0", "--data-dir", str(folder)],
            env=settings,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        stack.enter_context(process)
        stack.callback(process.terminate)
        line = process.stdout.readline() if process.stdout else ""
        if "http://" not in line:
            raise UnreachableError(
                f"The scripted broker did not start: {(folder / 'log').read_text('utf-8', 'replace')}"
            )
        return line.split()[-1]

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def _serve(self, listener: socket.socket) -> None:
        self._client = aiohttp.ClientSession(auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._answer))
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body, operation = await request.content.read(), _operation(request)
        self._check(request, body)
        if swallowed := self._swallow(operation, body):
            reply = swallowed
        else:
            reply = await self._forward(request, body)
            if reply.status < 300:
                self._served.setdefault(operation, []).append(reply.body)
                for lie in [lie for lie in self.lies if lie.operation == operation and lie.times]:
                    # Leave an answer as it is if it lacks the field that the lie changes.
                    with suppress(LookupError, TypeError):
                        self._change(reply, lie)
                        lie.times -= 1
        if reply.endless:
            return await self._stream(request, reply)
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)

    async def _stream(self, request: web.BaseRequest, reply: _Reply) -> web.StreamResponse:
        """Send zero bytes until the client closes the connection; note a client that reads too many."""
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        with suppress(ConnectionError):
            await response.prepare(request)
            for _ in range(_ENDLESS // _PIECE):
                await response.write(bytes(_PIECE))
            self.breaches.append(f"the client read {_ENDLESS} bytes of one answer")
        return response

    def _check(self, request: web.BaseRequest, body: bytes) -> None:
        """Note a request with a cookie or an unencrypted secret: no client may send one."""
        head = f"{request.raw_path} {request.headers}".encode("utf-8", "surrogateescape")
        if "Cookie" in request.headers:
            self.breaches.append("the client sent a cookie")
        if any(secret in body or secret in head for secret in tuple(self.secrets)):
            self.breaches.append(f"the client sent a secret in the clear to {request.path}")

    async def _forward(self, request: web.BaseRequest, body: bytes) -> _Reply:
        hop = ("host", "connection", "content-length", "transfer-encoding")
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in hop]
        async with self._client.request(
            request.method,
            URL(self._behind + request.raw_path, encoded=True),
            data=io.BytesIO(body) if body else None,  # aiohttp warns of large `bytes`
            headers=headers,
            allow_redirects=False,
            skip_auto_headers=["Content-Type", "User-Agent", "Accept", "Accept-Encoding"],
        ) as came:
            found = {k.lower(): v for k, v in came.headers.items() if k.lower() in _FORWARDED}
            return _Reply(came.status, found, await came.read())

    def _swallow(self, operation: str, body: bytes) -> _Reply | None:
        """Answer a record as if it were stored, if a lie says so; the real broker never gets it."""
        for lie in self.lies:
            if lie.operation == operation and "swallow" in lie.change and lie.times:
                lie.times -= 1
                self._swallowed = msgspec.msgpack.decode(body)
                record = self._swallowed["record"]["body"]
                receipt = {"version": parse_record(record).version, "hash": record_hash(record)}
                headers = {codec.PROTOCOL_HEADER.lower(): "1", "content-type": codec.MESSAGE}
                return _Reply(201, headers, msgspec.msgpack.encode(receipt))
        return None

    def _change(self, reply: _Reply, lie: Lie) -> None:
        """Apply one lie to an answer."""
        change, served = lie.change, self._served[lie.operation]
        if "replay" in change:
            reply.body = served[change["replay"]]
        if "problem" in change:
            problem = problem_of(_error(change["problem"]))
            reply.status, reply.body = problem.status, msgspec.json.encode(problem)
            reply.headers["content-type"] = codec.PROBLEM
        reply.endless = "endless" in change
        reply.status = change.get("status", reply.status)
        reply.headers |= change.get("headers", {})
        plain: Any = {"": msgspec.msgpack.decode(reply.body) if reply.is_message else reply.body}
        for path in change.get("flip", ()):
            at, name = _find(plain, path)
            at[name] = at[name][:-1] + bytes([at[name][-1] ^ 1])
        for path, value in [
            *change.get("set", ()),
            *((path, None) for path in change.get("null", ())),
        ]:
            at, name = _find(plain, path)
            at[name] = value
        for path in change.get("remove", ()):
            at, name = _find(plain, path)
            del at[name]
        if "graft" in change:
            at, name = _find(plain, change["graft"])
            other, _ = _find({"": msgspec.msgpack.decode(served[change["from"]])}, change["graft"])
            at[name] = other[name]
        if "swallowed" in change and self._swallowed:
            plain[""]["head"] = self._swallowed["record"]
            plain[""]["content"] = self._swallowed["content"]
        whole = plain[""]
        reply.body = whole if isinstance(whole, bytes) else msgspec.msgpack.encode(whole)


def _find(plain: Any, path: str) -> tuple[Any, Any]:
    """Return the map or list that has the value at a path such as `governing.-1.record`, and its key."""
    names: Sequence[str] = ["", *path.split(".")] if path else [""]
    for name in names[:-1]:
        plain = plain[int(name) if isinstance(plain, list) else name]
    return plain, int(names[-1]) if isinstance(plain, list) else names[-1]


def _error(code: str) -> BrokerError:
    return _ERRORS[code](f"The scripted broker answers {code}.")


def _operation(request: web.BaseRequest) -> str:
    """Return a request's operation as the protocol names it."""
    path = request.path
    for pattern, name in _NAMES:
        path = re.sub(pattern, name, path)
    return f"{request.method} {path}"


_NAMES: Final = (
    (r"(?<=/users/)[0-9a-f-]{36}", "{userId}"),
    (r"(?<=/containers/)[0-9a-f-]{36}", "{containerId}"),
    (r"(?<=/parts/)[0-9a-f-]{36}", "{partId}"),
    (r"(?<=/records/)\d+", "{version}"),
    (r"(?<=/chunks/)\d+", "{index}"),
)
