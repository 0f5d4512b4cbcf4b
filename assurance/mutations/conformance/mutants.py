"""Ways for an operation to break its row, each installed in a process that ends afterwards.

No mutant touches the source: an operation's body is replaced by name, in a process that was forked for it.
Here is how; `generic` makes mutants from a row, `contents`, `sessions` and `seam` name others.
"""

import dataclasses
import enum
import functools
import inspect
import traceback
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from scbroker import BrokerError, Header, KeyRing, ServerProvider
from tests.conformance.interface import Operation

Body = Callable[..., Coroutine[Any, Any, Any]]
Edit = Callable[[Any], Any]
FAULTS: Final[list[str]] = []
"""Errors of a mutant's own: a test that fails by them has noticed nothing."""


@dataclass(frozen=True)
class Mutant:
    """One way to break one row."""

    row: str
    """The row's key: an operation with its form, or an id."""
    says: str
    """The fault, as a predicate of the row."""
    install: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.row}: {self.says}"


def own(work: Callable[..., Any]) -> Callable[..., Any]:
    """A mutant's own step: an error in it is a fault of the mutant."""

    @functools.wraps(work)
    def noted(*args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except BrokerError:
            raise
        except Exception:
            FAULTS.append(traceback.format_exc())
            raise

    return noted


# How a body is replaced


def change_body(name: str, change: Callable[[Body], Body]) -> None:
    """Replaces an operation's body."""
    parameters = getattr(ServerProvider, name).parameters
    parameters.body = functools.wraps(parameters.body)(change(parameters.body))


def bound(body: Body, args: Any, kwargs: Any) -> inspect.BoundArguments:
    found = inspect.signature(body).bind(*args, **kwargs)
    found.apply_defaults()
    return found


def with_arguments(edit: Callable[[Any, dict[str, Any]], None]) -> Callable[[Body], Body]:
    """The body gets other arguments than the caller gave."""

    def change(body: Body) -> Body:
        def changed(*args: Any, **kwargs: Any) -> Any:
            call = bound(body, args, kwargs)
            own(edit)(args[0], call.arguments)
            return body(*call.args, **call.kwargs)

        return changed

    return change


def with_result(
    edit: Edit, when: Callable[[dict[str, Any]], bool] = lambda _: True
) -> Callable[[Body], Body]:
    """The caller gets another result than the body gave."""

    def change(body: Body) -> Body:
        def changed(*args: Any, **kwargs: Any) -> Any:
            work = body(*args, **kwargs)
            if not when(bound(body, args, kwargs).arguments):
                return work

            async def edited() -> Any:
                return own(edit)(await work)

            return edited()

        return changed

    return change


def instead(
    work: Callable[..., Coroutine[Any, Any, Any]],
    when: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> Callable[[Body], Body]:
    """The body does not run; `work(provider, arguments)` does."""

    def change(body: Body) -> Body:
        def changed(*args: Any, **kwargs: Any) -> Any:
            call = bound(body, args, kwargs)
            if not when(call.arguments):
                return body(*args, **kwargs)
            return work(args[0], call.arguments)

        return changed

    return change


def afterwards(
    work: Callable[[Any, dict[str, Any]], Coroutine[Any, Any, Any]],
) -> Callable[[Body], Body]:
    """The body runs; `work(provider, arguments)` runs after it, and its result is lost."""

    def change(body: Body) -> Body:
        def changed(*args: Any, **kwargs: Any) -> Any:
            begun = body(*args, **kwargs)

            async def both() -> Any:
                result = await begun
                await work(args[0], bound(body, args, kwargs).arguments)
                return result

            return both()

        return changed

    return change


async def nothing(*_: Any) -> None:
    """Nothing is done, and nothing comes of it."""


async def failing(*_: Any) -> None:
    raise BrokerError.notFoundError()


async def what_is_there(provider: Any, arguments: dict[str, Any]) -> Any:
    return await provider.getSecuredContainer(arguments["containerId"])


class Mutants(list[Mutant]):
    """A list that mutants are added to where they are written."""

    def add(self, row: str, says: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Decorates what installs the mutant."""

        def add(install: Callable[[], None]) -> Callable[[], None]:
            self.append(Mutant(row, says, install))
            return install

        return add

    def body(self, row: str, says: str, name: str, change: Callable[[Body], Body]) -> None:
        """Adds a mutant of an operation's body."""
        self.append(Mutant(row, says, functools.partial(change_body, name, change)))


def argument(name: str, replace: Callable[[Any, Any], Any]) -> Callable[[Body], Body]:
    """The body gets `replace(provider, argument)` in the argument's place."""

    def edit(provider: Any, arguments: dict[str, Any]) -> None:
        arguments[name] = replace(provider, arguments[name])

    return with_arguments(edit)


def without_a_session(work: Callable[[], Any]) -> Callable[[Body], Body]:
    """Where there is no session, `work()` runs in the body's place."""

    def change(body: Body) -> Body:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            return work() if self._current is None else body(self, *args, **kwargs)

        return changed

    return change


# Other results than the body gave


def is_of_form(operation: Operation) -> Callable[[dict[str, Any]], bool]:
    """Return whether a call of `logIn` is of the row's form; the forms of all else are one body's."""
    if operation.name != "logIn":
        return lambda _: True
    by_ring = bool(operation.form)
    return lambda arguments: (arguments["keyRing"] is not None) == by_ring


def altered(value: Any) -> Any:
    """Another value of the same kind, or None for what has no other."""
    match value:
        case None:
            return "another"
        case enum.Enum():
            others = [each for each in type(value) if each is not value]
            return others[0]
        case bool():
            return not value
        case bytes():
            return value + b"another"
        case str():
            return f"{value} another"
        case int():
            return value + 1
        case uuid.UUID():
            return uuid.uuid4()
        case Header():
            return Header({"another": True})
        case KeyRing():
            return KeyRing.generate()
    return None


def with_field(name: str) -> Edit:
    """The result with one field changed."""

    def edit(found: Any) -> Any:
        if found is None:
            return None
        copy = object.__new__(type(found))
        for each in dataclasses.fields(found):
            value = getattr(found, each.name)
            object.__setattr__(copy, each.name, altered(value) if each.name == name else value)
        return copy

    return edit


def of_each(edit: Edit) -> Edit:
    return lambda found: [edit(each) for each in found]


def where_there_is_one(edit: Edit) -> Edit:
    return lambda found: None if found is None else edit(found)
