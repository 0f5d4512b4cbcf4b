"""Generate, encrypt and open a user's private keys: the KeyRing in memory, the KeyFile as bytes.

Nothing here does I/O. Opening a KeyFile costs one Argon2id for the passphrase and one for the password, each
64 MiB and about 0.15 s. Spec: docs/spec/keyfile.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import msgspec
from msgspec import Meta

from scbroker import errors
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
from scbroker.records import key_record
from scbroker.records.canonical import (
    VERSION,
    Bin32,
    Row,
    decode_object,
    encode_object,
    fingerprint_of,
    show_fingerprint,
    user_id_of,
)
from scbroker.records.key_record import KeyChain, KeyRecord, Signed
from scbroker.vocabulary import KeyType, instance_of, uuid_of

MAGIC: Final = b"scbroker.keyfile"
MAX_KEY_FILE: Final = 65_536
_SESSION_MAGIC: Final = b"scbroker.session"
_MAX_SESSION: Final = 2 * MAX_KEY_FILE
_WRONG: Final = "Wrong password or passphrase, or a damaged KeyFile."
_encoder: Final = msgspec.msgpack.Encoder()


# Seeds are views into the plaintext, which is overwritten after use: a copy would stay in freed memory.
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


_Change = tuple[KeyType, int, int, int]
"""A key record to be signed: the key's type and index, its new state, and the date in microseconds."""
_decoder: Final = msgspec.msgpack.Decoder(_KeyRingBytes)


class _KeyFileBytes(Row, frozen=True):
    fingerprint: Bin32
    passwordSalt: Bin32
    passphrasePart: Annotated[bytes, Meta(max_length=1200)]
    passwordPart: Annotated[bytes, Meta(max_length=49_152)]


class _SessionBytes(Row, frozen=True):
    rings: Annotated[
        list[Annotated[bytes, Meta(max_length=49_152)]], Meta(min_length=1, max_length=2)
    ]


