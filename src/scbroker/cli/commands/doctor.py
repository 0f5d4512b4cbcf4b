"""Define the command that finds out why scbroker does not work on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli import profiles, sentence, status_of
from scbroker.cli.command import WATCHING, Run, command
from scbroker.cli.output import Output

if TYPE_CHECKING:
    from scbroker.cli.profiles import Profile

_SECONDS: Final = 15.0
_URL: Final = re.compile(r"https?://[^\s,()'\"]+")
_WIDTHS: Final = {"state": 7, "check": 13, "detail": 0}


class DoubtfulError(Exception):
    """A finding that stops nothing: its message is a warning."""


class Finding(NamedTuple):
    check: str
    state: str
    """ok, warning or failed."""
    detail: str
    status: int
    """The exit status that it gives the command."""


def found(name: str, check: Callable[[], str]) -> Finding:
    """Run a check; return its finding: the text that it returns, or that of its error."""
    try:
        return Finding(name, "ok", check(), 0)
    except DoubtfulError as doubt:
        return Finding(name, "warning", str(doubt), 0)
    except errors.BrokerError as error:
        return Finding(name, "failed", sentence(error), status_of(error))


def write(out: Output, findings: Iterable[Finding]) -> int:
    """Write findings as they come; return the exit status of the first failure, or 0."""
    status = 0
    rows = []
    for each in findings:
        status = status or each.status
        row = {"check": each.check, "state": each.state, "detail": each.detail}
        if out.as_json:
            rows.append(row)
        elif each.state != "ok" or not out.quiet:
            out.item(row, _WIDTHS)
    if out.as_json:
        out.rows(rows, {})
    return status


@command(WATCHING)
def doctor(
    run: Run,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Check the broker at this address in place of the profile's."
        ),
    ] = None,
) -> None:
    """Check what keeps scbroker from working here.

    The command checks profile, folders, broker, API key, origin and session. Each check is a line: ok,
    warning or failed, with the reason and what to do. The exit status is 0, or that of the first failure.
    Without a profile, SCBROKER_SERVER_URL and SCBROKER_API_KEY name the broker.

    The command reads no container. To check the origin (whether the broker accepts log-ins at this address),
    it attempts a log-in with a new key, which the broker refuses.
    """
    raise typer.Exit(write(run.out, _Doctor(run, server or "").findings()))


class _Doctor:
    """The checks, in an order in which the first failure is the cause of later ones."""

    def __init__(self, run: Run, server: str) -> None:
        self.run = run
        self.profile: Profile | None = None
        self.server = server
        self.api_key: str | None = None

    def findings(self) -> Iterator[Finding]:
        yield found("profile", self._profile)
        sessions, trust = None, None
        if self.profile is not None:
            sessions, trust = self.profile.session_folder, self.profile.trust_folder
        yield found("trust store", lambda: str(profiles.marks(trust)))
        finding = found("session store", lambda: profiles.sessions(sessions))
        if finding.status and self.profile is None:  # --session-folder may help
            finding = finding._replace(state="warning", status=0)
        yield finding
        if not self.server:
            return
        # If one of the next checks fails, the later ones would as well.
        yield (finding := found("broker", self._broker))
        if finding.status:
            return
        yield (finding := found("API key", self._api_key))
        if finding.status:
            return
        yield found("origin", self._origin)
        if self.profile is not None:
            yield found("session", self._session)

    def _profile(self) -> str:
        given, self.server = self.server, self.server or os.environ.get("SCBROKER_SERVER_URL", "")
        self.api_key = os.environ.get("SCBROKER_API_KEY")
        if self.run.profile_name is None and not profiles.path().exists():
            raise DoubtfulError(
                "You have no profile yet: run `scbroker register`, or `scbroker login` on another device."
            )
        found = self.run.profile
        if given and given.rstrip("/") != found.server_url.rstrip("/"):
            # The profile's API key and session are for its own broker alone.
            return f"{found.name} is for another broker, and not used for {given}"
        self.profile, self.server, self.api_key = found, found.server_url, found.api_key
        return f"{found.name}: user {found.user_id}, in {profiles.path()}"

    def _provider(self, api_key: str) -> scbroker.ServerProvider:
        return scbroker.ServerProvider(
            api_key,
            self.server,
            "scbroker doctor",
            trustStore=scbroker.MemoryTrustStore(),
            timeout=_SECONDS,
        )

    def _broker(self) -> str:
        with (
            contextlib.suppress(errors.ApiKeyError),  # which the next check reports
            self._provider(self.api_key or str(uuid.UUID(int=0))) as provider,
        ):
            provider.getReminder(uuid.uuid4()).result()
        return (
            f"answers at {self.server}, and speaks the protocol of scbroker {scbroker.__version__}"
        )

    def _api_key(self) -> str:
        if self.api_key is None:
            raise DoubtfulError("No API key is known: set SCBROKER_API_KEY to check it.")
        with self._provider(self.api_key) as provider:
            provider.getReminder(uuid.uuid4()).result()
        return "the broker knows it"

    def _origin(self) -> str:
        """Attempt a log-in as an unknown user: the broker refuses a wrong origin before it reads the user."""
        if self.api_key is None:
            raise DoubtfulError(
                "The broker names its origins only for an API key: set SCBROKER_API_KEY to check this."
            )
        ring = scbroker.KeyRing.generate()
        with self._provider(self.api_key) as provider:
            try:
                provider.logIn(keyRing=ring, userId=ring.userId).result()
            except (errors.CredentialsError, errors.ChallengeError) as error:
                if _URL.search(error.message):  # the message names the right origins
                    raise errors.ChallengeError(error.message) from None
        return "log-ins at this address are accepted"

    def _session(self) -> str:
        _ = self.run.session
        return "is kept on this device, and resumes"
