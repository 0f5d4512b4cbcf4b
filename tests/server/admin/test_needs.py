"""`scbroker admin capacity` calculates with what was measured."""

import re
from pathlib import Path
from typing import Final

import pytest

from scbroker.server.admin import needs as measured
from scbroker.server.admin.needs import needs_of
from tests.kit.nursery import run

DOCS: Final = Path(__file__).parents[3] / "docs"


def number(pattern: str, page: str) -> int:
    """The one number that a page has at this place."""
    (found,) = re.findall(pattern, (DOCS / page).read_text("utf-8"))
    return int(found.replace(",", ""))


@pytest.mark.parametrize(
    "constant, page, pattern",
    [
        (measured.USER, "scale.md", r"\| a user, with .* \| ([\d,]+) \|"),
        (measured.CONTAINER, "scale.md", r"\| a container for its owner alone.* \| ([\d,]+) \|"),
        (measured.MEMBER, "scale.md", r"\| each further member .* \| ([\d,]+) \|"),
        (measured.UPDATE, "scale.md", r"\| each update of the header .* \| ([\d,]+) \|"),
        (measured.EVENT, "scale.md", r"\| each event .* \| ([\d,]+) \|"),
        (measured.CHUNK, "scale.md", r"\| each chunk of .* \| ([\d,]+),"),
        (measured.CONTAINER_INDEXES, "scale.md", r"indexes of a container take ([\d,]+) bytes"),
        (measured.EVENT_INDEXES, "scale.md", r"those of an event ([\d,]+):"),
        (measured.SQLITE_CONTAINERS, "scale.md", r"beside .*\| ([\d,]+) containers, 1,000,000 events: p50"),
        (measured.LOG_IN_REQUESTS, "scale.md", r"\| `logIn` by .* \| (\d+) \| 3,600"),
        (measured.READS, "scale.md", r"logs in once, reads (\d+) containers"),
        (measured.FIRST_READS, "scale.md", r"containers \((\d+) of them"),
        (measured.WRITES, "scale.md", r"that device\), writes (\d+) times"),
        (measured.CREATES, "performance.md", r"createContainer on PostgreSQL, 8 users at once . ([\d,]+) /s"),
        (measured.GETS, "performance.md", r"getContainer on PostgreSQL, 8 users at once . ([\d,]+) /s"),
    ],
)  # fmt: skip
def test_each_constant_is_the_one_that_was_measured(constant: int, page: str, pattern: str) -> None:
    assert constant == number(pattern, page)


def test_the_model_of_a_million_users_comes_out_as_the_page_about_scale_calculates_it() -> None:
    needs = needs_of(users=1_000_000)
    assert needs.database_bytes == pytest.approx((13 + 1_085 + 100) * 1e9, rel=0.02)
    assert needs.database_bytes_a_day == pytest.approx(5.9e9, rel=0.01)
    assert needs.index_bytes == pytest.approx((109 + 64) * 1e9, rel=0.01)
    assert needs.requests_a_second == pytest.approx(860, rel=0.01)
    assert not needs.fits_one_machine
    assert needs.database_connections == 17 * needs.processes


def test_a_large_content_is_counted_in_the_object_store_and_a_small_one_in_the_database() -> None:
    small, large = (needs_of(users=1, content=size) for size in (65_536, 65_537))
    assert (small.object_bytes, large.object_bytes) == (0, 6_553_700)
    assert small.database_bytes - needs_of(users=1).database_bytes == 100 * (65_536 - 1_024)
    assert large.database_bytes - needs_of(users=1).database_bytes == 100 * 500


def test_one_machine_suffices_up_to_a_million_containers_and_half_of_a_process() -> None:
    assert needs_of(users=10_000).processes == 1
    assert not needs_of(users=10_001).fits_one_machine
    busy = needs_of(users=1_000_000, containers=1, share=1.0)
    assert not busy.fits_one_machine
    assert busy.processes > 5


def test_the_page_shows_what_the_command_prints() -> None:
    page = (DOCS / "guide" / "capacity.md").read_text("utf-8")
    match = re.search(r"\$ scbroker (admin capacity .*)\n((?:\w+: .*\n)+)", page)
    assert match
    status, output, _error = run(match[1].split(), {}, 60.0)
    assert status == 0
    shown = dict(re.findall(r"(\w+): +(.*)", match[2]))
    found = dict(line.split("\t") for line in output.splitlines())
    assert list(shown) == list(found)
    for name, value in shown.items():
        size, _, unit = value.partition(" ")
        if unit:
            units = ("B", "KiB", "MiB", "GiB")
            assert float(size) == pytest.approx(
                int(found[name]) / 1024 ** units.index(unit), abs=0.06
            )
        else:
            assert value == found[name]
