"""print() of a result shows its metadata, and nothing that was encrypted."""

import datetime as dt
import uuid

import pytest

from scbroker import AccessLevel, Availability, Header, NewContainer
from scbroker.types import Container

ID, USER = uuid.UUID(int=1), uuid.UUID(int=2)
TIME = dt.datetime(2026, 11, 23, 1, 2, 3, tzinfo=dt.UTC)
SECRETS = (b"the content", "the header", b"the record", b"the wrap", b"the sealed header")


def container(**changes: object) -> Container[object]:
    given: dict[str, object] = {
        "id": ID, "type": "note", "access": [AccessLevel(USER)], "version": 3, "length": 11,
        "createdAt": TIME, "createdBy": USER, "modifiedAt": TIME, "modifiedBy": USER,
        "modifiedVia": None, "modifierIsMember": None, "via": None,
        "contentAvailability": Availability.Available, "headerAvailability": Availability.Available,
        "content": SECRETS[0], "header": Header({"title": SECRETS[1]}),
    }  # fmt: skip
    return Container(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, shown",
    [
        ({}, "type 'note', version 3, content of 11 bytes, header, 1 member"),
        (
            {"type": None, "access": None, "length": None, "content": None,
             "contentAvailability": Availability.Hidden, "headerAvailability": Availability.Absent},
            "type None, version 3, content hidden, no header, members hidden",
        ),
        (
            {"access": [AccessLevel(ID), AccessLevel(USER)], "content": None,
             "contentAvailability": Availability.NotIncluded},
            "type 'note', version 3, content of 11 bytes not included, header, 2 members",
        ),
    ],
)  # fmt: skip
def test_a_container_shows_its_metadata_and_what_it_holds(
    changes: dict[str, object], shown: str
) -> None:
    modified = f"modified 2026-11-23 01:02:03 UTC by {USER}"
    assert str(container(**changes)) == f"<Container {ID}: {shown}, {modified}>"


def test_neither_str_nor_repr_of_a_result_contains_plaintext() -> None:
    results = [
        container(),
        Header({"title": "the header"}),
        NewContainer(b"the content", {"the header": 1}),
        [container()],
    ]
    for result in results:
        for text in (str(result), repr(result), f"{result}"):
            assert "the content" not in text
            assert "the header" not in text
            assert "title" not in text
