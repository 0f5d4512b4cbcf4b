"""Write docs/images/command-line.svg: a recording of the real commands at a terminal, with a real broker.

    python -m docs.recording [FILE]

The lines appear one after another. A reader who asks for less motion sees the whole at once.
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

TARGET: Final = Path(__file__).parent / "images" / "command-line.svg"
_COLUMNS: Final = 92
_SECONDS_A_LINE: Final = 0.4
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


def record() -> str:
    """Run the story and return the drawing."""
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
    child = person.at_terminal(*shlex.split(command)[1:])
    child.setwinsize(40, _COLUMNS)
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
    lines = sorted(
        {int(found) for found in re.findall(r"clip-path=\"url\(#recording-line-(\d+)\)", svg)}
    )
    rules = [
        "@keyframes appear { from { opacity: 0 } to { opacity: 1 } }",
        *(
            f'[clip-path="url(#recording-line-{line})"] '
            f"{{ animation: appear 0.1s both; animation-delay: {number * _SECONDS_A_LINE:.1f}s }}"
            for number, line in enumerate(lines)
        ),
    ]
    style = "@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules) + "\n}\n"
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # fonts of another host
    return svg.replace("</style>", f"{style}</style>", 1)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(record(), "utf-8")
