"""Mutants that are made from a row: a parameter ignored, a result replaced, nothing done, an error raised."""

import dataclasses
import functools
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from assurance.mutations.conformance.mutants import (
    Body,
    Edit,
    Mutant,
    afterwards,
    altered,
    bound,
    change_body,
    failing,
    instead,
    is_of_form,
    nothing,
    of_each,
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


def ignoring(operation: Operation, parameter: Parameter) -> Mutant:
    def edit(provider: Any, arguments: dict[str, Any]) -> None:
        if is_of_form(operation)(arguments):
            arguments[parameter.name] = in_its_place(provider, parameter)

    return Mutant(
        str(operation),
        f"ignores {parameter.name}",
        lambda: change_body(operation.name, with_arguments(edit)),
    )


def fields_of(kind: type) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]


def a_list(kind: type | None) -> dict[str, Edit]:
    edits: dict[str, Edit] = {
        "returns an empty list": lambda _: [],
        "leaves the first out": lambda found: list(found)[1:],
        "leaves the last out": lambda found: list(found)[:-1],
        "returns them in another order": lambda found: list(found)[::-1],
        "returns one twice": lambda found: [*found, *list(found)[:1]],
    }
    if kind is not None:
        edits |= {f"returns another {name}": of_each(with_field(name)) for name in fields_of(kind)}
    return edits


def an_object(kind: type) -> dict[str, Edit]:
    return {f"returns another {name}": with_field(name) for name in fields_of(kind)}


def other_results(result: str) -> dict[str, Edit]:
    """By what they are: results that an operation of this kind must not give."""
    if result == "Void":
        return {"returns something": lambda _: True}
    wrong: dict[str, Edit] = {"returns nothing": lambda _: None}
    match result:
        case "SecuredContainer":
            wrong |= an_object(SecuredContainer)
        case "Container":
            wrong |= an_object(Container)
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
        case "PublicKey?":
            wrong |= an_object(PublicKey)
        case "[PublicKey]":
            wrong |= a_list(PublicKey)
        case "[ContainerEvent]":
            wrong |= a_list(ContainerEvent)
        case "[GroupMember]":
            wrong |= a_list(GroupMember)
        case "Group":
            wrong |= an_object(Group)
        case "GroupRenewal":
            wrong |= an_object(GroupRenewal)
        case "UnsettledAccess?":
            wrong |= an_object(UnsettledAccess)
        case "[Result<SecuredContainer>]" | "[Result<Container>]" | "[Result<Group>]" | "[UUID]":
            wrong |= a_list(None)
    return wrong


def generic(operation: Operation) -> Iterator[Mutant]:
    name, row, when = operation.name, str(operation), is_of_form(operation)
    for parameter in operation.parameters:
        yield ignoring(operation, parameter)
    for says, edit in other_results(operation.result).items():
        yield Mutant(row, says, functools.partial(change_body, name, with_result(edit, when)))
    yield Mutant(row, "does nothing", functools.partial(change_body, name, instead(nothing, when)))
    yield Mutant(row, "fails", functools.partial(change_body, name, instead(failing, when)))
    if operation.session == "no":
        yield Mutant(
            row, "needs a session", functools.partial(change_body, name, in_a_session_only(when))
        )
    elif not operation.form and name != "getReminder":
        yield Mutant(
            "S8",
            f"{row} needs no session",
            functools.partial(change_body, name, without_a_session(nothing)),
        )


def in_a_session_only(when: Callable[[dict[str, Any]], bool]) -> Callable[[Body], Body]:
    def change(body: Body) -> Body:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self._current is None and when(bound(body, (self, *args), kwargs).arguments):
                raise BrokerError.notAuthenticatedError()
            return body(self, *args, **kwargs)

        return changed

    return change


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
