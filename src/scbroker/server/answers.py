"""Build responses. Errors are answered as problems (RFC 9457)."""

from typing import Final

import msgspec
from starlette.responses import Response

from scbroker.errors import BrokerError, BrokerUnavailableError
from scbroker.wire import codec
from scbroker.wire.problems import problem_of

HEADERS: Final = {
    codec.PROTOCOL_HEADER: codec.PROTOCOL,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def answer(body: bytes | memoryview, status: int, media_type: str = codec.MESSAGE) -> Response:
    """Return a response of this media type, by default a MessagePack message."""
    return Response(body, status, headers={**HEADERS, "Content-Type": media_type})


def problem(error: BrokerError) -> Response:
    """Return the response for an error, with Retry-After if another attempt may succeed."""
    found = problem_of(error)
    response = answer(msgspec.json.encode(found), found.status, codec.PROBLEM)
    if isinstance(error, BrokerUnavailableError):
        response.headers["Retry-After"] = str(max(1, round(error.retryAfter or 1)))
    return response
