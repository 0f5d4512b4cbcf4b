"""KeyRing and KeyFile: a user's private keys, in memory and as a file that two secrets guard.

Spec: docs/spec/keyfile.md. Nothing here does I/O; opening a KeyFile costs one Argon2id for the
passphrase and one for the password, 64 MiB and about 0.15 s each.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, Self

import msgspec
from msgspec import Meta

from scbroker.crypto.seal import (
    KEY_SIZE,
    MAX_SECRET_SIZE,
    MLKEM_SEED_SIZE,
    DecryptionKey,
    Octets,
    SigningKey,
    derive_key,
    pad_secret,
    random_bytes,
    seal,
    secret_bytes,
    stretch,
    unpad_secret,
    unseal,
    unseal_into,
)
from scbroker.crypto.verify import HASH_SIZE, equal, label, labelled_hash, sha256
from scbroker.errors import (
    CredentialsError,
    DecryptionError,
    IntegrityError,
    InvalidArgumentError,
    KeySubstitutionError,
    RollbackError,
)
from scbroker.records.canonical import VERSION, Bin32, Row, decode_object, encode_object
from scbroker.records.ids import fingerprint_of, show_fingerprint, user_id_of
from scbroker.records.key_record import (
    ACTIVE,
    CLOSED,
    LABEL,
    RETIRED,
    RETIREMENT_AHEAD,
    KeyChain,
    KeyRecord,
    Signed,
)
from scbroker.vocabulary import KeyType

MAGIC: Final = b"scbroker.keyfile"
MAX_KEY_FILE: Final = 65_536
_WRONG: Final = "Wrong password or passphrase, or a damaged KeyFile."
_MISTYPED: Final = (
    "Wrong password: the KeyFile opened with the passphrase and holds another password."
)
_encoder: Final = msgspec.msgpack.Encoder()


# Seeds are views of the plaintext that they stand in, which is overwritten after use: a copy would stay in
# the memory that Python gave back.
class _Seeds(Row, frozen=True):
    ed25519: memoryview
    mldsa: memoryview


class _DecryptionSeeds(Row, frozen=True):
    mlkem: memoryview
    x25519: memoryview


class _KeyRingBytes(Row, frozen=True):
    fingerprint: Bin32
    generation: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    signing: Annotated[list[_Seeds], Meta(min_length=1, max_length=256)]
    encryption: Annotated[list[_DecryptionSeeds], Meta(min_length=1, max_length=256)]


_decoder: Final = msgspec.msgpack.Decoder(_KeyRingBytes)


class _KeyFileBytes(Row, frozen=True):
    fingerprint: Bin32
    passwordSalt: Bin32
    passphrasePart: Annotated[bytes, Meta(max_length=1200)]
    passwordPart: Annotated[bytes, Meta(max_length=49_152)]


class _Change(NamedTuple):
    """A key record to be written: of which key, to which state, dated when."""

    kind: KeyType
    number: int
    state: int
    time: int


@dataclass(frozen=True, slots=True, repr=False)
class KeyRing:
    """A user's private keys, every one they ever had; the position in each tuple is its index.

    A KeyRing is all that it takes to act as the user: keep it in memory, and its KeyFile on disk. KeyRings
    are equal if their generations and their keys are equal.
    """

    generation: int
    signing: tuple[SigningKey, ...]
    encryption: tuple[DecryptionKey, ...]

    @classmethod
    def generate(cls) -> KeyRing:
        """The keys of a new user."""
        return cls(1, (SigningKey.generate(),), (DecryptionKey.generate(),))

    @property
    def rawFingerprint(self) -> bytes:
        return fingerprint_of(self.signing[0].public)

    @property
    def fingerprint(self) -> str:
        """What two people compare: 16 groups of 4 hexadecimal digits."""
        return show_fingerprint(self.rawFingerprint)

    @property
    def userId(self) -> uuid.UUID:
        return user_id_of(self.rawFingerprint)

    @classmethod
    def open(
        cls,
        keyFileData: bytes,
        userId: uuid.UUID,
        *,
        password: str | None = None,
        passphrase: str | None = None,
    ) -> KeyRing:
        """Open this user's KeyFile, as `KeyFile.open` does; first check that it is this user's.

        Raises `keySubstitutionError` for another user's KeyFile, and what `KeyFile.open` raises.
        """
        if not isinstance(userId, uuid.UUID):
            raise InvalidArgumentError(f"userId must be a uuid.UUID, not {type(userId).__name__}")
        key_file = KeyFile(keyFileData)
        check_key_file(key_file, userId)
        return key_file.open(password=password, passphrase=passphrase)

    def next(self, generation: int, *, fresh: bool) -> KeyRing:
        """The KeyRing of a later generation; with one more key of each type if they are to be `fresh`."""
        if not fresh:
            return KeyRing(generation, self.signing, self.encryption)
        return KeyRing(
            generation,
            (*self.signing, SigningKey.generate()),
            (*self.encryption, DecryptionKey.generate()),
        )

    def first_records(self, time: int) -> list[Signed]:
        """The two key records that a registration publishes."""
        first = [_Change(kind, 0, ACTIVE, time) for kind in KeyType]
        return self._sign(first, 0, None)

    def next_records(self, chain: KeyChain, time: int) -> list[Signed]:
        """What publishes the keys that a chain has not yet, and then retires those that they replace.

        A retirement is dated ahead, so that nothing signed until now falls behind it (ids.md, 4).
        """
        introduced, retired = [], []
        for kind, keys in ((KeyType.Signing, self.signing), (KeyType.Encryption, self.encryption)):
            published = chain.of_type(kind)
            new = range(len(published), len(keys))
            introduced += [_Change(kind, index, ACTIVE, time) for index in new]
            retired += [
                _Change(kind, key.index, RETIRED, time + RETIREMENT_AHEAD)
                for key in published
                if new and key.retired is None
            ]
        return self._sign([*introduced, *retired], len(chain.records), chain.hashes[-1])

    def closing_record(self, chain: KeyChain, time: int) -> Signed:
        """Return the record that retires every key of a chain, dated ahead as retirements are (ids.md, 4)."""
        closing = _Change(KeyType.Signing, 0, CLOSED, time + RETIREMENT_AHEAD)
        [signed] = self._sign([closing], len(chain.records), chain.hashes[-1])
        return signed

    def _sign(
        self, changes: Iterable[_Change], sequence: int, previous: bytes | None
    ) -> list[Signed]:
        keys: dict[KeyType, Sequence[SigningKey | DecryptionKey]] = {
            KeyType.Signing: self.signing,
            KeyType.Encryption: self.encryption,
        }
        records = []
        for kind, index, state, time in changes:
            public = keys[kind][index].public
            record = KeyRecord(
                self.rawFingerprint, sequence, kind, index, public, state, time, previous
            )
            body = encode_object(record)
            records.append(Signed(body, self.signing[0].sign(LABEL, body)))
            sequence, previous = sequence + 1, labelled_hash(LABEL, body)
        return records

    def check_chain(self, chain: KeyChain) -> None:
        """Raises unless the published keys are exactly these (docs/spec/keyfile.md, section 4)."""
        published = {kind: chain.of_type(kind) for kind in KeyType}
        own = {
            KeyType.Signing: [key.public for key in self.signing],
            KeyType.Encryption: [key.public for key in self.encryption],
        }
        for kind, keys in published.items():
            shared = min(len(keys), len(own[kind]))
            if [key.public for key in keys[:shared]] != own[kind][:shared]:
                raise KeySubstitutionError("The broker publishes keys that are not this user's.")
            if len(keys) > shared:
                raise RollbackError("This KeyFile is older than the user's published keys.")
            if len(own[kind]) > shared:
                raise RollbackError("The broker withholds some of this user's published keys.")

    def __repr__(self) -> str:
        return f"KeyRing(userId={self.userId})"

    def __reduce__(self) -> str:
        raise TypeError("A KeyRing is not pickled: keep the KeyFile.")


class KeyFile(bytes):
    """A user's KeyRing, encrypted: the bytes that operations take and return and the broker keeps.

    Made from those bytes. Raises `invalidArgumentError` for another type and `integrityError` for
    bytes that are not a KeyFile. Its generation is encrypted as well: `open` it to know.
    """

    __slots__ = ()

    def __new__(cls, keyFileData: bytes | bytearray | memoryview) -> Self:
        if not isinstance(keyFileData, bytes | bytearray | memoryview):
            raise InvalidArgumentError(
                f"keyFileData must be the bytes of a KeyFile, not {type(keyFileData).__name__}"
            )
        made = super().__new__(cls, keyFileData)
        _parse(made)
        return made

    @property
    def userId(self) -> uuid.UUID:
        """Return the id of the user whose KeyFile this claims to be; only opening it proves that."""
        return user_id_of(_parse(self).fingerprint)

    def open(self, *, password: str | None = None, passphrase: str | None = None) -> KeyRing:
        """Return the KeyRing, with either secret or both, without a broker.

        Takes 0.15 s with the password, 0.3 s with the passphrase (Argon2id). Raises
        `invalidArgumentError` without a secret, `credentialsError` for a wrong password beside the right
        passphrase, `decryptionError` for any other wrong secret or damaged bytes.
        """
        if password is None and passphrase is None:
            raise InvalidArgumentError("A KeyFile opens with its password or its passphrase.")
        user_id = self.userId
        keys = None if passphrase is None else PassphraseKeys.derive(passphrase, user_id)
        return open_key_file(self, user_id, keys, password).ring

    def __repr__(self) -> str:
        return f"KeyFile(userId={self.userId})"

    __str__ = __repr__


@dataclass(frozen=True, slots=True, repr=False)
class PassphraseKeys:
    """What a passphrase gives: `auth` for the broker, `wrap` for the password, neither from the other."""

    auth: bytes
    wrap: bytes

    @classmethod
    def derive(cls, passphrase: str, user_id: uuid.UUID) -> PassphraseKeys:
        """One Argon2id; salt and parameters are fixed, so there is nothing for a broker to choose."""
        salt = labelled_hash("passphrase-salt", user_id.bytes)
        root = stretch(checked_secret(passphrase, "passphrase"), salt)
        return cls(
            derive_key(root, "passphrase-auth", user_id.bytes),
            derive_key(root, "passphrase-wrap", user_id.bytes),
        )

    def __repr__(self) -> str:
        return "PassphraseKeys(…)"


@dataclass(frozen=True, slots=True, repr=False)
class OpenedKeyFile:
    """A KeyFile that opened, with the hash of its bytes."""

    ring: KeyRing
    hash: bytes

    def __repr__(self) -> str:
        return f"OpenedKeyFile({self.ring!r})"


def checked_secret(secret: str, name: str) -> bytes:
    """A password or passphrase as bytes; `InvalidArgumentError` for what the format cannot hold."""
    try:
        data = secret_bytes(secret)
    except (UnicodeEncodeError, TypeError):  # half a surrogate pair, or no text at all
        data = b""
    if not 1 <= len(data) <= MAX_SECRET_SIZE:
        raise InvalidArgumentError(
            f"{name} must be text of 1 to {MAX_SECRET_SIZE} bytes in UTF-8: it is empty, too long or not "
            "valid Unicode."
        )
    return data


def seal_key_file(ring: KeyRing, password: str, passphrase: PassphraseKeys) -> bytes:
    """The KeyFile of a KeyRing under both secrets."""
    secret = checked_secret(password, "password")
    fingerprint, salt = ring.rawFingerprint, random_bytes(HASH_SIZE)
    context = label("keyfile-password") + fingerprint + salt
    plaintext = _plaintext_of(
        _KeyRingBytes(
            fingerprint,
            ring.generation,
            [_Seeds(*key.seeds) for key in ring.signing],
            [_DecryptionSeeds(*key.seeds) for key in ring.encryption],
        )
    )
    password_key = _password_key(secret, salt, fingerprint)
    password_part = seal(password_key, context, plaintext)
    _overwrite(plaintext)
    # The library frees the buffer that it sealed from as it is; the next one of this size takes its place.
    seal(password_key, context, plaintext)
    passphrase_part = seal(
        passphrase.wrap,
        _passphrase_context(fingerprint, salt, password_part),
        pad_secret(secret),
    )
    return MAGIC + encode_object(_KeyFileBytes(fingerprint, salt, passphrase_part, password_part))


def check_key_file(data: bytes, user_id: uuid.UUID) -> None:
    """Raises unless the bytes have the form of this user's KeyFile; that says nothing of the secrets."""
    _parsed_of(data, user_id)


