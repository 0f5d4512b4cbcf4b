"""Brokers and databases restart or are killed, and clients go on: none of them handles a fault."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import text

from assurance.cluster.cluster import Cluster
from assurance.faults import scenes
from assurance.faults.crowd import Crowd
from assurance.faults.inspection import Inspection
from scbroker.server.storage.database import open_database
from tests.kit.waiting import wait_until

ENOUGH = 40
through_proxy = pytest.mark.cluster("patroni", "haproxy", "ceph")


def has_more(crowd: Crowd, count: int) -> bool:
    return crowd.ledger.acknowledged > count


def check_under_load(cluster: Cluster, *disturbances: Callable[[], object]) -> None:
    """Disturb the cluster while a crowd works, and check that no operation failed and nothing was lost."""
    with scenes.of(cluster) as scene:
        crowd = Crowd(scene, 1, writers=4, readers=4)
        inspection = Inspection(scene, crowd)
        crowd.start()
        try:
            for disturb in (lambda: None, *disturbances):
                disturb()
                wait_until(partial(has_more, crowd, crowd.ledger.acknowledged + ENOUGH))
        finally:
            crowd.stop()
        assert crowd.ledger.violations == []
        assert inspection.at_the_end() == []


@through_proxy
def test_no_operation_fails_during_a_rolling_restart_of_all_brokers(cluster: Cluster) -> None:
    numbers = range(len(cluster.brokers))
    check_under_load(cluster, *(lambda n=n: cluster.restart_broker(n) for n in numbers))


@through_proxy
def test_after_the_primary_was_killed_everything_acknowledged_is_there_and_clients_finish(
    cluster: Cluster,
) -> None:
    def fail_over() -> None:
        killed = cluster.patroni.kill_primary()
        assert cluster.patroni.await_primary(killed) != killed

    check_under_load(cluster, fail_over, cluster.patroni.start_members)


@through_proxy
def test_when_a_broker_is_killed_clients_go_on_at_the_others(cluster: Cluster) -> None:
    check_under_load(cluster, cluster.brokers[1].kill, lambda: cluster.restart_broker(1))


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
