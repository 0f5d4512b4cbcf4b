"""What becomes of answers on the way: they come byte by byte, are torn off, or an error comes instead.

with relay(mallory, torn(SEGMENTS_END, FRAMINGS["chunked"], 7)) as proxy:
    device = mallory.device(ring, proxy=proxy.url)
"""

import http.client
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec

from scbroker import BrokerError
from scbroker.wire import codec
from scbroker.wire.problems import problem_of
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.kit.tcp import BadBroker

_FRAMES: Final = {"connection", "content-length", "transfer-encoding", "keep-alive"}


class Passing(NamedTuple):
    """An answer on its way: to which path, its first lines, its body."""

    path: str
    head: bytes
    body: bytes


Framing = Callable[[bytes, int], tuple[bytes, bytes]]
"""From a body, and how much of it is to come, to a header and what is sent."""
Passage = Callable[[Passing], Iterator[bytes]]


def _chunked(body: bytes, at: int) -> tuple[bytes, bytes]:
    """The chunk says its whole size; what is torn off lacks its end, and the last chunk."""
    sent = b"%x\r\n%s" % (len(body), body[:at])
    whole = sent + b"\r\n0\r\n\r\n" if at >= len(body) else sent
    return b"Transfer-Encoding: chunked\r\n", whole


FRAMINGS: Final[Mapping[str, Framing]] = {
    "with its length": lambda body, at: (b"Content-Length: %d\r\n" % len(body), body[:at]),
    "chunked": _chunked,
    "until the end": lambda body, at: (b"", body[:at]),
}


def _framed(answer: Passing, framing: Framing, at: int) -> bytes:
    header, body = framing(answer.body, at) if answer.body else (b"", b"")  # 204 has none
    return answer.head + header + b"\r\n" + body


def whole(framing: Framing) -> Passage:
    return lambda answer: iter([_framed(answer, framing, len(answer.body))])


def byte_by_byte(framing: Framing) -> Passage:
    def passage(answer: Passing) -> Iterator[bytes]:
        for piece in whole(framing)(answer):
            yield from (piece[at : at + 1] for at in range(len(piece)))

    return passage


def torn(pattern: str, framing: Framing, at: int) -> Passage:
    """Answers for paths of this pattern end after so many bytes; from behind where it is negative."""

    def passage(answer: Passing) -> Iterator[bytes]:
        length = len(answer.body)
        if re.search(pattern, answer.path):
            length = at if at >= 0 else length + at
        yield _framed(answer, framing, length)

    return passage


def invent(exchange: Exchange, error: BrokerError) -> None:
    """This error is the answer, whether the broker behind hears of the request or not."""
    problem = problem_of(error)
    exchange.status = problem.status
    exchange.answer_headers = {"content-type": codec.PROBLEM}
    exchange.answer_body = msgspec.json.encode(problem)


@contextmanager
def relay(mallory: HostileBroker, passage: Passage) -> Iterator[BadBroker]:
    """A proxy between a device and the broker: one request a connection, which is then closed."""

    def answer(connection: socket.socket) -> None:
        request = proxy.requests[-1]
        method, url, _ = request.head.decode("latin-1").split("\r\n")[0].split(" ")
        path = url.removeprefix(mallory.url)
        headers = {k: v for k, v in request.headers.items() if k not in _FRAMES}
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = _onward(mallory, method, path, headers, request.body)
        with suppress(OSError):  # the client has heard enough
            for piece in passage(found):
                connection.sendall(piece)

    with BadBroker([answer]) as proxy:
        yield proxy


def _onward(
    mallory: HostileBroker, method: str, path: str, headers: dict[str, str], body: bytes
) -> Passing:
    connection = http.client.HTTPConnection("127.0.0.1", mallory.port, timeout=PATIENCE)
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    lines = [f"{k}: {v}\r\n" for k, v in answer.getheaders() if k.lower() not in _FRAMES]
    head = f"HTTP/1.1 {answer.status} X\r\nConnection: close\r\n{''.join(lines)}"
    found = Passing(path, head.encode("latin-1"), answer.read())
    connection.close()
    return found
