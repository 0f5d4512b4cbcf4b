"""The shared words, against the specification's tables."""

from __future__ import annotations

import dataclasses
import re
import uuid
from pathlib import Path

import pytest

from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, ContainerEventType, KeyType

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


def test_an_owner_has_every_permission_and_a_user_may_read_and_see_who_else_may() -> None:
    level = ContainerAccessLevel
    assert level.DefaultOwnerPermissions == sum(TABLE.values()) == 511
    assert level.DefaultUserPermissions == level.Download | level.Decrypt | level.ViewAccess


@pytest.mark.parametrize("bits", range(512))
def test_what_is_missing_is_the_least_that_makes_a_combination_allowed(bits: int) -> None:
    given = {name for name, bit in TABLE.items() if bits & bit}
    wanted = set(given)
    while more := set().union(*(NEEDS.get(name, set()) for name in wanted)) - wanted:
        wanted |= more
    level = ContainerAccessLevel(bits)
    missing = level.missing()
    assert {one.name for one in missing} == wanted - given
    assert not (level | missing).missing()


def test_key_types_and_events_are_those_of_the_specification() -> None:
    assert [(kind.name, kind.value) for kind in KeyType] == [("Signing", 0), ("Encryption", 1)]
    text = (SPEC / "protocol.md").read_text("utf-8")
    assert "eventType is `Added`, `Updated`, `Accessed` or `Deleted`" in text
    assert [str(kind) for kind in ContainerEventType] == ["Added", "Updated", "Accessed", "Deleted"]


def test_an_access_level_is_a_users_reading_access_without_end_and_cannot_be_changed() -> None:
    level = AccessLevel(uuid.UUID(int=1))
    assert level.permissions is ContainerAccessLevel.DefaultUserPermissions
    assert level.expiresAt is None
    assert level == AccessLevel(uuid.UUID(int=1), ContainerAccessLevel(11))
    with pytest.raises(dataclasses.FrozenInstanceError):
        level.permissions = ContainerAccessLevel.Delete  # type: ignore[misc]
