"""People at machines of their own, who use the command line.

    def test_…(person):
        alice = person("Alice")
        alice.run("put", "letter.txt")
        assert alice.json("ls")[0]["name"] == "letter.txt"

Each has a fresh home folder and works in it; a person with a user is logged in, as after `scbroker login`.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pexpect
import pytest

from scbroker import (
    AccessLevel,
    ContactCard,
    Contacts,
    Container,
    Group,
    KeyRing,
    MemberRole,
    MemoryTrustStore,
    SecuredContainer,
    ServerProvider,
)
from tests.kit.brokers import BrokerProcess
from tests.kit.processes import Terminal, run
from tests.kit.waiting import PATIENCE

_COLUMNS, _LINES = 120, 40
_PRESSES = 5


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    status: int
    output: str
    error: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


class Person:
    """Somebody with a home folder of their own, as `home`."""

    def __init__(self, home: Path, broker: BrokerProcess) -> None:
        self.home = home
        self.broker = broker
        home.mkdir(mode=0o700)
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **{k: v for k, v in os.environ.items() if k.startswith(("COV", "PYTHONPATH"))},
        }
        if path := self.environment.get("PYTHONPATH"):  # the commands run in the home folder
            parts = map(os.path.abspath, path.split(os.pathsep))
            self.environment["PYTHONPATH"] = os.pathsep.join(parts)

    @property
    def config(self) -> Path:
        return self.home / ".config" / "scbroker" / "config.toml"

    def join(self, name: str, ring: KeyRing | None = None) -> None:
        """Become a new user of the broker, with a profile and a kept session, without costly Argon2id.

        With the ring of a user, this is another device of that user.
        """
        ring = self.ring = ring or self.broker.new_user()
        folders = {each: str(self.home / each) for each in ("sessions", "trust")}
        with ServerProvider(
            self.broker.api_key, self.broker.url, "scbroker",
            sessionStore=folders["sessions"], trustStore=folders["trust"],
        ) as provider:  # fmt: skip
            provider.logIn(ring, ring.userId, keep=True).result(PATIENCE)
        self.config.parent.mkdir(parents=True, mode=0o700)
        fields = {
            "server_url": self.broker.url,
            "api_key": str(self.broker.api_key),
            "fingerprint": ring.fingerprint,
            "card_name": name,
            "session_folder": folders["sessions"],
            "trust_folder": folders["trust"],
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
        self.config.write_text("\n".join(["[profiles.default]", *lines, ""]), "utf-8")
        self.config.chmod(0o600)

    def device(self) -> ServerProvider:
        """Return a session of another device of this person, with marks of its own."""
        provider = ServerProvider(
            self.broker.api_key, self.broker.url, "device", trustStore=MemoryTrustStore()
        )
        provider.logIn(self.ring, self.ring.userId).result(PATIENCE)
        return provider

    def run(
        self, *arguments: str | Path, status: int | None = 0, stdin: bytes = b"", **env: str
    ) -> Done:
        """Run `scbroker` in the home folder, with a pipe for each stream; with status None it may fail."""
        variables = self.environment | env
        options = [str(each) for each in arguments]
        done = Done(*run(options, variables, PATIENCE, stdin=stdin, cwd=self.home))
        assert "Traceback" not in done.error, done.error
        assert status in (None, done.status), done
        return done

    def json(self, *arguments: str | Path, status: int = 0, stdin: bytes = b"") -> Any:
        """Run a command with `--json` and return what it prints."""
        return json.loads(self.run(*arguments, "--json", status=status, stdin=stdin).output)

    @contextmanager
    def session(self) -> Iterator[ServerProvider]:
        """Yield the kept session as a program has it, for what a test needs and no command does."""
        folders = {each: str(self.home / each) for each in ("sessions", "trust")}
        with ServerProvider(
            self.broker.api_key, self.broker.url, "scbroker",
            sessionStore=folders["sessions"], trustStore=folders["trust"],
        ) as provider:  # fmt: skip
            provider.resumeSession().result(PATIENCE)
            yield provider

    def at_terminal(self, *arguments: str | Path, **env: str) -> Terminal:
        """Start `scbroker` on a pseudo-terminal of 120 columns; the caller types and expects."""
        options = [str(each) for each in arguments]
        variables = {**self.environment, "TERM": "xterm-256color", **env}
        return Terminal(options, variables, self.home, (_LINES, _COLUMNS), PATIENCE)


def put(
    provider: ServerProvider, name: str | None, content: bytes = b"", **options: Any
) -> uuid.UUID:
    """Make a container with the header that `scbroker put` writes, or without one; return its id."""
    header = None if name is None else {"name": name}
    made: SecuredContainer = provider.createContainer(
        content, customHeaderObject=header, **options
    ).result(PATIENCE)
    return made.id


def with_access(
    provider: ServerProvider, user: uuid.UUID, permissions: int = 75
) -> list[AccessLevel]:
    """Return the access levels of a new container of the provider's user and of another user."""
    return [AccessLevel(provider.getUserId().result(PATIENCE), 511), AccessLevel(user, permissions)]


