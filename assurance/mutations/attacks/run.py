"""Take out one defence at a time, and expect the tests that it is for to fail.

    python -m assurance.mutations.attacks.run [--attack N] [--jobs 2]

The exit status is 0 if each was noticed; after a run of all of them `docs/attacks.md` is written.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from assurance.mutations.attacks import MUTATIONS
from assurance.mutations.attacks.edits import Mutation
from assurance.mutations.engine import NOTICED, ROOT, Campaign, arguments, in_a_copy
from tests.hostile_broker.catalogue import EXPLANATIONS

PAGE: Final = ROOT / "docs" / "attacks.md"
_HEAD: Final = """\
# Attacks

Attacks on systems like this one, published or derived from what this one promises, and what stops each of
them here. Some say what no defence stops; [Security](security.md) lists these limits.

- Tests in `tests/hostile_broker/` mount each attack for real: a broker changes, replays, withholds, reorders
  and invents what it serves, or the attacker is a user or a thief. `@attack(N, ...)` names the attack.
- Each test expects the typed error, and that no pin, mark or file changed and nothing was sent that depends
  on a key.
- `assurance/mutations/attacks/attacks.toml` names the defences of each attack. `make attacks` removes one
  after the other from the program, expects the tests to fail, and writes this page.

| | attack | what stops it |
|--:|---|---|
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
    status = campaign.end()
    if not status and options.attack is None:
        PAGE.write_text(text(), "utf-8")
    return status


def _name(mutation: Mutation) -> str:
    return f"{mutation.attack:2}  {mutation.defence}"


def _try(mutation: Mutation) -> str:
    return in_a_copy(mutation.apply, mutation.tests)


def text() -> str:
    """Return the page: a row for each attack."""
    return _HEAD + "".join(
        f"| {number} | **{title}.** {attack} | {defence} |\n"
        for number, (title, attack, defence) in EXPLANATIONS.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
