"""HTTP to one broker: bounded, strict, retried where the protocol lets it. Spec: docs/spec/protocol.md.

Every request may be sent again with the same bytes, so a lost answer is asked for again here: for a
minute where this broker has answered before, since one that was killed or moved comes back; four
times where it never did, since the address may be wrong. One that is overloaded is asked again after the
time that it says and then ever later, the less often the more it refuses. No redirect is followed, no
cookie kept, no encoding undone; tokens go to the configured origin alone.
"""

from __future__ import annotations

import asyncio
import functools
import re
import secrets
import ssl
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import tenacity

from scbroker.client.calls.io_thread import inherited, io_thread
from scbroker.client.http.bodies import PIECE, pieces, read, read_into
from scbroker.client.http.object_store import ObjectStore, checked_origins
from scbroker.crypto.seal import Octets
from scbroker.errors import (
    BrokerError,
    BrokerFaultError,
    InvalidArgumentError,
    OverloadedError,
    UnreachableError,
    UnsupportedVersionError,
)
from scbroker.wire import codec
from scbroker.wire.codec import Message
from scbroker.wire.origin import canonical_origin
from scbroker.wire.problems import MAX_PROBLEM, error_of

if TYPE_CHECKING:
    import aiohttp

M = TypeVar("M", bound=Message)
T = TypeVar("T")
MAX_ANSWER: Final = 16 * 1_048_576
_BASE_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*/?")
_RETRIED: Final = (UnreachableError, OverloadedError)
_ATTEMPTS: Final = 4
# Longer than a database takes to move to another machine.
_PATIENCE: Final = 60.0
_LONGEST_WAIT: Final = 10.0
"""Seconds. A broker that says to wait for longer is not waited for here: the caller is told."""
_CONNECTIONS: Final = 32
_SPARE_RETRIES: Final = 128.0
_EARNED: Final = 1 / 8
"""A retry is earned by eight answers: refusals make an eighth more requests, not many times as many."""
_GROWING: Final = tenacity.wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1)


def _told(state: tenacity.RetryCallState) -> float:
    """How many seconds the broker said to wait, if it did."""
    error = state.outcome.exception() if state.outcome is not None else None
    return (error.retryAfter or 0.0) if isinstance(error, OverloadedError) else 0.0


def _wait(state: tenacity.RetryCallState) -> float:
    """What the broker says, twice that the next time, and up to half as long again: not all come at once."""
    told = _told(state)
    longer = max(told, min(told * 2.0 ** (state.attempt_number - 1), _LONGEST_WAIT))
    return max(_GROWING(state), longer * (1 + secrets.randbelow(1001) / 2000))


_RETRYING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception_type(_RETRIED),
    wait=_wait,
    reraise=True,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is and how to reach it."""

    url: str
    apiKey: uuid.UUID
    applicationName: str
    ssl: ssl.SSLContext | None
    proxy: str | None
    timeout: float
    stores: frozenset[str] = frozenset()
    """The object stores that the caller lets chunks go to and come from."""

    @property
    def origin(self) -> str:
        """Return the canonical origin, without the path: sessions are bound to the origin alone."""
        return canonical_origin(urllib.parse.urljoin(self.url, "/"))


def checked_endpoint(
    apiKey: object,
    serverUrl: object,
    applicationName: object,
    ssl_context: ssl.SSLContext | None,
    proxy: str | None,
    timeout: object,
    stores: object = (),
) -> Endpoint:
    """The endpoint of a provider's arguments; `InvalidArgumentError` says which is wrong."""
    key = apiKey
    if isinstance(key, str):
        try:
            key = uuid.UUID(key)
        except ValueError:
            key = None
    if not isinstance(key, uuid.UUID):
        raise InvalidArgumentError(
            "apiKey is a UUID or its text, as the broker's operator gave it."
        )
    url = _checked_url(serverUrl)
    if not isinstance(applicationName, str):
        raise InvalidArgumentError(
            f"applicationName must be a str, not {type(applicationName).__name__}."
        )
    codec.check_application(applicationName)
    quoted = urllib.parse.quote(applicationName, safe=" ")
    if len(quoted) > codec.MAX_APPLICATION:
        raise InvalidArgumentError("applicationName is longer than 256 characters, encoded.")
    if not isinstance(ssl_context, ssl.SSLContext | None):
        raise InvalidArgumentError(
            "ssl is an ssl.SSLContext, or None for the system's authorities."
        )
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidArgumentError("timeout is a number of seconds above 0.")
    origins = checked_origins(stores)
    return Endpoint(url, key, quoted, ssl_context, proxy, float(timeout), origins)


