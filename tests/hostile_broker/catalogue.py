"""The attacks that the project answers for, by number, and the tests that mount them.

    @attack(13, "revocation bypassed")
    def test_...

`assurance/mutations/test_attacks.py` fails when one of them has no test.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Final, TypeVar

import tests.hostile_broker as package

F = TypeVar("F", bound=Callable[..., Any])

ATTACKS: Final = {
    # Keys and sharing.
    1: "public-key substitution",
    2: "container overwritten under the broker's key",
    3: "ghost recipient",
    4: "empty key list",
    5: "own keys replaced",
    6: "user id taken again",
    7: "keys that verify everything",
    8: "reader writes",
    9: "self-escalation",
    10: "re-attribution",
    11: "replayed wraps and parts",
    12: "recipient swapped at a rotation",
    13: "revocation bypassed",
    14: "expired grant",
    15: "split view by the sender",
    # Content and metadata.
    16: "chunks moved or cut",
    17: "short read taken for the end",
    18: "plaintext released early",
    19: "parts spliced",
    20: "metadata changed",
    21: "rollback and fork",
    22: "container injected",
    23: "key or nonce used twice",
    24: "equality and length leaks",
    # KeyFile and credentials.
    25: "derivation downgraded",
    26: "derivation bomb",
    27: "partitioning oracle",
    28: "KeyRing surgery",
    29: "KeyFile rolled back",
    30: "old KeyFile with its passphrase",
    31: "KeyFile of somebody else",
    32: "offline guessing and pass-the-hash",
    33: "enumeration",
    34: "reminder leaks",
    # Session and log.
    35: "signing oracle and relayed challenge",
    36: "stolen token",
    37: "event log changed",
    38: "deleted container brought back",
    # Formats.
    39: "version and suite downgrade",
    40: "parser ambiguity and bombs",
    41: "secrets sent to the broker",
    42: "recovery or policy injected",
    43: "decrypted data as a command",
}

_shown_by: Final[dict[int, list[str]]] = {number: [] for number in ATTACKS}


def attack(number: int, name: str) -> Callable[[F], F]:
    """Registers a test that mounts this attack. It may mount several."""
    assert ATTACKS[number] == name, f"attack {number} is called {ATTACKS[number]!r}"

    def register(test: F) -> F:
        _shown_by[number].append(f"{test.__module__.replace('.', '/')}.py::{test.__name__}")
        return test

    return register


def shown_by() -> dict[int, list[str]]:
    """The tests of each attack, from every test module beside this one, in whatever order they came."""
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("test_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return {
        number: sorted(tests, key=lambda test: test.partition("::")[0])
        for number, tests in _shown_by.items()
    }
