"""The program `scbroker`: how a command is defined and run, and what completes its arguments.

    @command(SHARING)
    def leave(run: Run, container: ContainerArgument) -> None:

adds `scbroker leave CONTAINER [--profile NAME] [--json] [--quiet]`.

Other users choose the names that complete a word, and Typer's scripts have the shell evaluate some of them:
the one for zsh runs what a name such as `x\\$(rm *)` contains. So names with characters that a shell
interprets are not offered.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Self, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo, TyperInfo

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors, tracing
from scbroker.cli import sentence, status_of
from scbroker.cli.output import Output, masked, printable

if TYPE_CHECKING:
    from scbroker.cli.names import Names, People
    from scbroker.cli.profiles import Profile

T = TypeVar("T")
Item = TypeVar("Item")
_LEFT_OUT: Final = "The broker leaves out containers that this device has read"


class BaseRun:
    """One run of a command: its output, its questions to the person, and its exit status."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self._status = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what the command has opened."""

    def failed(self, item: str, error: errors.BrokerError) -> None:
        """Write the error of one item of many to standard error; the command goes on with the others."""
        self.out.error(f"{item}: {sentence(error)}")
        self._status = self._status or status_of(error)

    def succeeded(
        self, results: Mapping[Item, T | errors.BrokerError], name: Callable[[Item], str] = str
    ) -> dict[Item, T]:
        """Return the results of the items that did not fail; report the others as `failed` does."""
        found = {}
        for item, result in results.items():
            if isinstance(result, errors.BrokerError):
                self.failed(name(item), result)
            else:
                found[item] = result
        return found

    def end(self) -> None:
        """End the command with the exit status of the first item that failed, if any."""
        if self._status:
            raise typer.Exit(self._status)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask whether to go on, unless `--yes`; end the command if the answer is no.

        Raises `InvalidArgumentError` if nobody can be asked.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise errors.InvalidArgumentError(f"{question} Pass --yes to confirm.")
        if not typer.confirm(printable(question), err=True):
            self.stop()

    def stop(self) -> NoReturn:
        """End the command before it changes anything, because the person did not confirm."""
        self.out.say("Nothing was changed.")
        raise typer.Exit(1)

    def ask(self, question: str, otherwise: str, default: str | None = None) -> str:
        """Ask for a text. Raises `InvalidArgumentError` with `otherwise` if nobody can be asked."""
        if not sys.stdin.isatty():
            raise errors.InvalidArgumentError(otherwise)
        return str(typer.prompt(printable(question), default, err=True)).strip()


class Run(BaseRun):
    """One run of a user's command; closes the session at the end."""

    def __init__(self, profile: str | None, out: Output) -> None:
        super().__init__(out)
        self.profile_name = profile
        """The name that `--profile` or SCBROKER_PROFILE gives."""
        self._provider: scbroker.ServerProvider | None = None
        self.has_left_out = False
        """True if a list lacked containers that this device has read before, as after access has ended.

        Only `ls` says so: every command that looks up a name would repeat it for ever.
        """
        # Show the library's warnings, such as those of retries, as messages of the command.
        logger = logging.getLogger("scbroker")
        logger.handlers, logger.propagate = [_ToOutput(self)], False
        # A request that is cancelled when the command ends may still fail: asyncio would print its traceback.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        if self._provider is not None:
            # Closing cancels prefetching requests: drop the warnings about them.
            logging.getLogger("scbroker").handlers = [logging.NullHandler()]
            self._provider.close()
            tracing.stop()

    @cached_property
    def profile(self) -> Profile:
        """The chosen profile. Raises `NotFoundError` without one."""
        from scbroker.cli import profiles

        return profiles.load(self.profile_name)

    def provider(self, profile: Profile) -> scbroker.ServerProvider:
        """Return a provider of the profile's broker without a session; closed when the command ends."""
        tracing.start("scbroker command")
        self._provider = scbroker.ServerProvider(
            profile.api_key,
            profile.server_url,
            profile.application_name,
            trustStore=profile.trust_folder,
            sessionStore=profile.session_folder,
            objectStoreOrigins=profile.object_store_origins,
        )
        return self._provider

    def use(self, session: scbroker.ServerProvider) -> None:
        """Work with the session of a link in place of a profile's; closed when the command ends."""
        self._provider = self.session = session

    @cached_property
    def session(self) -> scbroker.ServerProvider:
        """The kept session of the profile's user. Raises `NotAuthenticatedError` without one."""
        profile = self.profile
        provider = self.provider(profile)
        if profile.user_id not in provider.getKeptSessions().result():
            raise errors.NotAuthenticatedError(
                f"Profile {profile.name} has no session on this device: run `{profile.command('login')}`."
            )
        try:
            provider.resumeSession(profile.user_id).result()
        except errors.NotAuthenticatedError as error:
            login = f"Run `{profile.command('login')}`."
            raise errors.NotAuthenticatedError(f"{error.message} {login}") from None
        return provider

    @cached_property
    def names(self) -> Names:
        from scbroker.cli.names import Names

        return Names(self.people, self.failed, self.out.error)

    @cached_property
    def people(self) -> People:
        from scbroker.cli.names import People

        return People(self.session)


