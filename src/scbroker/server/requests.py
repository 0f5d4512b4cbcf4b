"""Run each request's handler: check version, API key and session before it, and send its answer or error.

Spec: docs/spec/protocol.md, sections 1 to 4.
"""

import asyncio
import dataclasses
import functools
import urllib.parse
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scbroker import errors
from scbroker.crypto.verify import sha256
from scbroker.records.canonical import parse_uuid
from scbroker.server import logs, metrics
from scbroker.server.answers import HEADERS, answer, problem
from scbroker.server.broker import SESSION_ENDED, Broker, Call, SessionUser, now
from scbroker.server.capacity import ADMITTED, Gate, Release
from scbroker.server.operations import Operation
from scbroker.wire import codec
from scbroker.wire.codec import parse_number, parse_query

_throttled: Final = logs.Seldom()
# Limits for errors with and without a cause: lines about overload must not keep the failure of a store, which
# has a cause, out of the log.
_unavailable: Final = {True: logs.Seldom(), False: logs.Seldom()}
_APPLICATIONS: Final = 256
_PIECE: Final = 262_144
"""Bytes of a large answer that are sent at once."""
_TOKEN_LENGTH: Final = 43
_BODY_SECONDS: Final = 30.0
_SLOWEST: Final = 16_384
"""A body must arrive within `_BODY_SECONDS`, plus a second for each so many bytes."""


