"""The operations as the interface gives them: names, parameters, order, defaults, results."""

from __future__ import annotations

import inspect
import pydoc
import re
import uuid
from typing import get_overloads

import pytest

from scbroker import BaseProvider, BrokerProvider, Promise, ServerProvider
from tests.declared import HOMES

# name: the parameters in order, a bare * where keywords begin, "= default" where there is one;
# and what the promise carries. What the interface leaves open, or gives no type for, is ours:
# `progress`, `ifVersion`, `headerType`, and getEvents' own name.
TABLE = {
    "register": (["password", "passphrase", "reminder = None"], "bytes"),
    "logIn": (
        ["userId", "password = None", "passphrase = None", "*", "keyRing = None"],
        "bytes",
    ),
    "logout": ([], "None"),
    "getKeyRing": ([], "KeyRing"),
    "getUserId": ([], "uuid.UUID"),
    "deleteUser": ([], "None"),
    "changeCredentials": (
        ["password", "passphrase", "reminder = None", "*", "compromised = False"],
        "bytes",
    ),
    "createOrUpdateKeyFile": (
        ["keyFileData", "password", "passphrase", "reminder = None"],
        "bytes",
    ),
    "getKeyFile": (["passphrase"], "bytes"),
    "deleteKeyFile": ([], "None"),
    "needToSyncAccount": (["userId", "keyFileData"], "bool"),
    "getReminder": (["userId = None"], "str"),
    "createContainer": (
        [
            "content",
            "customHeaderObject = None",
            "accessLevels = None",
            "type = None",
            "*",
            "progress = None",
        ],
        "SecuredContainer",
    ),
    "createContainers": (["containers"], "list[SecuredContainer | BrokerError]"),
    "updateContainer": (
        [
            "containerId",
            "content = None",
            "customHeaderObject = None",
            "accessLevels = None",
            "type = None",
            "*",
            "ifVersion = None",
            "progress = None",
        ],
        "SecuredContainer",
    ),
    "updateContainerHeader": (
        ["containerId", "customHeaderObject = None", "*", "ifVersion = None"],
        "SecuredContainer",
    ),
    "updateContainerContent": (
        ["containerId", "content = None", "*", "ifVersion = None", "progress = None"],
        "SecuredContainer",
    ),
    "updateContainerAccessLevels": (
        ["containerId", "accessLevels = None", "*", "ifVersion = None"],
        "None",
    ),
    "updateContainerType": (["containerId", "type = None", "*", "ifVersion = None"], "None"),
    "getContainer": (
        ["containerId", "headerType = None", "*", "progress = None"],
        "Container[Any]",
    ),
    "getContainers": (
        ["containerIds", "headerType = None"],
        "list[Container[Any] | BrokerError]",
    ),
    "getContainerHeader": (["containerId", "headerType = None"], "Header[Any] | None"),
    "getContainerContent": (["containerId", "*", "progress = None"], "bytes | None"),
    "saveContainerContent": (["containerId", "path", "*", "progress = None"], "int | None"),
    "openContainerContent": (["containerId"], "ContentReader | None"),
    "getContainerMetadata": (["containerId"], "Container[Any]"),
    "getSecuredContainer": (["containerId"], "SecuredContainer"),
    "deleteContainer": (["containerId"], "None"),
    "getPublicKeys": (
        ["userId = None", "keyType = None", "index = None"],
        "Sequence[PublicKey]",
    ),
    "getLatestActiveSigningKey": (
        ["userId", "keyType = <KeyType.Signing: 0>"],
        "PublicKey | None",
    ),
    "getEvents": (
        [
            "eventType = None",
            "containerId = None",
            "containerType = None",
            "startId = None",
            "endId = None",
        ],
        "Sequence[ContainerEvent]",
    ),
}


CALLBACK = ["completionHandler = None", "errorHandler = None", "queue = None"]


def shown(signature: inspect.Signature) -> list[str]:
    """A signature as the table writes it, without `self`."""
    found: list[str] = []
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        found.append(name + default)
    return found


# The interface gives it to ServerProvider only.
SERVER_ONLY = {"getSecuredContainer"}


