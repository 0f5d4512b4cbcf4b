"""The program `scbroker`, and the options that all commands of users have.

    @command(SHARING)
    def leave(run: Run, container: ContainerArgument) -> None:

adds `scbroker leave CONTAINER [--profile NAME] [--json] [--quiet]`.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from scbroker.cli.completion import complete_profile
from scbroker.cli.output import Output, masked
from scbroker.cli.run import BaseRun, Run

Function = Callable[..., None]
Start = Callable[..., BaseRun]
"""Takes the options that all commands of a family have, and returns the run of a command."""

ACCOUNT: Final = "Account"
CONTAINERS: Final = "Containers"
SHARING: Final = "Sharing"
WATCHING: Final = "Watching and checking"
BROKER: Final = "Broker"
PANELS: Final = (ACCOUNT, CONTAINERS, SHARING, WATCHING, BROKER)

_PLAIN: Final[dict[object, Callable[[str], object]]] = {
    str: str, list[str]: str, Path: Path, list[Path]: Path,
}  # fmt: skip
"""Types of parameters that are converted here, with the function that converts a value."""

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print errors only, no messages and no progress.")
]
Checksum = Annotated[
    bool,
    typer.Option("--checksum", "-c", help="Compare files by their bytes, not by size and time."),
]
Port = Annotated[
    int,
    typer.Option(
        metavar="PORT", help="The page's port at 127.0.0.1; 0 chooses both.", min=0, max=65535
    ),
]
Minutes = Annotated[
    int, typer.Option(metavar="N", help="Minutes after which the page ends.", min=1, max=1440)
]
Opens = Annotated[bool, typer.Option("--open/--no-open", help="Whether to start a browser.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def _conversion(parameter: Any) -> Callable[[Any, Any], Any]:
    by_typer, into = parameter.process_value, _PLAIN.get(parameter.type_descriptor.annotation)
    takes_many = parameter.multiple or parameter.nargs == -1

    def convert(context: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            return () if takes_many else None
        if value and into:
            return [into(each) for each in value] if takes_many else into(value)
        return by_typer(context, value)

    return convert


@contextmanager
def _without_secrets() -> Iterator[None]:
    """Take secrets out of the parser's errors, which repeat what was typed; end at Ctrl-C in a prompt."""
    try:
        yield
    except typer.Abort:
        raise KeyboardInterrupt from None  # the exit status of Ctrl-C anywhere else
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser's errors: their class is not public
            error.__dict__["message"] = masked(error.__dict__["message"])
        raise


class _Quick:
    """A command or a group that converts texts and paths here, and leaves other values to Typer.

    To convert a value, Typer imports pydantic, which takes longer than all that a command without the
    network imports.
    """

    def parse_args(self: Any, ctx: Any, args: list[str]) -> Any:
        for each in self.get_params(ctx):
            each.process_value = _conversion(each)
        return super().parse_args(ctx, args)  # type: ignore[misc] # of the class beside this one


class Command(_Quick, TyperCommand):
    """A command of this program."""


class Group(_Quick, TyperGroup):
    """A group of such commands."""


class _Panels(Group):
    """A group whose help lists the commands by panel; Typer's own panels would import rich, which is slow."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _without_secrets():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _without_secrets():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list for each panel, in the order of PANELS."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
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
    pretty_exceptions_enable=False,
    help="Store and share files that the broker cannot read.",
)


def group(name: str, panel: str, help: str, *, of: typer.Typer = app) -> typer.Typer:
    """Add and return a group of commands, such as `scbroker contacts`."""
    made = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help=help)
    of.add_typer(made, name=name, rich_help_panel=panel)
    return made


def command(
    panel: str = "", name: str | None = None, *, of: typer.Typer = app, start: Start | None = None
) -> Callable[[Function], Function]:
    """Return a decorator that adds a function, whose first parameter is what `start` returns, as a command.

    By default that is a `Run`.
    """

    def add(function: Function) -> Function:
        add_command = of.command(name, cls=Command, rich_help_panel=panel)
        add_command(_with_options(function, start or _start))
        return function

    return add


def listing(of: typer.Typer, start: Start | None = None) -> Callable[[Function], Function]:
    """Return a decorator that adds a function as the action of a group without a command."""

    def add(function: Function) -> Function:
        run_alone = _with_options(function, start or _start, _CONTEXT)
        of.callback(invoke_without_command=True)(run_alone)
        of.info.no_args_is_help = False
        return function

    return add


def _start(
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The profile to use: it names a broker and a user.",
            envvar="SCBROKER_PROFILE",
            autocompletion=complete_profile,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Run:
    """Start a user's command: the parameters are the options that all these commands have."""
    return Run(profile, Output(as_json=as_json, quiet=quiet))


_CONTEXT: Final = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
"""The parameter of a group's own action: it runs if no command of the group is given."""


def _with_options(function: Function, start: Start, *more: inspect.Parameter) -> Function:
    """Return a command with the options of `start`, whose result becomes the first argument of `function`."""
    common = inspect.signature(start, eval_str=True).parameters

    def run_command(ctx: typer.Context | None = None, **given: Any) -> None:
        if ctx is not None and ctx.invoked_subcommand is not None:
            return
        with start(**{name: given.pop(name) for name in common}) as run:
            function(run, **given)
            run.end()

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    parameters = [*more, *own, *common.values()]
    # Typer reads arguments and options from signature and annotations, the help from name and docstring.
    run_command.__dict__["__signature__"] = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    run_command.__annotations__ = {each.name: each.annotation for each in parameters}
    run_command.__name__, run_command.__doc__ = function.__name__, function.__doc__
    return run_command
