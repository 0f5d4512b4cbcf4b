"""Writes all vectors anew: `python -m tests.vectors.make`, then `make test TESTS=tests/vectors`.

Signatures, seals and wraps come out different each time; everything else stays as it is.
"""

from tests.vectors import (
    access_lists,
    container_records,
    docs,
    events,
    exchange,
    headers,
    ids,
    key_files,
    key_records,
    key_rings,
    messages,
    orders,
    people,
    sealed,
    sessions,
    signatures,
    views,
)
from tests.vectors.files import load, rewrite


def main() -> None:
    for maker in (
        people, ids, key_records, key_files, access_lists, container_records, sealed, sessions,
        orders, headers, signatures, key_rings, events, messages, views, exchange,
    ):  # fmt: skip
        maker.make()
    docs.write()
    name_rules()


def name_rules() -> None:
    """Write into each invalid vector which checks of the second implementation refuse it."""
    from tests.independent.test_single_faults import READERS, rules_of  # reads the new files

    for file in READERS:
        content = load(file)
        for vector in content["vectors"]:
            if vector["result"] == "invalid":
                rule, *also = rules_of(file, vector)
                vector |= {"rule": rule, **({"also": also} if also else {})}
        rewrite(file, content)


if __name__ == "__main__":
    main()