class _ToOutput(logging.Handler):
    def __init__(self, run: Run) -> None:
        super().__init__(logging.WARNING)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith(_LEFT_OUT):
            self._run.has_left_out = True
        else:
            self._run.out.say(f"scbroker: {record.getMessage()}")


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

    make_context: Any = _without_secrets()(Group.make_context)
    invoke: Any = _without_secrets()(Group.invoke)

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


_SECONDS: Final = 2.0
"""Time limit for reading names from the broker; at its end those read so far are offered."""
_MOST: Final = 1000
_SAFE: Final = re.compile(r"[\w./+,][\w ./+,-]*")


def _names(ctx: Any, incomplete: str, read: Callable[[Run], Iterable[str]]) -> list[str]:
    """Return the names that begin with a word and were read in two seconds, or before a failure."""
    import scbroker
    from scbroker.cli.command import Run
    from scbroker.cli.output import Output

    _ = scbroker.ServerProvider  # imported here, or the import would take up the time limit
    found: list[str] = []

    def collect() -> None:
        with (
            contextlib.suppress(Exception),  # an error must not print into the command line
            Run(ctx.params.get("profile"), Output(as_json=False, quiet=True)) as run,
        ):
            for each in read(run):
                if each.startswith(incomplete) and _SAFE.fullmatch(each):
                    found.append(each)
                if len(found) == _MOST:
                    return

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    reader.join(_SECONDS)
    names = sorted(set(found))
    if os.environ.get("_SCBROKER_COMPLETE") == "complete_bash":  # bash does not escape spaces
        return [each.replace(" ", "\\ ") for each in names]
    return names


def complete_container(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of containers that complete a word on the command line."""
    from scbroker.desk.names import names_by_id

    return _names(ctx, incomplete, lambda run: (name for _, name in names_by_id(run.session)))


def complete_folder(ctx: Any, incomplete: str) -> list[str]:
    """Return the folders in containers' names, up to a slash, that complete a word."""
    at = len(incomplete)
    names = complete_container(ctx, incomplete)
    return sorted({each[: each.index("/", at) + 1] for each in names if "/" in each[at:]})


def _completing(*lists: Callable[[Run], Iterable[Any]]) -> Callable[[Any, str], list[str]]:
    """Return a completion function for typer: it offers the names of these lists that begin with the word."""

    def complete(ctx: Any, incomplete: str) -> list[str]:
        return _names(
            ctx, incomplete, lambda run: (each.name for some in lists for each in some(run))
        )

    return complete


complete_person: Final = _completing(lambda run: run.people.contacts.values())
complete_group: Final = _completing(lambda run: run.people.readable)
complete_holder: Final = _completing(
    lambda run: run.people.contacts.values(), lambda run: run.people.readable
)
complete_offer: Final = _completing(lambda run: run.people.offers() or [])


def complete_profile(incomplete: str) -> list[str]:
    from scbroker.cli import profiles

    try:
        return [each for each in profiles.read().profiles if each.startswith(incomplete)]
    except errors.BrokerError:
        return []


_MODULES: Final = {
    "commands.account": (
        "register", "login", "logout", "whoami", "delete-account", "profiles", "ui",
    ),
    "commands.credentials": ("keys", "rotate", "change-credentials", "reminder", "key-file"),
    "commands.putting": ("put",),
    "commands.listing": ("ls", "info"),
    "commands.getting": ("get", "cat", "rm", "mv"),
    "commands.contacts": ("card", "contacts"),
    "commands.sharing": (
        "share", "revoke", "leave", "block", "unblock", "blocked", "link", "open",
    ),
    "commands.groups": ("groups",),
    "commands.checking": ("verify", "mark", "sent", "events", "mirror"),
    "commands.doctor": ("doctor",),
    "admin.keeping": ("serve", "admin"),
    "admin.users": ("admin",),
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
