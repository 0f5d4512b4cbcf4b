"""HAProxy in front of brokers and databases, with the configuration of docs/guide/cluster.md."""

import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from assurance.cluster.ground import Ground, is_installed, wait_until
from tests.kit.engines import free_port

PACKAGES: Final = "haproxy"
_GUIDE: Final = Path(__file__).parents[2] / "docs/guide/cluster.md"
_START_SECONDS: Final = 20.0
_CHECK_SECONDS: Final = 1.5
_CLIENTS: Final = "frontend clients"
_DATABASES: Final = "listen databases"


class Proxy:
    """One HAProxy, for as long as the `with` block.

        with Proxy(brokers=[8401, 8402, 8403]) as proxy:
            url = f"http://127.0.0.1:{proxy.port}"

    In front of brokers, or of databases: each port with the port of the member's Patroni, which says whether
    it is the primary.
    """

    def __init__(
        self, *, brokers: Sequence[int] = (), databases: Mapping[int, int] | None = None
    ) -> None:
        self.port = free_port()
        self._brokers, self._databases = brokers, databases or {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if not is_installed("haproxy"):
            raise RuntimeError(
                f"HAProxy is missing. On Debian: apt-get install --no-install-recommends {PACKAGES}"
            )
        with ExitStack() as stack:
            self._ground = stack.enter_context(Ground())
            self._file = self._ground.write("haproxy.cfg", self._configuration())
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        process = self._ground.start("haproxy", ["haproxy", "-db", "-f", self._file])
        wait_until(lambda: _listens(self.port), _START_SECONDS, self._log, [process])
        time.sleep(_CHECK_SECONDS)  # until their first check all servers count as up

    def _log(self) -> str:
        return f"HAProxy is not ready:\n{self._ground.log('haproxy')}"

    def _configuration(self) -> str:
        """Return the guide's configuration with the addresses of this machine, over plain HTTP."""
        before, rest = _guide().split(_CLIENTS)
        clients, databases = rest.split(_DATABASES)
        bind = f"    bind 127.0.0.1:{self.port}"
        if self._brokers:
            servers = [f"    server broker{n} 127.0.0.1:{p}" for n, p in enumerate(self._brokers)]
            part = _CLIENTS + clients
        else:
            servers = [
                f"    server database{n} 127.0.0.1:{port} port {rest_port}"
                for n, (port, rest_port) in enumerate(self._databases.items())
            ]
            part = _DATABASES + databases
        part = re.sub(r"(?m)^    bind .*$", bind, part)
        part = re.sub(r"(?m)(^    server .*\n?)+", "\n".join(servers) + "\n", part)
        return before + part


def _guide() -> str:
    found = re.search(r"```text\n(global\n.*?)```", _GUIDE.read_text("utf-8"), re.DOTALL)
    assert found, f"{_GUIDE} shows no configuration of HAProxy."
    return found[1]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
