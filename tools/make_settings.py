"""Write docs/reference/settings.md and docs/reference/broker.toml from the broker's `Settings`.

python tools/make_settings.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

from scbroker.server.settings import PREFIX, SECRET, Settings, meanings

REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"
_WIDTH: Final = 110
_MADE: Final = "<!-- Made by `make pages` from src/scbroker/server/settings.py. -->"
_HEAD: Final = """\
# Settings

This page lists every setting of a broker. Sizes are in bytes, times in seconds. Commas separate the items
of a list in a variable.

- An option of `scbroker serve` overrides a variable, and a variable overrides the TOML file that
  `SCBROKER_CONFIG` names.
- `scbroker admin config show` prints the settings of your broker, each with its source.
- A broker with an unknown name or a wrong value does not start. `scbroker serve --check` says what is wrong.
- [broker.toml](broker.toml) has every setting with its default.
- Other programs of the same user can read variables: put secrets into a TOML file of mode 600.
"""


def page() -> str:
    """Return the text of the reference."""
    rows = ["| setting | variable | default | meaning |", "|---|---|---|---|"]
    for name, meaning in meanings().items():
        default = _default(name)
        shown = "empty" if default in ("", []) else f"`{json.dumps(default)}`"
        secret = " Secret." if name in SECRET else ""
        text = meaning.replace("|", "\\|")
        rows.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {shown} | {text}{secret} |")
    return "\n".join([_HEAD.replace("\n", f"\n\n{_MADE}\n", 1), *rows]) + "\n"


def example() -> str:
    """Return a TOML file with the default of every setting."""
    parts = ["# Every setting of a broker with its default: docs/reference/settings.md.\n"]
    for name, meaning in meanings().items():
        comment = textwrap.indent(textwrap.fill(meaning, _WIDTH), "# ")
        parts.append(f"{comment}\n{name} = {json.dumps(_default(name))}\n")
    return "\n".join(parts)


def _default(name: str) -> Any:
    return getattr(Settings(), name)


def write(folder: Path) -> None:
    (folder / "settings.md").write_text(page(), "utf-8")
    (folder / "broker.toml").write_text(example(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE)
