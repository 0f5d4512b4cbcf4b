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