def test_the_provider_has_these_operations_and_no_others() -> None:
    assert HOMES.keys() == TABLE.keys()
    assert {name for name, home in HOMES.items() if home is ServerProvider} == SERVER_ONLY
    declared = {name for name in vars(BrokerProvider) if not name.startswith("_")}
    assert declared == TABLE.keys() - SERVER_ONLY


@pytest.mark.parametrize("name", SERVER_ONLY)
def test_an_operation_of_the_server_provider_alone_is_declared_there(name: str) -> None:
    assert not any(hasattr(provider, name) for provider in (BaseProvider, BrokerProvider))


@pytest.mark.parametrize("name", TABLE)
def test_an_operation_is_called_as_the_interface_gives_it(name: str) -> None:
    parameters, result = TABLE[name]
    others = () if name in SERVER_ONLY else (BaseProvider, BrokerProvider)
    for provider in (ServerProvider, *others):
        signature = inspect.signature(getattr(provider, name))
        assert shown(signature) == parameters + ([] if "*" in parameters else ["*"]) + CALLBACK
        assert signature.return_annotation == f"Promise[{result}] | Self"


@pytest.mark.parametrize("name", TABLE)
def test_help_shows_the_parameters_of_both_call_styles_and_the_docstring(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(getattr(ServerProvider, name)))
    for parameter in {*TABLE[name][0], *CALLBACK} - {"*"}:
        assert re.search(rf"\b{parameter.split()[0]}\b: ", text), parameter
    assert (inspect.getdoc(getattr(HOMES[name], name)) or "").splitlines()[0] in text


@pytest.mark.parametrize("name", TABLE)
def test_the_callback_style_takes_the_same_parameters_and_three_more(name: str) -> None:
    """Each form has its twin, whose handler takes the result, or nothing where there is none."""
    forms = [inspect.signature(each) for each in get_overloads(getattr(ServerProvider, name))]
    promises = [form for form in forms if "completionHandler" not in form.parameters]
    callbacks = [form for form in forms if "completionHandler" in form.parameters]
    assert len(promises) == len(callbacks)
    for promise, callback in zip(promises, callbacks, strict=True):
        more = ["completionHandler", "errorHandler", "queue = None"]
        plain = shown(promise)
        assert shown(callback) == plain + ([] if "*" in plain else ["*"]) + more
        assert callback.return_annotation == "Self"
        result = str(promise.return_annotation).removeprefix("Promise[")[:-1]
        taken = "" if result == "None" else result
        handler = callback.parameters["completionHandler"].annotation
        assert handler == f"Callable[[{taken}], object]"
        assert callback.parameters["errorHandler"].annotation == "OnError"
        assert callback.parameters["queue"].annotation == "Executor | None"


@pytest.mark.parametrize("name", TABLE)
def test_an_operation_has_its_name_and_a_docstring_wherever_it_is_looked_up(name: str) -> None:
    operation = getattr(ServerProvider, name)
    assert operation.__name__ == name
    assert inspect.getdoc(operation)


def test_the_constructor_is_the_interfaces_with_options_behind_it() -> None:
    signature = inspect.signature(ServerProvider)
    required = [
        name
        for name, each in signature.parameters.items()
        if each.default is inspect.Parameter.empty
    ]
    options = [
        name
        for name, each in signature.parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert required == ["apiKey", "serverUrl", "applicationName"]
    assert options == [
        "trustStore", "secretValidator", "timeout", "ssl", "proxy", "objectStoreOrigins"
    ]  # fmt: skip


def test_the_properties_are_as_they_were_given() -> None:
    key = uuid.uuid4()
    for given in (key, str(key)):
        provider = ServerProvider(given, "https://broker.example", "my program")
        assert (provider.apiKey, provider.serverUrl, provider.applicationName) == (
            key,
            "https://broker.example",
            "my program",
        )


def test_the_provider_is_what_the_protocol_describes() -> None:
    assert issubclass(ServerProvider, BaseProvider)
    assert isinstance(ServerProvider(uuid.uuid4(), "https://b.example", "x"), BrokerProvider)
    assert hasattr(Promise, "__await__")
