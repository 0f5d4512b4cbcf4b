"""Attacks on links: by a thief of the URL, by the broker, by a holder after the end, and on the creator.

Numbers and names are those of attacks.toml.
"""

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    KeyRing,
    Link,
    LinkProvider,
    MemoryTrustStore,
    Promise,
    ServerProvider,
    openLink,
)
from scbroker.client.people.links import LinkUrl
from scbroker.client.users import accounts
from scbroker.keys import PassphraseKeys, open_key_file
from scbroker.records.container_record import parse_entry, wrap_info
from scbroker.wire.containers import RecordRequest
from scbroker.wire.users import KeyFileAnswer
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.accounts import COST, Derivation
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import DECRYPTION, OPEN, RECORD, SUBSTITUTION, VIEW
from tests.hostile_broker.served import governing_of, opened, wrapped_key
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.waiting import PATIENCE, on_io_thread
from tests.kit.writers import User

CREDENTIALS = BrokerError.credentialsError
PASSWORD = "correct Horse 7"
pytestmark = pytest.mark.usefixtures("derivations")


@pytest.fixture(scope="module")
def throttled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("throttled"), guesses=3, guesses_user=3) as broker:
        yield broker


@pytest.fixture
def creator(throttled: BrokerProcess) -> Iterator[ServerProvider]:
    """A user of an honest broker that permits three guesses at a passphrase."""
    ring = throttled.new_user()
    store = MemoryTrustStore()
    with ServerProvider(throttled.api_key, throttled.url, "creator", trustStore=store) as provider:
        provider.logIn(ring, ring.userId).result(PATIENCE)
        yield provider


def box_of(provider: ServerProvider) -> uuid.UUID:
    return provider.createContainer(b"before").result(PATIENCE).id


def made(provider: ServerProvider, box: uuid.UUID, seconds: float = 3600, **more: Any) -> Link:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    link: Link = provider.createLink(box, expiresAt=end, **more).result(PATIENCE)
    return link


def entered(link: Link | str, password: str | None = None) -> LinkProvider:
    return openLink(link, password, trustStore=MemoryTrustStore()).result(PATIENCE)


def refused(link: Link | str, error: type[BrokerError], password: str | None = None) -> str:
    with pytest.raises(BrokerError) as caught:
        entered(link, password)
    assert type(caught.value) is error, caught.value
    return str(caught.value)


def changed(link: Link, **fields: Any) -> str:
    """Return the URL with other fields, and a checksum that fits: anybody can compute it."""
    parts = LinkUrl.parse(link.url)
    names = ("serverUrl", "apiKey", "fingerprint", "secret", "hasPassword")
    return LinkUrl(**{name: fields.get(name, getattr(parts, name)) for name in names}).text


def ring_of(guest: LinkProvider) -> KeyRing:
    """Return the KeyRing of a link, as a holder who writes a program of their own has it."""
    return guest._session().keys.ring


def members(provider: ServerProvider, box: uuid.UUID) -> set[uuid.UUID]:
    access = provider.getContainerMetadata(box).result(PATIENCE).access
    assert access is not None
    return {level.userId for level in access}


def record_sent(mallory: Mallory, box: uuid.UUID) -> RecordRequest:
    """Return the last record of this container that any client sent."""
    sent = [e for e in mallory.heard if e.name == RECORD and str(box) in e.path]
    request: RecordRequest = sent[-1].message
    return request


# 89: a thief of the URL


@pytest.mark.long
def test_a_thief_of_a_link_without_its_password_has_the_guesses_that_the_broker_permits(
    creator: ServerProvider,
) -> None:
    link = made(creator, box_of(creator), password=PASSWORD)
    refused(link, CREDENTIALS)
    refused(changed(link, hasPassword=False), BrokerError.notFoundError)
    for number in range(2):
        refused(link, CREDENTIALS, f"guess {number}")
    refused(link, BrokerError.throttledError, "one more guess")
    refused(link, BrokerError.throttledError, PASSWORD)


# 90: the broker, or somebody on the way, puts another user in place of the link's


def test_the_whole_fingerprint_of_a_link_is_compared_and_not_only_its_user_id(
    creator: ServerProvider,
) -> None:
    """Whoever makes a link can name a fingerprint of the same user id, and promise it to somebody else."""
    ring = KeyRing.generate()
    other = ring.rawFingerprint[:-1] + bytes([ring.rawFingerprint[-1] ^ 1])
    parts = LinkUrl(creator.serverUrl, creator.apiKey, other, b"s" * 32, False)
    assert parts.userId == ring.userId
    work = accounts.publish(creator._requests, ring, "password", parts.passphrase(None), None)
    on_io_thread(work)
    creator.grantAccess(box_of(creator), AccessLevel(ring.userId)).result(PATIENCE)
    refused(parts.text, SUBSTITUTION)


# 91: a holder, and a broker that helps them, after the end


@pytest.mark.long
def test_a_holder_of_a_revoked_link_opens_nothing_that_is_written_afterwards(
    mallory: Mallory, alice: User
) -> None:
    """The holder keeps the private keys and every container key, and the broker gives them all it has."""
    device = mallory.device_of(alice)
    box = box_of(device)
    link = made(device, box)
    granted = record_sent(mallory, box)
    guest = entered(link)
    holder = mallory.accomplice(ring_of(guest))
    old_key = wrapped_key(granted, holder)
    device.revokeLink(link).result(PATIENCE)
    revocation = record_sent(mallory, box)
    device.updateContainerContent(box, b"secret").result(PATIENCE)
    written = record_sent(mallory, box)
    assert revocation is not written
    assert opened(written, wrapped_key(revocation, alice)) == b"secret"
    with pytest.raises(DECRYPTION):
        opened(written, old_key)
    for item in revocation.accessList or ():
        assert item.wrap is not None
        for name in (holder.name, parse_entry(item.entry).fingerprint):
            info = wrap_info(box.bytes, governing_of(revocation), name, 0)
            with pytest.raises(DECRYPTION):
                holder.ring.encryption[0].unwrap(item.wrap, info)


