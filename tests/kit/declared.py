"""The provider's operations and the class that declares each, for tests that go through all of them."""

import inspect
from typing import Final, get_overloads

from scbroker import BrokerProvider, ServerProvider

_ALL: Final[dict[str, type]] = {
    name: home
    for home in (BrokerProvider, ServerProvider)
    for name, each in vars(home).items()
    if inspect.isfunction(each) and get_overloads(each)
}


def promise_forms(name: str) -> list[inspect.Signature]:
    """Return the declared forms of an operation in promise style, or of a stream without handlers."""
    return [form for form in _overloads(name) if "handlers" not in form.parameters]


def callback_forms(name: str) -> list[inspect.Signature]:
    """Return the declared forms of an operation in callback style, which take `**handlers`."""
    return [form for form in _overloads(name) if "handlers" in form.parameters]


def _overloads(name: str) -> list[inspect.Signature]:
    return [inspect.signature(each) for each in get_overloads(getattr(ServerProvider, name))]


def _is_stream(name: str) -> bool:
    return str(promise_forms(name)[0].return_annotation).startswith("Stream[")


STREAMS: Final = {name: home for name, home in _ALL.items() if _is_stream(name)}
"""The operations that return a Stream."""
HOMES: Final = {name: home for name, home in _ALL.items() if name not in STREAMS}
"""All other operations: they return a Promise, or the provider if handlers are given."""
