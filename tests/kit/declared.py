"""The provider's operations and the class that declares each, for tests that go through all of them."""

from __future__ import annotations

import inspect
from typing import Final, get_overloads

from scbroker import BrokerProvider, ServerProvider

HOMES: Final[dict[str, type]] = {
    name: home
    for home in (BrokerProvider, ServerProvider)
    for name, each in vars(home).items()
    if inspect.isfunction(each) and get_overloads(each)
}
