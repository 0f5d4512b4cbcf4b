"""What every module and every public operation says of itself in its docstring."""

import inspect
import re

from scbroker import ServerProvider
from tests.kit.cases import in_one_case
from tests.kit.declared import HOMES, STREAMS

each_operation = in_one_case("name", sorted([*HOMES, *STREAMS]))


def text_of(name: str) -> str:
    return inspect.getdoc(getattr(ServerProvider, name)) or ""


@each_operation
def test_an_operation_says_what_it_raises_and_what_the_broker_learns(name: str) -> None:
    assert re.search(r"\bRaises\b", text_of(name))
    assert re.search(r"\bThe broker learns\b", text_of(name))
