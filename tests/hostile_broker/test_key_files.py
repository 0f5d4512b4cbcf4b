"""Attacks on the KeyFile: what it says, what it is spliced from, whose it is, and how old it is.

Attacks 25 to 31 of attacks.toml. The broker serves it, so every byte of it is the broker's to choose; a
client that refuses it has sent `auth` and nothing else, and has signed nothing.
"""

import itertools
import tracemalloc
from collections.abc import Iterator

import pytest

from scbroker import BrokerError, KeyRing, KeyType
from scbroker import keys as module
from scbroker.keys import MAGIC, PassphraseKeys, open_key_file, seal_key_file
from scbroker.records.container_record import parse_entry, parse_record, wrap_info
from scbroker.wire.users import Session
from tests.hostile_broker.accomplices import WRITES, Mallory, fresh_and_marked, level, records_of
from tests.hostile_broker.accounts import (
    COST,
    NEW_PASSPHRASE,
    NEW_PASSWORD,
    PASSPHRASE,
    PASSWORD,
    Derivation,
    account,
    file_of,
    no_log_in,
    of_passphrase,
    only_auth_was_sent,
    row_of,
    serving,
    turned_down,
)
from tests.hostile_broker.protocol import (
    DECRYPTION,
    FAULT,
    FORK,
    INTEGRITY,
    ROLLBACK,
    STATE,
    SUBSTITUTION,
)
from tests.hostile_broker.served import governing_of, instead, opened, wrap_of, wrapped_key
from tests.hostile_broker.two_keys import for_two_keys
from tests.kit.brokers import clock
from tests.kit.crypto import DecryptionKey, label, pad_secret, seal, sha256, unseal
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Step, User, chain_of, key_records

pytestmark = pytest.mark.usefixtures("derivations")


def with_parameters(key_file: bytes) -> Iterator[bytes]:
    """The KeyFile with parameters of a derivation in it, or as of another format."""
    row = row_of(key_file)
    yield file_of([*row, 1])
    yield file_of([*row, {"iterations": 1, "memory": 8}])
    yield file_of([*row[:2], 1, *row[2:]])
    names = ("fingerprint", "passwordSalt", "passphrasePart", "passwordPart")
    yield file_of(dict(zip(names, row, strict=True)))
    for position, other in itertools.product(range(4), (None, 1, "PBKDF2", [1, 8, 1])):
        yield file_of([*row[:position], other, *row[position + 1 :]])
    for version in (0, 2, 255):
        yield MAGIC + bytes([version]) + key_file[len(MAGIC) + 1 :]
    yield MAGIC[:-1] + b"0" + key_file[len(MAGIC) :]


def test_no_key_file_names_a_derivation_and_nothing_but_auth_is_sent(
    mallory: Mallory, derivations: list[Derivation]
) -> None:
    alice, device, count = account(mallory), mallory.device(), len(mallory.heard)
    derivations.clear()
    for spoiled in with_parameters(alice.key_file):
        no_log_in(mallory, alice.user, spoiled, INTEGRITY, device)
    assert len(derivations) == len(list(with_parameters(alice.key_file))) == 24
    assert all(made == of_passphrase(alice.user) for made in derivations)
    only_auth_was_sent(mallory, count, alice.user)


def bombs(key_file: bytes) -> Iterator[bytes]:
    """Salts, parts and counts that would make a reader work or allocate if it believed them."""
    row, head = row_of(key_file), key_file[: len(MAGIC) + 1]
    for size in (0, 8, 31, 33, 64, 60_000):
        yield file_of([row[0], bytes(size), *row[2:]])
    yield file_of([*row[:2], bytes(1201), row[3]])
    yield file_of([*row[:3], bytes(49_153)])
    yield head + b"\xdd\xff\xff\xff\xff"
    yield head + b"\x94\xc4\x20" + row[0] + b"\xc6\xff\xff\xff\xff"
    yield head + b"\x91" * 40_000
    yield key_file + bytes(65_536 - len(key_file))


