"""What the README says, done: its example, its links, its claims."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.conftest import NewProvider

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_example_runs_as_it_stands_and_prints_what_it_says(
    broker: BrokerProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code) == 1
    assert len([line for line in code[0].splitlines() if line.strip()]) <= 10
    monkeypatch.setenv("SCBROKER_API_KEY", str(broker.api_key))
    monkeypatch.setenv("SCBROKER_SERVER_URL", broker.url)
    monkeypatch.setenv("SCBROKER_APPLICATION_NAME", "readme")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    names: dict[str, object] = {}
    exec(compile(code[0], "README.md", "exec"), names)

    printed = re.findall(r"print\(.*\)\s+# (.*)", code[0])
    assert capsys.readouterr().out.splitlines() == printed
    for name in ("alice", "bob"):
        names[name].close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_every_link_to_a_file_of_the_project_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [
        link for link in links if "://" not in link and not (page.parent / link).resolve().exists()
    ]
    assert missing == []


def test_eight_writers_at_once_create_two_hundred_containers_and_none_fails(
    new_provider: NewProvider,
) -> None:
    providers = [new_provider(True) for _ in range(8)]

    def write(number: int) -> list[str]:
        promises = [
            providers[number].createContainer(bytes(1024), {"number": n}) for n in range(25)
        ]
        return [str(promise.result(60).id) for promise in promises]

    with ThreadPoolExecutor(8) as writers:
        ids = [found for some in writers.map(write, range(8)) for found in some]
    assert len(set(ids)) == 200


def test_the_demo_tells_its_whole_story(capfd: pytest.CaptureFixture[str]) -> None:
    from examples import demo

    demo.main()

    told = capfd.readouterr().out
    assert "the same SHA-256 as alice's file" in told
    assert told.count("nowhere") == 4
    assert "DecryptionError" in told
    assert "NotFoundError" in told