def offer(
    provider: ServerProvider, member: ServerProvider, name: str, permissions: int = 75
) -> uuid.UUID:
    """Make a container with a name, to which another user has access as well; return its id."""
    levels = with_access(provider, member.getUserId().result(PATIENCE), permissions)
    return put(provider, name, b"shared", accessLevels=levels)


def befriend(provider: ServerProvider, other: Person, name: str) -> uuid.UUID:
    """Add another person to the address book, and return their user id."""
    card = ContactCard.parse(other.json("whoami")["card"])
    Contacts(provider).add(card, name).result(PATIENCE)
    return card.userId


def team(
    owner: Person, name: str, *members: Person, role: str = "Writer", accepted: bool = True
) -> Group:
    """Make a group of these people, which they have accepted."""
    with owner.session() as session:
        roles = [MemberRole(each.ring.userId, role) for each in members]
        made: Group = session.createGroup(name, roles).result(PATIENCE)
    for each in members if accepted else ():
        with each.session() as session:
            session.acceptGroup(made).result(PATIENCE)
    return made


def damage_links(provider: ServerProvider) -> None:
    """Write what is not a list of links into the container in which they are kept."""
    [kept] = provider.listContainers("scbroker.links").result(PATIENCE).containers
    assert isinstance(kept, Container)
    provider.updateContainerContent(kept.id, b"not a list").result(PATIENCE)


def screen(someone: Person, *arguments: str, status: int = 0) -> str:
    """Return all that a command shows on a terminal, without styles."""
    shown = ended(someone.at_terminal(*arguments), status)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def ended(terminal: Terminal, status: int = 0) -> str:
    """Wait for the end of a command, and return what it has shown since the last `expect`."""
    terminal.expect(pexpect.EOF, timeout=PATIENCE)
    return _closed(terminal, status)


def interrupted(terminal: Terminal) -> str:
    """Press Ctrl-C until the command ends, with status 130; return what it has shown since then.

    Python misses an interrupt in the moment between writing a prompt and reading the answer.
    """
    for _ in range(_PRESSES):
        terminal.sendintr()
        if terminal.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=PATIENCE / _PRESSES) == 0:
            break
    return _closed(terminal, 130)


def _closed(terminal: Terminal, status: int) -> str:
    terminal.close()
    assert terminal.exitstatus == status, terminal.before
    return terminal.before or ""


@pytest.fixture
def person(broker: BrokerProcess, tmp_path: Path) -> Callable[[str], Person]:
    """Make people of `broker` by name, who are registered and logged in."""

    def make(name: str) -> Person:
        made = Person(tmp_path / f"home of {name}", broker)
        made.join(name)
        return made

    return make


@pytest.fixture
def stranger(broker: BrokerProcess, tmp_path: Path) -> Person:
    """Somebody with an empty home folder, who is not registered yet."""
    return Person(tmp_path / "home of a stranger", broker)
