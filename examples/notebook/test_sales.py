"""The notebook in a real kernel, with a real broker: `scbroker_broker` of scbroker's pytest plugin."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scbroker.testing import PASSPHRASE, LocalBroker
from tests.kit.waiting import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("real_argon2id")]
NOTEBOOK = Path(__file__).with_name("sales.ipynb")
PAGE = Path(__file__).parents[2] / "docs" / "examples" / "notebook.md"


def outputs(notebook: Any) -> list[str]:
    """Return what the cells show as text."""
    return [
        "".join(output.get("text") or output["data"]["text/plain"]).rstrip()
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]


def test_the_notebook_runs_from_top_to_bottom_and_shows_what_the_page_says(
    scbroker_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import nbformat
    from nbclient import NotebookClient

    user = str(scbroker_broker.new_user().getUserId().result())
    own = {"SCBROKER_USER_ID": user, "SCBROKER_PASSPHRASE": PASSPHRASE}
    for name, value in {**scbroker_broker.environment, **own}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notebook: Any = nbformat.reads(NOTEBOOK.read_text("utf-8"), 4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=PATIENCE).execute()
    [shown] = re.findall(
        r"^```text\n(.*?)\n```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert outputs(notebook)[-1] == shown


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell.get("outputs")] == []
