"""Serve a page on a loopback address until Ctrl-C or for some minutes, and open it in a browser."""

import asyncio
import contextlib
import datetime as dt
import html
import ipaddress
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from scbroker.cli.output import Output
from scbroker.cli.web.access import Access
from scbroker.errors import InvalidArgumentError

_HOST: Final = "127.0.0.1"
_GRACE_SECONDS: Final = 1
_MAX_CONNECTIONS: Final = 64
_MAX_HEAD: Final = 16_384


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as the end of the page; uvicorn would raise them again afterwards."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


async def run(
    out: Output,
    port: int,
    minutes: int,
    opens: bool,
    application: Callable[[Access, dt.datetime], ASGIApp],
) -> None:
    """Print the URL of a page, open it in a browser, and serve the page until Ctrl-C or for some minutes.

    `application` gets the secrets that admit the browser, and the time at which the page ends.
    """

    def failed() -> None:
        out.say("No browser was started: open the URL yourself.")

    ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    with listening(port) as bound:
        access = Access(*bound.getsockname())
        app = application(access, ends)
        out.line(
            {"url": access.url, "ends": ends},
            f"Open {access.url} in one browser of this machine. Ctrl-C ends the page.",
        )
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                http="h11",  # can limit the size of a request's head
                h11_max_incomplete_event_size=_MAX_HEAD,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        loop = asyncio.get_running_loop()
        loop.call_later(minutes * 60, setattr, server, "should_exit", True)
        with opened_in_browser(access.url, failed) if opens else contextlib.nullcontext():
            await server.serve([bound])
    out.say("The page has ended.")


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens on this port of 127.0.0.1; 0 chooses a free one of an address of its own.

    Browsers share the cookies of all ports of an address, and a server that was at address and port before
    can have left a service worker. A system that has no other loopback address, as macOS, gives 127.0.0.1.
    """
    own = ipaddress.IPv4Address("127.1.0.1") + secrets.randbelow(2**24 - 2**17)
    try:
        bound = socket.create_server((_HOST if port else str(own), port))
    except OSError as error:
        if port:
            raise InvalidArgumentError(
                f"Cannot listen on {_HOST}:{port}: {error.strerror}."
            ) from None
        bound = socket.create_server((_HOST, 0))
    with bound:
        yield bound


@contextlib.contextmanager
def opened_in_browser(url: str, failed: Callable[[], None]) -> Iterator[None]:
    """Open a URL in the person's browser during the block; call `failed` if none can be started.

    The browser gets the path of a private file that leads to the URL, which has a secret: other users of the
    machine can read the arguments of processes.
    """

    def start() -> None:
        if not webbrowser.open(file.as_uri()):
            failed()

    # Without a display, a text browser could be started, which would take over the terminal.
    if sys.platform == "linux" and not (os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}):
        failed()
        yield
        return
    with tempfile.TemporaryDirectory(prefix="scbroker-page-") as folder:
        file = Path(folder) / "page.html"
        there = html.escape(url)
        file.write_text(
            f'<!doctype html><meta charset="utf-8"><title>scbroker</title>'
            f'<meta http-equiv="refresh" content="0; url={there}"><a href="{there}">Open the page</a>\n'
        )
        # Some browsers keep the caller waiting until they end.
        threading.Thread(target=start, daemon=True).start()
        yield
