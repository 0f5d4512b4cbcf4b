"""Try every small history, and print how many there were: `python -m assurance.exhaustive`."""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from assurance.exhaustive import (
    acts,
    chains,
    group_views,
    groups,
    keychains,
    keyfiles,
    rosters,
    views,
)
from assurance.exhaustive.chains import Count

_HEAD: Final = "| search | records, or steps | states | acts | accepted | lies | time |"
_RULE: Final = "|---|--:|--:|--:|--:|--:|--:|"


def _access(length: int) -> Count:
    return chains.search(acts.KEPT["access"], length)


def _type_and_deletion(length: int) -> Count:
    return chains.search(acts.KEPT["type-and-deletion"], length)


def _departures(length: int) -> Count:
    return chains.search(acts.KEPT["departures"], length)


def _replaced_keys(length: int) -> Count:
    return chains.search(acts.KEPT["keys"], length)


def _rosters(length: int) -> Count:
    return rosters.search(rosters.GroupAlphabet(), length)


def _rosters_across_records(length: int) -> Count:
    roles = (rosters.READER, rosters.SHARER)
    alphabet = rosters.GroupAlphabet(
        roles=roles, indices=(0, 1), times=(1,), is_owned_by_first=True
    )
    return rosters.search(alphabet, length, remembers=True)


def _two_members(length: int) -> Count:
    return groups.search(groups.KEPT["two users"], length)


def _three_members(length: int) -> Count:
    return groups.search(groups.KEPT["three users"], length)


SEARCHES: Final[dict[str, tuple[Callable[[int], Count], int]]] = {
    "records: access and expiry": (_access, 5),
    "records: type and deletion": (_type_and_deletion, 5),
    "records: replaced keys": (_replaced_keys, 5),
    "records: departures": (_departures, 4),
    "rosters: all changes of a group": (_rosters, 2),
    "rosters: devices that skip some": (_rosters_across_records, 4),
    "groups of 3 records, 2 users": (_two_members, 2),
    "groups of 2 records, 3 users": (_three_members, 3),
    "views and marks": (views.search, 3),
    "views of 2 containers of a group": (group_views.search, 3),
    "key chains": (keychains.search, 7),
    "KeyFiles of two devices": (keyfiles.search, 5),
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
