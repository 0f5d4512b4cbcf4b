"""`make demo`: it tells its whole story, on any file, in lines that fit a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from examples import demo

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