def test_no_length_and_no_count_of_a_key_file_reaches_argon2id_or_the_memory(
    mallory: Mallory, derivations: list[Derivation]
) -> None:
    alice, device, keys = account(mallory), mallory.device(), account(mallory).keys
    derivations.clear()
    for bomb in bombs(alice.key_file):
        no_log_in(mallory, alice.user, bomb, INTEGRITY, device)
        assert derivations == [of_passphrase(alice.user)]
        derivations.clear()
        tracemalloc.start()
        with pytest.raises(INTEGRITY):
            open_key_file(bomb, alice.user, keys, None)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 1_000_000
    no_log_in(mallory, alice.user, bytes(65_537), FAULT, device)
    no_log_in(mallory, alice.user, bytes(17 * 2**20), BrokerError.tooLargeError, device)
    assert all(made.cost == COST for made in derivations)


GUESSES = ("first Guess 1", "second Guess 2", "third Guess 3")


def test_no_key_file_opens_under_two_passphrases_and_all_of_them_fail_alike(
    mallory: Mallory, derivations: list[Derivation]
) -> None:
    """One ciphertext and tag that AES-GCM takes under both of two guesses: the commitment is to one.

    The limit is what that one shows: with a broker that times the second derivation, one guess a log-in.
    Such a broker has `auth`, and can guess without any log-in.
    """
    alice = account(mallory)
    row, wraps = row_of(alice.key_file), []
    for guess in GUESSES:
        wraps.append(PassphraseKeys.derive(guess, alice.user).wrap)
    context = label("keyfile-passphrase") + row[0] + sha256(row[1] + row[3])
    parts = for_two_keys((wraps[0], wraps[1]), context)
    assert parts[0][56:] == parts[1][56:]
    told, work = set(), []
    for number, part in enumerate(parts):
        # What makes it an attack: with either commitment it is a good passphrase part of a KeyFile.
        assert len(pad_secret(unseal(wraps[number], context, part)[:-1])) == 1024
        for guess in GUESSES:
            derivations.clear()
            served = file_of([row[0], row[1], part, row[3]])
            told.add(no_log_in(mallory, alice.user, served, DECRYPTION, passphrase=guess))
            work.append(len(derivations))
    told.add(no_log_in(mallory, alice.user, alice.key_file, DECRYPTION, passphrase=GUESSES[0]))
    assert len(told) == 1
    assert work == [2, 1, 1, 1, 2, 1]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def places(key_file: bytes, *positions: int) -> list[int]:
    """Where the bytes of these elements stand."""
    row = row_of(key_file)
    starts = {position: key_file.index(row[position]) for position in positions}
    return [start + n for position, start in starts.items() for n in range(len(row[position]))]


def test_a_key_file_with_any_byte_flipped_opens_with_neither_secret(mallory: Mallory) -> None:
    """Another form, or another user's; everything else is the one error."""
    alice, keys = account(mallory), account(mallory).keys
    data, sealed = alice.key_file, set(places(alice.key_file, 1, 2, 3))
    for at in range(len(data)):
        with pytest.raises(BrokerError) as caught:
            open_key_file(flipped(data, at), alice.user, keys, None)
        allowed = {DECRYPTION} if at in sealed else {DECRYPTION, INTEGRITY, SUBSTITUTION}
        assert caught.type in allowed
    for at in places(data, 3):
        with pytest.raises(DECRYPTION):
            open_key_file(flipped(data, at), alice.user, None, PASSWORD)


def with_ring(of: KeyRing, ring: KeyRing, password: str, keys: PassphraseKeys) -> bytes:
    """A KeyFile for one user with another's KeyRing inside, sealed by somebody who knows the secrets."""
    found, secret = row_of(seal_key_file(ring, password, keys)), password.encode()
    fingerprint, salt = of.rawFingerprint, found[1]
    own_key = module._password_key(secret, salt, ring.rawFingerprint)
    own_context = label("keyfile-password") + ring.rawFingerprint + salt
    inside = unseal(own_key, own_context, found[3])
    key = module._password_key(secret, salt, fingerprint)
    part = seal(key, label("keyfile-password") + fingerprint + salt, inside)
    context = label("keyfile-passphrase") + fingerprint + sha256(salt + part)
    return file_of([fingerprint, salt, seal(keys.wrap, context, pad_secret(secret)), part])


