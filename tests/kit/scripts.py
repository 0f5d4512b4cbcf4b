"""Scripts of their own, for what a process does at its end or when it is forked."""

import importlib.util
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from types import ModuleType

from tests.kit.waiting import PATIENCE


def run_script(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script as its own process, to its end."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def loaded(path: Path) -> ModuleType:
    """Load a script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def functions_of(error: BaseException) -> list[str]:
    """The functions of an error's traceback, from the test inwards."""
    return [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
