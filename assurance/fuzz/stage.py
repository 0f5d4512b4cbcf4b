"""What stands in for what is dear or moves, and who plays: patched only inside of a `with` that says so.

cheap_argon2id     SHA-256 in place of Argon2id, 64 MiB and 0.15 s each
marked_signatures  beside true signatures, a mark that stands for one: signing costs nothing
fixed_clock        the story's own time in place of the machine's
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, Final

import pytest

from scbroker import keys
from scbroker.client.calls.io_thread import IOThread
from scbroker.client.containers import evidence
from scbroker.client.users import directory
from scbroker.crypto import verify
from scbroker.crypto.verify import SIGNATURE_SIZE, SIGNING_KEY_SIZE, VerifyingKey
from scbroker.errors import IntegrityError
from tests.vectors.cast import Person, cast, signing_key
from tests.vectors.container_records import Stage

PEOPLE: Final = ("alice", "bob", "carol", "dora", "erin")
_MARK: Final = b"this stands for both halves of a signature "


@cache
def stage() -> Stage:
    """The story of the vectors: six records by four authors."""
    return Stage()


@contextlib.contextmanager
def cheap_argon2id() -> Iterator[None]:
    """A stand-in for Argon2id: the same bytes in, 32 others out, at no cost. It protects nothing."""

    def stretch(secret: bytes, salt: bytes) -> bytes:
        return hashlib.sha256(b"in place of Argon2id" + salt + secret).digest()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "stretch", stretch)
        yield


@contextlib.contextmanager
def marked_signatures() -> Iterator[None]:
    """A stand-in for signing: `mark_of` is taken for a signature too. True ones are verified, once each."""
    real = verify.VerifyingKey.verify

    @lru_cache(maxsize=4096)
    def holds(raw: bytes, name: str, signed: bytes, signature: bytes) -> bool:
        try:
            real(VerifyingKey(raw), name, signed, signature)
        except IntegrityError:
            return False
        return True

    def check(self: VerifyingKey, name: str, signed: bytes, signature: bytes) -> None:
        if signature == mark_of(self.raw, name, signed) or holds(self.raw, name, signed, signature):
            return
        raise IntegrityError("A signature does not verify.")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verify.VerifyingKey, "verify", check)
        yield


def mark_of(public: bytes, name: str, signed: bytes) -> bytes:
    """What stands for this key's signature; of a signature's size."""
    digest = hashlib.sha256(public + name.encode() + b"\0" + signed).digest()
    return (_MARK + digest).ljust(SIGNATURE_SIZE, b"\0")


@contextlib.contextmanager
def fixed_clock(now: Callable[[], int]) -> Iterator[None]:
    """The client takes the time from here, and does in this thread what is for its pool."""

    async def inline(_: IOThread, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        for module in (directory, evidence):
            patched.setattr(module, "now", now)
        patched.setattr(IOThread, "in_pool", inline)
        yield


def author_of(fingerprint: object) -> Person | None:
    """Who in the cast has this fingerprint."""
    return next((cast()[name] for name in PEOPLE if cast()[name].fingerprint == fingerprint), None)


def public_key_of(person: Person, index: object) -> bytes:
    """The public signing key that a record names by its index; any of them for an index of nobody."""
    known = index if isinstance(index, int) and 0 <= index < 2 else 0
    found = signing_key(person.name, known).public
    assert len(found) == SIGNING_KEY_SIZE
    return found