def test_a_user_who_knows_the_passphrase_does_not_pass_their_key_ring_off_as_its_owners(
    mallory: Mallory,
) -> None:
    """Bob seals his own for Alice, under her name and her secrets: she does not become him."""
    alice, bob = account(mallory), account(mallory, "another")
    no_log_in(
        mallory, alice.user, with_ring(alice.ring, bob.ring, PASSWORD, alice.keys), DECRYPTION
    )
    no_log_in(mallory, alice.user, seal_key_file(bob.ring, PASSWORD, alice.keys), SUBSTITUTION)


# An older KeyFile is served again, or a thief who learned its passphrase opens it. The thief keeps the keys
# in it; those of a rotation after it stay closed.


def test_nothing_is_stored_in_the_place_of_an_old_key_file_that_the_broker_names(
    mallory: Mallory,
) -> None:
    alice, device = account(mallory, "changed"), mallory.device()
    device.logIn(alice.user, passphrase=NEW_PASSPHRASE).result(PATIENCE)
    other = seal_key_file(alice.ring_now, PASSWORD, alice.keys)
    for key_file, generation, error in (
        (alice.key_file, 1, ROLLBACK),
        (None, 1, ROLLBACK),
        (other, 2, FORK),
    ):
        digest = None if key_file is None else sha256(key_file)
        with (
            mallory.lying(STATE, instead(hash=digest, generation=generation)),
            mallory.refused(device, error) as attempt,
        ):
            attempt(device.needToSyncAccount(alice.user, alice.key_file_now))
            attempt(device.changeCredentials(PASSWORD, PASSPHRASE))
            attempt(device.createOrUpdateKeyFile(alice.key_file_now, NEW_PASSWORD, NEW_PASSPHRASE))
    with serving(mallory, other):
        turned_down(mallory, device, FORK, lambda: device.getKeyFile(PASSPHRASE))


def test_an_old_key_file_on_a_fresh_device_is_the_limit_unless_keys_were_added_since(
    mallory: Mallory,
) -> None:
    """Without a mark only the published keys tell, and a mere change of secrets adds none."""
    alice = account(mallory, "changed")
    with serving(mallory, alice.key_file):
        assert mallory.device().logIn(alice.user, passphrase=PASSPHRASE).result(PATIENCE)
    alice = account(mallory, "rotated")
    fresh, count = mallory.device(), len(mallory.heard)
    token = mallory.accomplice(alice.ring_now).wire.token  # the real one refuses a retired key
    given = Session(token=str(token), expiresAt=clock() + 10**10, devicePass=bytes(48))
    with (
        serving(mallory, alice.key_file),
        mallory.answering("POST /v1/sessions", given, 201),
        pytest.raises(ROLLBACK, match="older than the user's published keys"),
    ):
        fresh.logIn(alice.user, passphrase=PASSPHRASE).result(PATIENCE)
    assert mallory.since(count)[-1] == "POST /v1/key-records"
    with pytest.raises(BrokerError.notAuthenticatedError):
        fresh.getUserId().result(PATIENCE)
    assert fresh.logIn(alice.user, passphrase=NEW_PASSPHRASE).result(PATIENCE)


