"""Real brokers for the tests: in a process of its own on a loopback socket, or in the tests' own process.

    with BrokerProcess(tmp_path) as broker:
        wire = Wire(broker)
        ring = broker.new_user()

`BrokerProcess` starts `scbroker serve` as an operator does and reads the address from its first
line. `InProcess` is the same broker without process and socket. `Wire` sends requests by hand, for
claims about the protocol itself; everything else uses a provider.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import subprocess
import threading
import time
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self, TypeVar, cast

import msgspec
from yarl import URL

import scbroker.server.broker
import scbroker.server.storage.audit
from scbroker.client.calls.tasks import io_thread
from scbroker.client.http.transport import Body, Response, Transport, mounted
from scbroker.keys import KeyRing
from scbroker.records.canonical import encode_object
from scbroker.testing.in_process import ASGITransport, serving
from scbroker.wire import codec
from scbroker.wire import users as u
from scbroker.wire.codec import Message, SignedObject
from scbroker.wire.users import canonical_origin
from tests.kit import program
from tests.kit.crypto import random_bytes
from tests.kit.engines import free_port
from tests.kit.processes import Process, command, start
from tests.kit.waiting import PATIENCE

T = TypeVar("T")
ENGINES: Final = ("sqlite", "postgresql")
# A broker closes a connection that was idle for five seconds.
_IDLE_SECONDS: Final = 2.0


def clock() -> int:
    """The time in microseconds since 1970."""
    return time.time_ns() // 1000


def serve_command(*arguments: str) -> list[str]:
    """The command line `scbroker serve`, whatever PATH says."""
    return command("serve", *arguments)


def environment(
    settings: Mapping[str, object] = {}, variables: Mapping[str, str] = {}
) -> dict[str, str]:
    """The environment of a broker: no setting of the caller's, these settings by their field names.

    `variables` are set as they stand: an object store's tools look for their own.
    """
    found = {k: v for k, v in os.environ.items() if not k.startswith(("SCBROKER_", "AWS_"))}
    if path := found.get("PYTHONPATH"):  # the broker may work in another folder
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    found |= {f"SCBROKER_{name.upper()}": str(v) for name, v in settings.items()}
    return found | dict(variables)


class BrokerProcess:
    """A broker that lives as long as its `with` block.

    `settings` are the fields of `scbroker.server.settings.Settings`. Database and objects lie in
    `directory`, unless `database_url` or the settings say otherwise. `variables` are set in its
    environment as they stand; it works in the folder `works_in`. `under` is a command that runs it,
    such as strace, and keeps its process id.
    """

    def __init__(
        self,
        directory: Path,
        database_url: str = "",
        *,
        workers: int = 1,
        port: int = 0,
        variables: Mapping[str, str] = {},
        works_in: Path | None = None,
        clock_ahead: float = 0.0,
        under: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self.directory = directory
        self.database_url = database_url or f"sqlite:///{directory / 'broker.sqlite'}"
        self.api_key = uuid.uuid4()
        self.port = port
        self.output = ""
        """What the broker wrote to standard output since its last start."""
        self.settings = {
            "api_key": self.api_key,
            "database_url": self.database_url,
            # All users of all tests come from one address, and benchmarks share with thousands.
            "registrations_address": 1_000_000,
            "max_new_grants": 1_000_000,
            "max_key_records": 1_000_000,
            **settings,
        }
        self.api_key = uuid.UUID(str(self.settings["api_key"]))
        self._workers = workers
        self.variables = variables
        self._works_in = works_in
        self._under = under
        self._ahead = clock_ahead
        self._process: Process | None = None
        self._drain: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        """What a log-in signs for this broker."""
        return canonical_origin(self.url)

    @property
    def engine(self) -> str:
        return self.database_url.partition(":")[0].partition("+")[0]

    @property
    def log(self) -> str:
        """What the broker wrote to standard error so far."""
        return self._log_path.read_text("utf-8", "replace")

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The lines of the log, or those about an event."""
        found = [json.loads(line) for line in self.log.splitlines()]
        return [line for line in found if event in (None, line["event"])]

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def _log_path(self) -> Path:
        return self.directory / "stderr"

    @property
    def clock_ahead(self) -> float:
        """Seconds by which its clock is ahead of ours; it may be set while the broker runs.

        What the broker does by itself after some time, it does by the monotonic clock, which stays.
        """
        return self._ahead

    @clock_ahead.setter
    def clock_ahead(self, seconds: float) -> None:
        assert self._workers == 1, "workers are started by a library, with the right clock"
        self._ahead = seconds
        program.set_clock(self._clock, seconds)

    @property
    def _clock(self) -> Path:
        return self.directory / "clock"

    def start(self) -> None:
        """Starts the broker; after `stop` or `kill` on the same port and the same data."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        program.set_clock(self._clock, self._ahead)
        self.port = self.port or free_port()
        options = ["--port", str(self.port), "--data-dir", str(self.directory)]
        options += ["--workers", str(self._workers)]
        with self._log_path.open("ab") as log:
            self._process = self._launch(options, log)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if not first.startswith("scbroker serves http://"):
            self._process.wait(PATIENCE)
            self._process.stdout.close()
            self._process = None
            raise RuntimeError(f"The broker did not start:\n{first}{self.log}")
        self.output = first
        self._drain = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._drain.start()

    def _launch(self, options: list[str], log: IO[bytes]) -> Process:
        variables = environment(self.settings, self.variables)
        under = self._under if self._under or self._workers > 1 else None
        if self._workers == 1:  # several are started by a library, with the right clock
            variables["CLOCK"] = str(self._clock)
        return start(["serve", *options], variables, self._works_in, log, under=under)

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.output += line

    def stop(self) -> int:
        """SIGTERM, as an operator ends it; gives the exit status. Nothing if it ended already."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self._release()

    def kill(self) -> None:
        """SIGKILL: nothing more is written, and no answer sent."""
        if self._workers > 1:
            os.killpg(self._running().pid, signal.SIGKILL)
        self._running().kill()
        self._running().wait()
        self._release()

    def restart(self, **settings: object) -> None:
        """SIGTERM and again, with other settings if some are named."""
        self.stop()
        self.settings |= settings
        self.start()

    def new_user(self, auth: bytes | None = None, key_file: bytes | None = None) -> KeyRing:
        """A registered user, cheaply: their KeyFile opens under no secret, but the KeyRing is here."""
        return new_user(self, auth, key_file)

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("The broker is not running")
        return self._process

    def _release(self) -> int:
        process = self._running()
        if self._drain is not None:
            self._drain.join(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
        self._process = self._drain = None
        return process.wait()


_served: ContextVar[BrokerProcess | None] = ContextVar("served", default=None)


class _Clock:
    """The module `time` for brokers in this process: each has its own clock, which no test patches.

    Threads that no broker started, and brokers that a test opens beside it, go by the test's clock.
    """

    _right = staticmethod(time.time_ns)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time_ns(self) -> int:
        broker = _served.get()
        if broker is None:
            return time.time_ns()
        return self._right() + round(broker.clock_ahead * 1e9)


class InProcess(BrokerProcess):
    """The same broker in the process of the tests, without a socket: for what needs no process.

    It has no process id, no port and no log file.
    """

    _ports = itertools.count(60_000, -1)  # nothing listens there

    def __init__(self, directory: Path, database_url: str = "", **settings: Any) -> None:
        super().__init__(directory, database_url, **settings)
        assert self._workers == 1
        assert not self._ahead
        self.port = next(self._ports)
        for module in (scbroker.server.broker, scbroker.server.storage.audit):
            vars(module)["time"] = _Clock()
        self._serving, self._mounted = ExitStack(), ExitStack()
        self._transport: ASGITransport | None = None
        self._runs = False

    def __enter__(self) -> Self:
        # Providers keep this transport while the broker is stopped and started again.
        self._mounted.enter_context(mounted(self.url, self))
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        with self._mounted:
            self.stop()

    @property
    def url(self) -> str:
        return f"http://in-process.localhost:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._runs

    @property
    def clock_ahead(self) -> float:
        return self._ahead

    @clock_ahead.setter
    def clock_ahead(self, seconds: float) -> None:
        self._ahead = seconds

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        variables = environment(self.settings, self.variables)
        before = _served.set(self)  # the broker's tasks inherit it
        try:
            found = serving(variables, self.directory, self.url)
            self._transport = self._serving.enter_context(found)
            self._runs = True
        finally:
            _served.reset(before)

    def stop(self) -> int:
        self._serving.close()
        self._runs = False
        return 0

    def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body
    ) -> AbstractAsyncContextManager[Response]:
        assert self._transport is not None
        return self._transport.request(method, url, headers, body)

    async def close(self) -> None: ...


