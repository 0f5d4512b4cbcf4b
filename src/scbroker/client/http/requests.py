"""Send requests to one broker and its object stores, with limits and checks; retry where the protocol allows.

Every request to the broker may be sent again with the same bytes, so this module retries after a lost answer:
for a minute if this broker has answered before, since a broker that was killed or moved comes back; four
times if it never did, since the address may be wrong. An overloaded broker is retried after the time that it
names, then after longer pauses, and from a budget that answers refill. Tokens go to the configured origin
alone.

A presigned URL comes from the broker and is not trusted: it is used only if its origin is one that the caller
allows. The store learns the sealed bytes and the URL, and nothing of the session: a request carries no header
of ours, and no more is read than was asked for. A client certificate in the caller's `ssl` is presented to a
store that asks for one. Spec: docs/spec/protocol.md, sections 1, 2 and 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import itertools
import logging
import os
import secrets
import time
import urllib.parse
import uuid
from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack

from scbroker import errors, tracing
from scbroker.client.http.transport import (
    PIECE,
    AiohttpTransport,
    Body,
    Endpoint,
    Response,
    Transport,
    transport_to,
)
from scbroker.crypto.seal import Octets
from scbroker.records.container_record import SEGMENT
from scbroker.wire import codec
from scbroker.wire.codec import Message
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK
from scbroker.wire.problems import MAX_PROBLEM, error_of, seconds_of

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL


_KEPT_SECONDS: Final = 1.0


class Buffers:
    """At most `count` buffers of `size` bytes, for all transfers together.

    They are reused: allocating memory for every chunk would cost more than sealing and hashing it. They are
    freed `kept_seconds` after the last transfer has ended, so that files which follow one another reuse them
    too; with 0 at once, for memory that no other transfer can use.
    """

    def __init__(self, count: int, size: int, *, kept_seconds: float = _KEPT_SECONDS) -> None:
        self._size, self._kept_seconds = size, kept_seconds
        self._free: list[memoryview] = []
        self._available = asyncio.Semaphore(count)
        self._transfers = 0
        self._freeing: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def transfer(self) -> Iterator[Taken]:
        """Let one transfer take buffers; others may replace those that it has not given back at its end."""
        taken, loop = Taken(self._available, self._free, self._size), asyncio.get_running_loop()
        self._transfers += 1
        if self._freeing is not None:
            self._freeing.cancel()
            self._freeing = None
        try:
            yield taken
        finally:
            taken.end()
            self._transfers -= 1
            if not self._transfers:
                if self._kept_seconds:
                    self._freeing = loop.call_later(self._kept_seconds, self.free)
                else:
                    self.free()

    def free(self) -> None:
        """Free the buffers that no transfer has."""
        self._free.clear()


class Taken:
    """The buffers of one transfer."""

    def __init__(self, available: asyncio.Semaphore, free: list[memoryview], size: int) -> None:
        self._available, self._free, self._size = available, free, size
        self._count = 0

    async def take(self) -> memoryview:
        """Return a buffer; wait while all are in use. Waiting transfers are served in order."""
        await self._available.acquire()
        self._count += 1
        return self._free.pop() if self._free else memoryview(bytearray(self._size))

    def give_back(self, buffer: memoryview | None) -> None:
        """Let any transfer use the buffer; None if a thread may still use it, so that none gets it."""
        if buffer is not None:
            self._free.append(buffer)
        self._count -= 1
        self._available.release()

    def end(self) -> None:
        """Let other transfers allocate new buffers in place of those that were not given back."""
        while self._count:
            self.give_back(None)


_log = logging.getLogger("scbroker")
M = TypeVar("M", bound=Message)
Query = Mapping[str, str | list[str]]
Moved = Callable[[int], None]
"""A function that takes the number of bytes of a body that an attempt has sent or received so far."""
MAX_ANSWER: Final = 16 * 1_048_576
CHUNKS_AT_ONCE: Final = 4
"""As many as the broker serves one user at once."""
_SMALLEST_PIECE: Final = 16_384
_PIECES: Final = 8
"""Least number of pieces in which a body with reported progress is sent, unless they would be too small."""
_ATTEMPTS: Final = 4
_PATIENCE: Final = 60.0
"""Seconds for which a broker that has answered before is retried. A database takes less to fail over."""
_LONGEST_WAIT: Final = 10.0
"""Seconds. If a broker names a longer wait, the request is not retried: the caller gets the error at once."""
_RETRY_BUDGET: Final = 128.0
"""Retries after refusals that a provider starts with, and the most that it may save up."""
_EARNED: Final = 1 / 8
"""Retries that each answer adds to the budget, so that refusals cause no more than 1/8 additional
requests."""
_LOG_SECONDS: Final = 10.0
"""Seconds after a logged retry in which further retries are not logged."""
_MISSING: Final = (404, 416)
_HTTPS: Final = "If this port expects TLS, use https:// in serverUrl."
_SOON_ATTEMPTS: Final = 2
_SOON: Final = 5.0
"""Seconds after which a request inside `answered_soon` is given up."""
_UNSENT_HEADERS: Final = ("User-Agent", "Accept-Encoding")
_SILENT_SECONDS: Final = 45.0
"""Seconds of silence after which a wait is given up: three heartbeats are missing, one every 15 seconds."""
_soon: Final = contextvars.ContextVar("soon", default=False)


class Options(TypedDict, total=False):
    """The keywords of `Requests.send`, without the token."""

    message: Message | None
    octets: Octets | None
    query: Query | None
    limit: int
    target: memoryview | None
    moved: Moved | None


@contextlib.contextmanager
def answered_soon() -> Iterator[None]:
    """Give up the block's requests after two attempts or 5 seconds: the caller has another source.

    Segments of a large content get their time: the view that comes before them was answered soon.
    """
    before = _soon.set(True)
    try:
        yield
    finally:
        _soon.reset(before)


def query_of(group: uuid.UUID | str | None) -> Query:
    """Return the query of a request through this group; an empty one if the user acts alone."""
    return {} if group is None else {"via": str(group)}


def pause_before_retry(error: errors.BrokerUnavailableError, attempt: int) -> float:
    """Return how many seconds to wait after the attempt of this number, the first being 1.

    The wait doubles, from 0.1 s up to 2 s, or from the broker's `Retry-After` up to 10 s. The random part
    keeps clients that were refused together from coming back together.
    """
    growth = 2.0 ** (attempt - 1)
    named = error.retryAfter or 0.0
    longer = max(named, min(named * growth, _LONGEST_WAIT))
    return max(min(0.1 * growth + _random() / 10, 2.0), longer * (1 + _random() / 2))


def _random() -> float:
    return secrets.randbelow(1001) / 1000


class RetryLog:
    """Log that a provider's requests are retried: the first retry, then at most one in ten seconds.

    The reason is an error's message, which contains no secret and no presigned URL.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._has_warned = False

    def retry(self, why: BaseException, pause: float) -> None:
        """Note that a request is sent again after a pause in seconds."""
        if (now := monotonic()) >= self._next:
            self._next, self._has_warned = now + _LOG_SECONDS, True
            _log.warning("A request failed and is sent again in %.1f s: %s", pause, why)

    def success(self, seconds: float) -> None:
        """Note that a request was answered after it was retried for some seconds."""
        if self._has_warned:
            self._has_warned = False
            _log.info("A request that was sent again was answered after %.1f s", seconds)


