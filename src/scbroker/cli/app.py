"""Put the commands of all modules into the program."""

import copy
from typing import Annotated, Any

import typer
from typer.models import CommandInfo, TyperInfo

import scbroker
from scbroker import errors
from scbroker.cli.admin.command import admin
from scbroker.cli.admin.serve import serve
from scbroker.cli.command import BROKER, Command
from scbroker.cli.command import app as app
from scbroker.cli.conformance import conformance

# Each module adds its commands; the help lists them in the order of these imports.
# isort: off
from scbroker.cli.commands import account, credentials, profiles  # noqa: F401
from scbroker.cli.commands import putting, listing, getting, changing  # noqa: F401
from scbroker.cli.commands import card, contacts, sharing  # noqa: F401
import scbroker.cli.commands.groups
import scbroker.cli.commands.links
from scbroker.cli.commands import events, mirror, checking, marks, doctor  # noqa: F401
import scbroker.cli.commands.ui
from scbroker.cli.admin import api_keys, users, usage, audit  # noqa: F401
from scbroker.cli.admin import keeping, ui  # noqa: F401
# isort: on

app.command(cls=Command, rich_help_panel=BROKER)(serve)
app.add_typer(admin, name="admin", rich_help_panel=BROKER)
app.add_typer(conformance, name="conformance", rich_help_panel=BROKER)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"scbroker {scbroker.__version__}")
        raise typer.Exit()


def _print_script(shell: str | None) -> None:
    if shell is not None:
        from scbroker.cli.completion import script_for

        print(script_for(shell), end="")
        raise typer.Exit()


def _install_script(shell: str | None) -> None:
    if shell is not None:
        from scbroker.cli.completion import install

        print(f"{install(shell)} was written: start a new shell.")
        raise typer.Exit()


def _refuse_before_command(option: typer.CallbackParam, wanted: object) -> None:
    if wanted:
        name = option.opts[0]
        raise errors.InvalidArgumentError(f"{name} stands after the command: scbroker ls {name} …")


def _after_command(name: str) -> Any:
    return typer.Option(name, hidden=True, is_eager=True, callback=_refuse_before_command)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    show_completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            callback=_print_script,
            is_eager=True,
            help="Print the script that completes command lines in bash, zsh or fish.",
        ),
    ] = None,
    install_completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            callback=_install_script,
            is_eager=True,
            help="Install this script for your user of the machine.",
        ),
    ] = None,
    profile: Annotated[str | None, _after_command("--profile")] = None,
    as_json: Annotated[bool, _after_command("--json")] = False,
    quiet: Annotated[bool, _after_command("--quiet")] = False,
) -> None:
    pass


def program(arguments: list[str]) -> typer.Typer:
    """Return the program with the only command that the first argument names; with all if it names none.

    Typer builds every command at each start, which takes half as long as all imports.
    """

    def is_named(each: CommandInfo | TyperInfo) -> bool:
        name = each.name or getattr(each.callback, "__name__", "").replace("_", "-")
        return name in arguments[:1]

    commands = [each for each in app.registered_commands if is_named(each)]
    groups = [each for each in app.registered_groups if is_named(each)]
    if not commands and not groups:
        return app
    only = copy.copy(app)
    only.registered_commands, only.registered_groups = commands, groups
    return only
