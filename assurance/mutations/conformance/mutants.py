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

Arguments = dict[str, Any]
Body = Callable[..., Coroutine[Any, Any, Any]]
Change = Callable[[Body], Body]
Edit = Callable[[Any], Any]
When = Callable[[Arguments], bool]
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


def change_body(name: str, change: Change) -> None:
    """Replace an operation's body."""
    parameters = getattr(ServerProvider, name).parameters
    parameters.body = functools.wraps(parameters.body)(change(parameters.body))


def always(_: Arguments) -> bool:
    return True


def around(work: Callable[[Body, Any, inspect.BoundArguments], Any], when: When = always) -> Change:
    """`work(honest, provider, call)` is called in place of the body, which `honest()` runs."""

    def change(body: Body) -> Body:
        def changed(*args: Any, **kwargs: Any) -> Any:
            call = inspect.signature(body).bind(*args, **kwargs)
            call.apply_defaults()
            if not when(call.arguments):
                return body(*args, **kwargs)
            # `work` may change the arguments before it calls the body.
            return work(lambda: body(*call.args, **call.kwargs), args[0], call)

        return changed

    return change


def with_arguments(edit: Callable[[Any, Arguments], None]) -> Change:
    """The body gets other arguments than the caller gave."""

    def work(honest: Body, provider: Any, call: inspect.BoundArguments) -> Any:
        own(edit)(provider, call.arguments)
        return honest()

    return around(work)


def with_result(edit: Edit, when: When = always) -> Change:
    """The caller gets another result than the body gave."""

    async def work(honest: Body, *_: Any) -> Any:
        return own(edit)(await honest())

    return around(work, when)


def instead(work: Callable[..., Coroutine[Any, Any, Any]], when: When = always) -> Change:
    """The body does not run; `work(provider, arguments)` does."""
    return around(lambda _, provider, call: work(provider, call.arguments), when)


def afterwards(work: Callable[[Any, Arguments], Coroutine[Any, Any, Any]]) -> Change:
    """The body runs; `work(provider, arguments)` runs after it, and its result is lost."""

    async def both(honest: Body, provider: Any, call: inspect.BoundArguments) -> Any:
        result = await honest()
        await work(provider, call.arguments)
        return result

    return around(both)


def argument(name: str, replace: Callable[[Any, Any], Any]) -> Change:
    """The body gets `replace(provider, argument)` in the argument's place."""

    def edit(provider: Any, arguments: Arguments) -> None:
        arguments[name] = replace(provider, arguments[name])

    return with_arguments(edit)


def without_a_session(work: Callable[[], Any], when: When = always) -> Change:
    """Where there is no session, `work()` runs in the body's place."""
    return around(
        lambda honest, provider, _: work() if provider._current is None else honest(), when
    )


async def nothing(*_: Any) -> None:
    """Nothing is done, and nothing comes of it."""


async def failing(*_: Any) -> None:
    raise BrokerError.notFoundError()


async def what_is_there(provider: Any, arguments: Arguments) -> Any:
    return await provider.getSecuredContainer(arguments["containerId"])


class Mutants(list[Mutant]):
    """A list that mutants are added to where they are written."""

    def add(self, row: str, says: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Decorate what installs the mutant."""

        def add(install: Callable[[], None]) -> Callable[[], None]:
            self.append(Mutant(row, says, install))
            return install

        return add

    def body(self, row: str, says: str, name: str, change: Change) -> None:
        """Add a mutant of an operation's body."""
        self.append(Mutant(row, says, functools.partial(change_body, name, change)))

    def bodies(self, *mutants: tuple[str, str, str, Change]) -> None:
        for mutant in mutants:
            self.body(*mutant)


def raising(error: BrokerError) -> Callable[[], Any]:
    def work() -> Any:
        raise error

    return work


# Other results than the body gave


def is_of_form(operation: Operation) -> When:
    """Return whether a call of `logIn` is of the row's form; the forms of all else are one body's."""
    if operation.name != "logIn":
        return always
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
