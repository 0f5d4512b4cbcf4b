"""scbroker's client with one defence taken out, for `scbroker conformance client`; whole with `nothing`.

    python -m tests.conformance.broken_adapter marks

Argon2id is cheap here, so that a run costs no processor time for secrets.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from scbroker import MemoryTrustStore, ServerProvider, keys
from scbroker.conformance import adapter
from scbroker.crypto.verify import VerifyingKey
from tests.kit import argon2


class _NoMarks:
    def get(self, kind: str, key: bytes) -> None:
        del kind, key

    def page(self, kind: str, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        del kind, after, count
        return []

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        del kind, key, expected, value
        return True


def _forget_marks() -> None:
    vars(adapter)["MemoryTrustStore"].open = lambda *_: _NoMarks()


def _skip_signatures() -> None:
    VerifyingKey.verify = lambda *_: None  # type: ignore[method-assign]


def _keep_cookies() -> None:
    jar: Any = lambda: aiohttp.CookieJar(unsafe=True)  # noqa: E731
    aiohttp.DummyCookieJar = jar  # type: ignore[misc]


def _name_contents_in_types() -> None:
    create = ServerProvider.createContainer

    def leaking(provider: ServerProvider, content: bytes, **options: Any) -> Any:
        return create(provider, content, type=content[:64].decode(), **options)

    ServerProvider.createContainer = leaking  # type: ignore[assignment, method-assign]


BREAKING: Final[dict[str, Callable[[], None]]] = {
    "nothing": lambda: None,
    "marks": _forget_marks,
    "signatures": _skip_signatures,
    "cookies": _keep_cookies,
    "secrecy": _name_contents_in_types,
}

if __name__ == "__main__":
    assert MemoryTrustStore is vars(adapter)["MemoryTrustStore"]
    vars(keys)["stretch"] = argon2.stretch
    BREAKING[sys.argv[1]]()
    adapter.main()
