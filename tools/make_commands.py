"""Write docs/commands.md: all commands by the panels of the help, made from the program itself.

    python tools/make_commands.py [FILE]

`docs/commands.toml` adds what the program does not know: an example of each command.
"""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from scbroker.cli import command
from scbroker.cli import command as program

DOCS: Final = Path(__file__).parents[1] / "docs"
_HEAD: Final = """\
# Commands

<!-- Made by `make pages` from the program and docs/commands.toml. -->

`scbroker COMMAND --help` explains a command with its arguments and options. The guide
[The command line](guide/command-line.md) has names, people, profiles, secrets, output and exit statuses.
"""
_JSON: Final = """\
## JSON output

[commands.toml](commands.toml) lists the keys that `--json` prints for each command: `json` has those of one
object, `rows` those of each object in an array, and `lines` those of an object in each line.
"""


def root() -> Any:
    """Return the program's commands, as typer runs them."""
    return typer.main.get_command(program.program())


def leaves(of: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands below a group with their full names, such as `contacts add`."""
    for each in of.commands.values():
        full = f"{name} {each.name}".strip()
        if not each.hidden:
            if hasattr(each, "commands"):
                yield from leaves(each, full)
            if callable(each.callback) and (
                not hasattr(each, "commands") or each.invoke_without_command
            ):
                yield full, each


def page() -> str:
    """Return the text of the page: a table for each panel."""
    extra = tomllib.loads((DOCS / "commands.toml").read_text("utf-8"))
    panels: dict[str, list[str]] = {panel: [] for panel in command.PANELS}
    for name, one in leaves(root()):
        top = root().commands[name.split()[0]]
        panels[top.rich_help_panel or command.BROKER].append(
            _row(name, one, extra[name]["example"])
        )
    parts = [_HEAD]
    for panel, rows in panels.items():
        head = ["| command | does | example |", "|---|---|---|"]
        parts.append("\n".join([f"## {panel}\n", *head, *rows, ""]))
    parts.append(_JSON)
    return "\n".join(parts)


def _row(name: str, one: Any, example: str) -> str:
    """Return a command's row; an example that only repeats the command is left out."""
    arguments = (each for each in one.params if each.param_type_name == "argument")
    usage = " ".join([name, *map(_shown, arguments)])
    does = inspect.cleandoc(one.help or "").split("\n\n")[0]
    shown = "" if example == f"scbroker {usage}" else f" `{example}`".replace("|", "\\|")
    return f"| `{usage}` | {' '.join(does.split())} |{shown} |"


def _shown(argument: Any) -> str:
    metavar = str(argument.metavar or argument.name.upper())
    if argument.nargs == -1 and not metavar.endswith("..."):
        metavar += "..."
    return metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "commands.md"
    target.write_text(page(), "utf-8")
