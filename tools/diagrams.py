"""Draw the mermaid diagrams of the pages into docs/diagrams/, and put the drawings into the built site.

    python -m tools.diagrams MERMAID_JS

Mermaid is a script of 3.5 MB that runs in a browser. It runs here, once for each diagram: so the site needs
no script from another host, and prints its diagrams. A drawing is named after the hash of its source.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
FOLDER: Final = DOCS / "diagrams"
_BLOCK: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SETTINGS: Final = {
    "startOnLoad": False,
    "securityLevel": "strict",
    "theme": "neutral",
    "fontFamily": "sans-serif",
    "deterministicIds": True,
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "useMaxWidth": False},
    "sequence": {"useMaxWidth": False},
}
_DRAW: Final = """async ([settings, name, source]) => {
  mermaid.initialize(settings);
  return (await mermaid.render(name, source)).svg;
}"""


def sources() -> Iterator[str]:
    """Yield the source of each diagram of the pages."""
    for page in sorted(DOCS.rglob("*.md")):
        yield from _BLOCK.findall(page.read_text("utf-8"))


def file_of(source: str) -> Path:
    """Return the file that has, or is to have, the drawing of a source."""
    return FOLDER / f"{hashlib.sha256(source.strip().encode()).hexdigest()[:16]}.svg"


def drawn(source: str, *_: Any, **__: Any) -> str:
    """Return the drawing for the page in place of its source; a formatter of pymdownx.superfences."""
    from pymdownx.superfences import SuperFencesException  # type: ignore[import-untyped] # no stubs

    try:
        drawing = file_of(source).read_text("utf-8")
    except FileNotFoundError:
        raise SuperFencesException("A diagram is not drawn yet: run `make images`.") from None
    width = drawing.partition(' width="')[2].partition('"')[0]
    return f'<div class="diagram" style="--width: {width}px">{drawing}</div>'


def draw(script: Path) -> None:
    """Draw what is not drawn yet, and remove drawings that no page has."""
    from playwright.sync_api import sync_playwright

    wanted = {file_of(source): source for source in sources()}
    FOLDER.mkdir(exist_ok=True)
    for file in set(FOLDER.glob("*.svg")) - set(wanted):
        file.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page()
        tab.add_script_tag(path=script)
        for file, source in wanted.items():
            if not file.exists():
                svg = tab.evaluate(_DRAW, [_SETTINGS, f"d{file.stem}", source])
                file.write_text(svg + "\n", "utf-8")
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
