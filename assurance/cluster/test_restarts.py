"""Brokers and databases restart or are killed, and clients go on."""

import asyncio

import pytest
from sqlalchemy import text

from assurance.cluster.cluster import Cluster
from assurance.cluster.conftest import NewDevice
from assurance.cluster.load import Load, under_load
from scbroker import ServerProvider
from scbroker.server.storage.database import open_database
from tests.kit.waiting import PATIENCE

PAIRS = 8
ENOUGH = 16


Devices = list[tuple[ServerProvider, ServerProvider]]


def everything_is_there(load: Load, devices: Devices) -> None:
    """Check that each container has the last content that was acknowledged."""
    assert load.written > ENOUGH
    for number, (identity, contents) in load.stored.items():
        found = devices[number][0].getContainer(identity).result(PATIENCE).content
        assert found == contents[-1]


@pytest.mark.cluster("patroni", "haproxy")
def test_no_operation_fails_during_a_rolling_restart_of_all_brokers(
    cluster: Cluster, new_device: NewDevice
) -> None:
    """Eight writers and eight readers, none of which retries by itself."""
    users = [cluster.new_user() for _ in range(PAIRS)]
    devices = [(new_device(ring), new_device(ring)) for ring in users]
    with under_load(devices, patient=False) as load:
        for number in range(len(cluster.brokers)):
            load.wait_for_more(ENOUGH)
            cluster.restart_broker(number)
        load.wait_for_more(ENOUGH)
    assert load.retried == 0
    everything_is_there(load, devices)


@pytest.mark.cluster("patroni", "haproxy")
def test_after_the_primary_was_killed_everything_acknowledged_is_there_and_clients_finish(
    cluster: Cluster, new_device: NewDevice
) -> None:
    users = [cluster.new_user() for _ in range(PAIRS)]
    devices = [(new_device(ring), new_device(ring)) for ring in users]
    with under_load(devices, patient=True) as load:
        load.wait_for_more(ENOUGH)
        killed = cluster.kill_primary()
        new = cluster.patroni.await_primary(killed)
        load.wait_for_more(ENOUGH)
    assert new != killed
    everything_is_there(load, devices)
    cluster.start_member()


@pytest.mark.cluster("patroni", "haproxy")
def test_when_a_broker_is_killed_clients_go_on_at_the_others(
    cluster: Cluster, new_device: NewDevice
) -> None:
    users = [cluster.new_user() for _ in range(PAIRS)]
    devices = [(new_device(ring), new_device(ring)) for ring in users]
    with under_load(devices, patient=True) as load:
        load.wait_for_more(ENOUGH)
        cluster.kill_broker(1)
        load.wait_for_more(ENOUGH)
    cluster.restart_broker(1)
    everything_is_there(load, devices)


@pytest.mark.cluster("patroni")
def test_a_broker_whose_url_names_all_members_finds_the_primary(cluster: Cluster) -> None:
    patroni = cluster.patroni
    primary = patroni.members[patroni.primary]
    members = sorted(patroni.members.values(), key=lambda member: member == primary)
    hosts = "&".join(f"host=127.0.0.1:{member.port}" for member in members)
    url = f"postgresql://postgres:{patroni.password}@/postgres?{hosts}"

    async def ask() -> int:
        database = open_database(url)
        try:
            show = "SELECT current_setting('port')"
            return int(await database.query(lambda c: c.execute(text(show)).scalar_one()))
        finally:
            await database.close()

    assert asyncio.run(ask()) == primary.port
