"""docs/guide/windows.md: its program runs its handlers in Qt's loop, as printed there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.waiting import PATIENCE
from tests.test_docs import ANNOUNCED, WINDOWS, Page


@pytest.mark.process
def test_the_example_of_the_guide_runs_its_handlers_in_the_toolkits_loop(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    if importlib.util.find_spec("PySide6") is None:
        pytest.skip("PySide6 is not installed: see CONTRIBUTING.md")
    [example] = Page(WINDOWS).examples
    settings = {
        "SCBROKER_API_KEY": str(broker.api_key),
        "SCBROKER_SERVER_URL": broker.url,
        "SCBROKER_APPLICATION_NAME": "Qt",
        "XDG_STATE_HOME": str(tmp_path),
        "QT_QPA_PLATFORM": "offscreen",  # a window that nobody sees
    }
    done = subprocess.run(
        [sys.executable, "-c", example.code], env={**os.environ, **settings},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ANNOUNCED.findall(example.code), done.stderr
    assert (done.returncode, done.stderr) == (0, "")
