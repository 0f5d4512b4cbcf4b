"""The shared words, against the specification's tables."""

import copy
import dataclasses
import datetime as dt
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.vocabulary import (
    AccessLevel,
    ContainerAccessLevel,
    ContainerEventType,
    GroupRole,
    KeyType,
    member_of,
)
from tests.kit.cases import in_one_case

SPEC = Path(__file__).parents[1] / "docs" / "spec"
TABLE = {
    name: int(bit)
    for bit, name in re.findall(
        r"^\| (\d+) \| (\w+) \|", (SPEC / "container.md").read_text("utf-8"), re.MULTILINE
    )
}
NEEDS = {"Upload": {"Decrypt", "ViewAccess"}, "ModifyType": {"Upload"}, "ModifyAccess": {"Upload"}}


def test_the_permissions_are_those_of_the_specification() -> None:
    assert {level.name: level.value for level in ContainerAccessLevel} == TABLE
    assert len(TABLE) == 9


def test_an_owner_has_every_permission_and_a_user_may_read_and_see_type_and_members() -> None:
    level = ContainerAccessLevel
    assert level.DefaultOwnerPermissions == sum(TABLE.values()) == 511
    reader = level.Download | level.Decrypt | level.ViewAccess | level.ViewType
    assert level.DefaultUserPermissions == reader == 75
    assert AccessLevel(uuid.uuid4()).permissions == level.DefaultUserPermissions


@in_one_case("bits", range(512))
def test_what_is_missing_is_the_least_that_makes_a_combination_allowed(bits: int) -> None:
    given = {name for name, bit in TABLE.items() if bits & bit}
    wanted = set(given)
    while more := set().union(*(NEEDS.get(name, set()) for name in wanted)) - wanted:
        wanted |= more
    level = ContainerAccessLevel(bits)
    missing = level.missing()
    assert {one.name for one in missing} == wanted - given
    assert not (level | missing).missing()


def test_a_role_permits_what_the_mask_of_the_specification_has() -> None:
    masks = {role.name: int(role.permissions) for role in GroupRole}
    assert masks == {"Reader": 203, "Writer": 239, "Sharer": 511}
    assert all(not role.permissions.missing() for role in GroupRole)


ENUMS = [KeyType, ContainerEventType, ContainerAccessLevel]


@in_one_case("kind", ENUMS)
def test_an_argument_names_a_member_by_itself_its_value_or_its_name(kind: Any) -> None:
    for name, member in kind.__members__.items():
        for given in (member, member.value, name):
            assert member_of(kind, given, "argument") is member


@in_one_case(
    "kind, wrong",
    ENUMS,
    [True, -1, 512, 1.0, None, b"Signing", "", "signing", " Added", "Added|Deleted", "0", object()],
)
def test_a_value_that_names_no_member_is_refused_with_the_names_that_are_right(
    kind: Any, wrong: object
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        member_of(kind, wrong, "keyType")
    assert str(caught.value).startswith(
        f"keyType must be a {kind.__name__}, its value or its name ("
    )
    assert next(iter(kind.__members__)) in str(caught.value)


@in_one_case("permissions", [3, "Download|Decrypt", ContainerAccessLevel(3)])
def test_an_access_level_takes_permissions_as_value_name_or_member(permissions: Any) -> None:
    level = AccessLevel(uuid.UUID(int=1), permissions)
    assert level.permissions is ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
    assert level == dataclasses.replace(level) == copy.deepcopy(level)
    assert hash(level) == hash(AccessLevel(uuid.UUID(int=1), 3))


U, SOME_TIME = uuid.UUID(int=1), dt.datetime(2990, 1, 1, tzinfo=dt.UTC)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"userId": "id"}, "userId is not a UUID"),
    ({"userId": None}, "userId must be a uuid.UUID or its text, not NoneType"),
    ({"permissions": 0}, "permissions must hold at least one permission"),
    ({"permissions": ContainerAccessLevel(0)}, "permissions must hold at least one permission"),
    ({"permissions": 512}, "permissions must be a ContainerAccessLevel"),
    ({"permissions": "all"}, "permissions must be a ContainerAccessLevel"),
    ({"permissions": None}, "permissions must be a ContainerAccessLevel"),
    ({"permissions": "Upload"}, r"permissions cannot hold Upload without Decrypt\|ViewAccess"),
    ({"permissions": 11 | 16}, "without Upload"),
    ({"expiresAt": 7}, "expiresAt must be a datetime.datetime, not int"),
    ({"expiresAt": SOME_TIME.date()}, "expiresAt must be a datetime.datetime, not date"),
    ({"expiresAt": SOME_TIME.replace(tzinfo=None)}, "expiresAt must have a time zone"),
]


@in_one_case("arguments, why", REFUSED)
def test_an_access_level_that_cannot_be_is_refused_when_it_is_made(
    arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        AccessLevel(**{"userId": U, "expiresAt": SOME_TIME, **arguments})
