"""The console blocks of a page: commands of people, and what each prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VOLATILE: Final = {
    "card": r"scbroker-contact:[a-z2-7]+",
    "link": r"https?://\S+#scbroker-link:[\w-]+",
    "address": r"https?://[\w.:]+",
    "time": r"\d{4}-\d\d-\d\d \d\d:\d\d",
    "fingerprint": r"(?:[0-9a-f]{4} ){15}[0-9a-f]{4}",
    "id": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "short id": r"\b[0-9a-f]{8}\b",
}
"""What differs in each run."""


class Step(NamedTuple):
    who: str
    command: str
    output: str


def steps(page: Path) -> list[Step]:
    """Return the commands of a page, each after a prompt such as `alice$ `."""
    found = []
    for block in _BLOCK.finditer(page.read_text("utf-8")):
        for each in re.split(r"^(?=\w+\$ )", block[1], flags=re.MULTILINE)[1:]:
            line, _, output = each.partition("\n")
            who, _, command = line.partition("$ ")
            found.append(Step(who, command, output))
    return found


def normal(text: str) -> str:
    """Return a text without what differs in each run, and without the spaces of a table's columns."""
    for name, pattern in VOLATILE.items():
        text = re.sub(pattern, f"<{name}>", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def is_as_shown(shown: str, output: str) -> bool:
    """Return whether an output is that of the page, where `...` stands for anything."""
    pattern = re.sub(r"(?:\\\n)?\\\.\\\.\\\.(?:\\\n)?", ".*", re.escape(normal(shown)))
    return bool(re.fullmatch(pattern, normal(output), re.DOTALL))


def same_in_this_run(shown: str, output: str, *names: str) -> dict[str, str]:
    """Return what stands for the cards, or others of `VOLATILE`, of the page: those of this run."""
    real: dict[str, str] = {}
    for name in names:
        on_page = re.findall(VOLATILE[name], shown)
        real |= dict(zip(on_page, re.findall(VOLATILE[name], output), strict=bool(on_page)))
    return real
