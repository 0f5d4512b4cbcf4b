"""A real S3 for the tests: the Ceph object gateway, as ordinary processes on loopback.

One monitor, one OSD and one gateway, with everything they keep in one temporary folder. They come
from Debian: `apt-get install --no-install-recommends radosgw ceph-mon ceph-osd`.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, Self
from urllib.error import URLError
from urllib.request import Request, urlopen

import obstore
from obstore.store import S3Store

PACKAGES: Final = "radosgw ceph-mon ceph-osd"
_PROGRAMS: Final = (
    "ceph",
    "ceph-authtool",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "radosgw",
    "radosgw-admin",
)
_REGION: Final = "us-east-1"
_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02
_ATTEMPTS: Final = 3
_MEMORY: Final = 4 * 2**30
_DISK: Final = 4 * 2**30

# Every path lies in the folder; nothing listens but on loopback.
_CONFIGURATION: Final = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_v1}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}/run
admin socket =
log file = {folder}/log/$name.log
mon cluster log file = {folder}/log/cluster.log
crash dir = {folder}/crash
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data = {folder}/mon
mon data avail warn = 1
mon data avail crit = 0
paxos propose interval = 0.02
paxos min wait = 0.01
mon tick interval = 1
[osd]
osd data = {folder}/osd
osd objectstore = {store}
osd heartbeat grace = 3
osd heartbeat interval = 1
memstore device bytes = {memory}
bluestore block size = {disk}
bluestore block create = true
bluestore cache autotune = false
bluestore cache size = 134217728
[client]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
rgw thread pool size = 32
rgw enable usage log = false
"""

# A clean stop says a word first; end of file means that the test runner died without one,
# in whatever way.
_WATCHDOG: Final = """
read -r word && exit
cat "$1"/run/*.pid | xargs -r kill -KILL
sleep 0.2
rm -rf -- "$1"
"""


