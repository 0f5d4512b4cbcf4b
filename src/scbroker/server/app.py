"""Every operation of the broker, in one table, and what happens around each.

`OPERATIONS` is the whole of the protocol as far as HTTP sees it; the OpenAPI document is made from
it. Around each handler: protocol version, API key, session, strict parsing, problems.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from scbroker.crypto.verify import sha256
from scbroker.errors import (
    ApiKeyError,
    BrokerError,
    BrokerFaultError,
    InvalidArgumentError,
    NotAuthenticatedError,
    NotFoundError,
    OverloadedError,
    TooLargeError,
    UnsupportedVersionError,
)
from scbroker.records.ids import parse_uuid
from scbroker.server import metrics
from scbroker.server.answers import HEADERS, answer, problem
from scbroker.server.broker import Broker, Call, SessionUser
from scbroker.server.capacity.admission import ADMITTED, Gate
from scbroker.server.capacity.large_bodies import Received
from scbroker.server.containers import appending, batches, tombstones, views
from scbroker.server.events import log, retention
from scbroker.server.large import PIECE, LargeAnswer, takes_a_place
from scbroker.server.openapi import document
from scbroker.server.operation import Operation
from scbroker.server.parts import chunks, presigned, sweeping
from scbroker.server.storage import statements as sql
from scbroker.server.users import challenges, deletion, key_files, registration, sessions
from scbroker.wire import batches as b
from scbroker.wire import codec
from scbroker.wire import containers as c
from scbroker.wire import events as e
from scbroker.wire import parts as p
from scbroker.wire import users as u
from scbroker.wire.codec import decode, encode
from scbroker.wire.query import parse_number, parse_query

_log: Final = structlog.get_logger("scbroker.server")
_APPLICATIONS: Final = 256
_BODY_SECONDS: Final = 30.0
_SLOWEST: Final = 16_384
"""Bytes of a body a second, beside those seconds."""
_ACCESS_FLUSH: Final = 0.5
_SWEEP: Final = 60.0
_CHECK: Final = 1.0
_USER: Final = "/v1/users/{userId}"
_CONTAINER: Final = "/v1/containers/{containerId}"
_PART: Final = _CONTAINER + "/parts/{partId}"
_OFTEN: Final = (_CONTAINER, _CONTAINER + "/records/{version}")


async def _append(broker: Broker, call: Call, message: c.RecordRequest) -> Response:
    receipt, new = await appending.append(broker, call, message)
    return answer(encode(receipt), 201 if new else 200)


OPERATIONS: Final = (
    Operation("POST", "/v1/users", registration.register, "Register a user",
              u.Registration, u.Registered, session=False, status=201),
    Operation("POST", "/v1/session-challenges", challenges.challenge, "Ask for a nonce",
              u.ChallengeRequest, u.Challenge, session=False),
    Operation("POST", "/v1/sessions", sessions.log_in, "Begin a session",
              u.SessionRequest, u.Session, session=False, status=201),
    Operation("DELETE", "/v1/sessions/current", sessions.log_out, "End the session", status=204),
    Operation("POST", _USER + "/deletion", deletion.delete_user, "Delete a user for ever",
              u.UserDeletion, session=False, status=204),
    Operation("POST", _USER + "/key-file/open", key_files.open_key_file, "Get a KeyFile",
              u.KeyFileOpening, u.KeyFileAnswer, session=False),
    Operation("GET", "/v1/key-file", key_files.state, "Ask which KeyFile is stored",
              None, u.KeyFileState),
    Operation("PUT", "/v1/key-file", key_files.store, "Store a KeyFile, and key records with it",
              u.KeyFileStoring, status=204),
    Operation("POST", "/v1/key-file/deletion", key_files.delete, "Remove the KeyFile",
              u.KeyFileDeletion, status=204),
    Operation("GET", _USER + "/reminder", registration.reminder, "Get a user's reminder",
              None, u.ReminderAnswer, session=False),
    Operation("GET", "/v1/reminder", registration.own_reminder, "Get the session's own reminder",
              None, u.ReminderAnswer),
    Operation("POST", "/v1/key-records", registration.read_key_records, "Read users' key records",
              u.KeyRecordsRequest, u.KeyRecords),
    Operation("PUT", _CONTAINER + "/records/{version}", _append, "Append a record",
              c.RecordRequest, c.RecordReceipt, status=201, limit=codec.MAX_MESSAGE),
    Operation("GET", _CONTAINER, views.view, "Read a container", None, c.ContainerView, c.ViewQuery),
    Operation("GET", _CONTAINER + "/governing", views.governing_page, "Read governing records",
              None, c.GoverningPage, c.GoverningQuery),
    Operation("GET", _CONTAINER + "/records", views.bodies, "Read records' bodies",
              None, c.Bodies, c.BodiesQuery),
    Operation("PUT", _PART + "/chunks/{index}", chunks.receive, "Send a chunk of a content",
              bytes, status=204, limit=p.MAX_CHUNK),
    Operation("GET", _PART + "/chunks", chunks.list_chunks, "List the chunks that have arrived",
              None, p.Chunks, p.ChunksQuery),
    Operation("POST", _PART + "/transfers", presigned.to_send, "Get addresses to put chunks to",
              p.TransfersRequest, p.Transfers),
    Operation("GET", _PART + "/transfers", presigned.to_read, "Get addresses to get chunks from",
              None, p.Transfers, p.TransfersQuery),
    Operation("POST", _PART + "/chunks", presigned.sent, "Say which chunks were put there",
              p.SentChunks, status=204, large=True),
    Operation("GET", _PART + "/hashes", chunks.segment_hashes, "Read the segments' hashes",
              None, bytes),
    Operation("GET", _PART + "/segments", chunks.segments, "Read sealed segments",
              None, bytes, p.SegmentsQuery),
    Operation("POST", "/v1/batches/records", batches.append_records, "Append several records",
              b.RecordsRequest, b.RecordsAnswer, limit=codec.MAX_MESSAGE),
    Operation("POST", "/v1/batches/views", batches.read_views, "Read several containers",
              b.ViewsRequest, b.ViewsAnswer, large=True),
    Operation("GET", "/v1/events", log.list_events, "List events", None, e.Events, e.EventQuery),
)  # fmt: skip


def create_app(opened: Callable[[], Awaitable[Broker]]) -> Starlette:
    """The ASGI application of a broker that is opened when the application starts."""
    schema = msgspec.json.encode(document(OPERATIONS))

    async def openapi(request: Request) -> Response:
        del request
        return Response(schema, headers=HEADERS, media_type="application/json")

    async def live(request: Request) -> Response:
        del request
        return Response(b"live\n", headers=HEADERS, media_type="text/plain")

    async def ready(request: Request) -> Response:
        broker: Broker = request.app.state.broker
        try:
            await broker.database.read(lambda connection: connection.execute(sql.ANY_API_KEY))
            await broker.blobs.check()
        except Exception as error:
            _log.warning("not ready", error=repr(error), cause=repr(error.__cause__))
            return problem(OverloadedError("Database or object store cannot be used.", 1))
        return Response(b"ready\n", headers=HEADERS, media_type="text/plain")

    async def measured(request: Request) -> Response:
        gate = _gate(request)
        metrics.present(gate.present, gate.waiting)
        body, media_type = metrics.exposition()
        return Response(body, headers={**HEADERS, "Content-Type": media_type})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Gate]]:
        app.state.broker = broker = await opened()
        gc.freeze()  # what stands once the broker does is not looked through for garbage again
        work = [
            asyncio.create_task(_repeat(_ACCESS_FLUSH, lambda: log.tell_accesses(broker))),
            asyncio.create_task(_repeat(_SWEEP, lambda: _tidy(broker))),
            asyncio.create_task(_repeat(_CHECK, broker.gate.check)),
            asyncio.create_task(_repeat(_SWEEP, lambda: retention.drop_old(broker))),
            asyncio.create_task(_repeat(_SWEEP, lambda: deletion.finish(broker))),
            asyncio.create_task(_repeat(_SWEEP, lambda: tombstones.finish(broker))),
        ]
        try:
            yield {"gate": broker.gate}
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            try:
                await log.tell_accesses(broker)
            except Exception as error:
                count = len(broker.accesses)
                _log.warning("fetches were not told of", count=count, error=repr(error))
            await broker.database.close()

    # They are tried one after the other: what is asked for most comes first.
    often = sorted(OPERATIONS, key=lambda operation: operation.path not in _OFTEN)
    routes = [
        *(_route(operation) for operation in often),
        Route("/openapi.json", openapi, methods=["GET"]),
        Route("/metrics", measured, methods=["GET"]),
        Route("/health/live", live, methods=["GET"]),
        Route("/health/ready", ready, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_such_path, Exception: _fault},
    )
    app.router.redirect_slashes = False  # no client may follow one
    return app


def _route(operation: Operation) -> Route:
    async def endpoint(request: Request) -> Response:
        began, status = time.perf_counter(), 500
        try:
            response = await _perform(operation, request)
            status = response.status_code
        except BrokerError as error:
            response = problem(error)
            status = response.status_code
            if status >= 500:
                cause = repr(error.__cause__) if error.__cause__ else None
                _log.warning("unavailable", path=operation.path, error=str(error), cause=cause)
        finally:
            metrics.observe(operation.method, operation.path, status, time.perf_counter() - began)
        return response

    return Route(operation.path, endpoint, methods=[operation.method])


async def _perform(operation: Operation, request: Request) -> Response:
    broker: Broker = request.app.state.broker
    _check_version(request)
    user = await _identify(broker, operation, request)
    call = _call(operation, request, user)
    if not takes_a_place(operation, request):
        found = await _answered(broker, call, operation, request)
        if len(found.body) <= PIECE:
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


async def _answered(broker: Broker, call: Call, operation: Operation, request: Request) -> Response:
    if operation.message is bytes:
        with broker.buffers.receiving() as received:
            await _receive(operation, request, received)
            found = await operation.handler(broker, call, received.octets)
    else:
        message = await _message(operation, request)
        found = await operation.handler(broker, call, message)
    if isinstance(found, Response):
        return found
    if found is None:
        return Response(status_code=operation.status, headers=HEADERS)
    if isinstance(found, bytes | memoryview):
        return answer(found, operation.status, codec.OCTETS)
    return answer(encode(found), operation.status)


def _check_version(request: Request) -> None:
    if request.headers.getlist(codec.PROTOCOL_HEADER) != [codec.PROTOCOL]:
        raise UnsupportedVersionError(
            f"This broker speaks protocol version {codec.PROTOCOL}: send the header "
            f"{codec.PROTOCOL_HEADER}: {codec.PROTOCOL}, or update the client."
        )


async def _identify(broker: Broker, operation: Operation, request: Request) -> SessionUser | None:
    """Checks API key and application name, and the session where the operation asks for one."""
    try:
        key = parse_uuid(request.headers.get(codec.API_KEY_HEADER, ""))
    except InvalidArgumentError:
        raise ApiKeyError() from None
    key_hash = sha256(key.bytes)
    if key_hash not in broker.api_keys:
        if (
            await broker.database.query(lambda c: sql.one(c, sql.FIND_API_KEY, hash=key_hash))
            is None
        ):
            raise ApiKeyError()
        broker.api_keys.add(key_hash)
    if not 0 < len(request.headers.get(codec.APPLICATION_HEADER, "")) <= codec.MAX_APPLICATION:
        raise InvalidArgumentError(f"The header {codec.APPLICATION_HEADER} is missing or too long.")
    if not operation.session:
        return None
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or len(token) != 43:
        raise NotAuthenticatedError("This needs a session: log in first.")
    return await sessions.find_session(broker, token)


def _call(operation: Operation, request: Request, user: SessionUser | None) -> Call:
    path = {
        name: parse_uuid(text) if name.endswith("Id") else parse_number(text)
        for name, text in request.path_params.items()
    }
    query = parse_query(operation.query, request.query_params.multi_items())
    application = _application(request.headers[codec.APPLICATION_HEADER])
    address = request.client.host if request.client else ""
    return Call(application, address, path, query, user)


@functools.lru_cache(_APPLICATIONS)
def _application(quoted: str) -> str:
    try:
        name = urllib.parse.unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgumentError(
            f"The header {codec.APPLICATION_HEADER} must be percent-encoded UTF-8."
        ) from None
    codec.check_application(name)
    return name


async def _message(operation: Operation, request: Request) -> Any:
    """The body, never more of it than the operation takes, as the operation's message."""
    if operation.message is None:
        _check_bodiless(request.headers)
        return None
    _check_content_type(request, codec.MESSAGE)
    body = bytearray()
    with _gate(request).waiting_for_client(request.scope[ADMITTED]):
        async for piece in _body(request, operation.limit):
            body += piece
    return decode(operation.message, bytes(body), operation.limit)