def open_key_file(
    data: bytes, user_id: uuid.UUID, passphrase: PassphraseKeys | None, password: str | None
) -> OpenedKeyFile:
    """Open a KeyFile with the passphrase, or with the password alone; where both are given, both must fit.

    Raises `CredentialsError` if the passphrase opened the file and the given password is not the one in
    it, `KeySubstitutionError` for another user's file, and `DecryptionError` for every other failure that
    a wrong secret could cause: those do not tell a wrong secret from a damaged file (keyfile.md, 2.4).
    """
    found = _parsed_of(data, user_id)
    given = None if password is None else checked_secret(password, "password")
    try:
        ring = _open_parts(found, passphrase, given)
    except DecryptionError:  # whichever step it was
        raise DecryptionError(_WRONG) from None
    return OpenedKeyFile(ring, sha256(data))


def _open_parts(
    found: _KeyFileBytes, passphrase: PassphraseKeys | None, given: bytes | None
) -> KeyRing:
    secret = given if passphrase is None else _open_secret(found, passphrase)
    if secret is None:
        raise InvalidArgumentError("A KeyFile opens with its password or its passphrase.")
    if given is not None and not equal(secret, given):
        raise CredentialsError(_MISTYPED)
    context = label("keyfile-password") + found.fingerprint + found.passwordSalt
    key = _password_key(secret, found.passwordSalt, found.fingerprint)
    plaintext = bytearray(len(found.passwordPart))
    try:
        size = unseal_into(memoryview(plaintext), key, context, found.passwordPart)
        ring = _parse_ring(memoryview(plaintext)[:size])
    finally:
        _overwrite(plaintext)
    if ring.rawFingerprint != found.fingerprint:
        raise DecryptionError(_WRONG)
    return ring