def answered(
    transport: Transport,
    url: str,
    method: str,
    body: bytes | Iterable[bytes] | None,
    headers: dict[str, str],
) -> Answer:
    """Send one request by hand over a transport, and return the answer."""
    if isinstance(body, bytes):
        headers = {"Content-Length": str(len(body)), **headers}
    elif body is not None:
        headers = {"Transfer-Encoding": "chunked", **headers}

    async def pieces() -> AsyncIterator[memoryview]:
        for piece in cast(Iterable[bytes], body):
            yield memoryview(piece)

    async def work() -> Answer:
        sent = body if body is None or isinstance(body, bytes) else pieces()
        async with transport.request(method, URL(url, encoded=True), headers, sent) as response:
            names = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, names, b"".join([p async for p in response.pieces]))

    return io_thread.submit("request by hand", work()).result(PATIENCE)


def new_user(at: Address, auth: bytes | None = None, key_file: bytes | None = None) -> KeyRing:
    """A registered user at a broker, or at several; see `BrokerProcess.new_user`."""
    ring = KeyRing.generate()
    with Wire(at) as wire:
        wire.register(ring, auth=auth, key_file=key_file).expect(201)
    return ring


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """The members of the problem that it says."""
        assert self.headers["content-type"] == codec.PROBLEM, self
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found

    @property
    def code(self) -> str:
        return str(self.problem["code"])

    @property
    def shape(self) -> tuple[Any, ...]:
        """All of it but when it came, its random id and when to ask again."""
        own = {"date", "x-request-id", "retry-after"}
        headers = {name: value for name, value in self.headers.items() if name not in own}
        return self.status, headers, list(headers), self.body

    def expect(self, status: int, code: str | None = None) -> Self:
        """This answer, which has this status, and this code where it is a problem."""
        assert self.status == status, (self.status, self.body[:500])
        assert code is None or self.code == code, self.problem
        return self

    def message(self, kind: type[T]) -> T:
        assert self.headers["content-type"] == codec.MESSAGE, self
        return codec.decode(kind, self.body, 2**25)


