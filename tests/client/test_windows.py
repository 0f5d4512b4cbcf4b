"""docs/guide/windows.md: its programs run their handlers in the loops of Tk and Qt, as printed there."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.displays import screen
from tests.kit.waiting import PATIENCE
from tests.test_docs import ANNOUNCED, WINDOWS, Page

Display = Callable[[], AbstractContextManager[dict[str, str]]]


@contextmanager
def no_screen() -> Iterator[dict[str, str]]:
    """The environment of a Qt program that shows its windows to nobody."""
    yield {"QT_QPA_PLATFORM": "offscreen"}


@pytest.mark.process
@pytest.mark.parametrize(
    "module, display", [("tkinter", screen), ("PySide6", no_screen)], ids=["Tk", "Qt"]
)
def test_the_example_of_the_guide_runs_its_handlers_in_the_toolkits_loop(
    broker: BrokerProcess, module: str, display: Display, tmp_path: Path
) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: see CONTRIBUTING.md")
    (code,) = (each.code for each in Page(WINDOWS).examples if module in each.code)
    settings = {
        "SCBROKER_API_KEY": str(broker.api_key),
        "SCBROKER_SERVER_URL": broker.url,
        "SCBROKER_APPLICATION_NAME": module,
        "XDG_STATE_HOME": str(tmp_path),
    }
    with display() as environment:
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **settings, **environment},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.stdout.splitlines() == ANNOUNCED.findall(code), done.stderr
    assert (done.returncode, done.stderr) == (0, "")
