"""Secrets that are like nothing else, a long day in which all of them are used, and where they turn up.

with a_day(folder) as evidence:
    assert evidence.found("heard", evidence.secrets["passphrase"]) == []
"""

import base64
import datetime as dt
import functools
import logging
import secrets
import traceback
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pytest

from scbroker import (
    AccessChange,
    AccessLevel,
    BrokerError,
    CachedProvider,
    Contacts,
    FileSessionStore,
    FileTrustStore,
    GroupManager,
    KeychainSessionStore,
    KeyFile,
    KeyRing,
    MemberRole,
    NewContainer,
    Promise,
    SealedKeys,
    ServerProvider,
    openLink,
)
from scbroker import keys as keys_module
from scbroker.client.calls.tasks import io_thread
from scbroker.client.core import sealing
from scbroker.client.people.links import LinkUrl
from scbroker.crypto import seal
from scbroker.keys import PassphraseKeys
from scbroker.records.container_record import parse_record
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.accounts import watch_derivations
from tests.hostile_broker.protocol import RECORD, SESSIONS
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.keychains import keychain_in_memory
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

LARGE: Final = 70_000
_PIECE: Final = 16


def canary(name: str) -> str:
    """Good as a password; nothing else looks like it."""
    return f"Kanarie {name} {secrets.token_hex(6)}"


@dataclass
class Evidence:
    """Secrets, values that are not secret, and every place that others can read."""

    secrets: dict[str, set[bytes]] = field(default_factory=dict)
    sent: dict[str, bytes] = field(default_factory=dict)
    """Values that the broker gets, by their kind."""
    places: dict[str, bytes] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def note(self, name: str, *found: bytes) -> None:
        self.secrets.setdefault(name, set()).update(found)

    def found(self, place: str, wanted: set[bytes]) -> list[bytes]:
        """The spellings of these that stand there."""
        data = self.places[place]
        return [each for one in wanted for each in spellings(one) if each in data]

    def show(self, *objects: object) -> None:
        for each in objects:
            self.shown += [repr(each), str(each), f"{each}"]


