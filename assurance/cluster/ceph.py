"""A real S3 for the tests: the Ceph object gateway, as ordinary processes on loopback.

One monitor, one OSD and one gateway keep everything in one temporary folder. They come from Debian:
`apt-get install --no-install-recommends radosgw ceph-mon ceph-osd`.
"""

import secrets
import subprocess
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import obstore
import tenacity
from obstore.store import S3Store

from assurance.cluster.ground import Ground, Running, wait_until
from tests.kit.engines import free_port
from tests.kit.waiting import PATIENCE

PACKAGES: Final = "radosgw ceph-mon ceph-osd"
_REGION: Final = "us-east-1"
_BYTES: Final = 4 * 2**30

# Every path lies in the folder; nothing listens but on loopback. With `chdir` at its default the daemons
# would leave the folder, and the ground would not find them.
_CONFIGURATION: Final = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_v1}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}
chdir =
admin socket =
log file = {folder}/$name-internal.log
mon cluster log file = {folder}/cluster.log
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


class ObjectGateway(Running):
    """An S3 that lives as long as its `with` block, and no longer than the process.

        with ObjectGateway() as gateway:
            url, environment = gateway.url, gateway.environment

    Objects are kept in memory, or with `durable=True` in a file: only then they survive `crash_osd`.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        self._key = secrets.token_hex(10).upper()
        self._secret = secrets.token_urlsafe(30)
        self._buckets = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    # Another process may have taken a port after `free_port` had found it free.
    @tenacity.retry(
        retry=tenacity.retry_if_exception_type((RuntimeError, TimeoutError)),
        stop=tenacity.stop_after_attempt(3),
        reraise=True,
    )
    def _begin(self, stack: ExitStack) -> None:
        self.ground = stack.enter_context(Ground())
        self._start_all()

    @property
    def endpoint(self) -> str:
        """The gateway's address as `http://127.0.0.1:PORT`, which is also the origin of presigned URLs."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """A new, empty bucket as `SCBROKER_OBJECT_STORE_URL` takes it, with `environment`."""
        return f"s3://{self.new_bucket()}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a broker for its object store: the address of the S3, and its keys."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
        }

    def store(self, bucket: str) -> S3Store:
        """Return a bucket, opened with the keys."""
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
        with urlopen(Request(url, method="PUT"), timeout=PATIENCE):
            return name

    def crash_osd(self) -> None:
        """Send SIGKILL to the process that keeps the objects."""
        self._kill("osd")

    def start_osd(self) -> None:
        """Start it again, and return when objects can be stored through the gateway."""
        self._start("osd", "ceph-osd", "-i", "0")
        self._await(self._stores)

    def stop_gateway(self) -> None:
        """Kill the S3 server alone: connections to its port are refused."""
        self._kill("gateway")

    def start_gateway(self) -> None:
        """Start it again on the same port."""
        self._start("gateway", "radosgw", "-n", "client.rgw.a")
        self._await(self._answers)

    def _start_all(self) -> None:
        for name in ("crash", "mon", "osd", "rgw"):
            self.ground.new_folder(name)
        self._port, mon, mon_v1 = free_port(), free_port(), free_port()
        fsid = str(uuid.uuid4())
        values = {
            "folder": self.ground.folder,
            "fsid": fsid,
            "mon": mon,
            "mon_v1": mon_v1,
            "gateway": self._port,
            "store": "bluestore" if self._durable else "memstore",
            "memory": _BYTES,
            "disk": _BYTES,
        }
        self._configuration = self.ground.write("ceph.conf", _CONFIGURATION.format_map(values))
        self._start_monitor(fsid, f"[v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_v1}]")
        self._start_first_osd()
        self.start_gateway()
        self._run(
            "radosgw-admin", "-n", "client.rgw.a", "user", "create", "--uid=test",
            "--display-name=test", f"--access-key={self._key}", f"--secret-key={self._secret}",
        )  # fmt: skip
        self._probe = self.new_bucket()

    def _start_monitor(self, fsid: str, addresses: str) -> None:
        keyring, monmap = self.ground.folder / "keyring", self.ground.folder / "monmap"
        self.ground.run(
            "ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"
        )
        self.ground.run(
            "ceph-authtool", keyring, "--gen-key", "-n", "client.admin",
            "--cap", "mon", "allow *", "--cap", "osd", "allow *",
        )  # fmt: skip
        self.ground.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", addresses, monmap)
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self._start("mon", "ceph-mon", "-i", "a")

    def _start_first_osd(self) -> None:
        osd_id = str(uuid.uuid4())
        self._run("ceph", "osd", "new", osd_id, "0")
        keys = self._run(
            "ceph", "auth", "get-or-create", "osd.0",
            "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *",
        ) + self._run(
            "ceph", "auth", "get-or-create", "client.rgw.a", "mon", "allow rw", "osd", "allow rwx",
        )  # fmt: skip
        with (self.ground.folder / "keyring").open("a") as keyring:
            keyring.write(keys)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_id)
        self._start("osd", "ceph-osd", "-i", "0")

    def _start(self, name: str, program: str, *arguments: str) -> None:
        options = ["-f", "-c", str(self._configuration)]
        self._running[name] = self.ground.start(name, [program, *arguments, *options])

    def _run(self, program: str, *arguments: str | Path) -> str:
        return self.ground.run(program, "-c", self._configuration, *arguments)

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def _await(self, is_ready: Callable[[], bool]) -> None:
        running = self._running
        wait_until(is_ready, lambda: self.ground.complaint(*running), running.values())

    def _answers(self) -> bool:
        try:
            with urlopen(self.endpoint, timeout=PATIENCE):
                return True
        except (URLError, OSError):
            return False

    def _stores(self) -> bool:
        """Return whether an object can be written; the gateway waits for the OSD while it starts."""
        try:
            obstore.put(self.store(self._probe), "probe", b"probe")
        except Exception:
            return False
        return True
