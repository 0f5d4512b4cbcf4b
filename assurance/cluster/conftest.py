"""One cluster for all tests of a run: each leaves it running, and uses users of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from assurance.cluster.ceph import ObjectGateway
from assurance.cluster.cluster import Cluster
from assurance.faults.scenes import EPOCHS
from assurance.people import new_device as device_at
from scbroker import KeyRing, ServerProvider
from tests.kit.brokers import Address, Wire
from tests.kit.engine_choice import CHOICE
from tests.kit.writers import User


@pytest.fixture(scope="session")
def gateway() -> Iterator[ObjectGateway]:
    """Return an S3 of this test process."""
    with ObjectGateway() as found:
        yield found


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Return three brokers behind HAProxy, on the engines that the run has."""
    without = request.config.stash[CHOICE].without
    with Cluster(without=without, max_new_epochs=EPOCHS) as found:
        yield found


Everywhere = Callable[..., list[User]]


@pytest.fixture
def everywhere(cluster: Cluster) -> Iterator[Everywhere]:
    """`everywhere()`: one user, new or given, with a session at each of the brokers."""
    with ExitStack() as stack:

        def make(ring: KeyRing | None = None) -> list[User]:
            found = ring or cluster.new_user()
            wires = [stack.enter_context(Wire(broker)) for broker in cluster.brokers]
            return [User(found, wire.log_in(found)) for wire in wires]

        yield make


NewDevice = Callable[..., ServerProvider]


@pytest.fixture
def new_device(cluster: Cluster) -> Iterator[NewDevice]:
    """`new_device(ring, at=...)`: a session of this user, at the proxy unless a broker is given."""
    with ExitStack() as stack:

        def make(ring: KeyRing, at: Address | None = None) -> ServerProvider:
            url = f"http://127.0.0.1:{(at or cluster).port}"
            return device_at(stack, cluster, ring, url=url)

        yield make