def _open_secret(found: _KeyFileBytes, passphrase: PassphraseKeys) -> bytes:
    context = _passphrase_context(found.fingerprint, found.passwordSalt, found.passwordPart)
    return unpad_secret(unseal(passphrase.wrap, context, found.passphrasePart))


def _parse(data: bytes) -> _KeyFileBytes:
    if not data.startswith(MAGIC):
        raise IntegrityError("These bytes are not a KeyFile.")
    return decode_object(_KeyFileBytes, data[len(MAGIC) :], MAX_KEY_FILE - len(MAGIC))


def _parsed_of(data: bytes, user_id: uuid.UUID) -> _KeyFileBytes:
    found = _parse(data)
    if user_id_of(found.fingerprint) != user_id:
        raise KeySubstitutionError("This KeyFile is another user's.")
    return found


def _plaintext_of(ring: _KeyRingBytes) -> bytearray:
    """A KeyRing as a stored object, in a buffer with room for any: one that grew would leave a copy."""
    plaintext = bytearray(MAX_KEY_FILE)
    _encoder.encode_into(ring, plaintext, len(VERSION))
    plaintext[: len(VERSION)] = VERSION
    return plaintext


def _overwrite(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))


def _parse_ring(plaintext: Octets) -> KeyRing:
    """The KeyRing of a stored object, strictly; `decode_object` would leave copies of the seeds behind."""
    try:
        found = _decoder.decode(memoryview(plaintext)[len(VERSION) :])
    except (ValueError, RecursionError):
        raise DecryptionError(_WRONG) from None
    again = _plaintext_of(found)
    is_canonical = again == plaintext
    _overwrite(again)
    signing = {(len(key.ed25519), len(key.mldsa)) for key in found.signing}
    decryption = {(len(key.mlkem), len(key.x25519)) for key in found.encryption}
    sizes = {(KEY_SIZE, KEY_SIZE)}, {(MLKEM_SEED_SIZE, KEY_SIZE)}
    if not is_canonical or (signing, decryption) != sizes:
        raise DecryptionError(_WRONG)
    ring = KeyRing(
        found.generation,
        tuple(SigningKey(seeds.ed25519, seeds.mldsa) for seeds in found.signing),
        tuple(DecryptionKey(seeds.mlkem, seeds.x25519) for seeds in found.encryption),
    )
    if ring.rawFingerprint != found.fingerprint:
        raise DecryptionError(_WRONG)
    return ring


def _password_key(secret: bytes, salt: bytes, fingerprint: bytes) -> bytes:
    return derive_key(stretch(secret, salt), "password-wrap", fingerprint)


def _passphrase_context(fingerprint: bytes, salt: bytes, password_part: bytes) -> bytes:
    return label("keyfile-passphrase") + fingerprint + sha256(salt + password_part)
