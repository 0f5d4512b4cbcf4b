"""Commands of an operator, run as they run them: a process of its own beside the broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from scbroker.server.admin import rotation
from scbroker.server.settings import Settings
from tests.kit.brokers import BrokerProcess, environment
from tests.kit.processes import run
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE


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


def settings_of(broker: BrokerProcess, **more: Any) -> Settings:
    """The settings of a broker, for what an operator's command calls."""
    own = {name: str(broker.settings.get(name, "")) for name in ("broker_key", "broker_key_next")}
    return Settings(data_dir=str(broker.directory), database_url=broker.database_url, **own | more)


def rotate(settings: Settings) -> list[str]:
    """Rotate in this process, without the wait for brokers on PostgreSQL; return what is told."""
    told: list[str] = []
    asyncio.run(rotation.rotate(settings, told.append, lambda *_: None, settling=0))
    return told


def rotate_to_the_end(broker: BrokerProcess) -> list[str]:
    told = rotate(settings_of(broker))
    return told if broker.engine == "sqlite" else rotate(settings_of(broker))


def triggers(broker: BrokerProcess, *, drop: bool) -> None:
    """Take the audit log's triggers away, as somebody with the database's password can, or put them back."""
    if broker.engine != "sqlite":
        act = "DISABLE" if drop else "ENABLE"
        query(broker.database_url, f"ALTER TABLE audit {act} TRIGGER audit_append_only")
    elif drop:
        for name in ("audit_no_update", "audit_no_delete"):
            query(broker.database_url, f"DROP TRIGGER {name}")


def variables_of(broker: BrokerProcess, **changes: object) -> dict[str, str]:
    """The environment of a command that runs beside a broker, with its settings."""
    given = {name: value for name, value in (broker.settings | changes).items() if value != ""}
    return environment(given, broker.variables)


def admin(broker: BrokerProcess, *arguments: str | Path, at: Path | None = None) -> Done:
    """`scbroker admin …` with a broker's settings, or on another data folder."""
    options = ["admin", *map(str, arguments), "--data-dir", str(at or broker.directory)]
    changes = {} if at is None else {"database_url": ""}
    status, output, error = run(options, variables_of(broker, **changes), PATIENCE)
    return Done(status, output.splitlines(), error)


def admin_json(broker: BrokerProcess, *arguments: str | Path, status: int = 0) -> Any:
    """What `scbroker admin … --json` prints."""
    return json.loads("\n".join(admin(broker, *arguments, "--json").expect(status).lines))


def audited(broker: BrokerProcess, *options: str) -> list[dict[str, Any]]:
    """The entries of the audit log."""
    return [json.loads(line) for line in admin(broker, "audit", *options, "--json").expect(0).lines]
