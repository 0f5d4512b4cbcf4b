"""Attacks by a network that gives little at a time, or breaks off: no short read is taken for the end.

Attack 17 of `catalogue`.
"""

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from scbroker import BrokerError, Header, MemoryTrustStore
from tests.hostile_broker.accomplices import Mallory, check_no_file
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import FAULT, INTEGRITY
from tests.kit.brokers import answered
from tests.kit.impatience import be_impatient
from tests.kit.tcp import BadBroker
from tests.kit.waiting import PATIENCE

all_mount(__name__, 17, "short read taken for the end")

_FRAMES: Final = {"connection", "content-length", "transfer-encoding", "keep-alive"}


class Passing(NamedTuple):
    """An answer on its way: to which path, its first lines, its body."""

    path: str
    head: bytes
    body: bytes


Framing = Callable[[bytes, int], tuple[bytes, bytes]]
"""Takes a body and how much of it is to come; gives a header and the bytes that are sent."""
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


@contextmanager
def relay(mallory: Mallory, passage: Passage) -> Iterator[BadBroker]:
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
    mallory: Mallory, method: str, path: str, headers: dict[str, str], body: bytes
) -> Passing:
    answer = answered(mallory, mallory.url + path, method, body or None, headers)
    lines = [f"{k}: {v}\r\n" for k, v in answer.headers.items() if k not in _FRAMES]
    head = f"HTTP/1.1 {answer.status} X\r\nConnection: close\r\n{''.join(lines)}"
    return Passing(path, head.encode("latin-1"), answer.body)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program asks again at once."""
    be_impatient(monkeypatch)


class OneByteAtATime:
    """A file that gives less than it is asked for; and where it is told to, nothing yet."""

    def __init__(self, data: bytes, nothing_at: int | None = None) -> None:
        self._pieces = iter(range(len(data)))
        self._data, self._nothing_at = data, nothing_at

    def read(self, size: int) -> bytes | None:
        assert size > 1
        at = next(self._pieces, len(self._data))
        return None if at == self._nothing_at else self._data[at : at + 1]


@pytest.mark.long
def test_a_network_and_a_file_that_give_one_byte_at_a_time_work(mallory: Mallory) -> None:
    small, large = bytes(range(256)) * 4, bytes(range(256)) * 257
    for framing, content in zip(FRAMINGS.values(), (small, large, small), strict=True):
        with relay(mallory, byte_by_byte(framing)) as proxy:
            device = mallory.device(mallory.new_user(), proxy=proxy.url)
            source: Any = OneByteAtATime(content)
            container = device.createContainer(source, {"h": 1}).result(PATIENCE).id
            found = device.getContainer(container).result(PATIENCE)
            assert (found.content, found.header) == (content, Header({"h": 1}))


@pytest.mark.parametrize("size", [100, 70_000])
def test_a_file_that_has_nothing_yet_is_an_error_and_nothing_is_created(
    mallory: Mallory, size: int
) -> None:
    """A pipe that does not block gives None until there is more: that is no end."""
    device = mallory.device(mallory.new_user())
    source: Any = OneByteAtATime(bytes(size), nothing_at=size // 2)
    with mallory.refused(device, BrokerError.invalidArgumentError) as attempt:
        attempt(device.createContainer(source))


ENDS: dict[str, tuple[str, type[BrokerError]]] = {
    "the view": (r"/containers/[^/]+\?", FAULT),
    "the hashes": ("/hashes$", INTEGRITY),
    "the segments": (r"/segments\?", INTEGRITY),
}


@pytest.mark.long
@pytest.mark.parametrize("what", ENDS)
@pytest.mark.usefixtures("impatient")
def test_an_answer_that_is_torn_off_is_an_error_and_no_file_is_left(
    mallory: Mallory, tmp_path: Path, what: str
) -> None:
    """Where nothing of HTTP says how long it is, what was signed does."""
    ring, content = mallory.new_user(), bytes(70_000)
    container = mallory.device(ring).createContainer(content).result(PATIENCE).id
    store = MemoryTrustStore()
    mallory.device(ring, store).getContainerContent(container).result(PATIENCE)
    pattern, error = ENDS[what]
    for name, framing in FRAMINGS.items():
        kind = error if name == "until the end" else BrokerError.unreachableError
        for at in (0, -1):
            with relay(mallory, torn(pattern, framing, at)) as proxy:
                device = mallory.device(ring, store, proxy=proxy.url)
                mallory.check_refused(device, container, kind, "getContainerContent")
        with relay(mallory, torn(pattern, framing, 31)) as proxy:
            device = mallory.device(ring, store, proxy=proxy.url)
            check_no_file(device, container, tmp_path, kind)
        with relay(mallory, whole(framing)) as proxy:
            device = mallory.device(ring, store, proxy=proxy.url)
            assert device.getContainerContent(container).result(PATIENCE) == content