class Address(Protocol):
    """Where a broker is: a process, or a proxy before several."""

    api_key: uuid.UUID

    @property
    def port(self) -> int: ...

    @property
    def url(self) -> str: ...

    @property
    def origin(self) -> str: ...


@dataclass
class Wire:
    """Requests by hand over one connection, with the headers of the protocol unless told otherwise.

    A header of None is left out. One `Wire` is for one thread.
    """

    broker: Address
    application: str = "tests"
    token: str | None = None
    device_pass: bytes | None = None
    """What the last log-in brought; sent with a guess that is told to."""
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)
    _used: float = field(default=0.0, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.broker.port, timeout=PATIENCE)

    def headers(self, changes: Mapping[str, str | None] = {}) -> dict[str, str]:
        found: dict[str, str | None] = {
            codec.PROTOCOL_HEADER: codec.PROTOCOL,
            codec.API_KEY_HEADER: str(self.broker.api_key),
            codec.APPLICATION_HEADER: urllib.parse.quote(self.application),
            "Authorization": None if self.token is None else f"Bearer {self.token}",
        }
        found.update(changes)
        return {name: value for name, value in found.items() if value is not None}

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str | None] = {},
    ) -> Answer:
        """One request; bytes that come in an iterable go out in chunks of their own."""
        if isinstance(self.broker, InProcess):
            url = self.broker.url + path
            return answered(self.broker, url, method, body, self.headers(headers))
        if time.monotonic() - self._used > _IDLE_SECONDS:
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        chunked = body is not None and not isinstance(body, bytes)
        try:
            self._connection.request(
                method, path, body, self.headers(headers), encode_chunked=chunked
            )
            answer = self._connection.getresponse()
            found = Answer(
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read(),
            )
        except BaseException:
            self.close()
            raise
        if answer.will_close:
            self.close()
        self._used = time.monotonic()
        return found

    def call(
        self,
        method: str,
        path: str,
        message: Message | Mapping[str, object] | bytes | None = None,
        **headers: str | None,
    ) -> Answer:
        """A request with a message: a Message, a mapping that may be wrong, or its very bytes.

        Further headers are named with underscores for hyphens.
        """
        body = message
        if message is not None and not isinstance(message, bytes):
            body = msgspec.msgpack.encode(message)
        assert body is None or isinstance(body, bytes)
        changes = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            changes = {"Content-Type": codec.MESSAGE, **changes}
        return self.send(method, path, body, changes)

    def register(
        self,
        ring: KeyRing,
        *,
        auth: bytes | None = None,
        key_file: bytes | None = None,
        reminder: str | None = None,
        time: int | None = None,
    ) -> Answer:
        """Registers a KeyRing under an `auth` and a KeyFile that nobody has to be able to open."""
        records = ring.first_records(clock() if time is None else time)
        return self.call(
            "POST",
            "/v1/users",
            u.Registration(
                keyRecords=[SignedObject.of(signed) for signed in records],
                keyFile=random_bytes(64) if key_file is None else key_file,
                auth=random_bytes(32) if auth is None else auth,
                reminder=reminder,
            ),
        )

    def nonce(self) -> bytes:
        answer = self.call("POST", "/v1/session-challenges", {}).expect(200)
        return answer.message(u.Challenge).nonce

    def log_in_request(
        self,
        ring: KeyRing,
        nonce: bytes | None = None,
        origin: str | None = None,
        key_index: int | None = None,
    ) -> u.SessionRequest:
        """A log-in, signed by the latest key of the KeyRing or by another."""
        index = len(ring.signing) - 1 if key_index is None else key_index
        statement = encode_object(
            u.Statement(
                self.broker.origin if origin is None else origin,
                ring.rawFingerprint,
                index,
                self.nonce() if nonce is None else nonce,
            )
        )
        signature = ring.signing[index].sign(u.SESSION_LABEL, statement)
        return u.SessionRequest(statement=statement, signature=signature)

    def log_in(self, ring: KeyRing) -> Self:
        """Begins a session of this user, which all further requests carry."""
        answer = self.call("POST", "/v1/sessions", self.log_in_request(ring)).expect(201)
        session = answer.message(u.Session)
        self.token, self.device_pass = session.token, session.devicePass
        return self

    def open_key_file(
        self,
        user: uuid.UUID,
        auth: bytes,
        device_pass: bytes | None = None,
        address: str | None = None,
    ) -> Answer:
        """Guesses at a passphrase, from another address where the broker trusts this one as a proxy."""
        message = u.KeyFileOpening(auth=auth, devicePass=device_pass)
        path = f"/v1/users/{user}/key-file/open"
        return self.call("POST", path, message, X_Forwarded_For=address)
