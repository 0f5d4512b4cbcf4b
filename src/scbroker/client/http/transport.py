"""Requests to one broker: bounded, strict, and retried where the protocol allows.

Every request may be sent again with the same bytes, so this module retries after a lost answer: for a
minute if this broker has answered before, since a broker that was killed or moved comes back; four
times if it never did, since the address may be wrong. An overloaded broker is retried after the time that it
names, then ever later, and from a budget that answers refill. Tokens go to the configured origin alone.
Spec: docs/spec/protocol.md, sections 1 and 2.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import secrets
import urllib.parse
from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from scbroker import errors
from scbroker.client.http.connections import Connections, read, read_into
from scbroker.client.http.endpoint import Endpoint
from scbroker.client.http.object_store import ObjectStore
from scbroker.crypto.seal import Octets
from scbroker.wire import codec
from scbroker.wire.codec import Message
from scbroker.wire.problems import MAX_PROBLEM, error_of

if TYPE_CHECKING:
    import aiohttp

M = TypeVar("M", bound=Message)
T = TypeVar("T")
Query = Mapping[str, str | list[str]]
MAX_ANSWER: Final = 16 * 1_048_576
_ATTEMPTS: Final = 4
_PATIENCE: Final = 60.0
"""Seconds. A database takes less to fail over to another machine."""
_LONGEST_WAIT: Final = 10.0
"""Seconds. A broker that names a longer wait is not retried: the caller gets the error at once."""
_RETRY_BUDGET: Final = 128.0
"""Retries after refusals that a provider starts with, and may save up."""
_EARNED: Final = 1 / 8
"""Retries that an answer earns: refusals make an eighth more requests, not many times as many."""


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


class Transport(Connections):
    """Requests to one broker."""

    most: int = 32
    unsent_headers: tuple[str, ...] = ("User-Agent", "Accept-Encoding")

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.store: ObjectStore = ObjectStore(endpoint)
        self._budget = _RETRY_BUDGET
        self._has_answered = False

    @property
    def all_failures(self) -> int:
        """Failed requests so far, to the broker and to object stores."""
        return self.failures + self.store.failures

    async def call(
        self,
        method: str,
        path: str,
        answer: type[M],
        *,
        message: Message | None = None,
        token: str | None = None,
        query: Query | None = None,
        limit: int = MAX_ANSWER,
    ) -> M:
        """Send a message; return the answer's message."""
        body = None if message is None else codec.encode(message)
        data = await self._send(method, path, body, codec.MESSAGE, token, query, limit)
        try:
            return codec.decode(answer, bytes(data), limit)
        except errors.InvalidArgumentError as error:
            raise errors.BrokerFaultError(
                f"The broker's answer does not follow the protocol: {error}"
            ) from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        message: Message | None = None,
        octets: Octets | None = None,
        token: str | None = None,
        query: Query | None = None,
        limit: int = 0,
    ) -> bytes:
        """Send a message or octets; return the answer's octets, at most `limit`."""
        body = octets if message is None else codec.encode(message)
        media_type = codec.OCTETS if message is None else codec.MESSAGE
        return bytes(await self._send(method, path, body, media_type, token, query, limit))

    async def fetch(
        self, path: str, target: memoryview, *, token: str | None = None, query: Query | None = None
    ) -> int:
        """Read octets into a buffer, never more than it holds; return their number."""
        size = len(target)
        return len(await self._send("GET", path, None, codec.OCTETS, token, query, size, target))

    async def close(self) -> None:
        """Close the connections to the broker and to object stores."""
        await super().close()
        await self.store.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: Octets | None,
        media_type: str,
        token: str | None,
        query: Query | None,
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
        return await self._retried(
            functools.partial(self._once, method, url, headers, body, limit, target)
        )

    async def _retried(self, once: Callable[[], Awaitable[T]]) -> T:
        """Send a request until it is answered; raise the last failure once retrying is over."""
        failure: errors.BrokerUnavailableError | None = None
        started = monotonic()
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                for attempt in itertools.count(1):
                    try:
                        answer = await once()
                    except (errors.UnreachableError, errors.OverloadedError) as error:
                        failure = error
                        pause = pause_before_retry(error, attempt)
                        if not self._may_retry(error, attempt, monotonic() - started + pause):
                            raise
                        if isinstance(error, errors.OverloadedError):
                            self._budget -= 1
                    else:
                        self._budget = min(self._budget + _EARNED, _RETRY_BUDGET)
                        return answer
                    self.count_failure()
                    await sleep(pause)
        except TimeoutError:
            if failure is not None:
                raise failure.fresh() from None
            raise errors.UnreachableError(
                f"No answer from {self.endpoint.origin} within {self.endpoint.timeout:g} seconds: "
                "check the network, or set a longer timeout."
            ) from None
        raise AssertionError("unreachable")

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
        target: memoryview | None = None,
    ) -> Octets:
        import aiohttp
        from yarl import URL

        try:
            async with self.request(method, URL(url, encoded=True), headers, body) as response:
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
            raise errors.UnreachableError(
                f"The certificate of {self.endpoint.origin} was refused: {why}. For an authority of "
                "your own, pass ssl=ssl.create_default_context(cafile=...)."
            ) from None
        except aiohttp.ClientError as error:
            raise errors.UnreachableError(
                f"No broker answers at {self.endpoint.origin} ({type(error).__name__}): check "
                "serverUrl, the network, and whether the broker runs."
            ) from None


def _check_version(response: aiohttp.ClientResponse) -> None:
    spoken = response.headers.getall(codec.PROTOCOL_HEADER, [])
    if spoken == [codec.PROTOCOL]:
        return
    if not spoken and response.status in (502, 503, 504):
        raise errors.UnreachableError(
            f"A proxy answered {response.status} in the broker's place: check whether the broker runs."
        )
    if 300 <= response.status < 400:
        raise errors.UnsupportedVersionError(
            "serverUrl redirects, and redirects are not followed: set it to the broker's own address."
        )
    what = f"version {spoken[0][:20]!r} of the protocol" if spoken else "no version of the protocol"
    raise errors.UnsupportedVersionError(
        f"The server at serverUrl speaks {what}, and this program {codec.PROTOCOL}: check serverUrl, "
        "or update the older of the two."
    )
