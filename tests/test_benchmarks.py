"""The harness of the measurements: what its tables, pages and plots say of given figures."""

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from benchmarks import bulk, groups
from benchmarks.bulk import Files, Stage
from benchmarks.peers import PEERS
from benchmarks.result import Result, cost, table
from tests.kit.brokers import BrokerProcess


def row(result: Result) -> list[str]:
    return [cell.strip() for cell in table([result]).splitlines()[2].strip("|").split("|")]


def test_a_cost_meets_its_target_up_to_the_ratio_and_misses_it_above() -> None:
    assert row(cost("job", 0.005, 0.002, "parts", 2.5)) == [
        "job", "5 ms", "2 ms: parts", "2.50x", "<= 2.5x", "met",
    ]  # fmt: skip
    assert row(cost("job", 0.0051, 0.002, "parts", 2.5))[-1] == "**missed**"
    assert row(cost("job", 0.0051, 0.002, "parts"))[-2:] == ["", ""]


@pytest.mark.long
def test_folders_are_measured_without_other_programs_and_each_row_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    files = Files("files", "3 files", 3, 100, "/s")
    with ExitStack() as stack:
        stage = Stage(tmp_path, stack)
        rows = bulk.in_and_out(stage, files) + bulk.lists(stage, files, 3)
    assert all(each.figure for each in rows)
    assert {name for each in rows for name in each.peers} == {each.name for each in PEERS}
    assert not any(figure for each in rows for figure in each.peers.values())


@pytest.mark.long
def test_groups_are_measured_beside_as_many_containers_as_the_row_says(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "groups") as broker:
        stage = groups.Stage(broker, 3)
        rows = [
            *groups.reading(stage, 1),
            *groups.listing(stage, 3, 1),
            groups.renewing(stage, 3, 1),
            groups.judging(stage, 3, 1),
        ]
        broker.stop()
        rows += groups.changing(stage, tmp_path, [1, 4], 1)
    with closing(sqlite3.connect(tmp_path / "beside 4" / "broker.sqlite")) as database:
        [(count,)] = database.execute(
            "SELECT max(containers) FROM (SELECT count(*) AS containers FROM members "
            "JOIN users ON users.id = members.user_id WHERE group_version > 1 GROUP BY user_id)"
        )
    assert count == 4
    assert all(each.figure and each.floor and each.ratio for each in rows)
