"""A TCP server that answers as badly as a test wants, and notes what it was sent."""

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.kit.waiting import PATIENCE

PROTOCOL = b"Scbroker-Protocol: 1\r\n"


def http(
    status: int, body: bytes = b"", headers: bytes = PROTOCOL, length: int | None = None
) -> bytes:
    """An answer's bytes; `length` may lie."""
    size = len(body) if length is None else length
    return b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s" % (status, headers, size, body)


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    head: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


Answer = bytes | Callable[[socket.socket], None]


@dataclass
class BadBroker:
    """Answers the n-th request with the n-th answer, all later ones with the last."""

    answers: Sequence[Answer]
    requests: list[Request] = field(default_factory=list)
    _server: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                with contextlib.suppress(OSError):  # a client that has given up
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        """One request a connection, then it is closed."""
        data = b""
        while b"\r\n\r\n" not in data:
            if not (piece := connection.recv(65_536)):
                return
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        request = Request(head, b"")
        while len(body) < int(request.headers.get("content-length", "0")):
            if not (piece := connection.recv(65_536)):
                return
            body += piece
        self.requests.append(Request(head, body))
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            answer(connection)


def cut(_: socket.socket) -> None:
    """Closes without an answer."""


def hang(connection: socket.socket) -> None:
    """Says nothing until the client has given up."""
    while connection.recv(1):
        pass
