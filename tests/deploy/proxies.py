"""Caddy and nginx before brokers, with the files of deploy/proxy; only addresses and certificate differ."""

import http.client
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from assurance.cluster.ground import Ground, is_installed, wait_until
from tests.kit.brokers import Wire
from tests.kit.engines import free_port, give
from tests.kit.tls import certificate
from tests.kit.waiting import PATIENCE

FILES: Final = Path(__file__).parents[2] / "deploy" / "proxy"


class Proxy(ABC):
    """A proxy before the brokers on these ports, for as long as the `with` block."""

    program: str

    def __init__(self, api_key: UUID) -> None:
        self.api_key = api_key
        self.port = free_port()
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def origin(self) -> str:
        return self.url

    def start(self, brokers: Sequence[int]) -> None:
        """Start it before the brokers on these ports."""
        self._brokers = [f"127.0.0.1:{port}" for port in brokers]
        process = self.ground.start(self.program, *self._command())
        wait_until(self._listens, lambda: self.ground.log(self.program), [process])

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.ground = stack.enter_context(Ground())
            self._pem = certificate(self.ground.folder)
            give(self._pem, self.ground.identity)
            self.authority = ssl.create_default_context(cafile=str(self._pem))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @abstractmethod
    def _command(self) -> tuple[list[str | Path], dict[str, str]]:
        """Write the configuration; return the command, and its environment."""

    def _listens(self) -> bool:
        try:
            with Through(self) as wire:
                wire.send("GET", "/")
        except OSError:
            return False
        return True


class Caddy(Proxy):
    program = "caddy"

    def _command(self) -> tuple[list[str | Path], dict[str, str]]:
        text = (FILES / "Caddyfile").read_text("utf-8")
        text = _replace(text, r"^{\n", f"{{\n\tadmin off\n\thttp_port {free_port()}\n")
        text = _replace(text, r"\ttls {", f"\ttls {self._pem} {self._pem} {{")
        file = self.ground.write("Caddyfile", text)
        variables = {
            "SCBROKER_DOMAIN": self.url,
            "SCBROKER_UPSTREAMS": " ".join(self._brokers),
            "HOME": str(self.ground.folder),
        }
        return ["caddy", "run", "--adapter", "caddyfile", "--config", file], variables


class Nginx(Proxy):
    program = "nginx"

    def _command(self) -> tuple[list[str | Path], dict[str, str]]:
        text = (FILES / "nginx.conf").read_text("utf-8")
        text = _replace(text, r"    listen 443 ", f"    listen 127.0.0.1:{self.port} ")
        text = _replace(text, r"    listen \[::\]:443 .*\n", "")
        text = _replace(text, r"server_name broker.example", "server_name localhost")
        text = _replace(text, r"/etc/ssl/scbroker/fullchain.pem", str(self._pem))
        text = _replace(text, r"/etc/ssl/scbroker/privkey.pem", str(self._pem))
        servers = "\n".join(
            f"    server {each} max_fails=1 fail_timeout=2s;" for each in self._brokers
        )
        text = _replace(text, r"    server 127.0.0.1:8400 max_fails=1 fail_timeout=2s;", servers)
        folder = self.ground.folder
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
        main = (
            f"daemon off;\nworker_processes 1;\nworker_rlimit_nofile 4096;\npid {folder}/pid;\n"
            f"error_log stderr;\nevents {{ worker_connections 2048; }}\n"
            f"http {{\naccess_log off;\n{paths}\n{text}\n}}\n"
        )
        return ["nginx", "-e", "stderr", "-c", self.ground.write("nginx.conf", main)], {}


PROXIES: Final = (Caddy, Nginx)


def missing(proxy: type[Proxy]) -> str:
    """Return why a proxy cannot run here; an empty text if it can."""
    if is_installed(proxy.program):
        return ""
    return f"{proxy.program} is missing: apt-get install --no-install-recommends {proxy.program}"


@dataclass
class Through(Wire):
    """Requests by hand through a proxy, from an address of this machine."""

    broker: Proxy
    source: str = "127.0.0.1"
    claimed: str | None = None
    """The address that the client writes into X-Forwarded-For."""
    authority: ssl.SSLContext | None = None

    def headers(self, changes: Mapping[str, str | None] = {}) -> dict[str, str]:
        return super().headers({"X-Forwarded-For": self.claimed, **changes})

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection(
            "localhost",
            self.broker.port,
            timeout=PATIENCE,
            source_address=(self.source, 0),
            context=self.authority or self.broker.authority,
        )


def _replace(text: str, pattern: str, by: str) -> str:
    """Replace the one match of a pattern: a file that was changed must not escape the tests."""
    found, count = re.subn(pattern, lambda _: by, text, flags=re.MULTILINE)
    assert count == 1, f"{count} matches of {pattern}"
    return found
