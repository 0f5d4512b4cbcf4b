"""What `help()` and type checkers see of an operation: its forms, in both call styles."""

import inspect
import pydoc
import re

from scbroker import ServerProvider
from tests.conformance.interface import INTERFACE
from tests.kit.cases import in_one_case
from tests.kit.declared import promise_forms
from tools.make_stubs import MODULES, path_of, stub

NAMES = sorted({each.name for each in [*INTERFACE.operations, *INTERFACE.added]})


@in_one_case("module", MODULES)
def test_the_stub_of_a_module_is_what_the_tool_writes(module: str) -> None:
    assert path_of(module).read_text("utf-8") == stub(module), "run: python tools/make_stubs.py"


@in_one_case("name", NAMES)
def test_help_shows_the_parameters_of_both_call_styles_and_the_docstring(name: str) -> None:
    operation = getattr(ServerProvider, name)
    text, known = pydoc.plain(pydoc.render_doc(operation)), inspect.signature(operation).parameters
    for form in promise_forms(name):
        assert form.parameters.keys() <= known.keys()
    assert list(known)[-3:] == ["completionHandler", "errorHandler", "queue"]
    for parameter in known.keys() - {"self"}:
        assert re.search(rf"\b{parameter}\b: ", text), parameter
    assert (inspect.getdoc(operation) or "").splitlines()[0] in text
    assert operation.__name__ == name