class StoreError(Exception):
    """The object store did not carry out a request. The message does not contain the URL.

    `missing` is true if the store has no such object, or not so many bytes of it.
    """

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


class ObjectStore:
    """Requests to object stores by presigned URLs, without the session's token or name."""

    unsent_headers: tuple[str, ...] = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._transport: Transport = AiohttpTransport(endpoint, 16, self.unsent_headers)

    async def close(self) -> None:
        await self._transport.close()

    async def put(self, url: URL, body: memoryview, moved: Moved | None = None) -> None:
        """Store an object; raise `StoreError` if the store does not."""
        with tracing.sent("object store PUT"):  # a presigned URL allows no header of ours
            await self._send("PUT", url, {"Content-Length": str(len(body))}, body, None, moved)

    async def get(
        self, url: URL, start: int, target: memoryview, moved: Moved | None = None
    ) -> int:
        """Read an object's bytes from `start` on into a buffer, and return their number.

        It is smaller than the buffer at the object's end. Raises `StoreError`.
        """
        headers = {"Range": f"bytes={start}-{start + len(target) - 1}"}
        with tracing.sent("object store GET"):
            return await self._send("GET", url, headers, None, target, moved)

    async def _send(
        self,
        method: str,
        url: URL,
        headers: dict[str, str],
        body: Octets | None,
        target: memoryview | None,
        moved: Moved | None,
    ) -> int:
        import aiohttp

        sent = moved if target is None else None
        try:
            with _sendable(body, sent) as data:
                async with self._transport.request(method, url, headers, data) as response:
                    status = response.status
                    if target is not None and status == 206:
                        return len(await _read_into(response, target, moved))
                    if target is not None or status not in (200, 201, 204):
                        response.close()
                        raise StoreError(f"status {status}", missing=status in _MISSING)
                    return 0
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise StoreError(type(error).__name__) from None


