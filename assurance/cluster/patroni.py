"""PostgreSQL that survives the loss of a node: two members under Patroni, and etcd, which elects.

An acknowledged commit is on both members while both run. PostgreSQL's binaries are those of
tests/kit/engines.py; etcd and Patroni are Debian's.
"""

import json
import secrets
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assurance.cluster.ground import Ground, Running, end, wait_until
from tests.kit.engines import free_port, postgres_programs
from tests.kit.waiting import PATIENCE

PACKAGES: Final = "patroni python3-etcd etcd-server"
PROGRAMS: Final = ("patroni", "etcd")
USER: Final = "postgres"
_NAMES: Final = ("a", "b")
# The shortest that Patroni takes.
_TTL_SECONDS: Final = 20
_FAST: Final = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Member:
    """One PostgreSQL and the Patroni that starts, watches and ends it."""

    name: str
    port: int
    rest_port: int
    folder: Path


class Patroni(Running):
    """A primary and its synchronous standby, for as long as the `with` block.

        with Patroni() as patroni:
            patroni.kill_primary()
            patroni.start_members()

    If both members are killed, PostgreSQL keeps what it acknowledged only with `durable=True`.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        self.password = secrets.token_urlsafe(16)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def _begin(self, stack: ExitStack) -> None:
        self._ground = stack.enter_context(Ground())
        self._programs = postgres_programs(self._ground.folder, self._ground.identity)
        self._start_etcd()
        self.members = {name: self._new_member(name) for name in _NAMES}
        self._start("a")
        self._await(lambda: self._is("a", "primary"))
        self.start_members()

    @property
    def primary(self) -> str:
        """The name of the member that takes writes; `LookupError` while none does."""
        for name in self.members:
            if self._is(name, "primary"):
                return name
        raise LookupError("No member is the primary.")

    def kill_primary(self) -> str:
        """Send SIGKILL to the primary's PostgreSQL; return the name of the member.

        Its Patroni gives up the lead within two seconds. There has to be a synchronous standby first:
        without one, Patroni starts the primary again.
        """
        self.await_standby()
        name = self.primary
        processes = self._ground.processes(self.members[name].folder / "data")
        postmaster = int((self.members[name].folder / "data/postmaster.pid").read_text().split()[0])
        # The postmaster first: it would start the others again.
        end([process for process in processes if process.pid == postmaster])
        end(processes)
        return name

    def await_primary(self, other_than: str = "") -> str:
        """Wait until a member (not this one) is the primary; return its name."""

        def is_there() -> bool:
            return any(self._is(n, "primary") for n in self.members if n != other_than)

        self._await(is_there)
        return self.primary

    def start_members(self) -> None:
        """Start what does not run; return once a commit is on both members again."""
        for name in self.members.keys() - self._running.keys():
            self._start(name)
        self.await_standby()

    def _start(self, name: str) -> None:
        configuration = self._ground.folder / f"{name}.json"
        self._running[name] = self._ground.start(name, ["patroni", configuration])

    def await_standby(self) -> None:
        """Wait until the primary has a synchronous standby again."""

        def is_there() -> bool:
            names = [name for name in self.members if self._is(name, "primary")]
            standbys = self._state(names[0]).get("replication", []) if names else []
            return any(each["sync_state"] == "sync" for each in standbys) and any(
                self._is(name, "synchronous") for name in self.members if name not in names
            )

        self._await(is_there)

    def _start_etcd(self) -> None:
        client, peer = free_port(), free_port()
        self._etcd = f"127.0.0.1:{client}"
        own = f"http://127.0.0.1:{peer}"
        command = [
            "etcd", "--name=etcd", f"--data-dir={self._ground.new_folder('etcd')}",
            f"--listen-client-urls=http://{self._etcd}",
            f"--advertise-client-urls=http://{self._etcd}",
            f"--listen-peer-urls={own}", f"--initial-advertise-peer-urls={own}",
            f"--initial-cluster=etcd={own}", "--unsafe-no-fsync",
        ]  # fmt: skip
        if "--unsafe-no-fsync" not in self._ground.run("etcd", "--help"):
            command.remove("--unsafe-no-fsync")
        etcd = self._ground.start("etcd", command)
        wait_until(
            lambda: _asked(f"http://{self._etcd}/health") is not None,
            lambda: self._ground.complaint("etcd"),
            [etcd],
        )

    def _new_member(self, name: str) -> Member:
        member = Member(name, free_port(), free_port(), self._ground.new_folder(name))
        self._ground.write(f"{name}.json", json.dumps(self._configuration(member)))
        return member

    def _configuration(self, member: Member) -> dict[str, Any]:
        parameters = {
            "shared_buffers": "32MB",
            "unix_socket_directories": "",
            "max_connections": 200,
            "wal_receiver_status_interval": 1,
            "checkpoint_timeout": "30min",
            **({} if self._durable else _FAST),
        }
        login = {"username": USER, "password": self.password}
        return {
            "scope": "scbroker",
            "name": member.name,
            "restapi": {
                "listen": f"127.0.0.1:{member.rest_port}",
                "connect_address": f"127.0.0.1:{member.rest_port}",
            },
            "etcd3": {"hosts": [self._etcd]},
            "bootstrap": {
                "dcs": {
                    "ttl": _TTL_SECONDS,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "primary_start_timeout": 0,  # a crashed primary gives up the lead at once
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": parameters},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{member.port}",
                "connect_address": f"127.0.0.1:{member.port}",
                "data_dir": str(member.folder / "data"),
                "bin_dir": str(self._programs),
                "pgpass": str(member.folder / "pgpass"),
                "authentication": {"superuser": login, "replication": login},
                "pg_hba": [
                    "host all all 127.0.0.1/32 scram-sha-256",
                    "host replication all 127.0.0.1/32 scram-sha-256",
                ],
                # If pg_rewind fails, the member is created again.
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
            },
        }

    def _is(self, name: str, role: str) -> bool:
        """Ask Patroni's REST interface, as the proxy does."""
        return _asked(f"http://127.0.0.1:{self.members[name].rest_port}/{role}") is not None

    def _state(self, name: str) -> dict[str, Any]:
        found = _asked(f"http://127.0.0.1:{self.members[name].rest_port}/patroni")
        return {} if found is None else json.loads(found)

    def _await(self, condition: Callable[[], bool]) -> None:
        running = self._running
        wait_until(condition, lambda: self._ground.complaint(*running), running.values())


def _asked(url: str) -> bytes | None:
    """Return the body of an answer of 200, and None otherwise."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            body: bytes = answer.read()
            return body
    except (urllib.error.URLError, OSError):
        return None
