"""Write docs/commands/: a page for each panel of the help, made from the program itself.

    python tools/make_commands.py [FOLDER]

`docs/commands.toml` adds what the program does not know: an example and the keys of the JSON output.
"""

from __future__ import annotations

import functools
import inspect
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from scbroker.cli import app as program
from scbroker.cli import command

DOCS: Final = Path(__file__).parents[1] / "docs"
COMMON: Final = {
    "a user": ("profile", "as_json", "quiet"),
    "an operator": ("data_dir", "as_json", "quiet"),
}
"""The options of every command of a user's or an operator's: a table of their own has them."""
_SEVERAL: Final = 4
"""An argument or option of so many commands, with the same help, is in the table of all commands."""
_MADE: Final = "<!-- Made by `make pages` from the program and docs/commands.toml. -->"


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
            if callable(each.callback) and not _is_empty(each):
                yield full, each


def _is_empty(one: Any) -> bool:
    """Return whether a group does nothing without one of its commands."""
    return hasattr(one, "commands") and not one.invoke_without_command


def pages() -> dict[str, str]:
    """Return the text of each page by its file's name."""
    extra = tomllib.loads((DOCS / "commands.toml").read_text("utf-8"))
    made = {"index.md": _index()}
    for panel, commands in _panels().items():
        parts = [f"# {panel}: commands", _MADE, *(_section(each, extra) for each in commands)]
        made[_file(panel)] = _joined(parts)
    return made


def _panels() -> dict[str, list[Any]]:
    """Return the commands of each panel, in the order of the help."""
    found: dict[str, list[Any]] = {panel: [] for panel in command.PANELS}
    for each in root().commands.values():
        if not each.hidden:
            found[each.rich_help_panel or command.BROKER].append(each)
    return found


def _file(panel: str) -> str:
    return f"{panel.partition(' ')[0].lower()}.md"


def write(folder: Path) -> None:
    """Write all pages into a folder, and remove those of commands that are gone."""
    folder.mkdir(exist_ok=True)
    wanted = pages()
    for old in folder.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, "utf-8")


def _index() -> str:
    parts = [
        "# Commands",
        _MADE,
        "These pages are the help. [The command line](../guide/command-line.md) is the guide: "
        "names, people, profiles, secrets, output and exit statuses. What several commands take is below.",
    ]
    items = [
        f"- {panel}: "
        + ", ".join(f"[`{each.name}`]({_file(panel)}#{each.name})" for each in commands)
        for panel, commands in _panels().items()
    ]
    parts.append("\n".join(items))
    rows = [_row(*each) for each in sorted(_shared())]
    parts += [
        "## Arguments and options of several commands",
        "\n".join(["| | |", "|---|---|", *rows]),
    ]
    for family, names in COMMON.items():
        one = next(each for _, each in leaves(root()) if _family(each) == family)
        chosen = [each for each in one.params if each.name in names]
        parts += [f"## Options of every command of {family}", _table(chosen)]
    return _joined(parts)


def _section(one: Any, extra: dict[str, dict[str, Any]]) -> str:
    """Return the part of a page about a command, or about a group with its commands."""
    parts = [f"## {one.name}"]
    if _is_empty(one):
        parts += _prose(one)
    for name, each in leaves(one, one.name) if hasattr(one, "commands") else [(one.name, one)]:
        parts += [f"### {name}"] if each is not one else []
        parts += _body(name, each, extra)
    return "\n\n".join(parts)


def _body(name: str, one: Any, extra: dict[str, dict[str, Any]]) -> list[str]:
    """Return the paragraphs of one command: its help, and a list of usage, parameters and output."""
    arguments = [each for each in one.params if each.param_type_name == "argument"]
    options = [each for each in one.params if each.param_type_name == "option" and not each.hidden]
    family = _family(one)
    common = ("help", *COMMON[family]) if family else ("help",)
    options = [each for each in options if each.name not in common]
    usage = ["scbroker", name, *(["[COMMAND]"] if hasattr(one, "commands") else [])]
    shown = " ".join([*usage, *map(_shown_argument, arguments)])
    known = extra.get(name, {})
    example = "" if known["example"] == shown else f", for example `{known['example']}`"
    own = [each for each in (*arguments, *options) if _explained(each) not in _shared()]
    items = [f"`{shown}`{example}", *(f"`{each}`: {note}" for each, note in map(_explained, own))]
    if also := [f"`{_shown_option(each)}`" for each in options if each not in own]:
        anchor = "arguments-and-options-of-several-commands"
        items.append(f"[also](index.md#{anchor}) {', '.join(also)}")
    shapes = (
        ("json", "an object with"),
        ("rows", "an array of objects with"),
        ("lines", "lines of JSON, each an object with"),
    )
    for key, shape in shapes:
        if key in known:
            keys = ", ".join(f"`{each}`" for each in known[key])
            items.append(f"`--json`: {shape} {keys}")
    return [*_prose(one), "\n".join(f"- {' '.join(each.split())}" for each in items)]


def _family(one: Any) -> str | None:
    """Return whose command it is; None for `serve` and those of the conformance kit."""
    own = {each.name for each in one.params}
    return next((family for family, names in COMMON.items() if own >= set(names)), None)


def _prose(one: Any) -> list[str]:
    text = inspect.cleandoc(one.help or "").partition("\f")[0].strip()
    return [" ".join(each.split()) for each in text.split("\n\n")]


def _table(parameters: list[Any]) -> str:
    shown = [_explained(each) for each in parameters]
    return "\n".join(["| | |", "|---|---|", *(_row(*each) for each in shown)])


def _row(name: str, note: str) -> str:
    return f"| `{_cell(name)}` | {_cell(note)} |"


def _explained(one: Any) -> tuple[str, str]:
    """Return an argument or option as it is typed, and what it means."""
    is_argument = one.param_type_name == "argument"
    notes = [one.help or ""]
    if not is_argument and one.envvar:
        notes.append(f"Environment: `{one.envvar}`.")
    if not is_argument and one.default not in (None, False, True, [], ()):
        notes.append(f"Default: `{one.default}`.")
    return _shown_argument(one) if is_argument else _shown_option(one), " ".join(
        filter(None, notes)
    )


@functools.cache
def _shared() -> set[tuple[str, str]]:
    """Return the arguments and options that several commands have, but for those of every command."""
    common = {"help", *(name for names in COMMON.values() for name in names)}
    found = Counter(
        _explained(each)
        for _, one in leaves(root())
        for each in one.params
        if each.name not in common and not (each.param_type_name == "option" and each.hidden)
    )
    return {each for each, times in found.items() if times >= _SEVERAL}


def _shown_argument(argument: Any) -> str:
    metavar = str(argument.metavar or argument.name.upper())
    if argument.nargs == -1 and not metavar.endswith("..."):
        metavar += "..."
    return metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"


def _shown_option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or 'VALUE'}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _joined(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "commands")
