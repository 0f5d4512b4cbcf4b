"""The provider's operations and the class that declares each, for tests that go through all of them."""

import inspect
from typing import Final, get_overloads

from scbroker import BrokerProvider, ServerProvider

HOMES: Final[dict[str, type]] = {
    name: home
    for home in (BrokerProvider, ServerProvider)
    for name, each in vars(home).items()
    if inspect.isfunction(each) and get_overloads(each)
}


def promise_forms(name: str) -> list[inspect.Signature]:
    """Return the declared forms of an operation in promise style."""
    return [form for form in _overloads(name) if "handlers" not in form.parameters]


def callback_forms(name: str) -> list[inspect.Signature]:
    """Return the declared forms of an operation in callback style, which take `**handlers`."""
    return [form for form in _overloads(name) if "handlers" in form.parameters]


def _overloads(name: str) -> list[inspect.Signature]:
    return [inspect.signature(each) for each in get_overloads(getattr(ServerProvider, name))]