@functools.cache
def spellings(secret: bytes) -> set[bytes]:
    """As it is, and as logs, URLs and encodings have it; of long keys also each half."""
    found = {
        secret, secret[::-1], secret.hex().encode(), secret.hex().upper().encode(),
        secret.hex(" ").encode(), repr(secret)[2:-1].encode(), urllib.parse.quote(secret).encode(),
        urllib.parse.quote_plus(secret).encode(), secret.decode("latin-1").encode(),
        str(list(secret))[1:-1].encode(),
    }  # fmt: skip
    for at in range(3):  # wherever it begins in what is encoded
        whole = base64.b64encode(bytes(at) + secret)
        piece = whole[-(-at * 8 // 6) : (at + len(secret)) * 8 // 6]
        found |= {piece, piece.replace(b"+", b"-").replace(b"/", b"_")}
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        halves = {secret[:_PIECE], secret[-_PIECE:]} if len(secret) >= 2 * _PIECE else set()
        return found | halves | {half.hex().encode() for half in halves}
    found |= {text.encode("utf-16-le"), text.encode("utf-16-be"), msgspec.json.encode(text)[1:-1]}
    return found | {text.upper().encode(), text.casefold().encode()}


@contextmanager
def a_day(folder: Path) -> Iterator[Evidence]:
    """Everything that a program does is done, with all logs at their loudest; then the evidence is taken."""
    evidence = Evidence()
    with (
        pytest.MonkeyPatch.context() as patched,
        Mallory(folder / "mallory", BrokerProcess) as mallory,
        mallory.scene(),
        _loud_logs() as logged,
        keychain_in_memory(),
    ):
        _note_keys_as_they_are_used(patched, evidence)
        made = watch_derivations(patched)
        _Day(mallory, evidence, folder).live()
        for derivation in list(made):  # each is noted once more as it is made
            evidence.note("stretched", seal.stretch(derivation.secret, derivation.salt))
        evidence.places |= _places(mallory, evidence, folder)
        evidence.places["client's log"] = "\n".join(logged).encode("utf-8", "replace")
        yield evidence


@contextmanager
def _loud_logs() -> Iterator[list[str]]:
    """Every logger of the process, and the event loop's own debug mode."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logging.Formatter("%(name)s %(message)s").format(record))

    root, keep = logging.getLogger(), Keep(0)
    names = [root, *(logging.getLogger(name) for name in logging.root.manager.loggerDict)]
    levels = [(logger, logger.level) for logger in names]
    loop = io_thread._started()
    root.addHandler(keep)
    for logger in names:
        logger.setLevel(1)
    loop.set_debug(True)
    slow, loop.slow_callback_duration = loop.slow_callback_duration, 0.0
    try:
        yield lines
    finally:
        loop.slow_callback_duration = slow
        loop.set_debug(False)
        for logger, before in levels:
            logger.setLevel(before)
        root.removeHandler(keep)


def _note_keys_as_they_are_used(patched: pytest.MonkeyPatch, evidence: Evidence) -> None:
    """Part keys, container keys, and what seals the two parts of a KeyFile."""

    def noting(name: str, honest: Callable[..., bytes], key: bytes, *rest: Any) -> bytes:
        evidence.note(name, key)
        return honest(key, *rest)

    for module, name in ((sealing, "container and part keys"), (keys_module, "KeyFile keys")):
        for function in ("seal", "unseal"):
            honest = getattr(module, function)
            patched.setattr(module, function, functools.partial(noting, name, honest))


class _Day:
    """Alice with two devices, Bob who reads, and everything that can go wrong."""

    def __init__(self, mallory: Mallory, evidence: Evidence, folder: Path) -> None:
        self.mallory, self.evidence = mallory, evidence
        self.passwords = [canary("password") for _ in range(3)]
        self.passphrases = [canary("passphrase") for _ in range(3)]
        self.wrong = canary("mistyped")
        names = [canary("header") for _ in range(3)]
        self.header = {"file name": f"{names[0]}.pdf", names[1]: {"a": [names[2]]}}
        self.contents = [canary("content").encode() for _ in range(3)]
        self.store, self.folder = FileTrustStore(folder / "marks"), folder
        self.sessions = KeychainSessionStore(folder / "sessions")
        evidence.note("passwords", *(each.encode() for each in self.passwords))
        evidence.note("passphrases", *(each.encode() for each in self.passphrases))
        evidence.note("mistyped", self.wrong.encode())
        evidence.note("contents", *self.contents)
        evidence.note("headers", *(each.encode() for each in names))
        self.type, self.reminder = canary("type"), canary("reminder")
        evidence.sent |= {"type": self.type.encode(), "reminder": self.reminder.encode()}

    def live(self) -> None:
        self.register()
        small, large = self.create()
        self.read(small, large)
        self.know_bob()
        self.change(small)
        self.share_with_a_group()
        self.link(small)
        self.fail(small)
        self.keep_and_resume()
        self.change_credentials()
        self.read(small, large)
        self.end(small)

    def large(self) -> bytes:
        """Canaries at its beginning, in its midst and at its end."""
        one, two, three = self.contents
        return one + two.center(LARGE - len(one) - len(three), b"\0") + three

    def register(self) -> None:
        self.alice = self.mallory.device(store=self.store)
        registering = self.alice.register(self.passwords[0], self.passphrases[0], self.reminder)
        self.key_file = registering.result(PATIENCE)
        self.user = self.alice.getUserId().result(PATIENCE)
        self.evidence.sent["user id"] = str(self.user).encode()
        self.bob = self.mallory.device(self.mallory.new_user())
        self.cache = CachedProvider(self.bob, self.folder / "cache", follow=False)
        self.evidence.show(self.cache, *self.cache.getPublicKeys().result(PATIENCE))
        self.evidence.show(registering, self.alice, self.bob, self.store)
        self.note_ring(self.alice)
        self.note_ring(self.bob)
        logging.getLogger("scbroker").debug("a day of %s", self.user)

    def note_ring(self, device: ServerProvider) -> None:
        ring: KeyRing = device.getKeyRing().result(PATIENCE)
        for seeds in (*(k.seeds for k in ring.signing), *(k.seeds for k in ring.encryption)):
            self.evidence.note("private keys", *map(bytes, seeds))
        self.evidence.note("trust store keys", ring.signing[0].derive("trust-store"))
        session: Any = device._current
        self.evidence.show(
            ring, *ring.signing, *ring.encryption, session,
            session.directory, session.marks, device._requests, device._endpoint,
        )  # fmt: skip

    def create(self) -> tuple[uuid.UUID, uuid.UUID]:
        bob = User(self.bob.getKeyRing().result(PATIENCE), Wire(self.mallory.behind))
        both = [level(bob)]
        own = self.alice.getPublicKeys().result(PATIENCE)
        levels = [*both, *(type(both[0])(key.userId, both[0].permissions) for key in own[:1])]
        made = [
            self.alice.createContainer(content, self.header, accessLevels=levels, type=self.type)
            for content in (self.contents[0], self.large())
        ]
        secured = [each.result(PATIENCE) for each in made]
        new = NewContainer(self.contents[0], self.header, levels, self.type)
        together = self.alice.createContainers([new, new])
        self.evidence.show(*made, *secured, *levels, *own, new, together)
        self.evidence.show(*together.result(PATIENCE))
        return secured[0].id, secured[1].id

    def read(self, *containers: uuid.UUID) -> None:
        for container in containers:
            for device in (self.alice, self.bob):
                promise = device.getContainer(container)
                found = promise.result(PATIENCE)
                assert found.header is not None
                self.evidence.show(promise, found, found.header, type(found.header))
                self.evidence.show(device.openContainerContent(container).result(PATIENCE))
                together = device.getContainers(containers)
                self.evidence.show(together, *together.result(PATIENCE))
                self.evidence.show(device.getSecuredContainer(container).result(PATIENCE))
                self.evidence.show(device.getContainerMetadata(container).result(PATIENCE))
                heads = device.resetContainerMark(container).result(PATIENCE)
                self.evidence.show(heads, heads.served)
        self.evidence.show(*self.bob.getEvents().result(PATIENCE))

    def know_bob(self) -> None:
        card, people = self.bob.getContactCard("Bob").result(PATIENCE), Contacts(self.alice)
        added = people.add(card)
        self.evidence.show(card, people, added, added.result(PATIENCE))
        self.attempt(lambda: people.get("Rob"))

    def change(self, it: uuid.UUID) -> None:
        alice, bob = self.alice, self.bob.getUserId().result(PATIENCE)
        members = alice.getContainerMetadata(it).result(PATIENCE).access or ()
        alice.updateContainerHeader(it, self.header).result(PATIENCE)
        alice.updateContainerContent(it, self.contents[1]).result(PATIENCE)
        alice.updateContainerType(it, self.type).result(PATIENCE)
        alice.updateContainerAccessLevels(it, members).result(PATIENCE)
        him, everybody = next(each for each in members if each.userId == bob), list(members)
        same = AccessChange(it, replace=everybody)
        for together in (
            alice.revokeAccess(it, bob),
            alice.grantAccess([it], him),
            alice.updateContainersAccessLevels([same]),
        ):
            self.evidence.show(together, same, *together.result(PATIENCE))
        alice.updateContainer(
            it,
            content=self.large(),
            customHeaderObject=self.header,
            accessLevels=members,
            type=self.type,
        ).result(PATIENCE)
        assert {each.userId for each in members} == {self.user, bob}

    def share_with_a_group(self) -> None:
        """A group is made, used, renewed, and left by a member whose last change has to be confirmed."""
        name, about = canary("name of a group"), canary("description of a group")
        self.evidence.note("groups", name.encode(), about.encode())
        alice, bob = self.alice, self.bob.getUserId().result(PATIENCE)
        role, manager = MemberRole(bob, "Sharer"), GroupManager(bob)
        making = alice.createGroup(name, [role], about, managers=[manager])
        group = making.result(PATIENCE)
        accepting = self.bob.acceptGroup(group)
        self.evidence.show(making, group, role, manager, accepting, accepting.result(PATIENCE))
        self.evidence.show(*alice.getGroupMembers(group).result(PATIENCE))
        self.evidence.show(*self.bob.getGroups().result(PATIENCE))
        levels = [AccessLevel(self.user, 511), AccessLevel(group, 511)]
        box = alice.createContainer(self.contents[0], self.header, levels).result(PATIENCE).id
        self.evidence.show(*levels, self.bob.getContainer(box).result(PATIENCE))
        self.bob.grantAccess(box, AccessLevel(bob)).result(PATIENCE)
        alice.setGroupManagers(group, [GroupManager(self.user, owner=True)]).result(PATIENCE)
        alice.removeGroupMembers(group, bob).result(PATIENCE)
        self.attempt(lambda: alice.updateContainerContent(box, self.contents[1]))
        confirming = alice.confirmAccess(box)
        found = confirming.result(PATIENCE)
        assert found is not None
        alice.confirmAccess(box, found.head).result(PATIENCE)
        self.evidence.show(confirming, found, alice.renewGroup(group).result(PATIENCE))
        for device in (alice, self.bob):
            for opened in device._session().groups._opened.values():
                self.evidence.show(opened, opened.chain)
                self.evidence.note("groups", *opened.secrets.values())
                for epoch in opened.secrets:
                    self.evidence.note("groups", *map(bytes, opened.key(epoch).seeds))

    def link(self, it: uuid.UUID) -> None:
        """A link with a password is made, opened, mistyped, listed and revoked."""
        password, wrong = canary("password of a link"), canary("mistyped password of a link")
        end = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
        making = self.alice.createLink(it, expiresAt=end, password=password, name="a name")
        link = making.result(PATIENCE)
        parts = LinkUrl.parse(link.url)
        fragment = link.url.partition("#")[2].encode()
        self.evidence.note("links", fragment, parts.secret, parts.passphrase(password).encode())
        self.evidence.note("links", password.encode(), wrong.encode())
        opening = openLink(link, password, trustStore=self.store)
        with opening.result(PATIENCE) as guest:
            self.evidence.show(making, link, parts, opening, guest)
            self.evidence.show(guest.getContainer(it).result(PATIENCE))
            ring = guest._session().keys.ring
            for key in (*ring.signing, *ring.encryption):
                self.evidence.note("links", *map(bytes, key.seeds))
            self.attempt(lambda: guest.createContainer(self.contents[0]))
        self.attempt(lambda: openLink(link, wrong, trustStore=self.store))
        self.attempt(lambda: openLink(link))
        self.attempt(lambda: openLink(link.url[:-3], password))
        self.attempt(lambda: self.alice.createLink(it, expiresAt=end, password=password, name="\n"))
        with self.mallory.failing("POST /v1/users", BrokerError.brokerFaultError("its words")):
            self.attempt(lambda: self.alice.createLink(it, expiresAt=end, password=password))
        self.evidence.show(*self.alice.getLinks().result(PATIENCE))
        self.alice.revokeLink(link).result(PATIENCE)

    def attempt(self, act: Callable[[], object]) -> None:
        """Something that fails, as a program and its logs would show it."""
        with pytest.raises(BrokerError) as caught:
            self.outcome(act())
        error = caught.value
        told = [*traceback.format_exception(error), repr(error), str(error), repr(vars(error))]
        self.evidence.errors += [*told, repr(error.args), repr(getattr(error, "__notes__", ()))]

    def outcome(self, promise: object) -> None:
        if isinstance(promise, Promise):
            self.evidence.show(promise)
            promise.result(PATIENCE)

    def fail(self, it: uuid.UUID) -> None:
        alice: Any = self.alice
        passphrase, password = self.passphrases[0], self.passwords[0]
        attempts: list[Callable[[], object]] = [
            lambda: alice.register(self.wrong[:3], passphrase),
            lambda: alice.register(password, passphrase, f"it is {passphrase}"),
            lambda: alice.logIn(self.user, self.wrong, passphrase),
            lambda: alice.logIn(self.user, passphrase=self.wrong),
            lambda: alice.getKeyFile(self.wrong),
            lambda: alice.createOrUpdateKeyFile(self.key_file, self.wrong, passphrase),
            lambda: alice.getContainerHeader(it, int),
            lambda: alice.getContainerHeader(it, dict[str, Literal["no such"]]),
            lambda: alice.createContainer(self.contents[0].decode()),
            lambda: alice.createContainer(b"", {self.contents[0]: object()}),
            lambda: alice.updateContainerContent(uuid.uuid4(), self.contents[0]),
            lambda: alice.updateContainerHeader(it, self.header, ifVersion=1),
        ]
        for act in attempts:
            self.attempt(act)
        drop(alice.getContainerHeader(it, int))
        fault = BrokerError.brokerFaultError("the broker's own words")
        with self.mallory.failing("", fault):
            self.attempt(lambda: alice.updateContainerContent(it, self.contents[2]))
            self.attempt(lambda: alice.getKeyFile(passphrase))
        with self.mallory.failing(RECORD, fault):
            self.attempt(lambda: alice.updateContainerContent(it, self.contents[2]))
        self.evidence.show(*alice.getSentChanges(it).result(PATIENCE))
        self.evidence.show(alice.listContainers().result(PATIENCE))
        with alice.iterContainers() as listed:
            self.evidence.show(listed, *listed)
        self.break_the_database(it)

    def break_the_database(self, it: uuid.UUID) -> None:
        """The real broker fails as it stores a record, and a KeyFile."""
        url = self.mallory.behind.database_url
        for table in ("records", "key_files"):
            query(
                url,
                f"CREATE TRIGGER broken_{table} BEFORE INSERT ON {table}"
                " BEGIN SELECT RAISE(ABORT, 'the table is broken'); END",
            )
        self.attempt(lambda: self.alice.updateContainerContent(it, self.contents[0]))
        device = self.mallory.device()
        self.attempt(lambda: device.register(self.passwords[0], self.passphrases[0]))
        for table in ("records", "key_files"):
            query(url, f"DROP TRIGGER broken_{table}")

    def keep_and_resume(self) -> None:
        device = self.mallory.device(store=self.store, sessionStore=self.sessions)
        device.logIn(self.user, passphrase=self.passphrases[0], keep=True).result(PATIENCE)
        device.close()
        resuming = device.resumeSession()
        assert resuming.result(PATIENCE) == self.user
        found = self.sessions.get(self.mallory.origin, self.user)
        assert found is not None
        self.evidence.note("kept session keys", found.key)
        in_files = FileSessionStore(self.sessions.directory / "other")
        self.evidence.show(resuming, device, found, self.sessions, in_files)
        self.attempt(lambda: device.resumeSession(uuid.uuid4()))
        with self.mallory.failing(SESSIONS, BrokerError.challengeError("No.")):
            self.attempt(lambda: device.resumeSession())
        self.sessions.swap(self.mallory.origin, self.user, found, SealedKeys(found.key, b"damaged"))
        self.attempt(lambda: device.resumeSession())
        self.sessions.directory.chmod(0o777)
        self.attempt(lambda: device.resumeSession())
        self.sessions.directory.chmod(0o700)
        self.sessions.swap(self.mallory.origin, self.user, SealedKeys(found.key, b"damaged"), found)

    def change_credentials(self) -> None:
        for number, compromised in ((1, False), (2, True)):
            changing = self.alice.changeCredentials(
                self.passwords[number], self.passphrases[number], compromised=compromised
            )
            changing.result(PATIENCE)
            self.evidence.show(changing)
            self.note_ring(self.alice)
        key_file = self.alice.getKeyFile(self.passphrases[2]).result(PATIENCE)
        self.alice.createOrUpdateKeyFile(
            key_file, self.passwords[2], self.passphrases[2], self.reminder
        ).result(PATIENCE)
        self.alice.needToSyncAccount(self.user, key_file).result(PATIENCE)
        self.alice.logout().result(PATIENCE)
        self.alice.logIn(self.user, passphrase=self.passphrases[2]).result(PATIENCE)
        self.evidence.sent["device pass"] = self.store.read_pass(self.user) or b""
        self.alice.getKeyFile(self.passphrases[2]).result(PATIENCE)
        file = KeyFile(key_file)
        self.evidence.show(file, file.open(password=self.passwords[2]))
        keys = PassphraseKeys.derive(self.passphrases[2], self.user)
        self.evidence.note("KeyFile keys", keys.wrap)
        self.evidence.sent["auth"] = keys.auth
        session: Any = self.alice._current
        self.evidence.sent["token"] = session.token.value.encode()
        self.evidence.sent["API key"] = str(self.alice.apiKey).encode()
        self.evidence.show(keys)

    def end(self, it: uuid.UUID) -> None:
        self.evidence.sent["record"] = self.alice.getSecuredContainer(it).result(PATIENCE).record
        parse_record(self.evidence.sent["record"])
        self.evidence.show(self.alice.getUsage().result(PATIENCE))
        before = _kept(self.mallory)
        self.alice.deleteContainer(it).result(PATIENCE)
        self.alice.deleteKeyFile().result(PATIENCE)
        self.alice.deleteUser().result(PATIENCE)
        self.evidence.places["kept"] = before + _kept(self.mallory)
        self.attempt(lambda: self.mallory.device().logIn(self.user, passphrase=self.passphrases[2]))


def drop(promise: Promise[Any]) -> None:
    """Lets go of a promise whose failure nobody looked at; it is logged."""
    with pytest.raises(BrokerError):
        promise.result(PATIENCE)


def _kept(mallory: Mallory) -> bytes:
    """Database and objects, as they lie on the disk."""
    folder = mallory.behind.directory
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "stderr"]
    return b"\n".join(path.read_bytes() for path in files)


def _places(mallory: Mallory, evidence: Evidence, folder: Path) -> dict[str, bytes]:
    with Wire(mallory.behind) as wire:
        open_to_all = b"".join(
            wire.call("GET", path).body for path in ("/metrics", "/openapi.json")
        )
    heard = mallory.heard
    return {
        "heard": b"\n".join(each.bytes_heard for each in heard),
        "addresses": "\n".join(f"{each.path}?{each.query}" for each in heard).encode(),
        "answered": b"\n".join(each.answer_body for each in heard),
        "broker's log": (mallory.behind.log + mallory.behind.output).encode() + open_to_all,
        "errors": "\n".join(evidence.errors).encode("utf-8", "replace"),
        "objects": "\n".join(evidence.shown).encode("utf-8", "replace"),
        "trust store": b"".join(
            p.read_bytes() for p in (folder / "marks").rglob("*") if p.is_file()
        ),
        "cache": b"".join(
            str(p).encode() + p.read_bytes() for p in (folder / "cache").rglob("*") if p.is_file()
        ),
        "session store": b"".join(p.read_bytes() for p in (folder / "sessions").iterdir()),
    }
