"""Attacks that have a program seal again: no key, salt or nonce comes twice, whatever it is told.

Attack 23 of attacks.toml. Every sealing and wrapping of this process is noted with its real keys, while the
broker invents conflicts, loses answers, takes no chunks and changes access between two attempts.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.cobblestone import Cobblestone256Encryptor

from scbroker import AccessLevel, BrokerError, FileTrustStore, Promise, ServerProvider
from scbroker.crypto import seal
from scbroker.records.container_record import SEGMENT, parse_record
from scbroker.wire.containers import RecordRequest
from scbroker.wire.parts import CHUNK_SEGMENTS
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.broker import CutError, Exchange, Rule
from tests.hostile_broker.protocol import CHUNK, RECORD
from tests.independent.keys import expand
from tests.kit.crypto import WRAP_SIZE, Octets, label
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Story, User

KEY_FILE: Final = "PUT /v1/key-file"
_SEGMENT: Final = label("segment")
_PART_KEY: Final = label("part-key")
_PLACE: Final = 16 + 16 + 1 + 32
"""Container, part, role, author: what the contexts of a part's key and of its segments begin with."""


@dataclass
class Sealing:
    """One message: key and context as they were given, and what became of it."""

    key: bytes
    context: bytes
    plaintext: bytes = b""
    sealed: bytes = b""

    @property
    def nonces(self) -> Iterator[tuple[bytes, bytes]]:
        """The keys and nonces that AES-GCM gets, by the words of c2sp.org/chunked-encryption."""
        info = b"c2sp.org/chunked-encryption@v1+AEAD_AES_256_GCM\0" + self.sealed[:24]
        derived = expand(self.key, info + self.context, 76, "sha512")
        assert self.sealed[24:56] == derived[44:], "not the keys that were used"
        base = int.from_bytes(derived[32:44], "big")
        for index in range(len(self.plaintext) // 16_384 + 1):
            yield derived[:32], (base ^ index).to_bytes(12, "big")


@dataclass
class Notes:
    """Every sealing and every wrapping, as long as the fixture."""

    sealings: list[Sealing] = field(default_factory=list)
    wraps: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    """Container key, info, wrap."""

    def of(self, name: bytes) -> list[Sealing]:
        return [each for each in self.sealings if each.context.startswith(name)]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    found, real, suite = Notes(), Cobblestone256Encryptor, seal._SUITE

    class Encryptor:
        def __init__(self, key: bytes, context: bytes) -> None:
            self._real, self._note = real(key, context), Sealing(key, context)
            found.sealings.append(self._note)

        def update(self, data: bytes | bytearray | memoryview) -> bytes:
            self._note.plaintext += bytes(data)
            return self._noted(self._real.update(data))

        def update_into(self, data: Octets, buffer: memoryview) -> int:
            self._note.plaintext += bytes(data)
            size = self._real.update_into(data, buffer)
            self._noted(bytes(buffer[:size]))
            return size

        def finalize(self) -> bytes:
            return self._noted(self._real.finalize())

        def _noted(self, sealed: bytes) -> bytes:
            self._note.sealed += sealed
            return sealed

    class Suite:
        def encrypt(self, key: bytes, recipient: Any, info: bytes) -> bytes:
            wrap = suite.encrypt(key, recipient, info=info)
            found.wraps.append((key, info, wrap))
            return wrap

        def decrypt(self, wrap: bytes, private: Any, info: bytes) -> bytes:
            return suite.decrypt(wrap, private, info=info)

    monkeypatch.setattr(seal, "Cobblestone256Encryptor", Encryptor)
    monkeypatch.setattr(seal, "_SUITE", Suite())
    be_impatient(monkeypatch)
    return found


def first(count: int, act: Callable[[Exchange], None]) -> Rule:
    """A rule for the first so many requests alone."""
    left = iter(range(count))

    def rule(exchange: Exchange) -> None:
        if next(left, None) is not None:
            act(exchange)

    return rule


def stale(exchange: Exchange) -> None:
    exchange.fail(BrokerError.staleKeysError())


def overloaded(exchange: Exchange) -> None:
    exchange.fail(BrokerError.overloadedError())


def lost(_: Exchange) -> None:
    raise CutError


def twice(values: list[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def check_all_differ(notes: Notes) -> None:
    """No key and salt, no key and nonce, no encapsulation came twice."""
    assert len(notes.sealings) > 5
    assert twice([(each.key, each.sealed[:24]) for each in notes.sealings]) == []
    assert twice([nonce for each in notes.sealings for nonce in each.nonces]) == []
    assert {len(wrap) for _, _, wrap in notes.wraps} <= {WRAP_SIZE}
    assert twice([wrap[:1088] for _, _, wrap in notes.wraps]) == []
    assert twice([wrap[1088:1120] for _, _, wrap in notes.wraps]) == []


def check_every_key_has_one_purpose(notes: Notes) -> None:
    """A part's key is that part's alone, and each of its places was sealed once; likewise a container's."""
    segments, part_keys = notes.of(_SEGMENT), notes.of(_PART_KEY)
    assert twice([(each.key, each.context) for each in segments]) == []
    places = {(each.key, each.context[len(_SEGMENT) :][:_PLACE]) for each in segments}
    places |= {(each.plaintext[:32], each.context[len(_PART_KEY) :]) for each in part_keys}
    assert twice([key for key, _ in places]) == []
    assert twice([place for _, place in places]) == []
    given = {(key, info[: len(label("wrap")) + 16 + 8 + 32]) for key, info, _ in notes.wraps}
    assert twice([key for key, _ in given]) == []
    assert {key for key, _ in given}.isdisjoint(key for key, _ in places)
    assert {each.key for each in part_keys} <= {key for key, _ in given}


def check_sent(mallory: Mallory, count: int) -> None:
    """As the broker saw it: one sealing of each chunk and part, one key to each change of access."""
    heard = mallory.heard[count:]
    chunks = {(each.path, each.body) for each in heard if each.name == CHUNK}
    assert twice([path for path, _ in chunks]) == []
    sent: list[RecordRequest] = [each.message for each in heard if each.name == RECORD]
    records = [parse_record(body) for body in {request.record.body for request in sent}]
    keys = [each.governing.keyCommitment for each in records if each.changes_access]  # type: ignore[union-attr]
    assert twice(keys) == []
    parts = [part for each in records for part in (each.header, each.content) if part is not None]
    assert twice([name for name, _ in {(part.partId, part.segments) for part in parts}]) == []


def check_nothing_came_twice(notes: Notes, mallory: Mallory, count: int) -> None:
    check_all_differ(notes)
    check_every_key_has_one_purpose(notes)
    check_sent(mallory, count)


LARGE = bytes(70_000)
Write = Callable[[ServerProvider, uuid.UUID, list[AccessLevel]], Promise[Any]]
WRITES: dict[str, Write] = {
    "header": lambda device, it, _: device.updateContainerHeader(it, "the same"),
    "content": lambda device, it, _: device.updateContainerContent(it, b"the same"),
    "large content": lambda device, it, _: device.updateContainerContent(it, LARGE),
    "access": lambda device, it, levels: device.updateContainerAccessLevels(it, levels),
    "all": lambda device, it, levels: device.updateContainer(
        it, content=LARGE, customHeaderObject="the same", accessLevels=levels, type=None
    ),
}


def troubled(mallory: Mallory) -> Iterator[AbstractContextManager[None]]:
    """Yield what the broker does to each write, in turn."""
    yield mallory.meddling(RECORD, before=first(3, lambda it: it.fail(BrokerError.conflictError())))
    yield mallory.meddling(RECORD, before=first(2, stale))
    yield mallory.meddling(RECORD, after=first(2, lost))
    yield mallory.meddling(CHUNK, before=first(2, overloaded))
    yield mallory.meddling(CHUNK, after=first(2, lost))
    yield mallory.failing(CHUNK, BrokerError.overloadedError())
    yield mallory.failing(RECORD, BrokerError.overloadedError())


@pytest.mark.long
@pytest.mark.parametrize("what", WRITES)
def test_a_program_that_is_made_to_write_again_uses_no_key_salt_or_nonce_twice(
    mallory: Mallory, notes: Notes, what: str, alice: User, bob: User
) -> None:
    """The same write each time, so that nothing but chance tells one sealing from another."""
    device, count = mallory.device_of(alice), len(mallory.heard)
    levels = [level(alice), level(bob, READER)]
    with mallory.meddling(RECORD, before=first(2, stale)):
        made = device.createContainer(LARGE, "the same", accessLevels=levels).result(PATIENCE)
    for trouble in troubled(mallory):
        with trouble, suppress(BrokerError.conflictError, BrokerError.overloadedError):
            WRITES[what](device, made.id, levels).result(PATIENCE)
    before = len(notes.sealings)
    WRITES[what](device, made.id, levels).result(PATIENCE)
    assert len(notes.sealings) > before
    assert mallory.since(count).count(RECORD) > 10
    assert len(notes.wraps) > 4
    check_nothing_came_twice(notes, mallory, count)


def test_a_content_that_is_sealed_again_over_a_change_of_access_has_another_key(
    mallory: Mallory, notes: Notes, alice: User, bob: User, carol: User
) -> None:
    """Carol changes access while the record is on its way, twice."""
    grants = {carol: OWNER, alice: WRITER, bob: READER}
    story = Story(carol).created(grants, content=None)
    device, count = mallory.device_of(alice), len(mallory.heard)

    def change(_: Exchange) -> None:
        story.tell(carol, story.follow(carol, grants=grants))

    with mallory.meddling(RECORD, before=first(2, change)):
        device.updateContainerContent(story.uuid, LARGE).result(PATIENCE)
    assert mallory.since(count).count(RECORD) == 3
    assert len({each.key for each in notes.of(_SEGMENT)}) == 3
    check_nothing_came_twice(notes, mallory, count)


def test_a_file_whose_record_was_sent_is_sent_again_under_another_key(
    mallory: Mallory, notes: Notes, tmp_path: Path, alice: User, bob: User
) -> None:
    """The broker keeps the first record to itself: who stood in it may hold the key of its content."""
    device = mallory.device_of(alice, bob, store=FileTrustStore(tmp_path / "device"))
    file, count = tmp_path / "file", len(mallory.heard)
    # A file of one chunk has no journal, and so no key that is kept.
    file.write_bytes(bytes(CHUNK_SEGMENTS * SEGMENT + 1))
    levels = [level(alice), level(bob, READER)]
    denied = BrokerError.permissionDeniedError
    with mallory.failing(RECORD, denied()), pytest.raises(denied):
        device.createContainer(file, accessLevels=levels).result(PATIENCE)
    device.createContainer(file).result(PATIENCE)
    assert len({each.key for each in notes.of(_SEGMENT)}) == 2
    check_nothing_came_twice(notes, mallory, count)


@pytest.mark.usefixtures("derivations")
def test_a_key_file_that_is_sealed_again_under_the_same_secrets_uses_no_salt_twice(
    mallory: Mallory, notes: Notes
) -> None:
    """The passphrase gives one key for ever: its salt is the user."""
    device = mallory.device(mallory.new_user())
    for _ in range(2):
        with mallory.meddling(KEY_FILE, after=first(1, lost)):
            device.changeCredentials("Password 1", "Passphrase 1").result(PATIENCE)
    assert len(notes.of(label("keyfile-passphrase"))) == 2
    assert len({each.key for each in notes.of(label("keyfile-passphrase"))}) == 1
    assert len({each.key for each in notes.of(label("keyfile-password"))}) == 2
    assert twice([(each.key, each.sealed[:24]) for each in notes.sealings]) == []
    assert twice([nonce for each in notes.sealings for nonce in each.nonces]) == []
