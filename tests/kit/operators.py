"""Commands of an operator, run as they run them: a process of its own beside the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.brokers import BrokerProcess, environment
from tests.kit.nursery import run

_SECONDS = 120.0


class Done(NamedTuple):
    status: int
    lines: list[str]
    """What it wrote to standard output."""
    error: str

    @property
    def last(self) -> str:
        return self.lines[-1]

    def expect(self, status: int) -> Done:
        assert self.status == status, self
        assert "Traceback" not in self.error, self.error
        return self


def admin(broker: BrokerProcess, *arguments: str | Path, at: Path | None = None) -> Done:
    """`scbroker admin …` with a broker's settings, or on another data folder."""
    settings = dict(broker.settings)
    if at is not None:
        settings["database_url"] = ""
    options = ["admin", *map(str, arguments), "--data-dir", str(at or broker.directory)]
    given = {name: value for name, value in settings.items() if value != ""}
    variables = environment(given, broker.variables)
    status, output, error = run(options, variables, _SECONDS)
    return Done(status, output.splitlines(), error)


def admin_json(broker: BrokerProcess, *arguments: str | Path, status: int = 0) -> Any:
    """What `scbroker admin … --json` prints."""
    return json.loads("\n".join(admin(broker, *arguments, "--json").expect(status).lines))


def audited(broker: BrokerProcess, *options: str) -> list[dict[str, Any]]:
    """The entries of the audit log."""
    return [json.loads(line) for line in admin(broker, "audit", *options, "--json").expect(0).lines]
