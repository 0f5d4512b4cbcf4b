"""Arguments are checked by their declared types, in their order, before anything is sent."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError, ContainerEventType, KeyRing, KeyType, ServerProvider
from scbroker.client import arguments
from scbroker.client.arguments import (
    EventTypes,
    Id,
    IdList,
    Kind,
    LevelList,
    LocalPath,
    NewContainers,
    Octets,
    Reports,
)
from tests.kit.cases import in_one_case

ID = uuid.UUID(int=1)
InvalidArgumentError = BrokerError.invalidArgumentError


def unreachable() -> Any:
    """A provider that nothing answers: a wrong argument has to be found without a broker."""
    return ServerProvider(ID, "https://broker.invalid", "test")


@in_one_case("hint, value, message", [
        (Id, "A passphrase", "it is not a UUID: pass"),
        (Id, None, "it must be a uuid.UUID or its text, not NoneType"),
        (Id | None, 7, "it must be a uuid.UUID or its text, not int"),
        (str, b"", "it must be a str, not bytes"),
        (str | None, 7, "it must be a str, not int"),
        (int | None, True, "it must be an int, not bool"),
        (int | None, 1.0, "it must be an int, not float"),
        (bool, 1, "it must be a bool, not int"),
        (Octets, "text", "it must be bytes, not str"),
        (KeyRing, "ring", "it must be a KeyRing, not str"),
        (LocalPath, "name", "it must be a pathlib.Path, not str"),
        (IdList, [ID, "text"], "it[1] is not a UUID"),
        (IdList, [ID, 7], "it[1] must be a uuid.UUID or its text, not int"),
        (IdList, str(ID), "it must be a list of UUID, not str"),
        (LevelList | None, {ID: 1}, "it must be a list of AccessLevel, not dict"),
        (LevelList | None, iter([ID]), "it[0] must be an AccessLevel, not UUID"),
        (NewContainers, [b""], "it[0] must be a NewContainer, not bytes"),
        (Kind, "Sign", "it must be a KeyType, its value or its name"),
        (EventTypes | None, [],
             "it must name at least one ContainerEventType: None asks for all"),
        (type[Any] | None, 7, "it must be a type that a header's JSON can be decoded into"),
        (type[Any], {"a": int}, "it must be a type that a header's JSON can be decoded"),
        (Reports | None, 7, "it must be a function of two numbers, done and total, not int"),
    ])  # fmt: skip
def test_a_value_of_another_type_is_refused_with_the_name_of_the_argument(
    hint: Any, value: object, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_of(hint)("it", value)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "hint, value, copy",
    [
        (Id | None, None, None),
        (Id, str(ID), ID),
        (Id, ID.hex.upper(), ID),
        (Octets, bytearray(b"x"), b"x"),
        (Octets, memoryview(b"x"), b"x"),
        (IdList, iter([ID, str(ID)]), [ID, ID]),
        (LevelList | None, (), []),
        (Kind, "Encryption", KeyType.Encryption),
        (EventTypes, "Deleted", [ContainerEventType.Deleted]),
        (LocalPath, Path("x"), Path("x")),
    ],
)
def test_a_value_of_the_type_is_taken_and_what_the_caller_could_change_is_copied(
    hint: Any, value: object, copy: object
) -> None:
    found = check_of(hint)("it", value)
    assert found == copy
    assert type(found) is type(copy)


def check_of(hint: Any) -> arguments.Check:
    check = arguments.check_of(hint)
    assert check is not None
    return check


def test_the_first_wrong_argument_is_named_before_a_missing_session() -> None:
    provider = unreachable()
    with pytest.raises(InvalidArgumentError, match=r"^password must be a str, not int"):
        provider.register(7, 7, 7)
    with pytest.raises(InvalidArgumentError, match=r"^passphrase must be a str, not int"):
        provider.register("Correct horse 1", 7, 7)
    with pytest.raises(InvalidArgumentError, match=r"^containerId is not a UUID"):
        provider.updateContainerType("id", 7)
    with pytest.raises(BrokerError.notAuthenticatedError):
        provider.updateContainerType(ID, "type")
