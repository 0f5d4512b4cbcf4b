"""The page of the docs that lists attacks, tests and defences: `docs/attacks.md`."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.catalogue import ATTACKS, shown_by
from tests.hostile_broker.mutations import MUTATIONS
from tests.hostile_broker.mutations.edits import ROOT

PATH: Final = ROOT / "docs" / "attacks.md"
_HEAD: Final = """# Attacks

What brokers, users and thieves were shown to do to systems like this one, or could do to it. Each attack
is mounted for real by the tests in `tests/hostile_broker/`: against the client by a broker that changes,
replays, withholds, reorders and invents what it serves, with users that work with it; against the real
broker where the attacker is a user or a thief. A test claims the typed error, that no pin, mark or file
changed, and that nothing was sent that depends on a key.

Each defence below was taken out of the program, alone or together with what stands behind it, and the
tests named for it failed: `python -m tests.hostile_broker.mutate` does so again, and writes this page.
What is beyond any defence is in [Security](security.md), and shown by a test as well.
"""


def text() -> str:
    """The page, from the catalogue and the mutations."""
    mounted = shown_by()
    return _HEAD + "".join(
        _section(number, name, mounted[number]) for number, name in ATTACKS.items()
    )


def _section(number: int, name: str, tests: list[str]) -> str:
    defences = [item for item in MUTATIONS if item.attack == number]
    lines = [f"\n## {number}. {name[0].upper()}{name[1:]}\n"]
    lines += [f"- {_claim(test)}" for test in tests]
    lines += ["\n| without | in |", "|---|---|"]
    lines += [f"| {item.defence} | `{item.edits[0].path}` |" for item in defences]
    return "\n".join(lines) + "\n"


def _claim(test: str) -> str:
    """The name of a test is the claim."""
    words = test.rpartition("::test_")[2].replace("_", " ")
    return words[0].upper() + words[1:]
