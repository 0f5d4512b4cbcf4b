"""Mutants that are made from a row: a parameter ignored, a result replaced, nothing done, an error raised."""

import dataclasses
import functools
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from assurance.mutations.conformance.mutants import (
    Change,
    Edit,
    Mutant,
    afterwards,
    altered,
    change_body,
    failing,
    instead,
    is_of_form,
    nothing,
    of_each,
    raising,
    what_is_there,
    where_there_is_one,
    with_arguments,
    with_field,
    with_result,
    without_a_session,
)
from scbroker import (
    BrokerError,
    Container,
    ContainerEvent,
    Group,
    GroupMember,
    GroupRenewal,
    Header,
    KeyRing,
    KeyType,
    PublicKey,
    SecuredContainer,
    UnsettledAccess,
)
from tests.conformance.interface import Operation, Parameter

OBJECTS: Final[dict[str, type]] = {
    each.__name__: each
    for each in (
        Container, ContainerEvent, Group, GroupMember, GroupRenewal, PublicKey, SecuredContainer,
        UnsettledAccess,
    )
}  # fmt: skip


def in_its_place(provider: Any, parameter: Parameter) -> Any:
    """The default of a parameter, or a value that the caller did not give."""
    match parameter.type:
        case _ if parameter.name == "progress":
            return lambda *_: None
        case _ if parameter.default == '""':
            return ""
        case _ if parameter.default is not None or parameter.type.endswith("?"):
            return None
        case "UUID" if parameter.name == "userId" and provider._current is not None:
            return provider._current.userId
        case "UUID" | "Link":
            return uuid.uuid4()
        case "String":
            return "Something else 99"
        case "Data":
            return b"something else"
        case "KeyType":
            return KeyType.Signing
        case "KeyRing":
            return KeyRing.generate()
        case "[NewContainer]" | "[UUID]" | "[AccessChange]" | "[AccessLevel]":
            return []
        case "[MemberRole]" | "[GroupManager]":
            return []
        case "Path":
            return Path(tempfile.mkdtemp(), "somewhere")
    raise LookupError(parameter.type)


def another_of_each_field(kind: type) -> dict[str, Edit]:
    names = [each.name for each in dataclasses.fields(kind)]
    return {f"returns another {name}": with_field(name) for name in names}


def other_results(result: str) -> dict[str, Edit]:
    """By what they are: results that an operation of this kind must not give."""
    if result == "Void":
        return {"returns something": lambda _: True}
    wrong: dict[str, Edit] = {"returns nothing": lambda _: None}
    kind = OBJECTS.get(result.strip("[]?"))
    fields = {} if kind is None else another_of_each_field(kind)
    if result.startswith("["):
        wrong |= {
            "returns an empty list": lambda _: [],
            "leaves the first out": lambda found: list(found)[1:],
            "leaves the last out": lambda found: list(found)[:-1],
            "returns them in another order": lambda found: list(found)[::-1],
            "returns one twice": lambda found: [*found, *list(found)[:1]],
        }
        return wrong | {says: of_each(edit) for says, edit in fields.items()}
    wrong |= fields
    match result:
        case "Header?":
            wrong["returns another header"] = where_there_is_one(altered)
            wrong["returns a header where there is none"] = lambda found: found or Header({})
        case "Data?":
            wrong["returns other bytes"] = where_there_is_one(altered)
            wrong["returns empty bytes for none"] = lambda found: b"" if found is None else found
            wrong["returns none for empty bytes"] = lambda found: found or None
        case "Data" | "String" | "UUID" | "Bool" | "KeyRing":
            wrong["returns another"] = altered
            if result in ("Data", "String"):
                wrong["returns it empty"] = lambda found: found[:0]
        case "Int?":
            wrong["returns another"] = where_there_is_one(altered)
            wrong["returns 0 for none"] = lambda found: found or 0
    return wrong


def generic(operation: Operation) -> Iterator[Mutant]:
    name, when = operation.name, is_of_form(operation)

    def mutant(says: str, change: Change, row: str = str(operation)) -> Mutant:
        return Mutant(row, says, functools.partial(change_body, name, change))

    def ignoring(parameter: Parameter) -> Change:
        def edit(provider: Any, arguments: dict[str, Any]) -> None:
            if when(arguments):
                arguments[parameter.name] = in_its_place(provider, parameter)

        return with_arguments(edit)

    for parameter in operation.parameters:
        yield mutant(f"ignores {parameter.name}", ignoring(parameter))
    for says, edit in other_results(operation.result).items():
        yield mutant(says, with_result(edit, when))
    yield mutant("does nothing", instead(nothing, when))
    yield mutant("fails", instead(failing, when))
    if operation.session == "no":
        refused = raising(BrokerError.notAuthenticatedError())
        yield mutant("needs a session", without_a_session(refused, when))
    elif not operation.form and name != "getReminder":
        yield mutant(f"{operation} needs no session", without_a_session(nothing), "S8")


# Updates that change more than their field, or less

UPDATES: Final = {
    "content": "updateContainerContent",
    "header": "updateContainerHeader",
    "type": "updateContainerType",
    "access": "updateContainerAccessLevels",
}


def updates() -> Iterator[Mutant]:
    for name in UPDATES.values():
        for field, other in UPDATES.items():
            if other != name:
                says = "unshares the container" if field == "access" else f"removes the {field} too"
                yield Mutant(
                    name, says, functools.partial(change_body, name, afterwards(removing(other)))
                )
    for name in (*UPDATES.values(), "updateContainer"):
        yield Mutant(
            name,
            "changes nothing, and returns what is there",
            functools.partial(change_body, name, instead(what_is_there)),
        )


def removing(operation: str) -> Callable[[Any, dict[str, Any]], Coroutine[Any, Any, Any]]:
    async def work(provider: Any, arguments: dict[str, Any]) -> None:
        await getattr(provider, operation)(arguments["containerId"])

    return work
