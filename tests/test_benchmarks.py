"""The harness of the measurements: what its tables, pages and plots say of given figures."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from benchmarks import __main__ as main
from benchmarks import bulk, groups, page, plots
from benchmarks.bulk import Files, Stage
from benchmarks.filling import copy_container
from benchmarks.peers import PEERS, check_same
from benchmarks.result import Curve, Result, Run, amount, cost, in_turn, rate, share, table
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


def test_peers_have_a_column_where_a_result_has_one_and_a_missing_program_is_named() -> None:
    peers = {"one": 20.0, "other": None}
    assert row(rate("job", 30, "/s", 40, "raw", peers=peers))[-1] == (
        "one: 20 /s (1.50x); other: not installed"
    )
    assert len(row(rate("job", 30, "/s"))) == 6


def test_a_folder_is_compared_with_the_faster_of_the_programs_that_have_a_server() -> None:
    peers = {"rclone crypt": 30.0, "restic": 40.0, "age plus cp": 90.0}
    assert row(bulk.against_peers("job", 40, "/s", peers))[:-1] == [
        "job", "40 /s", "40 /s: restic", "1.00x", ">= 1x", "met",
    ]  # fmt: skip
    assert row(bulk.against_peers("job", 39, "/s", peers))[5] == "**missed**"
    assert row(bulk.against_peers("job", 39, "/s", peers | {"restic": None}))[2:6] == [
        "30 /s: rclone crypt", "1.30x", ">= 1x", "met",
    ]  # fmt: skip


def test_without_other_programs_no_target_is_met_or_missed_and_the_row_says_why() -> None:
    peers = {"rclone crypt": None, "restic": None, "age plus cp": 90.0}
    assert row(bulk.against_peers("job", 40, "/s", peers)) == [
        "job", "40 /s", "not installed: rclone crypt, restic", "", ">= 1x", "",
        "rclone crypt: not installed; restic: not installed; age plus cp: 90 /s (0.44x)",
    ]  # fmt: skip


def test_a_copy_that_lacks_a_file_or_differs_from_it_is_an_error(tmp_path: Path) -> None:
    one = Files("files", "3 files", 3, 10, "/s").make(tmp_path)
    copy = Path(shutil.copytree(one, tmp_path / "copy"))
    check_same(one, copy)
    changed = copy / "0" / "0.bin"
    changed.write_bytes(changed.read_bytes()[:-1])
    with pytest.raises(RuntimeError, match="differs"):
        check_same(one, copy)
    changed.unlink()
    with pytest.raises(FileNotFoundError):
        check_same(one, copy)


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


def test_a_run_of_one_part_keeps_the_results_of_the_others_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would draw the plots of the page without them."""
    file = tmp_path / "results.json"
    for part, figure in (("small", 0.005), ("start", 0.2), ("small", 0.004)):
        found = [cost("a create", figure, 0.002, "parts")]
        monkeypatch.setitem(main.PARTS, part, lambda *_, found=found, **__: found)
        monkeypatch.setattr("sys.argv", ["benchmarks", "--only", part, "--json", str(file)])
        assert main.main() == 0
    figures = {part: run.results[0].figure for part, run in page.read_json(file).items()}
    assert figures == {"small": 4.0, "start": 200.0}


@pytest.mark.long
def test_each_question_has_a_plot_of_what_was_measured_beside_something(tmp_path: Path) -> None:
    curve = Curve("Creating", "others", "createContainer", [(0, 5.0), (10, 5.1)])
    runs = [
        Run("small", "", [cost("a create", 0.005, 0.002, "parts")]),
        Run("bulk", "", [rate("put -r", 100, "/s", peers={"rclone": 30.0, "age": None})]),
        Run("large", "", [rate("a file", 300, "MB/s", 500, "raw"), rate("raw", 500, "MB/s")]),
        Run("growth", "", [cost("beside others", 0.005, 0.005, "alone", 1.25, curve)]),
        Run("groups", "", [cost("removing", 0.005, 0.005, "alone", 1.25, curve)]),
        Run("overload", "", [rate("answered", 700, "/s", 1000, "of 32", ratio_at_least=0.8)]),
    ]
    drawn = {path.stem: path.read_text("utf-8") for path in plots.draw(runs, tmp_path)}
    assert set(drawn) == {*plots.BARS, *plots.LINES}
    assert "rclone" in drawn["many"]
    assert "a file" in drawn["large"]
    assert ">raw<" not in drawn["large"]
    before = dict(drawn)
    drawn = {path.stem: path.read_text("utf-8") for path in plots.draw(runs, tmp_path)}
    assert drawn == before
