"""Mutants of the provider itself, of the two call styles and of errors: rows P, C and E."""

import concurrent.futures
import functools
import uuid
from collections.abc import Callable
from typing import Any, Final

from assurance.mutations.conformance.mutants import (
    Mutants,
    argument,
    instead,
    nothing,
    raising,
    without_a_session,
)
from assurance.mutations.conformance.sessions import BY_PASSPHRASE
from scbroker import BaseProvider, BrokerError, BrokerProvider, Promise, ServerProvider
from scbroker.client import server_provider
from scbroker.client.http.requests import Requests
from tests.conformance.interface import INTERFACE

MUTANTS: Final = Mutants()
add, body = MUTANTS.add, MUTANTS.body

# The provider


def with_property(name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(ServerProvider, name, property(lambda _: value))


add("P1", "apiKey is another")(with_property("apiKey", uuid.uuid4()))
add("P1", "apiKey is text")(with_property("apiKey", str(uuid.uuid4())))
add("P2", "serverUrl is another")(with_property("serverUrl", "https://another.example"))
add("P3", "applicationName is another")(with_property("applicationName", "another"))


def constructed_with(change: Callable[..., tuple[Any, ...]]) -> Callable[[], None]:
    """The constructor gets other arguments than the caller gave."""

    def install() -> None:
        honest = ServerProvider.__init__

        @functools.wraps(honest)
        def changed(self: Any, *args: Any, **kwargs: Any) -> None:
            honest(self, *change(*args), **kwargs)

        ServerProvider.__init__ = changed  # type: ignore[method-assign]

    return install


def refusing(kind: type) -> Callable[..., tuple[Any, ...]]:
    def check(*args: Any) -> tuple[Any, ...]:
        if isinstance(args[0], kind):
            raise BrokerError.invalidArgumentError("apiKey")
        return args

    return check


add("P4", "refuses a UUID")(constructed_with(refusing(uuid.UUID)))
add("P5", "refuses text")(constructed_with(refusing(str)))
add("K1", "all programs have one name")(
    constructed_with(lambda key, url, _: (key, url, "one name"))
)


@add("P4", "accepts anything as apiKey")
def _() -> None:
    module: Any = server_provider
    honest = module.checked_endpoint

    def changed(api_key: Any, *args: Any) -> Any:
        try:
            return honest(api_key, *args)
        except BrokerError:
            return honest(uuid.uuid4(), *args)

    module.checked_endpoint = changed


@add("K1", "any API key is taken")
def _() -> None:
    known: list[Any] = []
    honest = Requests.__init__

    @functools.wraps(honest)
    def changed(self: Any, endpoint: Any, *args: Any, **kwargs: Any) -> None:
        known.append(endpoint)
        honest(self, known[0], *args, **kwargs)

    Requests.__init__ = changed  # type: ignore[method-assign]


@add("P6", "a ServerProvider lacks an operation")
def _() -> None:
    for kind in (BrokerProvider, BaseProvider, ServerProvider):
        if "getEvents" in vars(kind):
            delattr(kind, "getEvents")


# Call styles


def every_call(change: Callable[[Any], Any]) -> Callable[[], None]:
    """Replaces every operation as callers see it."""
    names = {operation.name for operation in INTERFACE.operations}

    def install() -> None:
        for kind in (BrokerProvider, BaseProvider, ServerProvider):
            for name in names & vars(kind).keys():
                setattr(kind, name, functools.wraps(vars(kind)[name])(change(vars(kind)[name])))

    return install


def outcome(change: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """A call returns `change(provider, found)`."""

    def of_call(call: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            return change(self, call(self, *args, **kwargs))

        return changed

    return every_call(of_call)


def style(edit: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """In callback style, the three keywords are edited."""

    def of_call(call: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("completionHandler") is not None:
                edit(kwargs)
            return call(self, *args, **kwargs)

        return changed

    return every_call(of_call)


def handler(name: str, change: Callable[[Any], Any]) -> Callable[[], None]:
    def edit(given: dict[str, Any]) -> None:
        if callable(given.get(name)):
            given[name] = change(given[name])

    return style(edit)


def carrying_nothing(provider: Any, found: Any) -> Any:
    if found is provider:
        return found
    empty: concurrent.futures.Future[Any] = concurrent.futures.Future()
    found._future.add_done_callback(lambda _: empty.set_result(None))
    return Promise(found._name, empty)


def on_another(*, when_given: bool) -> Callable[[dict[str, Any]], None]:
    other = concurrent.futures.ThreadPoolExecutor(1, "another")

    def edit(given: dict[str, Any]) -> None:
        if (given.get("queue") is not None) == when_given:
            given["queue"] = other

    return edit


def without_handlers(given: dict[str, Any]) -> None:
    for key in ("completionHandler", "errorHandler", "queue"):
        given.pop(key, None)


def completing_after_an_error(given: dict[str, Any]) -> None:
    completion = given["completionHandler"]
    given["errorHandler"] = lambda _: completion()


add("C1", "a call waits for its result")(
    outcome(lambda provider, found: found if found is provider else found.result())
)
add("C1", "a promise carries nothing")(outcome(carrying_nothing))
add("C2", "a call with handlers returns nothing")(
    outcome(lambda provider, found: None if found is provider else found)
)
add("C2", "a call takes no handlers")(style(without_handlers))
add("C3", "completionHandler gets None where the result is Void")(
    handler("completionHandler", lambda run: lambda *result: run(*(result or (None,))))
)
add("C3", "completionHandler gets no result")(
    handler("completionHandler", lambda run: lambda *_: run())
)
add("C3", "completionHandler runs twice")(
    handler("completionHandler", lambda run: lambda *result: (run(*result), run(*result)))
)
add("C3", "completionHandler does not run")(handler("completionHandler", lambda _: lambda *_: None))
add("C4", "errorHandler does not run")(handler("errorHandler", lambda _: lambda _: None))
add("C4", "errorHandler gets no error")(handler("errorHandler", lambda run: lambda _: run(None)))
add("C4", "completionHandler runs after an error")(style(completing_after_an_error))
add("C5", "handlers do not run on the queue")(style(on_another(when_given=True)))
add("C5", "handlers without a queue do not run on the main queue")(
    style(on_another(when_given=False))
)

# Errors


class NotABrokerError(RuntimeError):
    """An error that a caller of the interface does not expect."""


def in_another_error(call: Any) -> Any:
    def changed(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except BrokerError as error:
            raise NotABrokerError from error

    return changed


@add("E1", "a promise carries what is not a BrokerError")
def _() -> None:
    Promise.result = in_another_error(Promise.result)  # type: ignore[method-assign]


add("E1", "a call raises what is not a BrokerError")(every_call(in_another_error))
add("E1", "errorHandler gets what is not a BrokerError")(
    handler("errorHandler", lambda run: lambda _: run(NotABrokerError()))
)
for _name in ("getKeyRing", "getUserId"):
    body("E2", f"{_name} returns nothing", _name, without_a_session(nothing))
    another = raising(BrokerError.credentialsError("Log in."))
    body("E2", f"{_name} raises another error", _name, without_a_session(another))
for _row in ("S2", "E3"):
    for _name in ("password", "passphrase"):
        instead_of_it = argument(_name, lambda _, given: given or "A secret 12345")
        body(_row, f"register does without a {_name}", "register", instead_of_it)
for _row in ("S4", "E4"):
    body(
        _row,
        "logIn does without a passphrase",
        "logIn",
        instead(nothing, lambda given: BY_PASSPHRASE(given) and not given["passphrase"]),
    )
for _operation in INTERFACE.operations:
    if not _operation.form and (
        "ontainer" in _operation.name or _operation.name in ("logout", "deleteUser")
    ):
        body("E5", f"{_operation} is permitted", _operation.name, without_a_session(nothing))
