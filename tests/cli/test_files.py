"""Files that `put` stores: their headers, and why one could not be read."""

import datetime as dt
import os
from pathlib import Path

import pytest

from scbroker import errors
from scbroker.cli.files import File, find, is_same_time, read_small
from tests.kit.cases import in_one_case

NOON = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def file(name: str = "a.txt", path: Path | None = None) -> File:
    return File(path, name, 4, NOON)


def test_a_new_header_keeps_the_fields_that_are_not_of_the_file() -> None:
    old = {"name": "b", "modified": 5, "mediaType": "x/y", "mine": 1}
    assert file("a").header(old) == {
        "name": "a",
        "modified": "2026-03-01T12:00:00.000000Z",
        "mine": 1,
    }


def not_expected(*arguments: object) -> None:
    raise AssertionError(arguments)


def found(*given: str, name: str | None = None) -> list[File]:
    return find(list(given), name, recursive=True, skipped=not_expected, failed=not_expected)


def test_a_link_that_is_named_itself_has_its_own_name_and_a_file_given_twice_is_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "target").write_text("text")
    (tmp_path / "link").symlink_to("target")
    [each] = found(str(tmp_path / "link"), f"{tmp_path}/./link")
    assert (each.name, each.size) == ("link", 4)


def test_of_names_that_look_the_same_the_second_fails_alone_and_is_told_apart(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    for name in ("e\u0301", "\u00e9", "a", "a\u200f", "A", "CON"):
        (folder / name).write_text("")
    if len(list(folder.iterdir())) < 6:
        pytest.skip("the file system takes two names for one")
    failed = list[str]()
    stored = find(
        [str(folder)], None, recursive=True, skipped=not_expected,
        failed=lambda _, error: failed.append(error.message),
    )  # fmt: skip
    assert [each.name for each in stored] == ["f/A", "f/a", "f/\u00e9"]
    assert [each for each in failed if "e\\u0301" in each and "f/\\xe9" in each]
    assert [each for each in failed if "a\\u200f" in each]
    assert len(failed) == 3


def test_a_folder_has_the_name_by_which_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk" / "2019").mkdir(parents=True)
    (tmp_path / "disk" / "2019" / "a").write_text("")
    (tmp_path / "photos").symlink_to("disk/2019")
    monkeypatch.chdir(tmp_path)
    for text, name in (("photos", "photos/a"), ("photos/", "photos/a"), ("disk/2019/.", "2019/a")):
        assert [each.name for each in found(text)] == [name]
    monkeypatch.chdir("disk/2019")
    assert [each.name for each in found(".")] == ["2019/a"]
    assert [each.name for each in found("..")] == ["disk/2019/a"]


@pytest.mark.parametrize("text, later", [("tex", 0), ("texts", 0), ("TEXT", 1000)])
def test_a_small_file_that_is_written_to_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, later: int
) -> None:
    path = tmp_path / "a"
    path.write_text("text")
    real, looks = os.fstat, list[int]()

    def fstat(descriptor: int) -> os.stat_result:
        """Write to the file after each look at it but the one that opens it."""
        state = real(descriptor)
        looks.append(descriptor)
        if len(looks) == 1:
            return state
        path.write_text(text)
        os.utime(path, ns=(0, state.st_mtime_ns + later))
        return state

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(errors.InvalidArgumentError, match="changed while it was read"):
        read_small(path, 4)


@in_one_case(
    "one, other, same",
    [
        ("1969-07-20T20:17:40.123456", "1969-07-20T20:17:40.123456", True),
        ("2026-03-01T12:00:01.123456", "2026-03-01T12:00:01.123457", False),
        ("2026-03-01T12:00:01.123456", "2026-03-01T12:00:01.123000", True),  # of a page
        ("2026-03-01T12:00:01.123456", "2026-03-01T12:00:01.124000", True),  # rounded
        ("2026-03-01T12:00:01.123456", "2026-03-01T12:00:01.125000", False),
        ("1969-07-20T20:17:41.123456", "1969-07-20T20:17:41.000000", True),  # of a ZIP archive
        ("1969-07-20T20:17:41.123456", "1969-07-20T20:17:43.000000", False),
        ("2026-03-01T12:00:01.123456", "2026-03-01T12:00:00.000000", True),  # of FAT
        ("2026-03-01T12:00:01.123456", "2026-03-01T12:00:04.000000", False),
        ("0001-01-01T00:00:00.000000", "9999-12-31T23:59:59.999999", False),
    ],
)
def test_times_are_compared_to_the_coarser_precision(one: str, other: str, same: bool) -> None:
    times = [dt.datetime.fromisoformat(each).replace(tzinfo=dt.UTC) for each in (one, other)]
    assert is_same_time(*times) is same
    assert is_same_time(times[1], times[0]) is same
    assert not is_same_time(times[0], None)
