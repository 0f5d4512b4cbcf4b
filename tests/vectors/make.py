"""Writes all vectors anew: `python -m tests.vectors.make`, then `make test TESTS=tests/vectors`.

Signatures, seals and wraps come out different each time; everything else stays as it is.
"""

from typing import Any

from tests.vectors import (
    access_lists,
    batches,
    beside,
    contact_cards,
    container_records,
    departures,
    events,
    exchange,
    group_chains,
    group_departures,
    group_names,
    group_secrets,
    headers,
    ids,
    key_files,
    key_records,
    key_rings,
    links,
    membership_proofs,
    messages,
    orders,
    people,
    rosters,
    sealed,
    sessions,
    signatures,
    views,
)
from tests.vectors.files import Vector, load, rewrite


def main() -> None:
    for maker in (
        people, ids, key_records, key_files, access_lists, container_records, departures, batches, sealed,
        sessions, orders, links, headers, contact_cards, signatures, key_rings, events, messages,
        group_names, rosters, membership_proofs, group_secrets, group_chains, group_departures,
        views, exchange,
    ):  # fmt: skip
        maker.make()
    name_rules()


def name_rules() -> None:
    """Write the check of the second implementation that refuses it into each invalid vector.

    If the vector cannot be accepted without that check either, add the valid vector that differs in one spot:
    `ValueError` if there is none.
    """
    # These read the new files.
    from tests.independent.readers import READERS
    from tests.independent.test_single_faults import ACCEPTED, TWICE, refusal_of

    for file in READERS:
        content = load(file)
        for vector in content["vectors"]:
            if vector["result"] == "invalid":
                vector["rule"], then = refusal_of(file, vector)
                if then != ACCEPTED and (valid := nearest(content, vector)):
                    vector["beside"] = valid
                elif then != ACCEPTED and vector["id"] not in TWICE:
                    raise ValueError(f"No valid vector is one spot from {file}, {vector['id']}.")
        rewrite(file, content)


def nearest(content: dict[str, Any], vector: Vector) -> str | None:
    """Return the id of a valid vector that differs from an invalid one in one spot."""
    valid = (one for one in content["vectors"] if one["result"] == "valid")
    return next((str(one["id"]) for one in valid if beside.spots(content, one, vector) == 1), None)


if __name__ == "__main__":
    main()
