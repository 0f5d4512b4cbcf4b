"""Arguments are checked by their declared types, in their order, before anything is sent."""

import datetime as dt
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, KeyType, ServerProvider
from scbroker.client import arguments
from tests.kit.cases import in_one_case

ID = uuid.UUID(int=1)
InvalidArgumentError = BrokerError.invalidArgumentError


def unreachable() -> Any:
    """A provider that nothing answers: a wrong argument has to be found without a broker."""
    return ServerProvider(ID, "https://broker.invalid", "test")


@in_one_case("annotation, value, message", [
        ("uuid.UUID | str", "A passphrase", "it is not a UUID: pass"),
        ("uuid.UUID | str", None, "it must be a uuid.UUID or its text, not NoneType"),
        ("uuid.UUID | str | None", 7, "it must be a uuid.UUID or its text, not int"),
        ("str", b"", "it must be a str, not bytes"),
        ("str | None", 7, "it must be a str, not int"),
        ("int | None", True, "it must be an int, not bool"),
        ("int | None", 1.0, "it must be an int, not float"),
        ("bool", 1, "it must be a bool, not int"),
        ("bytes", "text", "it must be bytes, not str"),
        ("KeyRing", "ring", "it must be a KeyRing, not str"),
        ("os.PathLike[str]", "name", "it must be a pathlib.Path, not str"),
        ("Iterable[uuid.UUID | str]", [ID, "text"], "it[1] is not a UUID"),
        ("Iterable[uuid.UUID | str]", [ID, 7], "it[1] must be a uuid.UUID or its text, not int"),
        ("Iterable[uuid.UUID | str]", str(ID), "it must be a list of UUID, not str"),
        ("Iterable[AccessLevel] | None", {ID: 1}, "it must be a list of AccessLevel, not dict"),
        ("Iterable[AccessLevel] | None", iter([ID]), "it[0] must be an AccessLevel, not UUID"),
        ("Iterable[NewContainer]", [b""], "it[0] must be a NewContainer, not bytes"),
        ("KeyType | int | str", "Sign", "it must be a KeyType, its value or its name"),
        ("ContainerEventType | str | Iterable[ContainerEventType | str] | None", [],
             "it must name at least one ContainerEventType: None asks for all"),
        ("builtins.type[T] | None", 7, "it must be a type that a header's JSON can be decoded into"),
        ("builtins.type[T]", {"a": int}, "it must be a type that a header's JSON can be decoded"),
        ("Progress | None", 7, "it must be a function of two numbers, done and total, not int"),
    ])  # fmt: skip
def test_a_value_of_another_type_is_refused_with_the_name_of_the_argument(
    annotation: str, value: object, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        arguments.check_of(annotation)("it", value)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "annotation, value, copy",
    [
        ("uuid.UUID | str | None", None, None),
        ("uuid.UUID | str", str(ID), ID),
        ("uuid.UUID | str", ID.hex.upper(), ID),
        ("bytes", bytearray(b"x"), b"x"),
        ("bytes", memoryview(b"x"), b"x"),
        ("Iterable[uuid.UUID | str]", iter([ID, str(ID)]), [ID, ID]),
        ("Iterable[AccessLevel] | None", (), []),
        ("KeyType | int | str", "Encryption", KeyType.Encryption),
        ("os.PathLike[str]", Path("x"), Path("x")),
        ("object", None, None),
    ],
)
def test_a_value_of_the_type_is_taken_and_what_the_caller_could_change_is_copied(
    annotation: str, value: object, copy: object
) -> None:
    found = arguments.check_of(annotation)("it", value)
    assert found == copy
    assert type(found) is type(copy)


def test_a_declared_type_without_a_check_fails_when_the_operation_is_declared() -> None:
    with pytest.raises(KeyError):
        arguments.check_of("complex")


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


def test_a_wrong_argument_in_callback_style_goes_to_the_error_handler() -> None:
    provider = unreachable()
    received: list[str] = []
    with ThreadPoolExecutor(1) as queue:
        found = provider.getContainer(
            7,
            completionHandler=print,
            errorHandler=lambda error: received.append(str(error)),
            queue=queue,
        )
    assert found is provider
    assert received == ["containerId must be a uuid.UUID or its text, not int"]


def test_a_user_named_twice_and_an_expiry_in_the_past_are_refused() -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    with pytest.raises(InvalidArgumentError, match=f"names user {ID} twice"):
        arguments.checked_grants([AccessLevel(ID), AccessLevel(ID)])
    with pytest.raises(InvalidArgumentError, match=f"expiresAt of user {ID} is in the past"):
        arguments.checked_grants([AccessLevel(ID, expiresAt=past)])
    assert arguments.checked_grants(None) == {}
