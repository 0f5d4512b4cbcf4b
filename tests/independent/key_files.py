"""KeyRing and KeyFile: docs/spec/keyfile.md, 1 and 2."""

import hmac
import re
import secrets
import stringprep
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from tests.independent import encodings as e
from tests.independent.encodings import (
    RefusedError,
    Value,
    decodes,
    label,
    labelled_hash,
    need,
    sha256,
)
from tests.independent.ids import fingerprint_of, user_id_of
from tests.independent.key_records import ENCRYPTION, SIGNING, KeyChain
from tests.independent.keys import (
    DecryptionKey,
    SigningKey,
    argon2id,
    cobblestone_open,
    cobblestone_seal,
    hkdf,
)

MAGIC = b"scbroker.keyfile"
BLOCK = 128


@dataclass(frozen=True)
class KeyRing:
    generation: int
    signing: tuple[SigningKey, ...]
    encryption: tuple[DecryptionKey, ...]

    @property
    def fingerprint(self) -> bytes:
        return fingerprint_of(self.signing[0].public)

    def stored(self) -> bytes:
        signing: list[Value] = [[key.ed25519, key.ml_dsa] for key in self.signing]
        encryption: list[Value] = [[key.ml_kem, key.x25519] for key in self.encryption]
        return e.store([self.fingerprint, self.generation, signing, encryption])


def parse_key_ring(data: bytes) -> KeyRing:
    fields = e.stored(data, 4)
    signing = _keys(fields[2], (32, 32), SigningKey)
    encryption = _keys(fields[3], (64, 32), DecryptionKey)
    ring = KeyRing(e.integer(fields[1], 1, e.UINT), signing, encryption)
    need(e.octets(fields[0], 32) == ring.fingerprint, "not the fingerprint of its signing key 0")
    return ring


Key = TypeVar("Key")


def _keys(
    value: Value, sizes: tuple[int, int], make: Callable[[bytes, bytes], Key]
) -> tuple[Key, ...]:
    pairs = [e.array(pair, 2) for pair in e.elements(value)]
    decodes(len(pairs) > 0, "no keys")
    need(len(pairs) <= 256, "more than 256 keys")
    return tuple(make(e.octets(one, sizes[0]), e.octets(two, sizes[1])) for one, two in pairs)


@dataclass(frozen=True)
class KeyFile(e.Object):
    fingerprint: e.Hash
    password_salt: e.Hash
    passphrase_part: Annotated[bytes, lambda value: e.octets_to(value, 1200)]
    password_part: Annotated[bytes, lambda value: e.octets_to(value, 49_152)]


def parse(data: bytes, user_id: bytes) -> KeyFile:
    """2.4, step 1."""
    # The limit of 65,536 bytes needs no check: no file within the other limits reaches it.
    decodes(data[:16] == MAGIC, "no KeyFile")
    file = KeyFile.parse(data[16:])
    need(user_id_of(file.fingerprint) == user_id, "another user's KeyFile", "key-substitution")
    return file


# 2.1 to 2.3 Derivations


def normalized(secret: str) -> str:
    """2.1, by the table A.1 of RFC 3454: what it lists stays as it is, and ends a run."""
    done, run = "", ""
    for character in secret:
        if stringprep.in_table_a1(character):
            done, run = done + unicodedata.normalize("NFKC", run) + character, ""
        else:
            run += character
    return done + unicodedata.normalize("NFKC", run)


def secret_octets(secret: str) -> bytes:
    octets = normalized(secret).encode()
    need(1 <= len(octets) <= 1023, "a secret has 1 to 1,023 bytes", "invalid")
    return octets


def password_key(password: bytes, salt: bytes, fingerprint: bytes) -> bytes:
    return hkdf(argon2id(password, salt), label("password-wrap") + fingerprint)


@dataclass(frozen=True)
class PassphraseKeys:
    auth: bytes
    wrap: bytes


def passphrase_keys(passphrase: str, user_id: bytes) -> PassphraseKeys:
    root = argon2id(secret_octets(passphrase), labelled_hash("passphrase-salt", user_id))
    return PassphraseKeys(
        auth=hkdf(root, label("passphrase-auth") + user_id),
        wrap=hkdf(root, label("passphrase-wrap") + user_id),
    )


def password_context(fingerprint: bytes, salt: bytes) -> bytes:
    return label("keyfile-password") + fingerprint + salt


def passphrase_context(fingerprint: bytes, salt: bytes, password_part: bytes) -> bytes:
    return label("keyfile-passphrase") + fingerprint + sha256(salt + password_part)


def pad(password: bytes) -> bytes:
    marked = password + b"\x80"
    return marked + bytes(-len(marked) % BLOCK)


def unpad(padded: bytes) -> bytes:
    password = padded.rstrip(b"\0")[:-1]
    if 1 <= len(password) <= 1023 and pad(password) == padded:
        return password
    need(False, "padding", "decryption")
    return re.split(b"[\x80\x81\0]", padded)[0]


# 2.4, 2.5 Opening


def open_with_passphrase(
    data: bytes, user_id: bytes, passphrase: str, password: str | None
) -> KeyRing:
    file = parse(data, user_id)
    wrap = passphrase_keys(passphrase, user_id).wrap
    context = passphrase_context(file.fingerprint, file.password_salt, file.password_part)
    inside = unpad(cobblestone_open(wrap, context, file.passphrase_part))
    if password is not None:
        same = hmac.compare_digest(secret_octets(password), inside)
        need(same, "another password", "credentials")
    return _open_password_part(file, inside)


def open_with_password(data: bytes, user_id: bytes, password: str) -> KeyRing:
    return _open_password_part(parse(data, user_id), secret_octets(password))


def _open_password_part(file: KeyFile, password: bytes) -> KeyRing:
    key = password_key(password, file.password_salt, file.fingerprint)
    context = password_context(file.fingerprint, file.password_salt)
    try:
        opened = cobblestone_open(key, context, file.password_part)
        ring = parse_key_ring(opened)
        need(e.stored(opened, 4)[0] == file.fingerprint, "another user's KeyRing")
    except RefusedError as error:  # every failure of opening is one
        raise error.of_kind("decryption") from None
    return ring


# 4 After opening


def check_chain(ring: KeyRing, chain: KeyChain) -> None:
    """The keys of KeyRing and chain are the same."""
    for key_type, keys in ((SIGNING, ring.signing), (ENCRYPTION, ring.encryption)):
        own, published = [key.public for key in keys], chain.public_keys(key_type)
        both = min(len(own), len(published))
        need(own[:both] == published[:both], "the published keys are ours", "key-substitution")
        need(len(own) >= len(published), "no key is missing in the KeyRing", "rollback")
        need(len(own) <= len(published), "no key is missing in the chain", "rollback")


def seal(ring: KeyRing, password: str, passphrase: str) -> bytes:
    salt, fingerprint, inside = secrets.token_bytes(32), ring.fingerprint, secret_octets(password)
    password_part = cobblestone_seal(
        password_key(inside, salt, fingerprint), password_context(fingerprint, salt), ring.stored()
    )
    passphrase_part = cobblestone_seal(
        passphrase_keys(passphrase, user_id_of(fingerprint)).wrap,
        passphrase_context(fingerprint, salt, password_part),
        pad(inside),
    )
    return MAGIC + KeyFile(fingerprint, salt, passphrase_part, password_part).stored()
