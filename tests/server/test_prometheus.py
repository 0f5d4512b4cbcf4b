"""Prometheus reads a broker, and every query of the dashboard and the alerts finds what the broker says."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml  # type: ignore[import-untyped] # its stubs are not pinned

from scbroker.cli.command import program
from scbroker.server import metrics
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.engines import free_port
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import Story, User

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/prometheus"
DASHBOARD: Final = json.loads((ROOT / "deploy/grafana/scbroker.json").read_text("utf-8"))
RULES: Final = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
PAGE: Final = (ROOT / "docs/guide/three-in-the-morning.md").read_text("utf-8")
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: Final = {"$job": "scbroker", "$instance": ".*", "$__rate_interval": "1m"}
with_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)
long_with_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is missing: apt-get install prometheus"
)


def queries() -> list[str]:
    found = []
    for panel in PANELS:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            found.append(query)
    return found


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_says_what_it_is_and_links_to_a_section_that_names_it(rule: Any) -> None:
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (ROOT / page).read_text("utf-8") == PAGE
    assert anchor in anchors(PAGE)
    assert f"`{rule['alert']}`" in PAGE
    assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    text = " ".join([*queries(), *(rule["expr"] for rule in RULES), PAGE])
    known = {metric.name for metric in metrics._REGISTRY.collect()}
    for name in set(re.findall(r"\b(?:scbroker|process)_[a-z_]+\b", text)):
        assert re.sub(r"_(total|bucket|count|sum)$", "", name) in known or name in known, name


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["three-in-the-morning.md", "watching.md"])
def test_the_pages_name_commands_and_options_that_exist(name: str) -> None:
    text = (ROOT / "docs/guide" / name).read_text("utf-8")
    for line in set(re.findall(r"scbroker ((?:admin|serve|conformance)[^`\n#|]*)", text)):
        found: Any = typer.main.get_command(program())
        for word in line.split():
            if hasattr(found, "commands") and not word.startswith("-"):
                assert word in found.commands, line
                found = found.commands[word]
            elif word.startswith("--"):
                assert word in {each for option in found.params for each in option.opts}, line


@with_promtool
def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    for command in (
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ):
        done = subprocess.run(
            ["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@with_promtool
@on_sqlite
def test_promtool_finds_no_fault_in_the_metrics(wire: Wire) -> None:
    page = wire.call("GET", "/metrics").expect(200).body
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


class Prometheus:
    """A real Prometheus that reads a broker every second."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{broker.port}"]}]
        shutil.copy(FOLDER / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
        self.address = f"127.0.0.1:{free_port()}"
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
                 f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={self.address}"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def get(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> list[Any]:
        found: list[Any] = self.get("query", query=query)["result"]
        return found

    def has(self, query: str) -> bool:
        try:
            return bool(self.value(query))
        except OSError:  # it starts
            return False


@contextmanager
def prometheus(folder: Path, broker: BrokerProcess) -> Iterator[Prometheus]:
    found = Prometheus(folder, broker)
    try:
        yield found
    finally:
        found.process.terminate()
        found.process.wait(PATIENCE)


@pytest.mark.long
@long_with_prometheus
def test_every_query_finds_data_of_a_broker_under_load(tmp_path: Path) -> None:
    scraped = tmp_path / "prometheus"
    scraped.mkdir()
    with BrokerProcess(tmp_path / "data", slow_seconds=0.0001) as broker:
        ring = broker.new_user()
        broker.restart()  # users are counted at the start, and then once a minute
        with prometheus(scraped, broker) as found, Wire(broker) as wire:
            wait_until(lambda: found.has('up{job="scbroker"} == 1'))
            alice = User(ring, wire.log_in(ring))

            def load() -> bool:
                story = Story(alice).created()
                alice.wire.call("GET", story.path).expect(200)
                story.upload(alice, bytes(70_000))
                with Wire(broker) as other:
                    other.call("GET", "/v1/events").expect(401)
                name = "scbroker_database_wait_seconds_count"
                return found.has(f"rate({name}[1m]) > 0") and found.has("scbroker_users > 0")

            wait_until(load)
            for query in queries():
                wait_until(partial(found.has, query), query)
            loaded = found.get("rules")["groups"][0]["rules"]
            wait_until(
                lambda: all(
                    rule["health"] == "ok" for rule in found.get("rules")["groups"][0]["rules"]
                )
            )
            assert [rule["name"] for rule in loaded] == [rule["alert"] for rule in RULES]
            assert not found.value('ALERTS{alertstate="firing"}')