def test_after_a_rotation_an_old_key_file_opens_what_was_wrapped_before_as_the_limit_and_no_new_wrap(
    mallory: Mallory,
) -> None:
    alice, story = account(mallory, "rotated"), account(mallory, "rotated").stories[0]
    ring = KeyRing.open(alice.key_file, alice.user, passphrase=PASSPHRASE)
    thief, owner = User(ring, alice.alice.wire), User(alice.ring_now, alice.alice.wire)
    before = story.requests[-1]
    assert opened(before, wrapped_key(before, thief)) == b"content"
    with pytest.raises(BrokerError.credentialsError):
        mallory.device().logIn(keyRing=ring, userId=alice.user).result(PATIENCE)
    bob, both = mallory.device_of(alice.bob), [level(alice.alice), level(alice.bob)]
    for write in (
        lambda: bob.createContainer(b"new", accessLevels=both),
        lambda: bob.updateContainerAccessLevels(story.uuid, both),
        lambda: mallory.device(alice.ring_now).createContainer(b"own"),
    ):
        write().result(PATIENCE)
        sent = mallory.sent_record()
        entries = [parse_entry(item.entry) for item in sent.accessList or ()]
        assert [entry.keyIndex for entry in entries if entry.fingerprint == owner.name] == [1]
        assert wrapped_key(sent, owner, 1)
        container = parse_record(sent.record.body).containerId
        for index in (0, 1):
            info = wrap_info(container, governing_of(sent), thief.name, index)
            with pytest.raises(DECRYPTION):
                ring.encryption[0].unwrap(wrap_of(sent, thief), info)


@pytest.mark.sampled
@fresh_and_marked
def test_no_record_of_a_retired_key_is_taken_from_its_retirement_on_and_backdating_is_the_limit(
    mallory: Mallory, marked: bool
) -> None:
    """A retirement is dated minutes ahead, so that at first the broker need not even backdate (ids.md, 4).

    A broker that is honest takes neither, whatever the date: from the retirement on the key is refused.
    """
    alice = account(mallory, "rotated")
    story, owner = alice.stories[1 + marked], mallory.accomplice(alice.ring_now)
    thief = User(KeyRing.open(alice.key_file, alice.user, passphrase=PASSPHRASE), owner.wire)
    retired = chain_of(owner).of_type(KeyType.Signing)[0].retired
    assert retired is not None
    device = mallory.victim(alice.bob, story, marked=marked)
    late = story.follow(thief, content=b"late", time=retired)
    early = story.follow(thief, content=b"backdated", time=retired - 1)
    for request in (late, early):
        story.send(owner, request).expect(422, "rejected")
    mallory.plant(story.twin(), late)
    mallory.check_refused(device, story, INTEGRITY, "getContainer", *WRITES)
    mallory.plant(story.twin(), early)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"backdated"


# Limits


def test_after_a_mere_change_of_secrets_the_old_key_file_is_the_whole_account_and_the_limit(
    mallory: Mallory,
) -> None:
    alice = account(mallory, "changed")
    thief = KeyRing.open(alice.key_file, alice.user, passphrase=PASSPHRASE)
    device, container = mallory.device(thief), alice.stories[0].uuid
    assert device.getContainerContent(container).result(PATIENCE) == b"content"
    device.updateContainerContent(container, b"the thief's").result(PATIENCE)
    bob = mallory.device_of(alice.bob)
    assert bob.getContainerContent(container).result(PATIENCE) == b"the thief's"


def test_a_thief_with_signing_key_0_publishes_keys_and_that_is_the_limit_of_a_rotation(
    mallory: Mallory,
) -> None:
    """A leaked KeyRing is a lost account, with the broker's help; its owner is told at the next log-in."""
    alice, url = account(mallory, "rotated"), mallory.behind.database_url
    ring = KeyRing.open(alice.key_file, alice.user, passphrase=PASSPHRASE)
    owner = mallory.accomplice(alice.ring_now)
    more = (alice.ring_now.encryption[1], DecryptionKey.generate())
    thief = User(KeyRing(3, ring.signing, (ring.encryption[0], *more)), owner.wire)
    added = key_records(thief.ring, chain_of(owner), Step(KeyType.Encryption, 2))
    bob, both = mallory.device_of(alice.bob), [level(owner), level(alice.bob)]
    index = "UPDATE users SET encryption_index = ? WHERE id = ?"
    with mallory.serving_keys(owner, [*records_of(owner), *added]):
        query(url, index, 2, alice.user.bytes)
        bob.createContainer(b"lost", accessLevels=both).result(PATIENCE)
        query(url, index, 1, alice.user.bytes)
        assert wrapped_key(mallory.sent_record(), thief, 2)
        with pytest.raises(ROLLBACK):
            mallory.device().logIn(alice.user, passphrase=NEW_PASSPHRASE).result(PATIENCE)
