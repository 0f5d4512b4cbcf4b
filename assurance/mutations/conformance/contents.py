"""Mutants of containers, their access, of events and types: rows B, A, V, T and F."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from assurance.mutations.conformance.mutants import (
    Body,
    Edit,
    Mutants,
    altered,
    argument,
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
add, body = MUTANTS.add, MUTANTS.body
OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
FEWER: Final = OWNER & ~ContainerAccessLevel.Delete
LOST: Final[Callable[[Any, Any], Any]] = lambda *_: None  # noqa: E731 - its type is the point


def changed(**fields: Any) -> Edit:
    return lambda found: dataclasses.replace(found, **fields)


# The service

for _name in ("content", "customHeaderObject", "type", "accessLevels"):
    body("B1", f"keeps no {_name}", "createContainer", argument(_name, LOST))
body("B2", "has no public keys", "getPublicKeys", with_result(lambda _: []))
body("B2", "has another KeyFile", "getKeyFile", with_result(altered))
body("B2", "has another id", "getUserId", with_result(altered))
body("B3", "has no log", "getEvents", with_result(lambda _: []))


def decrypted(secured: Body) -> Body:
    def call(self: Any, containerId: Any) -> Any:  # noqa: N803 - the interface's name
        async def work() -> Any:
            found = await secured(self, containerId)
            content = await self.getContainerContent(containerId)
            return dataclasses.replace(found, sealedContent=content)

        return work()

    return call


body("B4", "getSecuredContainer returns it decrypted", "getSecuredContainer", decrypted)
body("B4", "getContainerContent returns other bytes", "getContainerContent", with_result(altered))

# Access levels


def giving_the_caller(level: ContainerAccessLevel) -> Callable[[Body], Body]:
    """The caller gets `level` where no access level is given."""
    return argument(
        "accessLevels", lambda self, given: given or [AccessLevel(self._current.userId, level)]
    )


def with_the_caller(self: Any, given: Any) -> Any:
    levels, caller = list(given or ()), self._current.userId
    if not levels or any(each.userId == caller for each in levels):
        return levels
    return [*levels, AccessLevel(caller, OWNER)]


for _name in ("createContainer", "updateContainer", "updateContainerAccessLevels"):
    body(
        "A1",
        f"{_name} gives the creator a user's permissions",
        _name,
        giving_the_caller(ContainerAccessLevel.DefaultUserPermissions),
    )
    body("A2", f"{_name} adds the caller", _name, argument("accessLevels", with_the_caller))
    body("A3", f"{_name} gives the creator fewer permissions", _name, giving_the_caller(FEWER))
for _name in ("updateContainer", "updateContainerAccessLevels"):
    body("A1", f"{_name} without access levels means the caller", _name, giving_the_caller(OWNER))
    body(
        "A1",
        f"{_name} without access levels changes nothing",
        _name,
        instead(nothing, lambda given: not given["accessLevels"]),
    )


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

for _row, _name in {
    "V1": "eventType",
    "V2": "containerId",
    "V3": "containerType",
    "V4": "startId",
    "V5": "endId",
}.items():
    body(_row, f"ignores {_name}", "getEvents", argument(_name, LOST))


def shifted(by: int) -> Callable[[Any, Any], Any]:
    return lambda _, value: None if value is None else value + by


def no_deletion(found: Any) -> Any:
    return [each for each in found if each.eventType != "Deleted"]


body(
    "V3",
    "matches the start of a type",
    "getEvents",
    argument("containerType", lambda _, text: text and text[:-1]),
)
body("V4", "begins after startId", "getEvents", argument("startId", shifted(1)))
body("V5", "ends before endId", "getEvents", argument("endId", shifted(-1)))
body("V6", "leaves the first event out", "getEvents", with_result(lambda found: found[1:]))
body("V6", "leaves the last event out", "getEvents", with_result(lambda found: found[:-1]))
body("V6", "leaves Deleted out", "getEvents", with_result(no_deletion))
body("V7", "returns an event twice", "getEvents", with_result(lambda found: [*found[:1], *found]))
body("V7", "leaves an event out", "getEvents", with_result(lambda found: found[1:]))

# Types

body("T1", "getContainer has no content", "getContainer", with_result(changed(content=None)))
body("T1", "getContainer has no header", "getContainer", with_result(changed(header=None)))
body(
    "T1",
    "getContainerMetadata has a content",
    "getContainerMetadata",
    with_result(changed(content=b"")),
)
body(
    "T1",
    "getContainerMetadata has a header",
    "getContainerMetadata",
    with_result(changed(header=Header({}))),
)
body("T2", "has another id", "createContainer", with_result(with_field("id")))
body(
    "T2", "is not what was sealed", "getSecuredContainer", with_result(with_field("sealedContent"))
)
body(
    "T3",
    "is text",
    "getContainerHeader",
    with_result(where_there_is_one(lambda found: Header(str(found.customHeaderObject)))),
)
body("T3", "is never of the caller's type", "getContainerHeader", argument("headerType", LOST))
body("T3", "is never absent", "getContainerHeader", with_result(lambda found: found or Header({})))
for _name in ("userId", "keyType", "index"):
    body("T5", f"has another {_name}", "getPublicKeys", with_result(of_each(with_field(_name))))
SWAPPED: Final = {
    None: None,
    KeyType.Signing: KeyType.Encryption,
    KeyType.Encryption: KeyType.Signing,
}
body(
    "T6",
    "the two kinds are swapped",
    "getPublicKeys",
    argument("keyType", lambda _, kind: SWAPPED[kind]),
)
body("T7", "has other keys", "getKeyRing", with_result(altered))
body("T8", "is another on the broker", "getKeyFile", with_result(altered))
body("T8", "has no reminder beside it", "getReminder", with_result(lambda _: ""))
for _name in ("id", "eventType", "containerId", "containerType"):
    body("T9", f"has another {_name}", "getEvents", with_result(of_each(with_field(_name))))

# Shared fields

body("F1", "is another in the result", "createContainer", with_result(with_field("id")))
body("F2", "is another", "getUserId", with_result(altered))
body("F3", "is lost", "createContainer", argument("type", LOST))
for _row, _name, _work in (
    ("F3", "updateContainerType", nothing),
    ("F4", "updateContainerContent", what_is_there),
    ("F5", "updateContainerHeader", what_is_there),
    ("F6", "updateContainerAccessLevels", nothing),
):
    _left_out: Callable[[dict[str, Any]], bool] = lambda given: not list(given.values())[2]  # noqa: E731
    body(_row, "stays where it is left out", _name, instead(_work, _left_out))
body("F7", "is lost", "register", argument("reminder", LOST))
body("F7", "is another's", "getReminder", with_result(altered))
