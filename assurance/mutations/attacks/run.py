"""Take out one defence at a time, and expect the tests that it is for to fail.

    python -m assurance.mutations.attacks.run [--attack N] [--jobs 2]

The exit status is 0 if each was noticed.
"""

from concurrent.futures import ThreadPoolExecutor

from assurance.mutations.attacks import MUTATIONS
from assurance.mutations.attacks.edits import Mutation
from assurance.mutations.engine import NOTICED, ROOT, Campaign, arguments, in_a_copy


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--attack", type=int, help="the mutations of this attack alone")
    options = parser.parse_args()
    chosen = [item for item in MUTATIONS if options.attack in (None, item.attack)]
    for mutation in chosen:
        mutation.changed(ROOT)
    campaign = Campaign[str]([_name(item) for item in chosen], lambda _, found: found == NOTICED)
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutation, outcome in zip(chosen, pool.map(_try, chosen), strict=True):
            campaign.add(_name(mutation), outcome)
    return campaign.end()


def _name(mutation: Mutation) -> str:
    return f"{mutation.attack:2}  {mutation.defence}"


def _try(mutation: Mutation) -> str:
    return in_a_copy(mutation.apply, mutation.tests)


if __name__ == "__main__":
    raise SystemExit(main())
