"""Put the commands of all modules into the program."""

import copy
import importlib
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.models import CommandInfo, TyperInfo

import scbroker
from scbroker.cli.command import app

_MODULES: Final = {
    "commands.account": ("register", "login", "logout", "whoami", "delete-account"),
    "commands.credentials": ("keys", "rotate", "change-credentials", "reminder", "key-file"),
    "commands.profiles": ("profiles",),
    "commands.putting": ("put",),
    "commands.listing": ("ls", "info"),
    "commands.getting": ("get", "cat"),
    "commands.changing": ("rm", "mv"),
    "commands.card": ("card",),
    "commands.contacts": ("contacts",),
    "commands.sharing": ("share", "revoke", "leave", "block", "unblock", "blocked"),
    "commands.groups": ("groups",),
    "commands.links": ("link", "open"),
    "commands.events": ("events",),
    "commands.mirror": ("mirror",),
    "commands.checking": ("verify",),
    "commands.marks": ("mark", "sent"),
    "commands.doctor": ("doctor",),
    "commands.ui": ("ui",),
    "admin.keeping": ("serve", "admin"),
    **dict.fromkeys(
        (
            "admin.api_keys", "admin.users", "admin.usage", "admin.audit",
        ),
        ("admin",),
    ),
    "conformance": ("conformance",),
}  # fmt: skip
"""The modules with the commands that they add, in the order of the help."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"scbroker {scbroker.__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def program(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the program with the only command that the first argument names; with all if it names none.

    To import all modules, and to have Typer build all commands, takes longer than to import Typer.
    """
    wanted = arguments[0] if arguments else ""
    if wanted == "--version":
        return app
    modules = [module for module, names in _MODULES.items() if wanted in names]
    for module in modules or _MODULES:
        importlib.import_module(f"scbroker.cli.{module}")
    if not modules:
        return app

    def is_wanted(each: CommandInfo | TyperInfo) -> bool:
        name = each.name or getattr(each.callback, "__name__", "").replace("_", "-")
        return name == wanted

    only = copy.copy(app)
    only.registered_commands = list(filter(is_wanted, app.registered_commands))
    only.registered_groups = list(filter(is_wanted, app.registered_groups))
    return only
