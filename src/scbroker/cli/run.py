"""Give a command its profile, its session and its output."""

from __future__ import annotations

import logging
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Final, NoReturn, Self

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors, tracing
from scbroker.cli import sentence, status_of
from scbroker.cli.output import Output, printable

if TYPE_CHECKING:
    from scbroker.cli.names import Names
    from scbroker.cli.people import People
    from scbroker.cli.profiles import Profile

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

    def end(self) -> None:
        """End the command with the exit status of the first item that failed, if any."""
        import typer

        if self._status:
            raise typer.Exit(self._status)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask whether to go on, unless `--yes`; end the command if the answer is no.

        Raises `InvalidArgumentError` if nobody can be asked.
        """
        import typer

        if yes:
            return
        if not sys.stdin.isatty():
            raise errors.InvalidArgumentError(f"{question} Pass --yes to confirm.")
        if not typer.confirm(printable(question), err=True):
            self.stop()

    def stop(self) -> NoReturn:
        """End the command before it changes anything, because the person did not confirm."""
        import typer

        self.out.say("Nothing was changed.")
        raise typer.Exit(1)

    def ask(self, question: str, otherwise: str, default: str | None = None) -> str:
        """Ask for a text. Raises `InvalidArgumentError` with `otherwise` if nobody can be asked."""
        import typer

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
        """Whether a list lacked containers that this device has read before, as after access has ended.

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

        return Names(self.session, self.failed, self.out.error)

    @cached_property
    def people(self) -> People:
        from scbroker.cli.people import People

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