def _checked_url(serverUrl: object) -> str:
    """Return the address without a slash at its end: an origin, and a path if the broker is below one.

    Each path of the protocol is appended to it. Query, fragment, escapes and dot segments are refused:
    a proxy could normalize them, and the request would reach another path than the one meant.
    """
    if isinstance(serverUrl, urllib.parse.SplitResult | urllib.parse.ParseResult):
        return _checked_url(serverUrl.geturl())
    if not isinstance(serverUrl, str):
        raise InvalidArgumentError(
            "serverUrl must be text, as https://broker.example, or what urllib.parse.urlsplit or "
            f"urlparse returned, not {type(serverUrl).__name__}"
        )
    scheme, _, rest = serverUrl.partition("://")
    authority, slash, path = rest.partition("/")
    canonical_origin(f"{scheme}://{authority}")
    if "?" in authority or "#" in authority or not _BASE_PATH.fullmatch(slash + path):
        raise InvalidArgumentError(
            "serverUrl must be an origin and, where the broker is under one, a plain path: letters, "
            "digits and -._~ between single slashes, without '.' and '..', as https://example.org/broker"
        )
    return serverUrl.removesuffix("/")


class Transport:
    """Requests to one broker; lives on scbroker's own thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._http: aiohttp.ClientSession | None = None
        self.store: ObjectStore = ObjectStore(endpoint)
        self.failures: int = 0
        """Requests that were sent again: the connections of before may still be sending."""
        self._spare = _SPARE_RETRIES
        self._has_answered = False
        io_thread.bound(self)

    @property
    def all_failures(self) -> int:
        """The same with those to object stores."""
        return self.failures + self.store.failures

    def after_fork(self) -> None:
        """Leaves the parent's connections to the parent: the next request opens its own."""
        if self._http is not None:
            inherited.append(self._http.connector)
            self._http.detach()
        self._http = None

    async def call(
        self,
        method: str,
        path: str,
        answer: type[M],
        *,
        message: Message | None = None,
        token: str | None = None,
        query: Mapping[str, str | list[str]] | None = None,
        limit: int = MAX_ANSWER,
    ) -> M:
        """Sends a message, gives the answer's."""
        body = None if message is None else codec.encode(message)
        data = await self._send(method, path, body, codec.MESSAGE, token, query, limit)
        try:
            return codec.decode(answer, bytes(data), limit)
        except InvalidArgumentError as error:
            raise BrokerFaultError(f"The broker's answer is not of the protocol: {error}") from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        message: Message | None = None,
        octets: Octets | None = None,
        token: str | None = None,
        query: Mapping[str, str | list[str]] | None = None,
        limit: int = 0,
    ) -> bytes:
        """Sends a message or octets, gives octets, at most `limit`."""
        body = octets if message is None else codec.encode(message)
        media_type = codec.OCTETS if message is None else codec.MESSAGE
        return bytes(await self._send(method, path, body, media_type, token, query, limit))

    async def fetch(
        self,
        path: str,
        target: memoryview,
        *,
        token: str | None = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> int:
        """Gets octets into a buffer, never more than it holds; gives their number."""
        return len(
            await self._send("GET", path, None, codec.OCTETS, token, query, len(target), target)
        )

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        await self.store.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: Octets | None,
        media_type: str,
        token: str | None,
        query: Mapping[str, str | list[str]] | None,
        limit: int,
        target: memoryview | None = None,
    ) -> Octets:
        headers = {
            codec.PROTOCOL_HEADER: codec.PROTOCOL,
            codec.API_KEY_HEADER: str(self.endpoint.apiKey),
            codec.APPLICATION_HEADER: self.endpoint.applicationName,
        }
        if body is not None:
            headers["Content-Type"] = media_type
            headers["Content-Length"] = str(len(body))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = self.endpoint.url + path
        if query:
            url += "?" + urllib.parse.urlencode(query, doseq=True)
        once = functools.partial(self._once, method, url, headers, body, limit, target)
        failures: list[BrokerError] = []
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                return await self._retried(once, failures)
        except TimeoutError:
            if failures:
                raise failures[-1].fresh() from None
            raise UnreachableError(
                f"No answer from {self.endpoint.origin} within {self.endpoint.timeout:g} seconds."
            ) from None

    async def _retried(self, once: Callable[[], Awaitable[T]], failures: list[BrokerError]) -> T:
        """Again and again as `_RETRYING` says; what succeeds at once costs nothing of it.

        `failures` gets what went wrong, the latest last.
        """
        try:
            answer = await once()
        except _RETRIED as error:
            first: BrokerError | None = error

        else:
            self._spare = min(self._spare + _EARNED, _SPARE_RETRIES)
            return answer

        async def attempt() -> T:
            nonlocal first
            failure, first = first, None
            try:
                if failure is not None:
                    raise failure
                return await once()
            except _RETRIED as error:
                failures[:] = [error]
                raise

        self.failures += 1
        return await _RETRYING.copy(stop=self._gives_up)(attempt)

    def _gives_up(self, state: tenacity.RetryCallState) -> bool:
        """Whether the caller is told now: it was tried enough, or there is no time or no retry left."""
        passed = max(state.idle_for, state.seconds_since_start or 0.0) + state.upcoming_sleep
        if _told(state) > _LONGEST_WAIT or passed > self.endpoint.timeout:
            return True
        impatient = not self._has_answered or passed > _PATIENCE
        if impatient and state.attempt_number >= _ATTEMPTS:
            return True
        error = state.outcome.exception() if state.outcome is not None else None
        if not isinstance(error, OverloadedError):
            return False
        if self._spare < 1:
            return True
        self._spare -= 1
        return False

    async def _once(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: Octets | None,
        limit: int,
        target: memoryview | None = None,
    ) -> Octets:
        import aiohttp
        from yarl import URL

        try:
            async with self._client().request(
                method,
                URL(url, encoded=True),
                data=body if body is None or len(body) <= PIECE else pieces(memoryview(body)),
                headers=headers,
                allow_redirects=False,
                proxy=self.endpoint.proxy,
            ) as response:
                _check_version(response)
                self._has_answered = True
                if response.status < 300:
                    if target is not None:
                        return await read_into(response, target)
                    return await read(response, limit)
                retry_after = response.headers.get("Retry-After")
                problem = await read(response, MAX_PROBLEM)
                raise error_of(response.status, problem, retry_after)
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or "it does not verify"
            raise UnreachableError(
                f"The certificate of {self.endpoint.origin} was refused: {why}. For an authority of "
                "your own, pass ssl=ssl.create_default_context(cafile=...)."
            ) from None
        except aiohttp.ClientError as error:
            raise UnreachableError(
                f"No broker answers at {self.endpoint.origin} ({type(error).__name__}): check "
                "serverUrl, the network, and whether the broker runs."
            ) from None

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            import aiohttp

            io_thread.close_at_exit(self)
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self.endpoint.ssl or True)
            self._http = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60),
                skip_auto_headers=["User-Agent", "Accept-Encoding"],
                read_bufsize=PIECE,
            )
        return self._http


def _check_version(response: aiohttp.ClientResponse) -> None:
    spoken = response.headers.getall(codec.PROTOCOL_HEADER, [])
    if spoken == [codec.PROTOCOL]:
        return
    if not spoken and response.status in (502, 503, 504):
        raise UnreachableError("A proxy answers in the broker's place: is the broker running?")
    if 300 <= response.status < 400:
        raise UnsupportedVersionError(
            "The address redirects, which is never followed: set serverUrl to the broker's own."
        )
    what = f"version {spoken[0][:20]!r} of the protocol" if spoken else "no version of the protocol"
    raise UnsupportedVersionError(
        f"What answers there speaks {what}, this program {codec.PROTOCOL}: check serverUrl, or "
        "update the older of the two."
    )
