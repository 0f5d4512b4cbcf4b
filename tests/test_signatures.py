"""How operations declare their forms and both call styles, to `help()` and to type checkers."""

import inspect
import pydoc
import re

from scbroker import ServerProvider
from tests.conformance.interface import INTERFACE
from tests.kit.cases import in_one_case
from tests.kit.declared import STREAMS, callback_forms, promise_forms

NAMES = sorted({each.name for each in [*INTERFACE.operations, *INTERFACE.added]})
CALLBACK = ["completionHandler = None", "errorHandler = None", "queue = None"]


def shown(signature: inspect.Signature) -> list[str]:
    """The parameters of a signature without `self`: names, a star before keywords, defaults."""
    found: list[str] = []
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        found.append(star + name + default)
    return found


@in_one_case("name", NAMES)
def test_the_signature_of_an_operation_shows_what_its_forms_and_both_styles_take(name: str) -> None:
    signature = inspect.signature(getattr(ServerProvider, name))
    first, *others = promise_forms(name)
    known = shown(signature)
    assert known[: len(shown(first))] == shown(first)
    assert known[-3:] == CALLBACK
    for form in others:
        assert form.parameters.keys() <= signature.parameters.keys()
    assert signature.return_annotation == f"{first.return_annotation} | Self"


@in_one_case("name", NAMES)
def test_help_shows_the_parameters_of_both_call_styles_and_the_docstring(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(getattr(ServerProvider, name)))
    for parameter in inspect.signature(getattr(ServerProvider, name)).parameters.keys() - {"self"}:
        assert re.search(rf"\b{parameter}\b: ", text), parameter
    assert (inspect.getdoc(getattr(ServerProvider, name)) or "").splitlines()[0] in text


@in_one_case("name", NAMES)
def test_the_callback_style_takes_the_same_parameters_and_three_more(name: str) -> None:
    """Each form has its twin, whose handler takes the result, or nothing where there is none."""
    promises, callbacks = promise_forms(name), callback_forms(name)
    assert len(promises) == len(callbacks)
    for promise, callback in zip(promises, callbacks, strict=True):
        assert shown(callback) == [*shown(promise), "**handlers"]
        assert callback.return_annotation == "Self"
        result = str(promise.return_annotation).removeprefix("Promise[")[:-1]
        handlers = "VoidHandlers" if result == "None" else f"Handlers[{result}]"
        assert callback.parameters["handlers"].annotation == f"Unpack[{handlers}]"


@in_one_case("name", NAMES)
def test_the_signature_gives_each_handler_the_type_of_what_it_takes(name: str) -> None:
    parameters = inspect.signature(getattr(ServerProvider, name)).parameters
    result = str(promise_forms(name)[0].return_annotation).removeprefix("Promise[")[:-1]
    taken = "" if result == "None" else result
    assert parameters["completionHandler"].annotation == f"Callable[[{taken}], object]"
    assert parameters["errorHandler"].annotation == "OnError"
    assert parameters["queue"].annotation == "Executor | None"


@in_one_case("name", NAMES)
def test_an_operation_has_its_name_and_a_docstring_wherever_it_is_looked_up(name: str) -> None:
    operation = getattr(ServerProvider, name)
    assert operation.__name__ == name
    assert inspect.getdoc(operation)


@in_one_case("name", sorted(STREAMS))
def test_a_stream_takes_handlers_only_if_it_is_declared_with_them(name: str) -> None:
    signature = inspect.signature(getattr(ServerProvider, name))
    [first], handled = promise_forms(name), callback_forms(name)
    added = [f"{key} = None" for key in ("eventHandler", "errorHandler", "queue")]
    own = shown(first)
    assert shown(signature) == [*own, *["*"][: "*" not in own], *added] if handled else own
    assert signature.return_annotation == first.return_annotation
    for form in handled:
        assert shown(form) == [*shown(first), "**handlers"]
        item = str(first.return_annotation).removeprefix("Stream[")[:-1]
        assert form.parameters["handlers"].annotation == f"Unpack[EventHandlers[{item}]]"
