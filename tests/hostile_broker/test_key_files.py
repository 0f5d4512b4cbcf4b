"""Attacks on the KeyFile: what it says, what it is spliced from, and whose it is.

Numbers and names are those of `catalogue`. The broker serves it, so every byte of it is the broker's to
choose; a client that refuses it has sent `auth` and nothing else, and has signed nothing.
"""

import itertools
import tracemalloc
from collections.abc import Iterator

import pytest

from scbroker import BrokerError, KeyRing
from scbroker import keys as module
from scbroker.crypto.seal import pad_secret, seal, unseal
from scbroker.crypto.verify import label, sha256
from scbroker.keys import MAGIC, PassphraseKeys, open_key_file, seal_key_file
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.accounts import (
    COST,
    PASSWORD,
    Derivation,
    account,
    file_of,
    no_log_in,
    of_passphrase,
    only_auth_was_sent,
    row_of,
)
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, FAULT, INTEGRITY, SUBSTITUTION
from tests.hostile_broker.two_keys import for_two_keys

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


@attack(25, "derivation downgraded")
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


@attack(26, "derivation bomb")
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


@attack(27, "partitioning oracle")
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


@attack(28, "KeyRing surgery")
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


@attack(28, "KeyRing surgery")
def test_nothing_of_an_older_key_file_is_spliced_into_a_newer_one(mallory: Mallory) -> None:
    """Both under the same secrets, so that only what binds their parts together keeps them apart."""
    alice, device = account(mallory), mallory.device()
    newer = seal_key_file(alice.ring.next(2, fresh=True), PASSWORD, alice.keys)
    older, newer_row = row_of(alice.key_file), row_of(newer)
    for chosen in itertools.product((0, 1), repeat=3):
        spliced = [(older, newer_row)[which][n] for n, which in enumerate(chosen, 1)]
        if len(set(chosen)) > 1:
            served = file_of([older[0], *spliced])
            no_log_in(mallory, alice.user, served, DECRYPTION, device)
    assert open_key_file(newer, alice.user, alice.keys, None).generation == 2


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


@attack(31, "KeyFile of somebody else")
def test_a_user_who_knows_the_passphrase_does_not_pass_their_key_ring_off_as_its_owners(
    mallory: Mallory,
) -> None:
    """Bob seals his own for Alice, under her name and her secrets: she does not become him."""
    alice, bob = account(mallory), account(mallory, "another")
    no_log_in(
        mallory, alice.user, with_ring(alice.ring, bob.ring, PASSWORD, alice.keys), DECRYPTION
    )
    no_log_in(mallory, alice.user, seal_key_file(bob.ring, PASSWORD, alice.keys), SUBSTITUTION)
