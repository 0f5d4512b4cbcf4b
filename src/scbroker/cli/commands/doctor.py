"""Define the command that finds out why scbroker does not work on this machine."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli.command import WATCHING, command
from scbroker.cli.findings import Finding, found, write
from scbroker.cli.output import Size
from scbroker.cli.probe import DoubtfulError, Probe
from scbroker.cli.run import Run
from scbroker.cli.words import in_words
from scbroker.folders import platform_folder

if TYPE_CHECKING:
    from scbroker.cli.profiles import Profile

_SECONDS: Final = 15.0
_LEAST_SPACE: Final = 256 * 1_048_576
_URL: Final = re.compile(r"https?://[^\s,()'\"]+")
_ON_THE_WAY: Final = ("address", "tls", "broker", "protocol", "API key")
"""If one of these checks fails, the later ones are left out."""


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

    The command checks profile, folders, disk, address, TLS, broker, clocks, protocol, API key, origin and
    session. Each check is a line: ok, warning or failed, with the reason and what to do. The exit status is
    0, or that of the first failure. Without a profile, SCBROKER_SERVER_URL and SCBROKER_API_KEY name the
    broker.

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
        self._failed = False

    def findings(self) -> Iterator[Finding]:
        yield self._check("profile", self._profile)
        yield from self._of_the_device()
        if not self.server:
            return
        yield self._check("address", self._address)
        if self._failed:
            return
        probe = Probe(self.server, _SECONDS)
        if probe.reached_tls:
            yield self._check("tls", probe.tls)
        if not self._failed:
            yield self._check("broker", probe.broker)
        if not self._failed:
            yield self._check("clock", probe.clock)
            yield self._check("protocol", probe.protocol)
        if not self._failed:
            yield self._check("API key", self._api_key)
        if not self._failed:
            yield self._check("origin", self._origin)
            if self.profile is not None:
                yield self._check("session", self._session)

    def _check(self, name: str, check: Callable[[], str]) -> Finding:
        """Return what a check finds; a failure at the network stops the checks that need it."""
        finding = found(name, check)
        self._failed |= finding.state == "failed" and name in _ON_THE_WAY
        return finding

    def _profile(self) -> str:
        from scbroker.cli import profiles

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

    def _of_the_device(self) -> Iterator[Finding]:
        trust = Path(
            (self.profile and self.profile.trust_folder)
            or platform_folder("state", ", or XDG_STATE_HOME")
        )
        yield self._check("trust store", lambda: self._trust_store(trust))
        yield self._check("session store", self._session_store)
        yield self._check("disk", lambda: _space(trust))

    def _trust_store(self, folder: Path) -> str:
        user = uuid.UUID(int=0) if self.profile is None else self.profile.user_id
        scbroker.FileTrustStore(folder).read_pass(user)
        if not folder.exists():
            return f"{folder} is made at the first log-in"
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise errors.TrustStoreError(
                f"{folder} cannot be written ({error.strerror}): make it writable for you."
            ) from None
        return str(folder)

    def _session_store(self) -> str:
        folder = None if self.profile is None else self.profile.session_folder
        if folder is None:
            try:
                scbroker.KeychainSessionStore().check()
            except errors.SessionStoreError as error:
                if self.profile is not None:
                    raise
                raise DoubtfulError(in_words(error.message)) from None
            return "the system's keychain"
        scbroker.FileSessionStore(folder).check()
        return f"{folder}, whose files anybody can use who can read them"

    def _provider(self, api_key: str) -> scbroker.ServerProvider:
        return scbroker.ServerProvider(
            api_key,
            self.server,
            "scbroker doctor",
            trustStore=scbroker.MemoryTrustStore(),
            timeout=_SECONDS,
        )

    def _address(self) -> str:
        try:
            self._provider(str(uuid.UUID(int=0))).close()
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(f"{self.server}: {in_words(error.message)}") from None
        if self.server.lower().startswith("http:"):
            return f"{self.server}, without TLS: it is on this machine"
        return self.server

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
                if _URL.search(error.message):  # it names its own origins: ours is not one
                    raise errors.ChallengeError(
                        error.message.replace(
                            "serverUrl", "the address (`server_url` of the profile)"
                        )
                    ) from None
        return "log-ins at this address are accepted"

    def _session(self) -> str:
        _ = self.run.session
        return "is kept on this device, and resumes"


def _space(folder: Path) -> str:
    """Return how much space is free for the journals of transfers, which are beside the trust store."""
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    free = shutil.disk_usage(existing).free
    if free < _LEAST_SPACE:
        raise DoubtfulError(
            f"Only {Size(free).shown()} are free at {existing}: the journals of large transfers may not fit."
        )
    return f"{Size(free).shown()} free at {existing}"
