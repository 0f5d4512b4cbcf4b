"""The pages: every example runs as it stands and prints what it says; the reference has every name.

`Stage.run` takes the python blocks of a page in their order, in one namespace and against a real
broker. A `print(...)  # expected` says what is printed, and nothing else may be.
"""

import functools
import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from scbroker import ServerProvider, mainQueue
from tests.kit.brokers import BrokerProcess
from tests.kit.cases import in_one_case
from tests.kit.keychains import keychain_in_memory

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
WINDOWS = DOCS / "guide" / "windows.md"
"""A whole program with a window: tests/client/test_windows.py runs it."""
_FENCED = re.compile(r"^ *(`{3,}|~{3,})([^\n]*)\n(.*?)^ *\1$", re.DOTALL | re.MULTILINE)
_INCLUDED = re.compile(r'python title="(examples/\S+)"\n--8<-- "\1"\n')
"""A program of examples/ in its page: its own tests run it."""
ANNOUNCED = re.compile(r"print\(.*\)\s+# (.*)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Example(NamedTuple):
    line: int
    code: str


class Page:
    """A page's python blocks, and the languages of all its blocks."""

    def __init__(self, path: Path) -> None:
        text = path.read_text("utf-8")
        self.languages: set[str] = set()
        self.examples: list[Example] = []
        for block in _FENCED.finditer(text):
            if _INCLUDED.fullmatch(f"{block[2].strip()}\n{block[3]}"):
                continue
            self.languages.add(block[2].strip())
            if block[2].strip() == "python":
                line = text.count("\n", 0, block.start()) + 1
                self.examples.append(Example(line, block[3]))


class Stage:
    """Where examples run: a folder, settings for a broker, and all that has to be put right afterwards."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        self._monkeypatch, self._capsys, self._caplog = monkeypatch, capsys, caplog
        self._module = ModuleType("example")
        self._opened: list[ServerProvider] = []
        # Classes of an example are looked up in their module, as those of any program.
        monkeypatch.setitem(sys.modules, "example", self._module)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.chdir(folder)
        monkeypatch.setattr(ServerProvider, "__init__", self._noting(ServerProvider.__init__))

    def _noting(self, begin: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(begin)
        def noted(provider: ServerProvider, *args: Any, **kwargs: Any) -> None:
            begin(provider, *args, **kwargs)
            self._opened.append(provider)

        return noted

    def run(self, page: Path, broker: BrokerProcess | None = None) -> None:
        """Runs a page's examples; every provider that they opened is closed at the end."""
        if broker is not None:
            self._monkeypatch.setenv("SCBROKER_API_KEY", str(broker.api_key))
            self._monkeypatch.setenv("SCBROKER_SERVER_URL", broker.url)
            self._monkeypatch.setenv("SCBROKER_APPLICATION_NAME", page.stem)
        with keychain_in_memory():
            self._run(page)
        # A promise that failed and that nobody looked at says so when it goes.
        vars(self._module).clear()
        gc.collect()
        logged = [each.getMessage() for each in self._caplog.records if each.name == "scbroker"]
        assert logged == [], f"{page.name} has scbroker complain"

    def _run(self, page: Path) -> None:
        try:
            for line, code in Page(page).examples:
                # Numbered as in the page, so that a traceback leads there.
                exec(compile("\n" * line + code, str(page), "exec"), vars(self._module))
                printed = self._capsys.readouterr().out.splitlines()
                assert printed == ANNOUNCED.findall(code), f"{page.name}, line {line}"
            left = f"{page.name} leaves handlers that never ran"
            assert mainQueue.run(0), left
            assert self._capsys.readouterr().out == "", left
        finally:
            for provider in self._opened:
                provider.close()


@pytest.fixture(name="stage")
def new_stage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Stage:
    return Stage(tmp_path, monkeypatch, capsys, caplog)


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent != ROOT and page != WINDOWS and Page(page).examples],
    ids=name_of,
)
def test_the_examples_of_a_page_run_as_they_stand_and_print_what_they_say(
    page: Path, broker: BrokerProcess, stage: Stage
) -> None:
    stage.run(page, broker)


@in_one_case("page", PAGES)
def test_no_block_is_python_by_another_name_that_nobody_would_run(page: Path) -> None:
    assert Page(page).languages <= {"python", "text", "console", "mermaid"}


def guide(name: str) -> str:
    return (DOCS / "guide" / f"{name}.md").read_text("utf-8")
