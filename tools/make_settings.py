"""Write docs/reference/broker.toml, which the page of settings shows, from the broker's `Settings`.

python tools/make_settings.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

from scbroker.server.settings import SECRET, Settings, meanings

REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"
_WIDTH: Final = 110


def example() -> str:
    """Return a TOML file with the default of every setting."""
    parts = ["# Every setting of a broker with its default. Made by `make pages`.\n"]
    for name, meaning in meanings().items():
        secret = " Secret." if name in SECRET else ""
        comment = textwrap.indent(textwrap.fill(meaning + secret, _WIDTH), "# ")
        parts.append(f"{comment}\n{name} = {json.dumps(_default(name))}\n")
    return "\n".join(parts)


def _default(name: str) -> Any:
    return getattr(Settings(), name)


def write(folder: Path) -> None:
    (folder / "broker.toml").write_text(example(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE)
