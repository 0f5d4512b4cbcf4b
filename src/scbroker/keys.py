"""KeyRing and KeyFile: a user's private keys, in memory and as a file that two secrets guard.

Spec: docs/spec/keyfile.md. Nothing here does I/O; opening a KeyFile costs one Argon2id for the
passphrase and one for the password, 64 MiB and about 0.15 s each.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from scbroker.crypto.seal import (
    MAX_SECRET_SIZE,
    DecryptionKey,
    SigningKey,
    derive_key,
    pad_secret,
    random_bytes,
    seal,
    secret_bytes,
    stretch,
    unpad_secret,
    unseal,
)
from scbroker.crypto.verify import HASH_SIZE, equal, label, labelled_hash, sha256
from scbroker.errors import (
    DecryptionError,
    IntegrityError,
    InvalidArgumentError,
    KeySubstitutionError,
    RollbackError,
)
from scbroker.records.canonical import Bin32, Row, decode_object, encode_object
from scbroker.records.ids import fingerprint_of, show_fingerprint, user_id_of
from scbroker.records.key_record import ACTIVE, LABEL, KeyChain, KeyRecord, Signed
from scbroker.vocabulary import KeyType

MAGIC: Final = b"scbroker.keyfile"
MAX_KEY_FILE: Final = 65_536
_WRONG: Final = "Wrong password or passphrase, or a damaged KeyFile."
_MlkemSeed = Annotated[bytes, Meta(min_length=64, max_length=64)]


class _Seeds(Row, frozen=True):
    ed25519: Bin32
    mldsa: Bin32


class _DecryptionSeeds(Row, frozen=True):
    mlkem: _MlkemSeed
    x25519: Bin32


class _KeyRingBytes(Row, frozen=True):
    fingerprint: Bin32
    generation: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    signing: Annotated[list[_Seeds], Meta(min_length=1, max_length=256)]
    encryption: Annotated[list[_DecryptionSeeds], Meta(min_length=1, max_length=256)]


class _KeyFileBytes(Row, frozen=True):
    fingerprint: Bin32
    passwordSalt: Bin32
    passphrasePart: Annotated[bytes, Meta(max_length=1200)]
    passwordPart: Annotated[bytes, Meta(max_length=49_152)]


@dataclass(frozen=True, slots=True, repr=False)
class KeyRing:
    """A user's private keys, every one they ever had; the position in each tuple is its index.

    Whoever holds a KeyRing is the user: keep it in memory, and its KeyFile on disk.
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

    def first_records(self, time: int) -> list[Signed]:
        """The two key records that a registration publishes."""
        first = KeyRecord(
            self.rawFingerprint, 0, KeyType.Signing, 0, self.signing[0].public, ACTIVE, time, None
        )
        body = encode_object(first)
        second = KeyRecord(
            self.rawFingerprint,
            1,
            KeyType.Encryption,
            0,
            self.encryption[0].public,
            ACTIVE,
            time,
            labelled_hash(LABEL, body),
        )
        return [
            Signed(body, self.signing[0].sign(LABEL, body)),
            Signed(encode_object(second), self.signing[0].sign(LABEL, encode_object(second))),
        ]

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
    except UnicodeEncodeError:
        data = b""
    if not 1 <= len(data) <= MAX_SECRET_SIZE:
        raise InvalidArgumentError(f"The {name} is 1 to {MAX_SECRET_SIZE} bytes of UTF-8 text.")
    return data


def seal_key_file(ring: KeyRing, password: str, passphrase: PassphraseKeys) -> bytes:
    """The KeyFile of a KeyRing under both secrets."""
    secret = checked_secret(password, "password")
    fingerprint, salt = ring.rawFingerprint, random_bytes(HASH_SIZE)
    plaintext = encode_object(
        _KeyRingBytes(
            fingerprint,
            ring.generation,
            [_Seeds(*key.seeds) for key in ring.signing],
            [_DecryptionSeeds(*key.seeds) for key in ring.encryption],
        )
    )
    context = label("keyfile-password") + fingerprint + salt
    password_part = seal(_password_key(secret, salt, fingerprint), context, plaintext)
    passphrase_part = seal(
        passphrase.wrap,
        _passphrase_context(fingerprint, salt, password_part),
        pad_secret(secret),
    )
    return MAGIC + encode_object(_KeyFileBytes(fingerprint, salt, passphrase_part, password_part))


def open_key_file(
    data: bytes, user_id: uuid.UUID, passphrase: PassphraseKeys, password: str | None
) -> OpenedKeyFile:
    """Opens a KeyFile with the passphrase; a password, where given, has to be the one inside.

    `DecryptionError` for every failure that a wrong secret could be the reason of;
    `KeySubstitutionError` for another user's file.
    """
    found = _parse(data, user_id)
    given = None if password is None else checked_secret(password, "password")
    try:
        ring = _open_parts(found, passphrase, given)
    except DecryptionError:  # whichever step it was
        raise DecryptionError(_WRONG) from None
    return OpenedKeyFile(ring, sha256(data))


def _open_parts(found: _KeyFileBytes, passphrase: PassphraseKeys, given: bytes | None) -> KeyRing:
    padded = unseal(
        passphrase.wrap,
        _passphrase_context(found.fingerprint, found.passwordSalt, found.passwordPart),
        found.passphrasePart,
    )
    secret = unpad_secret(padded)
    if given is not None and not equal(secret, given):
        raise DecryptionError(_WRONG)
    context = label("keyfile-password") + found.fingerprint + found.passwordSalt
    key = _password_key(secret, found.passwordSalt, found.fingerprint)
    ring = _parse_ring(unseal(key, context, found.passwordPart))
    if ring.rawFingerprint != found.fingerprint:
        raise DecryptionError(_WRONG)
    return ring


def _parse(data: bytes, user_id: uuid.UUID) -> _KeyFileBytes:
    if not data.startswith(MAGIC):
        raise IntegrityError("These bytes are not a KeyFile.")
    found = decode_object(_KeyFileBytes, data[len(MAGIC) :], MAX_KEY_FILE - len(MAGIC))
    if user_id_of(found.fingerprint) != user_id:
        raise KeySubstitutionError("This KeyFile is another user's.")
    return found


def _parse_ring(plaintext: bytes) -> KeyRing:
    try:
        found = decode_object(_KeyRingBytes, plaintext, MAX_KEY_FILE)
    except IntegrityError:
        raise DecryptionError(_WRONG) from None
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
