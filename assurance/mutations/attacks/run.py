"""Take out one defence at a time, and expect the tests that it is for to fail.

    python -m assurance.mutations.attacks.run [--attack N] [--jobs 2]

The exit status is 0 if each was noticed; after a run of all of them `docs/attacks.md` is written.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from assurance.mutations.attacks import MUTATIONS
from assurance.mutations.attacks.edits import Mutation
from assurance.mutations.engine import NOTICED, ROOT, Campaign, arguments, in_a_copy
from tests.hostile_broker.catalogue import ATTACKS, EXPLANATIONS, shown_by

PAGE: Final = ROOT / "docs" / "attacks.md"
_HEAD: Final = """\
# Attacks

This page lists attacks on systems like this one, and what stops each of them here.

- Each attack was published for a system like this one, or follows from what this one promises.
- Tests in `tests/hostile_broker/` mount each attack for real. Against the client, a broker changes, replays,
  withholds, reorders and invents what it serves, together with users of its own. Against the real broker,
  the attacker is a user or a thief.
- Each test expects the typed error. It also expects that no pin, mark or file changed, and that nothing was
  sent that depends on a key.
- Each defence in the tables was removed from the program, alone or together with what stands behind it. The
  tests named for it then failed. `make attacks` repeats this and writes this page.
- A claim that speaks of a limit shows what no defence stops. [Security](security.md) lists these limits.
"""


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--attack", type=int, help="the mutations of this attack alone")
    options = parser.parse_args()
    chosen = [item for item in MUTATIONS if options.attack in (None, item.attack)]
    for mutation in chosen:
        mutation.check()
    campaign = Campaign[str]([_name(item) for item in chosen], lambda _, found: found == NOTICED)
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutation, outcome in zip(chosen, pool.map(_try, chosen), strict=True):
            campaign.add(_name(mutation), outcome)
    return campaign.end(PAGE, text, whole=options.attack is None)


def _name(mutation: Mutation) -> str:
    return f"{mutation.attack:2}  {mutation.defence}"


def _try(mutation: Mutation) -> str:
    return in_a_copy(mutation.apply, mutation.tests)


def text() -> str:
    """Return the page: of each attack the tests that mount it and the defences that they need."""
    mounted = shown_by()
    return _HEAD + "".join(
        _section(number, name, mounted[number]) for number, name in ATTACKS.items()
    )


def _section(number: int, name: str, tests: list[str]) -> str:
    defences = [item for item in MUTATIONS if item.attack == number]
    title, attack, defence = EXPLANATIONS[number]
    lines = [f"\n## {number}. {title}\n", f"*{name[0].upper()}{name[1:]}.* {attack}\n"]
    lines += [f"**Defence:** {defence}\n", "Tests:\n"]
    lines += [f"- {_claim(test)}" for test in tests]
    lines += ["\n| defence that was removed | in |", "|---|---|"]
    lines += [f"| {item.defence} | `{item.edits[0].path}` |" for item in defences]
    return "\n".join(lines) + "\n"


def _claim(test: str) -> str:
    """Return the claim that the name of a test is."""
    words = test.rpartition("::test_")[2].replace("_", " ")
    return words[0].upper() + words[1:]


if __name__ == "__main__":
    raise SystemExit(main())