async def _receive(operation: Operation, request: Request, received: Received) -> None:
    """The same for octets."""
    _check_content_type(request, codec.OCTETS)
    with _gate(request).waiting_for_client(request.scope[ADMITTED]):
        async for piece in _body(request, operation.limit):
            received.add(piece)


def _check_bodiless(headers: Headers) -> None:
    """Nobody waits for a body that nobody asked for."""
    announced = "Content-Length" in headers and headers["Content-Length"] != "0"
    if announced or "Transfer-Encoding" in headers:
        raise InvalidArgumentError("A request of this kind has no body.")


def _gate(request: Request) -> Gate:
    found: Gate = request.scope["state"]["gate"]
    return found


def _check_content_type(request: Request, expected: str) -> None:
    if request.headers.get("Content-Type") != expected:
        raise InvalidArgumentError(f"The content type of this request is {expected}.")


async def _body(request: Request, limit: int) -> AsyncIterator[bytes]:
    size, pieces = 0, aiter(request.stream())
    until = asyncio.get_running_loop().time() + _BODY_SECONDS
    try:
        while True:
            async with asyncio.timeout_at(until + size / _SLOWEST):
                piece = await anext(pieces)
            size += len(piece)
            if size > limit:
                raise TooLargeError(f"A request of this kind has at most {limit} bytes.")
            yield piece
    except StopAsyncIteration:
        pass
    except ClientDisconnect:
        raise InvalidArgumentError("The request broke off.") from None
    except TimeoutError:
        raise OverloadedError("The request came too slowly: send it again.", retryAfter=1) from None


async def _no_such_path(request: Request, error: Exception) -> Response:
    del request, error
    return problem(NotFoundError("The protocol has no such path or method."))


async def _fault(request: Request, error: Exception) -> Response:
    _log.error("fault", method=request.method, route=request.url.path, exc_info=error)
    return problem(BrokerFaultError("The broker failed. Its log says why."))


async def _repeat(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Does something again and again; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception as error:
            _log.warning("background work failed", error=repr(error))


async def _tidy(broker: Broker) -> None:
    """Drops what has run out."""
    broker.api_keys.clear()
    await broker.database.write(sessions.forget_old)
    while await sweeping.sweep(broker):
        pass
