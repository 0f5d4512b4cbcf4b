"""HAProxy in front of brokers and databases, with the configuration of deploy/proxy."""

import csv
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from assurance.cluster.ground import Ground, Running, wait_until
from tests.kit.engines import free_port
from tests.kit.waiting import PATIENCE

PACKAGES: Final = "haproxy"
_FILE: Final = Path(__file__).parents[2] / "deploy/proxy/haproxy.cfg"
_SERVERS: Final = b"show stat -1 4 -1\n"
"""The command for the state of all servers, as HAProxy takes it at its own socket."""
_CLIENTS: Final = "frontend clients"
_DATABASES: Final = "listen databases"


class Proxy(Running):
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

    def _begin(self, stack: ExitStack) -> None:
        ground = stack.enter_context(Ground())
        self._socket = ground.folder / "socket"
        file = ground.write("haproxy.cfg", self._configuration())
        process = ground.start("haproxy", ["haproxy", "-db", "-f", file])
        wait_until(self._has_checked, lambda: ground.complaint("haproxy"), [process])

    def _has_checked(self) -> bool:
        """Whether the state of each server is that of its checks: until the first one, all count as up."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            if asking.connect_ex(str(self._socket)):
                return False
            asking.sendall(_SERVERS)
            with asking.makefile(encoding="utf-8") as answer:
                lines = answer.read().removeprefix("# ").strip().splitlines()
        # A state such as `UP 1/2` waits for another check.
        return all(
            each["check_status"] != "INI" and each["status"] in ("UP", "DOWN")
            for each in csv.DictReader(lines)
        )

    def _configuration(self) -> str:
        """Return the configuration with the addresses of this machine, over plain HTTP."""
        before, rest = _FILE.read_text("utf-8").split(_CLIENTS)
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
        return before.replace("global\n", f"global\n    stats socket {self._socket}\n", 1) + part
