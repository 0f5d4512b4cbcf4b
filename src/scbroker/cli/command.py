"""The program `scbroker`, and the options that all commands of users have.

    @command(SHARING)
    def leave(run: Run, container: ContainerArgument) -> None:

adds `scbroker leave CONTAINER [--profile NAME] [--json] [--quiet]`.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from scbroker.cli.output import Output
from scbroker.cli.run import Run

Function = Callable[..., None]

ACCOUNT: Final = "Account"
CONTAINERS: Final = "Containers"
SHARING: Final = "Sharing"
WATCHING: Final = "Watching and checking"
BROKER: Final = "Broker"
_PANELS: Final = (ACCOUNT, CONTAINERS, SHARING, WATCHING, BROKER)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class _Panels(TyperGroup):
    """A group whose help lists the commands by panel, without the time that importing rich takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list for each panel, in the order of _PANELS."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _PANELS}
        commands: list[Any] = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        width = formatter.width - max(len(each.name) for each in commands) - 6
        for each in commands:
            if not each.hidden:
                line = each.get_short_help_str(limit=width)
                panels[each.rich_help_panel or BROKER].append((each.name, line))
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


app: typer.Typer = typer.Typer(
    cls=_Panels,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,  # scbroker.cli.completion has scripts that evaluate no names
    pretty_exceptions_enable=False,
    help="Containers that only their members can read, on a broker that cannot.",
)


def group(name: str, panel: str, help: str) -> typer.Typer:
    """Add and return a group of commands, such as `scbroker contacts`."""
    made = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)
    app.add_typer(made, name=name, rich_help_panel=panel)
    return made


def command(
    panel: str = "", name: str | None = None, *, of: typer.Typer = app, hidden: bool = False
) -> Callable[[Function], Function]:
    """Return a decorator that adds a function, whose first parameter is a `Run`, as a command."""

    def add(function: Function) -> Function:
        of.command(name, rich_help_panel=panel, hidden=hidden)(_with_options(function))
        return function

    return add


def _complete_profile(incomplete: str) -> list[str]:
    from scbroker.cli.profiles import complete_profile

    return complete_profile(incomplete)


def _common(
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The profile, which names a broker and a user.",
            envvar="SCBROKER_PROFILE",
            autocompletion=_complete_profile,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print errors only, no messages and no progress.")
    ] = False,
) -> None:
    """Declare the options that each command of users has."""
    del profile, as_json, quiet


def _with_options(function: Function) -> Function:
    def run_command(profile: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
        with Run(profile, Output(as_json=as_json, quiet=quiet)) as run:
            function(run, **given)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    parameters = [*own, *inspect.signature(_common, eval_str=True).parameters.values()]
    # Typer reads the arguments and options from these, and the help from name and docstring.
    run_command.__dict__["__signature__"] = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    run_command.__annotations__ = {each.name: each.annotation for each in parameters}
    run_command.__name__, run_command.__doc__ = function.__name__, function.__doc__
    return run_command