class LargeAnswer(Response):
    """An answer that is sent piece by piece, and keeps its quota until the client has read it all.

    The connection is closed by `capacity` if the client stops reading.
    """

    def __init__(self, answer: Response, release: Release) -> None:
        super().__init__(answer.body, answer.status_code, dict(answer.headers))
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        start = {"type": "http.response.start", "status": self.status_code}
        try:
            await send({**start, "headers": self.raw_headers})
            for at in range(0, len(self.body), _PIECE):
                piece = self.body[at : at + _PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._release()


async def refused(request: Request, error: Exception) -> Response:
    """Answer a `BrokerError` as a problem; count it, and log it if the operator can do something about it."""
    del request
    known = cast(errors.BrokerError, error)
    response, entry = problem(known), logs.current()
    metrics.count_problem(known)
    path = entry.path if entry else ""
    if response.status_code >= 500:
        cause = repr(error.__cause__) if error.__cause__ else None
        unavailable = _unavailable[cause is not None]
        unavailable.warning("unavailable", path=path, error=str(error), cause=cause)
    elif isinstance(error, errors.ThrottledError):
        user = entry.user if entry else None
        _throttled.info("throttled", path=path, user=user, error=str(error))
    return response


async def perform(operation: Operation, request: Request) -> Response:
    if (entry := logs.current()) is not None:
        entry.path = operation.path
    broker: Broker = request.app.state.broker
    _check_version(request)
    api_key_hash, user = await _identify(broker, operation, request)
    if user is not None and entry is not None:
        entry.user = str(uuid.UUID(bytes=user.id))
    path = {
        name: parse_uuid(text).bytes if name.endswith("Id") else parse_number(text)
        for name, text in request.path_params.items()
    }
    application = _application(request.headers[codec.APPLICATION_HEADER])
    address = request.client.host if request.client else ""
    call = Call(application, address, path, user, api_key_hash=api_key_hash)
    if not _may_be_large(operation, request):
        found = await _answered(broker, call, operation, request)
        if len(found.body) <= _PIECE:
            return found
        user_id = b"" if user is None else user.id
        return LargeAnswer(found, broker.large_bodies.count_unread(user_id, len(found.body)))
    with broker.gate.waiting_for_client(request.scope[ADMITTED]):
        release = await broker.large_bodies.acquire(call.session.id)
    try:
        return LargeAnswer(await _answered(broker, call, operation, request), release)
    except BaseException:
        release()
        raise


def _may_be_large(operation: Operation, request: Request) -> bool:
    """Return whether the request or its answer may be large, so that it needs a large-body slot."""
    if not operation.session:
        return False
    if operation.large or operation.message is bytes or operation.answer is bytes:
        return True
    if operation.limit <= codec.MAX_SMALL_MESSAGE:
        return False
    length = request.headers.get("Content-Length", "")
    return not (length.isdecimal() and len(length) < 9 and int(length) <= codec.MAX_SMALL_MESSAGE)


async def _answered(broker: Broker, call: Call, operation: Operation, request: Request) -> Response:
    # Parsed as by `request.query_params`, which would copy the pairs three times.
    text = request.scope["query_string"].decode("latin-1")
    query = parse_query(operation.query, urllib.parse.parse_qsl(text, keep_blank_values=True))
    if (via := getattr(query, "via", None)) is not None:
        call = dataclasses.replace(call, via=parse_uuid(via).bytes)
    if operation.message is None:
        # Refuse an unexpected body, so that the broker does not wait for it.
        length = request.headers.get("Content-Length", "0")
        if length != "0" or "Transfer-Encoding" in request.headers:
            raise errors.InvalidArgumentError("This operation takes no body: send none.")
        return await _handle(broker, call, operation, *([query] if operation.takes_query else ()))
    if operation.message is bytes:
        with broker.buffers.receiving() as buffer:
            size = 0
            async for piece in _body(operation, request):
                buffer[size : size + len(piece)] = piece
                size += len(piece)
            return await _handle(broker, call, operation, buffer[:size])
    body = bytearray()
    async for piece in _body(operation, request):
        body += piece
    message = codec.decode(operation.message, bytes(body), operation.limit)
    return await _handle(broker, call, operation, message)


async def _handle(broker: Broker, call: Call, operation: Operation, *message: Any) -> Response:
    """Run the handler. `call.now` is set here, after the body has arrived: a client can send it slowly."""
    found = await operation.handler(broker, dataclasses.replace(call, now=now()), *message)
    if isinstance(found, Response):
        return found
    if found is None:
        return Response(status_code=operation.status, headers=HEADERS)
    if isinstance(found, bytes | memoryview):
        return answer(found, operation.status, codec.OCTETS)
    return answer(codec.encode(found), operation.status)


def _check_version(request: Request) -> None:
    if request.headers.getlist(codec.PROTOCOL_HEADER) != [codec.PROTOCOL]:
        raise errors.UnsupportedVersionError(
            f"This broker speaks protocol version {codec.PROTOCOL}: send the header "
            f"{codec.PROTOCOL_HEADER}: {codec.PROTOCOL}, or update the client."
        )


async def _identify(
    broker: Broker, operation: Operation, request: Request
) -> tuple[bytes, SessionUser | None]:
    """Check API key, application name and session; return the hash of the API key, and the session's user."""
    try:
        key = parse_uuid(request.headers.get(codec.API_KEY_HEADER, ""))
    except errors.InvalidArgumentError:
        raise errors.ApiKeyError() from None
    key_hash, token_hash = sha256(key.bytes), None
    if operation.session:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer" and len(token) == _TOKEN_LENGTH:
            token_hash = sha256(token.encode())
    user = await broker.admit(key_hash, token_hash)
    if not 0 < len(request.headers.get(codec.APPLICATION_HEADER, "")) <= codec.MAX_APPLICATION:
        raise errors.InvalidArgumentError(
            f"The header {codec.APPLICATION_HEADER} is missing or too long."
        )
    if operation.session and user is None:
        raise errors.NotAuthenticatedError(
            "This needs a session: log in first." if token_hash is None else SESSION_ENDED
        )
    return key_hash, user


@functools.lru_cache(_APPLICATIONS)
def _application(quoted: str) -> str:
    try:
        name = urllib.parse.unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        raise errors.InvalidArgumentError(
            f"The header {codec.APPLICATION_HEADER} must be percent-encoded UTF-8."
        ) from None
    codec.check_application(name)
    return name


async def _body(operation: Operation, request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; refuse a wrong media type, too many bytes, and a slow client."""
    media_type = codec.OCTETS if operation.message is bytes else codec.MESSAGE
    if request.headers.get("Content-Type") != media_type:
        raise errors.InvalidArgumentError(f"The content type must be {media_type}.")
    gate: Gate = request.scope["state"]["gate"]
    with gate.waiting_for_client(request.scope[ADMITTED]):
        size, has_more = 0, True
        until = asyncio.get_running_loop().time() + _BODY_SECONDS
        try:
            while has_more:
                async with asyncio.timeout_at(until + size / _SLOWEST):
                    event = await request.receive()
                if event["type"] == "http.disconnect":
                    raise errors.InvalidArgumentError("The request broke off.")
                piece, has_more = event["body"], event["more_body"]
                size += len(piece)
                if size > operation.limit:
                    raise errors.TooLargeError(
                        f"This operation takes at most {operation.limit} bytes."
                    )
                yield piece
        except TimeoutError:
            text = "The request arrived too slowly: send it again."
            raise errors.OverloadedError(text, 1) from None
