"""The engines of brokers on several machines: PostgreSQL under Patroni behind HAProxy, and an S3.

Started once for a test run; test processes get `Addresses`.
"""

import asyncio
import uuid
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import asyncpg

from assurance.cluster import ceph, patroni, proxy
from assurance.cluster.ceph import ObjectGateway
from assurance.cluster.ground import Running, is_installed
from assurance.cluster.patroni import USER, Patroni
from assurance.cluster.proxy import Proxy
from tests.kit.engines import PostgresServer

_PROGRAMS: Final = {
    "patroni": (patroni.PROGRAMS, patroni.PACKAGES),
    "haproxy": (("haproxy",), proxy.PACKAGES),
    "ceph": (("ceph-mon", "ceph-osd", "radosgw"), ceph.PACKAGES),
}
PARTS: Final = tuple(_PROGRAMS)
"""The engines that `--without` can leave out."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the engines are, with the passwords to them."""

    database: str
    """The URL of a first database, as SQLAlchemy takes it."""
    bucket: str
    """The URL of a bucket; empty without an object store, when a folder has the contents."""
    environment: dict[str, str]
    """What a broker needs in its environment to use the bucket."""

    def __repr__(self) -> str:
        return "Addresses(…)"

    def create_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"test_{uuid.uuid4().hex}"
        asyncio.run(_execute(self.database, f'CREATE DATABASE "{name}"'))
        return f"{self.database.rpartition('/')[0]}/{name}"

    def create_store(self) -> str:
        """Return the URL of an empty object store, or an empty text."""
        return f"{self.bucket}/{uuid.uuid4()}" if self.bucket else ""


class Deployment(Running):
    """The engines, for as long as the `with` block.

        with Deployment() as deployment:
            url = deployment.addresses.create_database()

    `without` names some of PARTS: a plain PostgreSQL replaces Patroni, a folder replaces Ceph, and without
    HAProxy brokers connect to the first member. Acknowledged writes survive a kill of everything only with
    `durable=True`.
    """

    def __init__(self, *, durable: bool = False, without: Collection[str] = ()) -> None:
        self._durable, self._without = durable, without
        self.patroni: Patroni | None = None
        self.gateway: ObjectGateway | None = None

    def _begin(self, stack: ExitStack) -> None:
        database = self._start_database(stack)
        bucket, environment = "", {}
        if "ceph" not in self._without:
            self.gateway = stack.enter_context(ObjectGateway(durable=self._durable))
            bucket, environment = self.gateway.url, self.gateway.environment
        self.addresses = Addresses(database, bucket, environment)

    def _start_database(self, stack: ExitStack) -> str:
        if "patroni" in self._without:
            server = stack.enter_context(PostgresServer(durable=self._durable))
            return server.createdatabase()
        self.patroni = stack.enter_context(Patroni(durable=self._durable))
        port = self.patroni.members["a"].port
        if "haproxy" not in self._without:
            ports = {member.port: member.rest_port for member in self.patroni.members.values()}
            port = stack.enter_context(Proxy(databases=ports)).port
        return f"postgresql+asyncpg://{USER}:{self.patroni.password}@127.0.0.1:{port}/{USER}"


def missing(without: Collection[str] = ()) -> str:
    """Return which packages are missing, as a sentence; an empty text if none."""
    lacking = [
        (part, packages)
        for part, (programs, packages) in _PROGRAMS.items()
        if part not in without and not all(map(is_installed, programs))
    ]
    if not lacking:
        return ""
    parts, packages = zip(*lacking, strict=True)
    return (
        f"The cluster lacks {', '.join(parts)}. On Debian: apt-get install --no-install-recommends "
        f"{' '.join(packages)}. Or leave it out: pytest --engines cluster --without '{' '.join(parts)}'."
    )


async def _execute(url: str, statement: str) -> None:
    address = url.replace("+asyncpg", "")
    connection = await asyncpg.connect(address, target_session_attrs="primary")
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
