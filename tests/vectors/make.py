"""Writes all vectors anew: `python -m tests.vectors.make`, then `make test TESTS=tests/vectors`.

Signatures, seals and wraps come out different each time; everything else stays as it is.
"""

from tests.vectors import (
    access_lists,
    container_records,
    docs,
    ids,
    key_files,
    key_records,
    orders,
    people,
    sealed,
    sessions,
)


def main() -> None:
    for maker in (
        people, ids, key_records, key_files, access_lists, container_records, sealed, sessions,
        orders,
    ):  # fmt: skip
        maker.make()
    docs.write()


if __name__ == "__main__":
    main()