class Requests:
    """Requests to one broker."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._transport = transport_to(endpoint, 32, _UNSENT_HEADERS)
        # Requests that wait for an event have their own connections, so that others need not wait.
        self._waits = transport_to(endpoint, 0, _UNSENT_HEADERS, _SILENT_SECONDS)
        self.store: ObjectStore = ObjectStore(endpoint)
        self.retry_log: RetryLog = RetryLog()
        self._budget = _RETRY_BUDGET
        self._has_answered = False
        self._dated: tuple[str, int] = "", 0
        """The time in the broker's newest answer, and this machine's time when it came, in nanoseconds."""
        # One more sealed buffer than chunks on the wire: it is filled or opened meanwhile.
        self.sealed: Buffers = Buffers(CHUNKS_AT_ONCE + 1, MAX_CHUNK)
        self.plain: Buffers = Buffers(CHUNKS_AT_ONCE, CHUNK_SEGMENTS * SEGMENT)

    async def call(
        self,
        method: str,
        path: str,
        answer: type[M],
        *,
        token: str | None = None,
        **options: Unpack[Options],
    ) -> M:
        """Make a request; return the answer's message."""
        limit = options.setdefault("limit", MAX_ANSWER)
        data = await self.send(method, path, token=token, **options)
        try:
            return codec.decode(answer, bytes(data), limit)
        except errors.InvalidArgumentError as error:
            fault = errors.BrokerFaultError(
                f"The broker's answer does not follow the protocol: {error}"
            )
            message = options.get("message")
            if message is not None and message.is_act:
                fault.outcome = errors.WriteOutcome.Uncertain
            raise fault from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        message: Message | None = None,
        octets: Octets | None = None,
        query: Query | None = None,
        limit: int = 0,
        target: memoryview | None = None,
        moved: Moved | None = None,
    ) -> Octets:
        """Send a message or octets, or neither; return the answer's octets.

        The answer has at most `limit` bytes, or is read into `target`, which is faster than allocating.
        `moved` is called for the bytes read into `target`, or without `target` for the bytes sent.
        """
        body = octets if message is None else codec.encode(message)
        headers = self._headers(token)
        if body is not None:
            headers["Content-Type"] = codec.OCTETS if message is None else codec.MESSAGE
            headers["Content-Length"] = str(len(body))
        url = self._url(path, query)
        once = functools.partial(self._once, method, url, headers, body, limit, target, moved)
        is_act = message is not None and message.is_act
        return await self._until_answered(once, is_act=is_act, soon=_soon.get() and target is None)

    async def wait(self, path: str, seconds: float, query: Query, *, token: str) -> Octets:
        """Send a request whose answer takes long to end; return the answer's octets.

        It is not retried: the caller decides when to ask again. Raises `UnreachableError` after `seconds`.
        """
        url, headers = self._url(path, query), self._headers(token)
        try:
            async with asyncio.timeout(seconds):
                return await self._once(
                    "GET", url, headers, None, MAX_ANSWER, None, None, self._waits
                )
        except TimeoutError:
            raise errors.UnreachableError(
                f"The answer of {self.endpoint.origin} does not end."
            ) from None

    @property
    def lag(self) -> int:
        """Return the microseconds that this clock was behind the broker's at the newest answer."""
        date, then = self._dated
        try:
            return max(0, round(parsedate_to_datetime(date).timestamp() * 1e6) - then // 1000)
        except (TypeError, ValueError, OverflowError):
            return 0

    def _headers(self, token: str | None) -> dict[str, str]:
        headers = {
            codec.PROTOCOL_HEADER: codec.PROTOCOL,
            codec.API_KEY_HEADER: str(self.endpoint.apiKey),
            codec.APPLICATION_HEADER: self.endpoint.applicationName,
        }
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _url(self, path: str, query: Query | None) -> str:
        url = self.endpoint.url + path
        return url + "?" + urllib.parse.urlencode(query, doseq=True) if query else url

    async def close(self) -> None:
        """Close the connections to the broker and to object stores."""
        for each in (self._transport, self._waits, self.store):
            await each.close()

    async def _until_answered(
        self, once: Callable[[], Awaitable[Octets]], *, is_act: bool, soon: bool
    ) -> Octets:
        """Send a request until it is answered; raise the last failure once retrying is over.

        If any attempt to send an act (a message that changes something) may have left this device, the
        error's `outcome` is uncertain: a refusal by the broker proves nothing.
        """
        seconds = min(self.endpoint.timeout, _SOON) if soon else self.endpoint.timeout
        failure: errors.BrokerUnavailableError | None = None
        may_have_left = False
        started = monotonic()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    for attempt in itertools.count(1):
                        before, may_have_left = may_have_left, True
                        try:
                            answer = await once()
                        except (errors.UnreachableError, errors.OverloadedError) as error:
                            failure = error
                            if isinstance(error, errors.UnreachableError):
                                may_have_left = before or error.sent
                            pause = pause_before_retry(error, attempt)
                            is_last = soon and attempt >= _SOON_ATTEMPTS
                            spent = monotonic() - started + pause
                            if is_last or not self._may_retry(error, attempt, spent):
                                raise
                            if isinstance(error, errors.OverloadedError):
                                self._budget -= 1
                        else:
                            self._budget = min(self._budget + _EARNED, _RETRY_BUDGET)
                            if failure is not None:
                                self.retry_log.success(monotonic() - started)
                            return answer
                        self.retry_log.retry(failure, pause)
                        await sleep(pause)
            if failure is not None:
                raise failure.fresh()
            raise errors.UnreachableError(
                f"No answer from {self.endpoint.url} within {seconds:g} seconds: "
                "check the network, or set a longer timeout."
            )
        except errors.BrokerError as error:
            if is_act and may_have_left:
                error.outcome = errors.WriteOutcome.Uncertain
            raise

    def _may_retry(
        self, error: errors.BrokerUnavailableError, attempt: int, seconds: float
    ) -> bool:
        """Return whether to send again, `seconds` after the first attempt began."""
        if (error.retryAfter or 0.0) > _LONGEST_WAIT or seconds > self.endpoint.timeout:
            return False
        is_patient = self._has_answered and seconds <= _PATIENCE
        if attempt >= _ATTEMPTS and not is_patient:
            return False
        return self._budget >= 1 or not isinstance(error, errors.OverloadedError)

    async def _once(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: Octets | None,
        limit: int,
        target: memoryview | None,
        moved: Moved | None = None,
        transport: Transport | None = None,
    ) -> Octets:
        import aiohttp
        from yarl import URL

        way, at = transport or self._transport, URL(url, encoded=True)
        sent = moved if target is None else None
        try:
            with tracing.sent(f"broker {method}", headers) as span, _sendable(body, sent) as data:
                async with way.request(method, at, headers, data) as response:
                    request_id = _request_id(response)
                    span.end(response.status, request_id)
                    if codec.PROTOCOL_HEADER not in response.headers:
                        size = len(body or b"")
                        raise _unmarked(response, self.endpoint.url, size, self._has_answered)
                    _check_version(response, self.endpoint.url)
                    self._has_answered = True
                    self._dated = response.headers.get("Date", ""), time.time_ns()
                    if response.status < 300:
                        if target is not None:
                            return await _read_into(response, target, moved)
                        return await read(response, limit)
                    retry_after = response.headers.get("Retry-After")
                    problem = await read(response, MAX_PROBLEM)
                    refusal = error_of(response.status, problem, retry_after)
                    refusal.requestId = request_id
                    raise refusal
        except aiohttp.ClientError as error:
            raise errors.UnreachableError(
                _why_unreachable(error, self.endpoint.url, self._has_answered),
                sent=not isinstance(error, aiohttp.ClientConnectorError),
            ) from None


def _why_unreachable(error: aiohttp.ClientError, url: str, has_answered: bool) -> str:
    """Return the message for a request that got no answer: the likely cause, and what to check.

    `has_answered` is whether a broker has answered at this address before.
    """
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or "it does not verify"
        return (
            f"The certificate of {url} was refused: {why}. For an authority of your own, set "
            "SSL_CERT_FILE to a file with its certificate, or pass ssl="
            "ssl.create_default_context(cafile=...)."
        )
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return (
            f"The server at {url} does not speak TLS, or no version that this machine allows: check the "
            "port of serverUrl. If the broker is on this machine and has no TLS, use http:// in serverUrl."
        )
    why, check = type(error).__name__, "check serverUrl, the network, and whether the broker runs."
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        why = "its host name is unknown"
    elif isinstance(error, aiohttp.ClientProxyConnectionError):
        why, check = "the proxy cannot be reached", "check proxy."
    elif isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        why = os.strerror(number).lower() if number else "no connection could be made"
    elif isinstance(error, aiohttp.ServerTimeoutError):
        why = "it was silent for too long"
    else:
        if isinstance(error, aiohttp.ServerConnectionError | aiohttp.ClientOSError):
            why = "the connection was closed"
        elif isinstance(error, aiohttp.ClientPayloadError):
            why = "the answer was cut off"
        elif isinstance(error, aiohttp.ClientResponseError):
            why = "the answer is not HTTP"
        if url.startswith("http:") and not has_answered:
            check += f" {_HTTPS}"
    return f"No broker answers at {url} ({why}): {check}"


@contextlib.contextmanager
def _sendable(body: Octets | None, moved: Moved | None) -> Iterator[Body]:
    """Provide a body for a transport. The body's memory may be reused afterwards, also after an error.

    A server may answer before it has the whole body, and read the rest later: what the memory holds by then
    must not reach it. So a transport gets copies, and a released view yields no more.
    """
    if body is None:
        yield None
        return
    with memoryview(body) as view:
        yield _pieces(view, moved) if moved is not None or len(body) > PIECE else bytes(body)


async def _pieces(body: memoryview, moved: Moved | None) -> AsyncIterator[memoryview]:
    """Yield copies of a large body's pieces, so that no single write blocks the event loop."""
    total = len(body)
    size = PIECE if moved is None else min(PIECE, max(total // _PIECES, _SMALLEST_PIECE))
    for start in range(0, total, size):
        # Not bytes: asyncio would copy the part of them that it could not write at once.
        yield memoryview(bytes(body[start : start + size]))
        if moved is not None:  # the transport has given the piece to the connection
            moved(min(start + size, total))


async def _read_into(
    response: Response, target: memoryview, moved: Moved | None = None
) -> memoryview:
    """Read a body into a buffer; return the part that was filled."""
    size = 0
    async for piece in response.pieces:
        if size + len(piece) > len(target):
            raise _too_large(len(target))
        target[size : size + len(piece)] = piece
        size += len(piece)
        if moved is not None:
            moved(size)
    return target[:size]


async def read(response: Response, limit: int) -> bytes:
    """Read a body, never more than `limit` bytes of it into memory."""
    found, size = [], 0
    async for piece in response.pieces:
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        found.append(piece)
    return found[0] if len(found) == 1 else b"".join(found)


def check_order(ids: Sequence[str], after: object, following: str | None, most: int) -> None:
    """Raise unless a page has at most `most` ids, which rise from its cursor on to the next one, if any."""
    cursor = [] if after is None else [str(after)]
    rises = all(one < other for one, other in itertools.pairwise([*cursor, *ids]))
    if not rises or len(ids) > most or following not in (None, *ids[-1:]):
        raise errors.BrokerFaultError(
            "The broker's list is not in the order of ids, does not continue after the last page, or has "
            "more items than requested."
        )


def _too_large(limit: int) -> errors.TooLargeError:
    return errors.TooLargeError(
        f"The broker's answer has more than the {limit} bytes that are allowed."
    )


def _request_id(response: Response) -> str | None:
    """Return the id that the broker gave the request; None without one, or if it has invalid characters."""
    given = response.headers.getall(codec.REQUEST_ID_HEADER, [])
    return given[0] if len(given) == 1 and codec.is_request_id(given[0]) else None


def _unmarked(response: Response, url: str, size: int, has_answered: bool) -> errors.BrokerError:
    """Return the error for an answer without the protocol's header, so not of a broker.

    `size` is the length of the request's body. If a broker `has_answered` at this address before, a proxy
    answered now; otherwise the address may be wrong. 429, 408 and 5xx are retried in either case.
    """
    status, wait = response.status, seconds_of(response.headers.get("Retry-After"))
    proxy = f"A proxy in between answered {status}"
    if status == 429:
        return errors.OverloadedError(
            f"{proxy}: it limits requests. Send fewer at once, or ask its operator for more.", wait
        )
    if status == 408 or status >= 500:
        return errors.UnreachableError(f"{proxy}: check whether the broker runs.", wait)
    if has_answered and status == 413:
        return errors.TooLargeError(
            f"{proxy}: its limit of bodies (client_max_body_size) is below the {size} bytes of this "
            "request. Ask its operator to allow 9 MiB."
        )
    if has_answered:
        return errors.UnreachableError(
            f"{proxy} in the broker's place: log in to this network if it asks for that, or ask the "
            "operator of the proxy to pass on all requests below /v1/.",
            6 * _LONGEST_WAIT,
        )
    if 300 <= status < 400:
        return errors.UnsupportedVersionError(
            "serverUrl redirects, and redirects are not followed: set it to the broker's own address."
        )
    hint = f" {_HTTPS}" if url.startswith("http:") else ""
    return errors.UnsupportedVersionError(
        f"The server at {url} is not a broker: its answer (status {status}) has no version of the "
        f"protocol. Check serverUrl.{hint}"
    )


def _check_version(response: Response, url: str) -> None:
    spoken = response.headers.getall(codec.PROTOCOL_HEADER)
    if spoken == [codec.PROTOCOL]:
        return
    raise errors.UnsupportedVersionError(
        f"The broker at {url} speaks version {spoken[0][:20]!r} of the protocol, and this program "
        f"{codec.PROTOCOL}: update the older of the two."
    )
