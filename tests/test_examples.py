"""The pages of the examples: their commands, run by several people, print what the pages show.

The tests beside each example prove what it does.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from scbroker.testing import PASSPHRASE, LocalBroker
from tests.kit.consoles import Step, is_as_shown, same_in_this_run, steps
from tests.kit.engines import free_port
from tests.kit.waiting import PATIENCE, wait_until

ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = ROOT / "examples"
PAGES: Final = ROOT / "docs" / "examples"


class Desk:
    """Where a person of a page works: the variables of a user, and a folder with files."""

    def __init__(self, broker: LocalBroker, folder: Path, shown: dict[str, str]) -> None:
        user = broker.new_user().getUserId().result()
        self._folder = folder
        self._environment = {
            **os.environ,
            **broker.environment,
            "SCBROKER_USER_ID": str(user),
            "SCBROKER_PASSPHRASE": PASSPHRASE,
            "XDG_STATE_HOME": str(folder / "state"),
        }
        (folder / "holiday").mkdir(parents=True)
        (folder / "holiday" / "lake.jpg").write_bytes(bytes(400_000))
        (folder / "holiday" / "tent.png").write_bytes(bytes(3_000))
        (folder / "letter.txt").write_text("Dear Bob\n")
        shown.setdefault("s3://bucket", (folder / "holiday").as_uri())

    def start(self, command: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a command of the page; a program of the examples is named by its file alone."""
        program, *words = shlex.split(command)
        if program == "python":
            [script] = EXAMPLES.glob(f"*/{words[0]}")
            words[0] = str(script)
        else:
            words = ["-m", program, "--app-dir", str(ROOT), *words]
        with output.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, *words],
                env=self._environment, cwd=self._folder,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip


@pytest.mark.long
@pytest.mark.usefixtures("real_argon2id")
@pytest.mark.parametrize(
    "page",
    [page for page in sorted(PAGES.glob("*.md")) if steps(page) and page.stem != "two-programs"],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, scbroker_broker: LocalBroker, tmp_path: Path
) -> None:
    """A command of the person `service` goes on beside those that follow, once it printed its lines."""
    in_this_run = {"8000": str(free_port())}
    people: dict[str, Desk] = {}
    with ExitStack() as stack:
        for number, step in enumerate(steps(page)):
            if step.who not in people:
                people[step.who] = Desk(scbroker_broker, tmp_path / step.who, in_this_run)
            command, output = step.command, tmp_path / str(number)
            for shown, found in in_this_run.items():
                command = command.replace(shown, found)
            process = people[step.who].start(command, output)
            stack.callback(process.kill)
            if step.who == "service":
                stack.callback(process.wait, PATIENCE)
                stack.callback(process.terminate)
                wait_until(partial(_has_printed, step, output))
            else:
                assert process.wait(PATIENCE) == 0, output.read_text()
                assert _has_printed(step, output), (step, output.read_text())
            in_this_run |= same_in_this_run(step.output, output.read_text(), "card")


def _has_printed(step: Step, output: Path) -> bool:
    return is_as_shown(step.output, output.read_text("utf-8"))
