"""Try every small history, and print how many there were: `python -m assurance.exhaustive`."""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from assurance.exhaustive import acts, chains, groups, keychains, rosters, views
from assurance.exhaustive.chains import Count

_HEAD: Final = "| search | records, or steps | states | acts | accepted | lies | time |"
_RULE: Final = "|---|--:|--:|--:|--:|--:|--:|"


_SKIPPING: Final = rosters.GroupAlphabet(
    roles=(acts.READER, acts.SHARER), indices=(0, 1), times=(1,), is_owned_by_first=True
)
# Each takes the number of records, or of steps; the one here takes minutes.
SEARCHES: Final[dict[str, tuple[Callable[[int], Count], int]]] = {
    "records: access and expiry": (partial(chains.search, acts.KEPT["access"]), 5),
    "records: type and deletion": (partial(chains.search, acts.KEPT["type-and-deletion"]), 5),
    "records: replaced keys": (partial(chains.search, acts.KEPT["keys"]), 5),
    "records: departures": (partial(chains.search, acts.KEPT["departures"]), 4),
    "rosters: all changes of a group": (partial(rosters.search, rosters.GroupAlphabet()), 2),
    "rosters: devices that skip some": (partial(rosters.search, _SKIPPING, remembers=True), 4),
    "groups of 3 records, 2 users": (partial(groups.search, groups.KEPT["two users"]), 2),
    "groups of 2 records, 3 users": (partial(groups.search, groups.KEPT["three users"]), 3),
    "views and marks": (partial(views.search, views.ALONE), 3),
    "views of 2 containers of a group": (partial(views.search, views.THROUGH), 3),
    "key chains": (keychains.search, 7),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m assurance.exhaustive", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    print(_HEAD, _RULE, sep="\n", flush=True)
    some = [(name, SEARCHES[name]) for name in chosen.only]
    with ProcessPoolExecutor(chosen.jobs) as pool:
        running = [(name, length, pool.submit(search, length)) for name, (search, length) in some]
        for name, length, found in running:
            print(found.result().row(name, length), flush=True)


if __name__ == "__main__":
    main()
