"""People, their records, and stand-ins for what is slow or changes. Each stand-in holds inside its `with`.

cheap_argon2id     SHA-256 in place of Argon2id, which takes 64 MiB and 0.15 s
marked_signatures  accepts a cheap mark in place of a signature, and true signatures as ever
fixed_clock        the client reads the time from the test, and works in the test's thread
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import pytest

from assurance.fuzz.target import BrokenError
from scbroker import keys
from scbroker.client.calls.tasks import IOThread
from scbroker.client.containers import fetching
from scbroker.client.users import directory
from scbroker.crypto import verify
from scbroker.crypto.verify import SIGNATURE_SIZE, SIGNING_KEY_SIZE, VerifyingKey
from scbroker.errors import IntegrityError
from scbroker.records.container_record import SaltedEntry
from tests.independent.encodings import RefusedError
from tests.vectors.cast import Person, cast, signing_key
from tests.vectors.container_records import Stage

T = TypeVar("T")
PEOPLE: Final = ("alice", "bob", "carol", "dora", "erin")
_MARK: Final = b"this stands for both halves of a signature "


class _Stage(Stage):
    @property
    def lists(self) -> list[Sequence[SaltedEntry]]:
        """The access lists of the story, in order."""
        return [made.access.salted for made in self.story if made.access is not None]


@cache
def stage() -> _Stage:
    """Return the story of the vectors: six records by four authors."""
    return _Stage()


def independent(work: Callable[..., T], *given: Any) -> T:
    """Return what the second implementation makes of bytes that the first one accepted."""
    try:
        return work(*given)
    except RefusedError as error:
        raise BrokenError(f"accepted what the second implementation refuses: {error}") from None


@contextlib.contextmanager
def cheap_argon2id() -> Iterator[None]:
    """Replace Argon2id by a hash: 32 bytes from the same input at no cost. It protects nothing."""

    def stretch(secret: bytes, salt: bytes) -> bytes:
        return hashlib.sha256(b"in place of Argon2id" + salt + secret).digest()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "stretch", stretch)
        yield


@contextlib.contextmanager
def marked_signatures() -> Iterator[None]:
    """Accept `mark_of` in place of a signature too, which costs nothing; verify others once each."""
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
    """Return what stands for a signature by this key, in a signature's size."""
    digest = hashlib.sha256(public + name.encode() + b"\0" + signed).digest()
    return (_MARK + digest).ljust(SIGNATURE_SIZE, b"\0")


@contextlib.contextmanager
def fixed_clock(now: Callable[[], int]) -> Iterator[None]:
    """Give the client this time, and run in the test's thread what it would run in its pool."""

    async def inline(_: IOThread, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        for module in (directory, fetching):
            patched.setattr(module, "now", now)
        patched.setattr(IOThread, "in_pool", inline)
        yield


def author_of(fingerprint: object) -> Person | None:
    """Return the person of the cast with this fingerprint."""
    return next((cast()[name] for name in PEOPLE if cast()[name].fingerprint == fingerprint), None)


def public_key_of(person: Person, index: object) -> bytes:
    """Return the public signing key of this index, and key 0 for an index that does not exist."""
    known = index if isinstance(index, int) and 0 <= index < 2 else 0
    found = signing_key(person.name, known).public
    assert len(found) == SIGNING_KEY_SIZE
    return found
