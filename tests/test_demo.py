"""`make demo`: it tells its whole story, on any file, in lines that fit a terminal."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from examples import demo
from tests.kit.waiting import PATIENCE

ROOT: Final = Path(__file__).parent.parent


def test_the_demo_tells_its_whole_story_in_80_columns(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.console, "width", 200)

    demo.main()

    told = capfd.readouterr().out
    assert "the same SHA-256 as alice's file" in told
    assert told.count("nowhere") == 4
    assert "alice: owner" in told
    assert "bob: read" in told
    assert "DecryptionError" in told
    assert "NotFoundError" in told
    assert [line for line in told.splitlines() if len(line) > 80] == []
    end = told.partition("What next")[2]
    assert "make demo FILE=PATH" in end
    assert "make demo UI=1" in end
    pages = [word for word in end.split() if word.endswith(".md")]
    assert pages
    assert [page for page in pages if not (ROOT / page).exists()] == []


@pytest.mark.long
def test_the_demo_takes_a_file_whose_name_would_steer_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a [red]\x1b[2Jletter.txt"
    file.write_bytes(b"Hi\x00")

    demo.main(["--file", str(file)])

    told = capfd.readouterr().out
    assert "\x1b[2J" not in told
    assert "a [red]\\x1b[2Jletter.txt" in told
    assert "too short to search for" in told
    assert told.count("nowhere") == 3


@pytest.mark.parametrize(
    "name, fault",
    [
        ("gone\n.txt", "gone\\n.txt does not exist"),
        (".", "is not a file"),
        ("empty", "has 0 bytes"),
        ("large", "has 100,000,001 bytes"),
    ],
    ids=["gone", "a folder", "empty", "large"],
)
def test_the_demo_refuses_a_file_that_it_cannot_share_before_it_starts_a_broker(
    name: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(100_000_001)
    with pytest.raises(SystemExit):
        demo.main(["--file", str(tmp_path / name)])
    said = capsys.readouterr()
    assert fault in said.err
    assert "FILE=PATH" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "variables, arguments",
    [
        ([], []),
        (["FILE=a letter.txt"], ["--file", "a letter.txt"]),
        (["UI=1"], ["--ui"]),
        (["FILE='; touch gone; '", "UI=1"], ["--file", "'; touch gone; '", "--ui"]),
    ],
    ids=["nothing", "a file", "the page", "a command in a name"],
)
def test_make_passes_the_file_and_the_page_on(
    variables: list[str], arguments: list[str], tmp_path: Path
) -> None:
    """A program in place of python prints its arguments."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "--silent", "--no-print-directory", "demo", "RUNNING=", f"BIN={tmp_path}", *variables],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["-m", "examples.demo", *arguments], done
    assert not (ROOT / "gone").exists()
