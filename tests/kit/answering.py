"""A server of HTTP that is no broker: it gives each request the same answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def answering(
    status: int,
    body: bytes = b"",
    headers: Sequence[tuple[str, str]] = (),
    got: list[str] | None = None,
    at: tuple[str, int] = ("127.0.0.1", 0),
) -> Iterator[str]:
    """Provide the server's address. What it is asked with, it appends to `got`: line, headers and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode("latin-1")
            if got is not None:
                got.append(f"{self.requestline}\n{self.headers}{sent}")
            self.send_response(status)
            for name, value in (*headers, ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(at, Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{at[0]}:{server.server_port}"
        server.shutdown()
