"""The list of what the broker sees is whole: it names each table and each request of the protocol."""

import re
from pathlib import Path

from scbroker.server.operations import OPERATIONS
from scbroker.server.storage.tables import metadata

DOCS = Path(__file__).parents[1] / "docs"
STORED, SHOWN = (
    (DOCS / "what-the-broker-sees.md").read_text("utf-8").split("## What each request shows")
)


def test_each_table_of_the_database_is_named_once() -> None:
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", STORED, re.MULTILINE)
    named = [table for row in rows for table in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(metadata.tables)


def test_each_request_of_the_protocol_is_named_once() -> None:
    named = re.findall(r"`([A-Z]+ /v1/[^`]+)`", SHOWN)
    assert sorted(named) == sorted(f"{each.method} {each.path}" for each in OPERATIONS)


def test_each_header_of_a_request_is_named() -> None:
    protocol = (DOCS / "spec" / "protocol.md").read_text("utf-8")
    table = protocol.partition("## 1. Requests and answers")[2].partition("**Application")[0]
    headers = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert len(headers) >= 5
    assert [each for each in headers if f"`{each}`" not in SHOWN] == []
