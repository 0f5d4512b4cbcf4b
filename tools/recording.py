"""Write recordings of a terminal into docs/images: command-line.svg and demo.svg, with real brokers.

    python -m tools.recording [command-line] [demo]

The lines appear one after another. A reader who asks for less motion sees the end at once.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

import pexpect
from rich.console import Console
from rich.text import Text

from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
_CLONE: Final = Path(__file__).parents[1]
_COLUMNS: Final = 92
_DEMO_COLUMNS: Final = 80
_DEMO_ROWS: Final = 32
_SECONDS_A_LINE: Final = 0.4
_AT_ONCE: Final = 12
"""Lines that are there from the beginning, so that no picture is empty."""
_LINE_HEIGHT: Final = 24.4
"""Of a drawing of rich."""
_STORY: Final = (
    ("alice", "scbroker put letter.txt"),
    ("alice", "scbroker put -r photos"),
    ("alice", "scbroker share letter.txt Bob --until 7d"),
    ("alice", "scbroker ls"),
    ("bob", "scbroker ls"),
    ("bob", "scbroker cat letter.txt"),
    ("alice", "scbroker ls --tree"),
)
_MOVES: Final = re.compile(r"\x1b\[(?:\d*[A-HJKST]|\?\d+[hl]|2K)|\r(?!\n)")
"""Movements of the cursor, by which bars draw over themselves; colours stay."""
_ERASED: Final = re.compile(r"[^\n]*\n(?:\x1b\[\?25h)?\r?\x1b\[1A\x1b\[2K")
"""A line with a bar that is taken off the terminal."""


def command_line() -> str:
    """Run the story of the commands and return the drawing."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with BrokerProcess(directory / "broker") as broker:
            people = {name: Person(directory / name, broker) for name in ("alice", "bob")}
            for name, person in people.items():
                person.join(name.capitalize())
            _make_contacts(people["alice"], people["bob"])
            _write_files(people["alice"].home)
            for name, command in _STORY:
                console.print(Text(f"{name}$ ", "bold green") + Text(command, "bold"))
                console.print(Text.from_ansi(_output(people[name], command)), end="\n\n")
    return _revealed(console.export_svg(title="scbroker", unique_id="recording"))


def demo() -> str:
    """Run the demo and return the drawing, which scrolls as a terminal does."""
    console = Console(record=True, width=_DEMO_COLUMNS, file=io.StringIO(), force_terminal=True)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "examples.demo"],
        cwd=_CLONE,
        dimensions=(_DEMO_ROWS, _DEMO_COLUMNS),
        encoding="utf-8",
        timeout=60,
    )
    child.expect(pexpect.EOF)
    child.close()
    if child.exitstatus:
        raise SystemExit(f"The demo failed: {child.before}")
    console.print(Text("$ ", "bold green") + Text("make demo", "bold"))
    console.print(Text.from_ansi(str(child.before).replace("\r\n", "\n").rstrip()))
    drawing = console.export_svg(title="make demo", unique_id="recording")
    return _revealed(_scrolled(drawing, _DEMO_ROWS))


def _make_contacts(one: Person, other: Person) -> None:
    for person, whom in ((one, other), (other, one)):
        shown = whom.json("whoami")
        person.run("contacts", "add", shown["card"])
        name = shown["name"]
        person.run("contacts", "verify", name, "--fingerprint", shown["fingerprint"])


def _write_files(home: Path) -> None:
    (home / "photos").mkdir()
    (home / "letter.txt").write_text("Dear Bob, the lake is still warm.\n")
    for name, size in (("lake.jpg", 2_400_000), ("tent.jpg", 900_000)):
        (home / "photos" / name).write_bytes(bytes(size))


def _output(person: Person, command: str) -> str:
    child = person.at_terminal(*shlex.split(command)[1:], COLUMNS=str(_COLUMNS))
    child.expect(pexpect.EOF, timeout=60)
    child.close()
    if child.exitstatus:
        raise SystemExit(f"{command} failed: {child.before}")
    text = _ERASED.sub("", str(child.before).replace("\r\n", "\n"))
    # The last state of a line that a bar has drawn over.
    lines = [_MOVES.split(line)[-1].rstrip() for line in text.split("\n")]
    return "\n".join(line for line in lines if line)


def _revealed(svg: str) -> str:
    """Let each line appear in turn, by CSS alone."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # fonts of another host
    rules = ["@keyframes appear { from { opacity: 0 } to { opacity: 1 } }"]
    rules += (
        f'[clip-path="url(#recording-line-{line})"] '
        f"{{ animation: appear 0.1s both; animation-delay: {(line - _AT_ONCE) * _SECONDS_A_LINE:.1f}s }}"
        for line in range(_AT_ONCE, _lines(svg))
    )
    return _with_motion(svg, rules)


def _scrolled(svg: str, rows: int) -> str:
    """Cut the drawing to its last rows, and let the earlier ones scroll by."""
    lines = _lines(svg)
    cut = (lines - rows) * _LINE_HEIGHT
    for height in (
        r'viewBox="0 0 [\d.]+ ',
        r'<rect fill="#292929"[^>]* height="',
        r'clip-terminal">\s*<rect [^>]*height="',
    ):
        svg = re.sub(
            f"({height})([\\d.]+)", lambda f: f"{f[1]}{float(f[2]) - cut:.1f}", svg, count=1
        )
    terminal = '<g class="recording-matrix">'
    svg = svg.replace(
        terminal, f'<g class="scroll" transform="translate(0, {-cut:.1f})">{terminal}'
    )
    svg = svg.replace("</svg>", "</g></svg>")
    appearing = lines - _AT_ONCE
    steps = (
        f"{100 * (line - _AT_ONCE) / appearing:.1f}% "
        f"{{ transform: translateY({(rows - line - 1) * _LINE_HEIGHT:.1f}px) }}"
        for line in range(rows, lines)
    )
    return _with_motion(
        svg,
        [
            f"@keyframes scroll {{ 0% {{ transform: none }} {' '.join(steps)} }}",
            f".scroll {{ animation: scroll {appearing * _SECONDS_A_LINE:.1f}s step-end both }}",
        ],
    )


def _lines(svg: str) -> int:
    return 1 + max(int(found) for found in re.findall(r"url\(#recording-line-(\d+)\)", svg))


def _with_motion(svg: str, rules: list[str]) -> str:
    style = "@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules) + "\n}\n"
    return svg.replace("</style>", f"{style}</style>", 1)


if __name__ == "__main__":
    recordings = {"command-line": command_line, "demo": demo}
    for name in sys.argv[1:] or recordings:
        (IMAGES / f"{name}.svg").write_text(recordings[name](), "utf-8")
