"""The harness of the measurements: what its tables, pages and plots say of given figures."""

import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.filling import copy_container
from benchmarks.result import Result, Run, amount, cost, in_turn, rate, share, table
from benchmarks.small import device
from tests.kit.brokers import BrokerProcess
from tests.kit.waiting import PATIENCE

MIB = 1024 * 1024


def row(result: Result) -> list[str]:
    return [cell.strip() for cell in table([result]).splitlines()[2].strip("|").split("|")]


def test_a_cost_meets_its_target_up_to_the_ratio_and_misses_it_above() -> None:
    assert row(cost("job", 0.005, 0.002, "parts", 2.5)) == [
        "job", "5 ms", "2 ms: parts", "2.50x", "<= 2.5x", "met",
    ]  # fmt: skip
    assert row(cost("job", 0.0051, 0.002, "parts", 2.5))[-1] == "**missed**"
    assert row(cost("job", 0.0051, 0.002, "parts"))[-2:] == ["", ""]


def test_a_rate_is_better_the_higher_it_is() -> None:
    assert row(rate("job", 600, "MB/s", 1000, "raw", ratio_at_least=0.6)) == [
        "job", "600 MB/s", "1,000 MB/s: raw", "0.60x", ">= 0.6x", "met",
    ]  # fmt: skip
    assert not rate("job", 599, "MB/s", 1000, "raw", ratio_at_least=0.6).met
    assert rate("job", 700, "/s", at_least=700).met
    assert not rate("job", 699, "/s", at_least=700).met
    assert rate("job", 1, "/s").met is None


def test_an_amount_is_better_the_lower_it_is_and_beside_a_floor_its_target_is_the_amount() -> None:
    assert row(amount("job", 0.25, "s", 0.25, 0.05, "nothing")) == [
        "job", "0.25 s", "0.05 s: nothing", "5.00x", "<= 0.25 s", "met",
    ]  # fmt: skip
    assert not amount("job", 0.26, "s", 0.25).met
    assert share("job", 105, "MiB", 100, "missing", 1.05).met
    assert not share("job", 106, "MiB", 100, "missing", 1.05).met


def test_all_have_their_turn_in_every_round_and_the_median_counts() -> None:
    figures = {"a": iter([1.0, 9.0, 2.0]), "b": iter([5.0, 3.0, 4.0])}
    turns: list[str] = []

    def measure(name: str) -> float:
        turns.append(name)
        return next(figures[name])

    assert in_turn([lambda: measure("a"), lambda: measure("b")], 3) == [2.0, 4.0]
    assert turns == ["a", "b"] * 3


def test_a_part_is_written_in_its_place_and_the_rest_of_the_page_stays() -> None:
    old = "# Page\n\n<!-- results of one -->\nold\n<!-- end of one -->\n\nText.\n"
    new = page.replaced(old, Run("one", "Here.", [rate("job", 7, "/s")]))
    assert new.startswith("# Page\n\n<!-- results of one -->\n\nHere.\n\n| job |")
    assert new.endswith("<!-- end of one -->\n\nText.\n")
    assert "old" not in new
    assert page.replaced(new, Run("one", "Here.", [rate("job", 7, "/s")])) == new
    assert page.replaced(new, Run("two", "", [])).startswith(new)


_HOLD_64_MIB = """
from benchmarks.memory import Peak
peak = Peak()
held = b"x" * (64 * 1024 * 1024)
del held
print(peak.above())
"""


def test_a_peak_counts_memory_that_was_freed_again() -> None:
    """In a process of its own: other tests of this one may free memory at the same time."""
    done = subprocess.run(
        [sys.executable, "-c", _HOLD_64_MIB],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    if done.stdout == "None\n":
        pytest.skip("only Linux tells")
    assert 60 < float(done.stdout) < 100


@pytest.mark.long
def test_copies_of_a_container_are_as_many_as_were_asked_for_each_with_all_of_its_rows(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path) as broker, ExitStack() as stack:
        made = device(broker, stack).createContainer(b"a content", "a header").result(PATIENCE)
        broker.stop()
        copy_container(tmp_path / "broker.sqlite", made.id, 50)
        copy_container(tmp_path / "broker.sqlite", made.id, 50)
        with closing(sqlite3.connect(tmp_path / "broker.sqlite")) as database:
            (counts,) = database.execute(
                "SELECT (SELECT count(DISTINCT container_id) FROM records),"
                " (SELECT count(DISTINCT container_id) FROM members),"
                " (SELECT count(DISTINCT part_id) FROM parts JOIN containers ON id = container_id)"
            )
    assert counts == (101, 101, 202)
