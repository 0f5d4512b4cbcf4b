"""Three brokers behind HAProxy, on the engines of deployment.py."""

import secrets
import uuid
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from assurance.cluster.ceph import ObjectGateway
from assurance.cluster.deployment import Deployment
from assurance.cluster.ground import Ground, Running, wait_until
from assurance.cluster.patroni import Patroni
from assurance.cluster.proxy import Proxy
from scbroker.keys import KeyRing
from scbroker.wire.users import canonical_origin
from tests.kit.brokers import Address, BrokerProcess, Wire, new_user
from tests.kit.engines import free_port

PROXIED: Final = "127.0.0.1"
"""The proxy whose X-Forwarded-For the brokers trust."""
_BROKERS: Final = 3


class Cluster(Running):
    """Brokers on the same data, for as long as the `with` block. Acknowledged records survive any kill.

        with Cluster() as cluster:
            ring = cluster.new_user()
            provider = ServerProvider(cluster.api_key, cluster.url, "test")
            provider.logIn(userId=ring.userId, keyRing=ring).result()
            cluster.restart_broker(1)                 # as an operator does: SIGTERM, wait, start
            killed = cluster.patroni.kill_primary()   # SIGKILL for its PostgreSQL
            cluster.patroni.await_primary(killed)     # two seconds later the standby takes writes
            cluster.patroni.start_members()           # returns when a commit is on both again

    It is an address: `Wire(cluster)` goes to the proxy, `Wire(cluster.brokers[2])` to one broker. `settings`
    are those of all brokers. For `without` see `Deployment`.
    """

    def __init__(self, *, without: Collection[str] = (), **settings: Any) -> None:
        self.api_key = uuid.uuid4()
        self.brokers: list[BrokerProcess] = []
        self.deployment = Deployment(durable=True, without=without)
        self._without, self._settings = without, settings

    def _begin(self, stack: ExitStack) -> None:
        self._ground = stack.enter_context(Ground())
        stack.enter_context(self.deployment)
        ports = [free_port() for _ in range(_BROKERS)]
        self.port = ports[0]
        if "haproxy" not in self._without:
            self.port = stack.enter_context(Proxy(brokers=ports)).port
        self.brokers = self._new_brokers(ports)
        for broker in self.brokers:
            stack.enter_context(broker)
        self._wait_until_ready(*self.brokers)

    @property
    def url(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return canonical_origin(self.url)

    @property
    def database_url(self) -> str:
        return self.brokers[0].database_url

    @property
    def patroni(self) -> Patroni:
        found = self.deployment.patroni
        assert found is not None, "Patroni was left out."
        return found

    @property
    def gateway(self) -> ObjectGateway:
        found = self.deployment.gateway
        assert found is not None, "Ceph was left out."
        return found

    def new_user(self) -> KeyRing:
        """Register a user, as `BrokerProcess.new_user` does."""
        return new_user(self)

    def restart_broker(self, number: int) -> None:
        """Send SIGTERM, wait, start it again, and wait until it is ready; also after a kill."""
        self.brokers[number].restart()
        self._wait_until_ready(self.brokers[number])

    def _wait_until_ready(self, *brokers: BrokerProcess) -> None:
        """Wait until these brokers are ready, and until the proxy has seen that one is."""

        def complaint() -> str:
            return "\n".join(["A broker is not ready:", *(broker.log for broker in brokers)])

        for broker in brokers:
            wait_until(partial(_is_ready, broker, "/health/ready"), complaint)
        wait_until(partial(_is_ready, self, "/"), complaint)

    def _new_brokers(self, ports: list[int]) -> list[BrokerProcess]:
        addresses, ground = self.deployment.addresses, self._ground.folder
        origins = [self.url, *(f"http://127.0.0.1:{port}" for port in ports)]
        common: dict[str, Any] = {
            "api_key": self.api_key,
            "broker_key": secrets.token_hex(32),
            "object_store_url": addresses.create_store() or (ground / "objects").as_uri(),
            "origins": ",".join(map(canonical_origin, origins)),
            "trusted_proxies": PROXIED,
            "variables": addresses.environment,
            **self._settings,
        }
        database_url = addresses.create_database()
        found: list[BrokerProcess] = []
        for number, port in enumerate(ports):
            folder = ground / f"broker-{number}"
            folder.mkdir(mode=0o700)  # it works in there, so that the ground ends it as well
            found.append(BrokerProcess(folder, database_url, port=port, works_in=folder, **common))
        return found


def _is_ready(at: Address, path: str) -> bool:
    with Wire(at) as wire:
        return wire.call("GET", path).status != HTTPStatus.SERVICE_UNAVAILABLE
