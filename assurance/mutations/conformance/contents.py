"""Mutants of containers, their access, of events and types: rows B, A, V, T and F."""

import dataclasses
import inspect
from typing import Any, Final

from assurance.mutations.conformance.mutants import (
    Body,
    Change,
    Edit,
    Mutants,
    altered,
    argument,
    around,
    instead,
    nothing,
    of_each,
    what_is_there,
    where_there_is_one,
    with_field,
    with_result,
)
from scbroker import AccessLevel, ContainerAccessLevel, Header, KeyType

MUTANTS: Final = Mutants()
add, body, bodies = MUTANTS.add, MUTANTS.body, MUTANTS.bodies
OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
FEWER: Final = OWNER & ~ContainerAccessLevel.Delete


def lost(*_: Any) -> None:
    """Give nothing in an argument's place."""


def changed(**fields: Any) -> Edit:
    return lambda found: dataclasses.replace(found, **fields)


# The service


async def decrypted(honest: Body, provider: Any, call: inspect.BoundArguments) -> Any:
    content = await provider.getContainerContent(call.arguments["containerId"])
    return dataclasses.replace(await honest(), sealedContent=content)


for _name in ("content", "customHeaderObject", "type", "accessLevels"):
    body("B1", f"keeps no {_name}", "createContainer", argument(_name, lost))
bodies(
    ("B2", "has no public keys", "getPublicKeys", with_result(lambda _: [])),
    ("B2", "has another KeyFile", "getKeyFile", with_result(altered)),
    ("B2", "has another id", "getUserId", with_result(altered)),
    ("B3", "has no log", "getEvents", with_result(lambda _: [])),
    ("B4", "getSecuredContainer returns it decrypted", "getSecuredContainer", around(decrypted)),
    ("B4", "getContainerContent returns other bytes", "getContainerContent", with_result(altered)),
)

# Access levels


def giving_the_caller(level: ContainerAccessLevel) -> Change:
    """The caller gets `level` where no access level is given."""
    return argument(
        "accessLevels", lambda self, given: given or [AccessLevel(self._current.userId, level)]
    )


def with_the_caller(self: Any, given: Any) -> Any:
    levels, caller = list(given or ()), self._current.userId
    if not levels or any(each.userId == caller for each in levels):
        return levels
    return [*levels, AccessLevel(caller, OWNER)]


_USER: Final = giving_the_caller(ContainerAccessLevel.DefaultUserPermissions)
_NOTHING: Final = instead(nothing, lambda given: not given["accessLevels"])
for _name in ("createContainer", "updateContainer", "updateContainerAccessLevels"):
    bodies(
        ("A1", f"{_name} gives the creator a user's permissions", _name, _USER),
        ("A2", f"{_name} adds the caller", _name, argument("accessLevels", with_the_caller)),
        ("A3", f"{_name} gives the creator fewer permissions", _name, giving_the_caller(FEWER)),
    )
for _name in ("updateContainer", "updateContainerAccessLevels"):
    _without = f"{_name} without access levels"
    body("A1", f"{_without} means the caller", _name, giving_the_caller(OWNER))
    body("A1", f"{_without} changes nothing", _name, _NOTHING)


@add("T4", "an owner lacks a permission")
def _() -> None:
    type.__setattr__(ContainerAccessLevel, "DefaultOwnerPermissions", FEWER)


@add("T4", "has an owner's permissions by default")
def _() -> None:
    constructor: Any = AccessLevel.__init__
    constructor.__defaults__ = (OWNER, None)


@add("T4", "DefaultUserPermissions are an owner's")
def _() -> None:
    type.__setattr__(ContainerAccessLevel, "DefaultUserPermissions", OWNER)


# Events


def shifted(by: int) -> Change:
    name = "startId" if by > 0 else "endId"
    return argument(name, lambda _, value: None if value is None else value + by)


def no_deletion(found: Any) -> Any:
    return [each for each in found if each.eventType != "Deleted"]


for _row, _name in zip(
    ("V1", "V2", "V3", "V4", "V5"),
    ("eventType", "containerId", "containerType", "startId", "endId"),
    strict=True,
):
    body(_row, f"ignores {_name}", "getEvents", argument(_name, lost))
_START: Final = argument("containerType", lambda _, text: text and text[:-1])
for _row, _says, _change in (
    ("V3", "matches the start of a type", _START),
    ("V4", "begins after startId", shifted(1)),
    ("V5", "ends before endId", shifted(-1)),
    ("V6", "leaves the first event out", with_result(lambda found: found[1:])),
    ("V6", "leaves the last event out", with_result(lambda found: found[:-1])),
    ("V6", "leaves Deleted out", with_result(no_deletion)),
    ("V7", "returns an event twice", with_result(lambda found: [*found[:1], *found])),
    ("V7", "leaves an event out", with_result(lambda found: found[1:])),
):
    body(_row, _says, "getEvents", _change)

# Types


def as_text(found: Any) -> Any:
    return Header(str(found.customHeaderObject))


SWAPPED: Final = {
    None: None, KeyType.Signing: KeyType.Encryption, KeyType.Encryption: KeyType.Signing,
}  # fmt: skip
_OTHER: Final = with_result(altered)
for _field, _value in (("content", b""), ("header", Header({}))):
    _none = with_result(changed(**{_field: None}))
    _some = with_result(changed(**{_field: _value}))
    body("T1", f"getContainer has no {_field}", "getContainer", _none)
    body("T1", f"getContainerMetadata has a {_field}", "getContainerMetadata", _some)
_SEALED: Final = with_result(with_field("sealedContent"))
_SWAP: Final = argument("keyType", lambda _, kind: SWAPPED[kind])
_SOME: Final = with_result(lambda found: found or Header({}))
bodies(
    ("T2", "has another id", "createContainer", with_result(with_field("id"))),
    ("T2", "is not what was sealed", "getSecuredContainer", _SEALED),
    ("T3", "is text", "getContainerHeader", with_result(where_there_is_one(as_text))),
    ("T3", "is never of the caller's type", "getContainerHeader", argument("headerType", lost)),
    ("T3", "is never absent", "getContainerHeader", _SOME),
    ("T6", "the two kinds are swapped", "getPublicKeys", _SWAP),
    ("T7", "has other keys", "getKeyRing", _OTHER),
    ("T8", "is another on the broker", "getKeyFile", _OTHER),
    ("T8", "has no reminder beside it", "getReminder", with_result(lambda _: "")),
)
for _name in ("userId", "keyType", "index"):
    body("T5", f"has another {_name}", "getPublicKeys", with_result(of_each(with_field(_name))))
for _name in ("id", "eventType", "containerId", "containerType"):
    body("T9", f"has another {_name}", "getEvents", with_result(of_each(with_field(_name))))

# Shared fields

bodies(
    ("F1", "is another in the result", "createContainer", with_result(with_field("id"))),
    ("F2", "is another", "getUserId", _OTHER),
    ("F3", "is lost", "createContainer", argument("type", lost)),
    ("F7", "is lost", "register", argument("reminder", lost)),
    ("F7", "is another's", "getReminder", _OTHER),
)
for _row, _name, _work in (
    ("F3", "updateContainerType", nothing),
    ("F4", "updateContainerContent", what_is_there),
    ("F5", "updateContainerHeader", what_is_there),
    ("F6", "updateContainerAccessLevels", nothing),
):
    _kept = instead(_work, lambda given: not list(given.values())[2])
    body(_row, "stays where it is left out", _name, _kept)
