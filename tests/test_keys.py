"""KeyRing and KeyFile: docs/spec/keyfile.md. See also tests/vectors/key_files.json."""

import pickle
import uuid
from functools import cache

import msgspec
import pytest

from scbroker import keys as module
from scbroker.errors import (
    BrokerError,
    CredentialsError,
    DecryptionError,
    IntegrityError,
    InvalidArgumentError,
    KeySubstitutionError,
)
from scbroker.keys import KeyFile, KeyRing, PassphraseKeys, open_key_file, seal_key_file
from scbroker.records.key_record import KeyChain
from scbroker.vocabulary import KeyType
from tests.kit.crypto import label, pad_secret, seal, sha256
from tests.vectors.cast import DAY, START, Person, cast, person

PASSWORD, PASSPHRASE = "correct horse", "eight words that nobody else would think of"
ALICE = cast()["alice"]
USER_ID = ALICE.chain().userId


@cache
def passphrase() -> PassphraseKeys:
    return PassphraseKeys.derive(PASSPHRASE, USER_ID)


@cache
def key_file() -> bytes:
    return seal_key_file(ALICE.ring(), PASSWORD, passphrase())


def refused(data: bytes, kind: type[BrokerError], user_id: uuid.UUID = USER_ID) -> str:
    with pytest.raises(BrokerError) as caught:
        open_key_file(data, user_id, passphrase(), None)
    assert caught.type is kind
    return str(caught.value)


def test_a_key_file_opens_to_the_key_ring_that_was_sealed() -> None:
    for password in (None, PASSWORD):
        opened = open_key_file(key_file(), USER_ID, passphrase(), password)
        assert opened.generation == 1
        assert opened.signing[0].seeds == ALICE.ring().signing[0].seeds
        assert opened.encryption[0].seeds == ALICE.ring().encryption[0].seeds


def test_the_fullest_key_ring_fits_into_a_key_file() -> None:
    one = ALICE.ring()
    full = KeyRing(2**53 - 1, one.signing * 256, one.encryption * 256)
    data = seal_key_file(full, "x" * 1023, passphrase())
    assert len(data) <= module.MAX_KEY_FILE
    found = module._parse(data)
    assert len(found.passwordPart) <= 48 * 1024
    assert len(found.passphrasePart) <= 1200


def test_every_changed_byte_of_a_key_file_is_refused_with_the_error_of_its_place() -> None:
    """Magic, version and headers: format; fingerprint: another user; all else does not open."""
    data = key_file()
    fingerprint, salt = data.index(ALICE.fingerprint), data.index(b"\xc4\x20", 52) + 2
    for n, byte in enumerate(data):
        for mask in (1, 0x80, 0xFF):
            spoiled = data[:n] + bytes([byte ^ mask]) + data[n + 1 :]
            with pytest.raises(BrokerError) as caught:
                open_key_file(spoiled, USER_ID, passphrase(), None)
            if n < fingerprint:
                assert caught.type is IntegrityError
            elif n < fingerprint + 15:
                assert caught.type is KeySubstitutionError
            elif fingerprint + 16 <= n < fingerprint + 32 or salt <= n < salt + 32:
                assert caught.type is DecryptionError
            else:
                assert caught.type in (DecryptionError, IntegrityError, KeySubstitutionError)


def test_every_truncation_and_every_appended_byte_of_a_key_file_is_refused() -> None:
    data = key_file()
    for n in range(len(data)):
        refused(data[:n], IntegrityError)
    for n in range(256):
        refused(data + bytes([n]), IntegrityError)


def test_whichever_secret_or_part_is_wrong_the_error_reads_alike() -> None:
    row = msgspec.msgpack.decode(key_file()[17:])
    fingerprint, salt, _, password_part = row

    def with_padded(padded: bytes) -> bytes:
        context = label("keyfile-passphrase") + fingerprint + sha256(salt + password_part)
        part = seal(passphrase().wrap, context, padded)
        return key_file()[:17] + msgspec.msgpack.encode([fingerprint, salt, part, password_part])

    answers = {
        refused(with_padded(bytes(128)), DecryptionError),
        refused(with_padded(pad_secret(b"another password")), DecryptionError),
        refused(key_file()[:-1] + bytes([key_file()[-1] ^ 1]), DecryptionError),
    }
    other = PassphraseKeys.derive("another passphrase", USER_ID)
    for keys, password in ((other, None), (other, PASSWORD), (None, "another password")):
        with pytest.raises(DecryptionError) as caught:
            open_key_file(key_file(), USER_ID, keys, password)
        answers.add(str(caught.value))
        assert caught.value.__suppress_context__
    assert len(answers) == 1