# 92: a holder attacks the creator


def error_of(promise: Promise[None]) -> BrokerError | None:
    try:
        promise.result(PATIENCE)
    except BrokerError as error:
        return error
    return None


def account_of(link: Link, creator: ServerProvider, password: str | None = None) -> ServerProvider:
    """Return a session of the link's user without the refusals of a LinkProvider."""
    provider = ServerProvider(
        creator.apiKey, creator.serverUrl, "holder", trustStore=MemoryTrustStore()
    )
    with entered(link, password) as guest:
        ring = ring_of(guest)
        provider.logIn(ring, ring.userId).result(PATIENCE)
    return provider


def test_a_link_whose_user_a_holder_deleted_is_revoked_like_any_other(
    creator: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    box = box_of(creator)
    link = made(creator, box)
    with account_of(link, creator) as holder:
        holder.deleteUser().result(PATIENCE)
    refused(link, BrokerError.notFoundError)
    assert creator.getLinks().result(PATIENCE) == [link]
    assert error_of(creator.revokeLink(link)) is None
    assert creator.getLinks().result(PATIENCE) == []
    assert members(creator, box) == {creator.getUserId().result(PATIENCE)}
    assert "could not be deleted" not in caplog.text


@pytest.mark.long
def test_a_link_that_the_broker_keeps_open_is_not_forgotten(mallory: Mallory, alice: User) -> None:
    """It denies the container, and acknowledges the deletion of the link's user without a deletion."""
    device = mallory.device_of(alice)
    box = box_of(device)
    link = device.createLink(
        [box], expiresAt=dt.datetime.now(dt.UTC) + dt.timedelta(days=7)
    ).result(PATIENCE)

    def deny(exchange: Exchange) -> None:
        if str(box) in exchange.path:
            exchange.fail(BrokerError.notFoundError("It does not exist."))
        elif exchange.path.endswith("/deletion"):
            exchange.invent(b"", 204)

    with (
        mallory.meddling("", before=deny),
        pytest.raises(BrokerError.rollbackError, match="call revokeLink again"),
    ):
        device.revokeLink(link).result(PATIENCE)
    assert [each.userId for each in device.getLinks().result(PATIENCE)] == [link.userId]
    device.revokeLink(link).result(PATIENCE)
    assert device.getLinks().result(PATIENCE) == []


# Limits


def test_a_thief_together_with_the_broker_pays_an_argon2id_for_each_guess_which_is_the_limit(
    mallory: Mallory, alice: User, derivations: list[Derivation]
) -> None:
    device = mallory.device_of(alice)
    link = made(device, box_of(device), password=PASSWORD)
    entered(link, PASSWORD).close()
    [served] = [e.answer for e in mallory.heard[-12:] if e.name == OPEN]
    assert isinstance(served, KeyFileAnswer)
    parts = LinkUrl.parse(link.url)
    for guess in ("wrong", None, PASSWORD):
        before = len(derivations)
        keys = PassphraseKeys.derive(parts.passphrase(guess), link.userId)
        assert [each.cost for each in derivations[before:]] == [COST]
        if guess == PASSWORD:
            ring = open_key_file(served.keyFile, link.userId, keys, None)
            assert ring.userId == link.userId
        else:
            with pytest.raises(DECRYPTION):
                open_key_file(served.keyFile, link.userId, keys, None)


def test_a_changed_address_gets_a_proof_of_the_password_that_opens_nothing_which_is_the_limit(
    mallory: Mallory, creator: ServerProvider, throttled: BrokerProcess
) -> None:
    """The attacker changes a link under way, so that the victim types the password for another broker.

    The attacker has the link's secret, so the proof tests guesses at the password, one Argon2id each.
    """
    link = made(creator, box_of(creator), password=PASSWORD)
    api_key = mallory.behind.api_key
    refused(changed(link, serverUrl=mallory.url, apiKey=api_key), CREDENTIALS, PASSWORD)
    auth = next(e.message.auth for e in reversed(mallory.heard) if e.name == OPEN)
    with Wire(throttled) as wire:
        answer = wire.open_key_file(link.userId, auth).expect(200).message(KeyFileAnswer)
    with pytest.raises(DECRYPTION):
        open_key_file(answer.keyFile, link.userId, PassphraseKeys(auth, auth), None)
    guessed = PassphraseKeys.derive(LinkUrl.parse(link.url).passphrase(PASSWORD), link.userId)
    assert guessed.auth == auth


def test_contents_that_a_link_could_read_before_its_end_are_the_limit(
    mallory: Mallory, alice: User
) -> None:
    """A broker that kept the old answers serves them on, and the holder may have kept copies anyway."""
    device = mallory.device_of(alice)
    box = box_of(device)
    link = made(device, box)
    guest = entered(link)
    guest.getContainerContent(box).result(PATIENCE)
    before = next(e.answer for e in reversed(mallory.heard) if e.name == VIEW)
    device.revokeLink(link).result(PATIENCE)
    with mallory.answering(VIEW, before):
        assert guest.getContainerContent(box).result(PATIENCE) == b"before"
    with pytest.raises(BrokerError):
        guest.getContainerContent(box).result(PATIENCE)