@dataclass(frozen=True, slots=True, repr=False)
class KeyRing:
    """A user's private keys, all they ever had; the position of a key in its tuple is its index.

    Whoever has the KeyRing can act as the user: keep it in memory only, and the KeyFile on disk. KeyRings are
    equal if their generations and their keys are equal.
    """

    generation: int
    signing: tuple[SigningKey, ...]
    encryption: tuple[DecryptionKey, ...]

    @classmethod
    def generate(cls) -> KeyRing:
        """Return new keys for a new user."""
        return cls(1, (SigningKey.generate(),), (DecryptionKey.generate(),))

    @property
    def rawFingerprint(self) -> bytes:
        return fingerprint_of(self.signing[0].public)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint that two people compare: 16 groups of 4 hexadecimal digits."""
        return show_fingerprint(self.rawFingerprint)

    @property
    def userId(self) -> uuid.UUID:
        return user_id_of(self.rawFingerprint)

    @classmethod
    def open(
        cls,
        keyFileData: bytes,
        userId: uuid.UUID | str,
        *,
        password: str | None = None,
        passphrase: str | None = None,
    ) -> KeyRing:
        """Open this user's KeyFile, as `KeyFile.open` does; first check that it is this user's.

        Raises `keySubstitutionError` for another user's KeyFile, and what `KeyFile.open` raises.
        """
        user_id = uuid_of("userId", userId)
        key_file = KeyFile(keyFileData)
        check_key_file(key_file, user_id)
        return key_file.open(password=password, passphrase=passphrase)

    @property
    def _by_type(self) -> dict[KeyType, Sequence[SigningKey | DecryptionKey]]:
        return {KeyType.Signing: self.signing, KeyType.Encryption: self.encryption}

    def next(self, generation: int, *, fresh: bool) -> KeyRing:
        """Return the KeyRing of a later generation, with one more key of each type if `fresh`."""
        signing, encryption = self.signing, self.encryption
        if fresh:
            signing = (*signing, SigningKey.generate())
            encryption = (*encryption, DecryptionKey.generate())
        return KeyRing(generation, signing, encryption)

    def first_records(self, time: int) -> list[Signed]:
        """Return the two key records that a registration publishes."""
        first = [(kind, 0, key_record.ACTIVE, time) for kind in KeyType]
        return self._sign(first, 0, None)

    def next_records(self, chain: KeyChain, time: int) -> list[Signed]:
        """Return the records that publish the keys missing in a chain and retire those that they replace.

        A retirement is dated in the future, so that no signature made until now is after it (ids.md, 4).
        """
        introduced, retired = [], []
        for kind, keys in self._by_type.items():
            published = chain.of_type(kind)
            new = range(len(published), len(keys))
            introduced += [(kind, index, key_record.ACTIVE, time) for index in new]
            retired += [
                (kind, key.index, key_record.RETIRED, time + key_record.RETIREMENT_AHEAD)
                for key in published
                if new and key.retired is None
            ]
        return self._sign([*introduced, *retired], len(chain.records), chain.hashes[-1])

    def closing_record(self, chain: KeyChain, time: int) -> Signed:
        """Return the record that retires every key of a chain, dated in the future (ids.md, 4)."""
        closing = (KeyType.Signing, 0, key_record.CLOSED, time + key_record.RETIREMENT_AHEAD)
        [signed] = self._sign([closing], len(chain.records), chain.hashes[-1])
        return signed

    def _sign(
        self, changes: Iterable[_Change], sequence: int, previous: bytes | None
    ) -> list[Signed]:
        keys, records = self._by_type, []
        for kind, index, state, time in changes:
            public = keys[kind][index].public
            record = KeyRecord(
                self.rawFingerprint, sequence, kind, index, public, state, time, previous
            )
            body = encode_object(record)
            records.append(Signed(body, self.signing[0].sign(key_record.LABEL, body)))
            sequence, previous = sequence + 1, labelled_hash(key_record.LABEL, body)
        return records

    def is_superseded_by(self, chain: KeyChain) -> bool:
        """Return whether signing key 0 has signed newer keys: no broker can forge that."""
        return any(len(chain.of_type(kind)) > len(keys) for kind, keys in self._by_type.items())

    def check_chain(self, chain: KeyChain) -> None:
        """Raise an error unless the published keys are exactly these (keyfile.md, 4)."""
        for kind, keys in self._by_type.items():
            own = [key.public for key in keys]
            published = [key.public for key in chain.of_type(kind)]
            if any(a != b for a, b in zip(own, published, strict=False)):
                raise errors.KeySubstitutionError(
                    "The broker publishes keys that are not this user's."
                )
            if len(published) > len(own):
                raise errors.RollbackError("This KeyFile is older than the user's published keys.")
            if len(own) > len(published):
                raise errors.RollbackError(
                    "The broker withholds some of this user's published keys."
                )

    def __repr__(self) -> str:
        return f"KeyRing(userId={self.userId})"

    def __reduce__(self) -> str:
        raise TypeError("A KeyRing must not be pickled: keep the KeyFile.")


class KeyFile(bytes):
    """A user's KeyRing, encrypted: the bytes that operations take and return and the broker keeps.

    The constructor takes those bytes. It raises `invalidArgumentError` for another type and `integrityError`
    for bytes that are not a KeyFile. The generation is encrypted too: `open` the KeyFile to read it.
    """

    __slots__ = ()

    def __new__(cls, keyFileData: bytes | bytearray | memoryview) -> Self:
        data: Any = instance_of("keyFileData", keyFileData, "bytes", bytes, bytearray, memoryview)
        made = super().__new__(cls, data)
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
        user_id = self.userId
        keys = None if passphrase is None else PassphraseKeys.derive(passphrase, user_id)
        return open_key_file(self, user_id, keys, password)

    def __repr__(self) -> str:
        return f"KeyFile(userId={self.userId})"

    __str__ = __repr__


@dataclass(frozen=True, slots=True, repr=False)
class PassphraseKeys:
    """Two keys derived from a passphrase: `auth` proves it to the broker, `wrap` encrypts the password."""

    auth: bytes
    wrap: bytes

    @classmethod
    def derive(cls, passphrase: str, user_id: uuid.UUID) -> PassphraseKeys:
        """Derive both by one Argon2id; salt and parameters are fixed, so that a broker cannot choose them."""
        salt = labelled_hash("passphrase-salt", user_id.bytes)
        root = stretch(checked_secret(passphrase, "passphrase"), salt)
        return cls(
            derive_key(root, "passphrase-auth", user_id.bytes),
            derive_key(root, "passphrase-wrap", user_id.bytes),
        )

    def __repr__(self) -> str:
        return "PassphraseKeys(…)"


def checked_secret(secret: str, name: str) -> bytes:
    """Return a password or passphrase as bytes; `InvalidArgumentError` if the format cannot hold it."""
    try:
        data = secret_bytes(secret)
    except (UnicodeEncodeError, TypeError):  # half a surrogate pair, or not a str
        data = b""
    if not 1 <= len(data) <= MAX_SECRET_SIZE:
        raise errors.InvalidArgumentError(
            f"{name} must be text of 1 to {MAX_SECRET_SIZE} bytes in UTF-8: it is empty, too long or not "
            "valid Unicode."
        )
    return data


def seal_key_file(ring: KeyRing, password: str, passphrase: PassphraseKeys) -> bytes:
    """Return the KeyFile of a KeyRing, encrypted under both secrets."""
    secret = checked_secret(password, "password")
    fingerprint, salt = ring.rawFingerprint, random_bytes(HASH_SIZE)
    password_key = _password_key(secret, salt, fingerprint)
    password_part = _seal_ring(password_key, _password_context(fingerprint, salt), ring)
    passphrase_part = seal(
        passphrase.wrap, _passphrase_context(fingerprint, salt, password_part), pad_secret(secret)
    )
    return MAGIC + encode_object(_KeyFileBytes(fingerprint, salt, passphrase_part, password_part))


def open_key_file(
    data: bytes, user_id: uuid.UUID, passphrase: PassphraseKeys | None, password: str | None
) -> KeyRing:
    """Open a KeyFile with the passphrase, or with the password alone; if both are given, both must fit.

    Raises `CredentialsError` if the passphrase opened the file and the given password is not the one in
    it, `KeySubstitutionError` for another user's file, and `DecryptionError` for every other failure that
    a wrong secret could cause: those cannot be told from a damaged file (keyfile.md, 2.4).
    """
    found = check_key_file(data, user_id)
    given = None if password is None else checked_secret(password, "password")
    try:
        return _open_parts(found, passphrase, given)
    except errors.DecryptionError:  # one message, whichever step failed
        raise errors.DecryptionError(_WRONG) from None


def _open_parts(
    found: _KeyFileBytes, passphrase: PassphraseKeys | None, given: bytes | None
) -> KeyRing:
    fingerprint, salt, secret = found.fingerprint, found.passwordSalt, given
    if passphrase is not None:
        context = _passphrase_context(fingerprint, salt, found.passwordPart)
        secret = unpad_secret(unseal(passphrase.wrap, context, found.passphrasePart))
    if secret is None:
        raise errors.InvalidArgumentError(
            "A KeyFile opens with its password or its passphrase: give one of them."
        )
    if given is not None and not equal(secret, given):
        raise errors.CredentialsError(
            "Wrong password: the passphrase opened the KeyFile, and its password is another one."
        )
    key, context = _password_key(secret, salt, fingerprint), _password_context(fingerprint, salt)
    ring = _unseal_ring(key, context, found.passwordPart)
    if ring.rawFingerprint != fingerprint:
        raise errors.DecryptionError(_WRONG)
    return ring


def seal_session(rings: Sequence[KeyRing], key: bytes, origin: str) -> bytes:
    """Return the file of a kept session: one or two KeyRings of one user, sealed under a random key.

        "scbroker.session" || 01 || [[sealed KeyRing, ...]]
        sealed KeyRing = Cobblestone-256(key, context = L("kept-session") || userId || origin, KeyRing)

    There are two while the keys are replaced: the published ones, then those that are about to be.
    """
    context = _session_context(rings[0].userId, origin)
    return _SESSION_MAGIC + encode_object(
        _SessionBytes([_seal_ring(key, context, ring) for ring in rings])
    )


def open_session(data: bytes, key: bytes, origin: str, user_id: uuid.UUID) -> list[KeyRing]:
    """Return the KeyRings of a user's kept session at a broker.

    Raises `IntegrityError` for other bytes than a kept session, and `DecryptionError` for one that is
    damaged, another user's, another broker's, or under another key.
    """
    if not data.startswith(_SESSION_MAGIC):
        raise errors.IntegrityError("These bytes are not a kept session.")
    found = decode_object(_SessionBytes, data[len(_SESSION_MAGIC) :], _MAX_SESSION)
    if len(key) != KEY_SIZE:
        raise errors.DecryptionError(_WRONG)
    context = _session_context(user_id, origin)
    rings = [_unseal_ring(key, context, sealed) for sealed in found.rings]
    if any(ring.userId != user_id for ring in rings):
        raise errors.DecryptionError(_WRONG)
    return rings


def _session_context(user_id: uuid.UUID, origin: str) -> bytes:
    return label("kept-session") + user_id.bytes + origin.encode()


def _seal_ring(key: bytes, context: bytes, ring: KeyRing) -> bytes:
    plaintext = _plaintext_of(
        _KeyRingBytes(
            ring.rawFingerprint,
            ring.generation,
            [_Seeds(*each.seeds) for each in ring.signing],
            [_DecryptionSeeds(*each.seeds) for each in ring.encryption],
        )
    )
    sealed = seal(key, context, plaintext)
    _overwrite(plaintext)
    # The library frees its copy of the plaintext without overwriting it: sealing zeros of the same size
    # reuses that memory.
    seal(key, context, plaintext)
    return sealed


def _unseal_ring(key: bytes, context: bytes, sealed: bytes) -> KeyRing:
    plaintext = bytearray(len(sealed))
    try:
        size = unseal_into(memoryview(plaintext), key, context, sealed)
        return _parse_ring(memoryview(plaintext)[:size])
    finally:
        _overwrite(plaintext)


def _parse(data: bytes) -> _KeyFileBytes:
    if not data.startswith(MAGIC):
        raise errors.IntegrityError("These bytes are not a KeyFile.")
    return decode_object(_KeyFileBytes, data[len(MAGIC) :], MAX_KEY_FILE - len(MAGIC))


def check_key_file(data: bytes, user_id: uuid.UUID) -> _KeyFileBytes:
    """Raise an error unless the bytes have the form of this user's KeyFile. Tests no secret."""
    found = _parse(data)
    if user_id_of(found.fingerprint) != user_id:
        raise errors.KeySubstitutionError("This KeyFile is another user's.")
    return found