def test_only_the_right_passphrase_tells_a_wrong_password_from_a_damaged_file() -> None:
    """keyfile.md, 2.4: the passphrase part is authentic then, and names the password part's hash."""
    with pytest.raises(CredentialsError, match="Wrong password"):
        open_key_file(key_file(), USER_ID, passphrase(), "another password")
    for position in (60, -1):
        data = bytearray(key_file())
        data[position] ^= 1
        with pytest.raises(DecryptionError):
            open_key_file(bytes(data), USER_ID, passphrase(), "another password")


@pytest.mark.parametrize("secret", ["", "x" * 1024, "ö" * 512, "\ud800", "\ufdfa" * 50],
                         ids=["empty", "1,024 bytes", "1,024 bytes of UTF-8", "surrogate",
                              "too long under NFKC"])  # fmt: skip
def test_a_secret_that_the_format_cannot_hold_is_refused_and_not_shown(secret: str) -> None:
    for act in (
        lambda: PassphraseKeys.derive(secret, USER_ID),
        lambda: seal_key_file(ALICE.ring(), secret, passphrase()),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            act()
        assert not secret or secret not in str(caught.value)


def test_nothing_secret_is_shown_or_pickled() -> None:
    ring = ALICE.ring()
    secrets = [*map(bytes, ring.signing[0].seeds), *map(bytes, ring.encryption[0].seeds)]
    secrets += [passphrase().auth, passphrase().wrap]
    shown = repr(ring) + repr(passphrase()) + f"{ring}{passphrase()}"
    assert str(ring.userId) in shown
    for secret in secrets:
        assert secret.hex() not in shown
        assert repr(secret) not in shown
    with pytest.raises(TypeError):
        pickle.dumps(ring)


def test_a_new_key_ring_publishes_a_valid_chain_of_its_own_keys() -> None:
    ring = KeyRing.generate()
    assert ring.generation == 1
    chain = KeyChain.verify(ring.first_records(START), START)
    assert (chain.fingerprint, chain.userId) == (ring.rawFingerprint, ring.userId)
    assert [len(chain.of_type(kind)) for kind in KeyType] == [1, 1]
    assert chain.keys[KeyType.Signing, 0].introduced == START
    ring.check_chain(chain)
    assert len(ring.fingerprint.split()) == 16
    assert ring.fingerprint.replace(" ", "") == ring.rawFingerprint.hex()


def grown(signing: int, encryption: int, name: str = "alice") -> Person:
    someone = person(name)
    for n in range(1, signing):
        someone.introduce(KeyType.Signing, n, START + n * DAY)
    for n in range(1, encryption):
        someone.introduce(KeyType.Encryption, n, START + n * DAY)
    return someone


def test_a_chain_with_another_key_than_the_key_rings_is_a_substitution() -> None:
    chain, ring = grown(2, 2).chain(), ALICE.ring(1, 2, 2)
    ring.check_chain(chain)
    bob = cast()["bob"].ring(1, 2, 2)
    for other in (
        KeyRing(1, (ring.signing[0], bob.signing[1]), ring.encryption),
        KeyRing(1, ring.signing, (ring.encryption[0], bob.encryption[1])),
        KeyRing(1, ring.signing, ring.encryption[::-1]),
        KeyRing(1, (ring.signing[0], bob.signing[1], ring.signing[1]), ring.encryption),
        bob,
    ):
        with pytest.raises(KeySubstitutionError):
            other.check_chain(chain)


def test_key_rings_and_their_keys_are_equal_by_value() -> None:
    one, same, other = ALICE.ring(), KeyFile(key_file()).open(password=PASSWORD), KeyRing.generate()
    assert one is not same
    assert one == same
    assert hash(one) == hash(same)
    assert (one.signing[0], one.encryption[0]) == (same.signing[0], same.encryption[0])
    assert len({one, same, other, one.signing[0], same.signing[0], other.signing[0]}) == 4
    assert one != other
    assert one != one.next(2, fresh=False), "a later generation is another KeyRing"
    assert one != one.next(1, fresh=True)
    assert one.signing[0] != one.encryption[0]
    assert one.signing[0] != one.signing[0].public


def test_a_key_file_is_its_bytes_names_its_user_and_opens_with_either_secret() -> None:
    file = KeyFile(key_file())
    assert file == key_file()
    assert hash(file) == hash(key_file())
    assert isinstance(file, bytes)
    assert KeyFile(bytearray(key_file())) == file
    assert file.userId == USER_ID
    for secrets in ({"password": PASSWORD}, {"passphrase": PASSPHRASE}):
        assert file.open(**secrets) == ALICE.ring()
    assert file.open(password=PASSWORD, passphrase=PASSPHRASE) == ALICE.ring()
    with pytest.raises(DecryptionError):
        file.open(password="wrong horse")
    with pytest.raises(InvalidArgumentError, match="password or its passphrase"):
        file.open()