class ObjectGateway:
    """An S3 that lives as long as its `with` block, and no longer than the process.

        with ObjectGateway() as gateway:
            url, environment = gateway.url, gateway.environment

    What is stored is kept in memory, or with `durable=True` in a file: only then does it survive
    `crash_osd`.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        self._key = secrets.token_hex(10).upper()
        self._secret = secrets.token_urlsafe(30)
        self._buckets = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        missing = [name for name in _PROGRAMS if shutil.which(name) is None]
        if missing:
            raise RuntimeError(
                f"These programs of Ceph are missing: {', '.join(missing)}. "
                f"On Debian: apt-get install --no-install-recommends {PACKAGES}"
            )
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_all()
            except (RuntimeError, TimeoutError):
                # Somebody may take a port between the look and the start.
                self.__exit__()
                if attempt == _ATTEMPTS:
                    raise
            except BaseException:
                self.__exit__()
                raise
            else:
                break
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self._running)):
            self._kill(name)
        if self._watchdog is not None:
            self._watchdog.communicate(b"stopped\n")
            self._watchdog = None
        shutil.rmtree(self._folder)

    @property
    def endpoint(self) -> str:
        """The gateway's address, as `http://127.0.0.1:PORT`: also the origin of presigned URLs."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """A new, empty bucket as `SCBROKER_OBJECT_STORE_URL` takes it, with `environment`."""
        return f"s3://{self.new_bucket()}"

    @property
    def environment(self) -> dict[str, str]:
        """What a broker needs in its environment beside the URL: where the S3 is, and its keys."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
        }

    def store(self, bucket: str) -> S3Store:
        """A bucket, as somebody with the keys sees it."""
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            access_key_id=self._key,
            secret_access_key=self._secret,
            region=_REGION,
            client_options={"allow_http": True},
        )

    def new_bucket(self) -> str:
        """Create an empty bucket and return its name."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        url = obstore.sign(self.store(name), "PUT", "", timedelta(minutes=1))
        with urlopen(Request(url, method="PUT"), timeout=_START_SECONDS):
            return name

    def crash_osd(self) -> None:
        """Kill what keeps the objects, so that nothing more is written."""
        self._kill("osd")

    def start_osd(self) -> None:
        """Start it again after `crash_osd`, and wait until objects can be stored through the gateway."""
        self._spawn("osd", "ceph-osd", "-i", "0")
        self._await(self._stores)

    def stop_gateway(self) -> None:
        """Kill the S3 server alone: connections to its port are refused."""
        self._kill("gateway")

    def start_gateway(self) -> None:
        """Start it again after `stop_gateway`, on the same port."""
        self._spawn("gateway", "radosgw", "-n", "client.rgw.a")
        self._await(self._answers)

    def _start_all(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="scbroker-ceph-"))
        for name in ("run", "log", "crash", "mon", "osd", "rgw"):
            (self._folder / name).mkdir()
        self._configure()
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._start_monitor()
        self._start_first_osd()
        self.start_gateway()
        self._run(
            "radosgw-admin", "-n", "client.rgw.a", "user", "create", "--uid=test",
            "--display-name=test", f"--access-key={self._key}", f"--secret-key={self._secret}",
        )  # fmt: skip
        self._probe = self.new_bucket()

    def _configure(self) -> None:
        self._port, self._mon, mon_v1 = _free_ports(3)
        self._fsid = str(uuid.uuid4())
        values = {
            "folder": self._folder,
            "fsid": self._fsid,
            "mon": self._mon,
            "mon_v1": mon_v1,
            "gateway": self._port,
            "store": "bluestore" if self._durable else "memstore",
            "memory": _MEMORY,
            "disk": _DISK,
        }
        (self._folder / "ceph.conf").write_text(_CONFIGURATION.format_map(values))
        self._addresses = f"[v2:127.0.0.1:{self._mon},v1:127.0.0.1:{mon_v1}]"

    def _start_monitor(self) -> None:
        keyring, monmap = str(self._folder / "keyring"), str(self._folder / "monmap")
        self._run(
            "ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"
        )
        self._run(
            "ceph-authtool", keyring, "--gen-key", "-n", "client.admin",
            "--cap", "mon", "allow *", "--cap", "osd", "allow *",
        )  # fmt: skip
        self._run(
            "monmaptool", "--create", "--fsid", self._fsid, "--addv", "a", self._addresses, monmap
        )
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self._spawn("mon", "ceph-mon", "-i", "a")

    def _start_first_osd(self) -> None:
        osd_id = str(uuid.uuid4())
        self._run("ceph", "osd", "new", osd_id, "0")
        keys = self._run(
            "ceph", "auth", "get-or-create", "osd.0",
            "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *",
        ) + self._run(
            "ceph", "auth", "get-or-create", "client.rgw.a", "mon", "allow rw", "osd", "allow rwx",
        )  # fmt: skip
        with (self._folder / "keyring").open("a") as keyring:
            keyring.write(keys)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_id)
        self._spawn("osd", "ceph-osd", "-i", "0")

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        with (self._folder / "log" / f"{name}.out").open("ab") as log:
            # A session of its own: an interrupt at the terminal is for the test runner alone,
            # which then stops everything itself.
            process = subprocess.Popen(
                [program, *arguments, "-f", "-c", str(self._folder / "ceph.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=_environment(),
                start_new_session=True,
            )
        self._running[name] = process
        (self._folder / "run" / f"{name}.pid").write_text(f"{process.pid}\n")

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        (self._folder / "run" / f"{name}.pid").unlink()

    def _await(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not is_ready():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RuntimeError(f"Ceph's {name} ended:\n{self._log(name)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Ceph is not ready:\n{self._log('gateway')}")
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        try:
            with urlopen(self.endpoint, timeout=_START_SECONDS):
                return True
        except (URLError, OSError):
            return False

    def _stores(self) -> bool:
        """Whether an object can be written; the gateway waits for the OSD while it comes up."""
        try:
            obstore.put(self.store(self._probe), "probe", b"probe")
        except Exception:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> str:
        finished = subprocess.run(
            self._command(program, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            env=_environment(),
            timeout=_START_SECONDS,
        )
        if finished.returncode:
            raise RuntimeError(f"{program} failed:\n{finished.stdout}{finished.stderr}")
        return finished.stdout

    def _command(self, program: str, *arguments: str) -> list[str]:
        if program in ("ceph-authtool", "monmaptool"):
            return [program, *arguments]
        return [program, "-c", str(self._folder / "ceph.conf"), *arguments]

    def _log(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return (self._folder / "log" / f"{name}.out").read_text(errors="replace")[-8000:]
        return ""


def _environment() -> Mapping[str, str]:
    """Nothing of the caller's: CEPH_CONF, CEPH_ARGS and their like would reach the programs."""
    return {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": os.environ["PATH"]}


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