def _plaintext_of(ring: _KeyRingBytes) -> bytearray:
    """Encode a KeyRing into a buffer of the maximum size: a buffer that grew would leave a copy behind."""
    plaintext = bytearray(MAX_KEY_FILE)
    _encoder.encode_into(ring, plaintext, len(VERSION))
    plaintext[: len(VERSION)] = VERSION
    return plaintext


def _overwrite(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))


def _parse_ring(plaintext: Octets) -> KeyRing:
    """Decode a KeyRing strictly. `decode_object` would leave copies of the seeds in memory."""
    try:
        found = _decoder.decode(memoryview(plaintext)[len(VERSION) :])
    except (ValueError, RecursionError):
        raise errors.DecryptionError(_WRONG) from None
    again = _plaintext_of(found)
    is_canonical = again == plaintext
    _overwrite(again)
    signing = {(len(key.ed25519), len(key.mldsa)) for key in found.signing}
    decryption = {(len(key.mlkem), len(key.x25519)) for key in found.encryption}
    sizes = {(KEY_SIZE, KEY_SIZE)}, {(MLKEM_SEED_SIZE, KEY_SIZE)}
    if not is_canonical or (signing, decryption) != sizes:
        raise errors.DecryptionError(_WRONG)
    ring = KeyRing(
        found.generation,
        tuple(SigningKey(seeds.ed25519, seeds.mldsa) for seeds in found.signing),
        tuple(DecryptionKey(seeds.mlkem, seeds.x25519) for seeds in found.encryption),
    )
    if ring.rawFingerprint != found.fingerprint:
        raise errors.DecryptionError(_WRONG)
    return ring


def _password_key(secret: bytes, salt: bytes, fingerprint: bytes) -> bytes:
    return derive_key(stretch(secret, salt), "password-wrap", fingerprint)


def _password_context(fingerprint: bytes, salt: bytes) -> bytes:
    return label("keyfile-password") + fingerprint + salt


def _passphrase_context(fingerprint: bytes, salt: bytes, password_part: bytes) -> bytes:
    return label("keyfile-passphrase") + fingerprint + sha256(salt + password_part)
