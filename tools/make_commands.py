"""Write docs/commands/: a page for each command of the program, made from the program itself.

    python tools/make_commands.py [FOLDER]

`docs/commands.toml` adds what the program does not know: an example and the keys of the JSON output.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
import tomllib
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
_WIDTH: Final = 120
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
    for each in root().commands.values():
        if not each.hidden:
            made[f"{each.name}.md"] = _page(each, extra)
    return made


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
        "Each page is the help of a command. [The command line](../guide/command-line.md) is the guide: "
        "names, people, profiles, secrets, output and exit statuses.",
    ]
    panels: dict[str, list[str]] = {}
    for each in root().commands.values():
        if not each.hidden:
            line = f"| [`{each.name}`]({each.name}.md) | {_cell(_first_line(each))} |"
            panels.setdefault(each.rich_help_panel or command.BROKER, []).append(line)
    for panel in command.PANELS:
        if panel in panels:
            parts += [f"## {panel}", "\n".join(["| command | |", "|---|---|", *panels[panel]])]
    for family, names in COMMON.items():
        one = next(each for _, each in leaves(root()) if _family(each) == family)
        chosen = [each for each in one.params if each.name in names]
        parts += [f"## Options of every command of {family}", _table("option", chosen)]
    return _joined(parts)


def _page(one: Any, extra: dict[str, dict[str, Any]]) -> str:
    parts = [f"# {one.name}", _MADE]
    if not hasattr(one, "commands"):
        return _joined([*parts, *_body(one.name, one, extra)])
    parts += _prose(one)
    if not _is_empty(one):
        parts += _body(one.name, one, extra)[len(_prose(one)) :]
    for name, each in leaves(one, one.name):
        if each is not one:
            parts += [f"## {name}", *_body(name, each, extra)]
    return _joined(parts)


def _body(name: str, one: Any, extra: dict[str, dict[str, Any]]) -> list[str]:
    """Return the paragraphs of one command: its help, usage, parameters, example and output."""
    arguments = [each for each in one.params if each.param_type_name == "argument"]
    options = [each for each in one.params if each.param_type_name == "option" and not each.hidden]
    family = _family(one)
    common = ("help", *COMMON[family]) if family else ("help",)
    options = [each for each in options if each.name not in common]
    usage = ["scbroker", name, *(["[OPTIONS]"] if one.params else [])]
    if hasattr(one, "commands"):
        usage.append("[COMMAND]")
    parts = [*_prose(one), _code(" ".join([*usage, *map(_shown_argument, arguments)]))]
    parts += [_table("argument", arguments)] if arguments else []
    parts += [_table("option", options)] if options else []
    known = extra.get(name, {})
    if "example" in known:
        parts += ["For example:", _code(f"$ {known['example']}", "console")]
    shapes = (
        ("json", "an object"),
        ("rows", "an array of objects"),
        ("lines", "lines of JSON, each an object"),
    )
    for key, shape in shapes:
        if key in known:
            keys = ", ".join(f"`{each}`" for each in known[key])
            parts.append(f"With `--json`: {shape} with the keys {keys}.")
    if family:
        anchor = f"options-of-every-command-of-{family.replace(' ', '-')}"
        parts.append(
            f"[Options of every command](index.md#{anchor}), [exit statuses]"
            "(../guide/command-line.md#exit-statuses)."
        )
    return [each if each.startswith(("|", "```")) else _wrapped(each) for each in parts]


def _family(one: Any) -> str | None:
    """Return whose command it is; None for `serve` and those of the conformance kit."""
    own = {each.name for each in one.params}
    return next((family for family, names in COMMON.items() if own >= set(names)), None)


def _prose(one: Any) -> list[str]:
    text = inspect.cleandoc(one.help or "").partition("\f")[0].strip()
    return [" ".join(each.split()) for each in text.split("\n\n")]


def _first_line(one: Any) -> str:
    return _prose(one)[0]


def _table(kind: str, parameters: list[Any]) -> str:
    rows = [f"| {kind} | |", "|---|---|"]
    for each in parameters:
        notes = [each.help or ""]
        if kind == "option" and each.envvar:
            notes.append(f"Environment: `{each.envvar}`.")
        if kind == "option" and each.default not in (None, False, True, [], ()):
            notes.append(f"Default: `{each.default}`.")
        name = _shown_argument(each) if kind == "argument" else _shown_option(each)
        rows.append(f"| `{_cell(name)}` | {_cell(' '.join(filter(None, notes)))} |")
    return "\n".join(rows)


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


def _code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _joined(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "commands")
