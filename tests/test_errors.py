"""The tree of errors: one class for each decision that a caller can make."""

import copy
import pickle
import re
from unittest import mock

from scbroker import errors
from scbroker.errors import BrokerError, BrokerUnavailableError, InvalidArgumentError
from tests.kit.cases import in_one_case


def subclasses(kind: type[BrokerError]) -> set[type[BrokerError]]:
    own = {sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__}
    return own.union(*(subclasses(sub) for sub in own))


KINDS = sorted(subclasses(BrokerError), key=lambda kind: kind.__name__)
each = in_one_case("kind", KINDS)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Names and codes, and who is whose child by the depth of the line."""
    assert errors.__doc__ is not None
    stack: list[str] = ["BrokerError"]
    found = {}
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ((?:[│ ]   )*)[├└]── (\w+) +(\S+)", line)
        if match:
            depth = len(match[1]) // 4 + 1
            found[match[2]] = stack[depth - 1], match[3]
            stack[depth:] = [match[2]]
    assert found == {kind.__name__: (kind.__bases__[0].__name__, kind.code) for kind in KINDS}


@each
def test_every_error_is_an_attribute_of_broker_error_in_camel_case(kind: type[BrokerError]) -> None:
    name = kind.__name__[0].lower() + kind.__name__[1:]
    assert getattr(BrokerError, name) is kind
    assert name in BrokerError.__annotations__


@each
def test_an_error_without_words_of_its_own_says_what_its_class_means(
    kind: type[BrokerError],
) -> None:
    error = kind()
    assert str(error) == error.message == (kind.__doc__ or "").partition("\n")[0]
    assert error.message.endswith(".")
    assert kind("its own words").message == "its own words"


@each
def test_codes_are_unique_but_for_what_is_internal(kind: type[BrokerError]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    assert [other.__name__ for other in KINDS if other.code == kind.code] == [kind.__name__]


def test_trying_again_can_help_exactly_when_the_broker_failed_or_is_not_available() -> None:
    retryable = {kind for kind in KINDS if kind.retryable}
    assert retryable == {
        errors.BrokerFaultError, BrokerUnavailableError, errors.UnreachableError,
        errors.ThrottledError, errors.OverloadedError, errors.OfflineError,
    }  # fmt: skip


@in_one_case("builtin", [ValueError, TypeError])
def test_a_wrong_call_is_a_value_error_and_a_type_error(builtin: type[Exception]) -> None:
    found = [kind.__name__ for kind in KINDS if issubclass(kind, builtin)]
    assert found == [InvalidArgumentError.__name__]


@each
def test_an_error_equals_its_class_and_its_families_and_no_other_class(
    kind: type[BrokerError],
) -> None:
    error = kind()
    assert [other for other in KINDS if error == other] == [
        other for other in KINDS if issubclass(kind, other)
    ]
    assert kind == error
    assert error == BrokerError
    assert (error != kind) is False
    assert error != "not a class"
    match error:
        case BrokerError.notFoundError:
            assert kind is errors.NotFoundError
        case _:
            assert kind is not errors.NotFoundError


def test_two_errors_of_one_class_are_equal_only_if_they_are_the_same_object() -> None:
    error = errors.NotFoundError("x")
    assert error != errors.NotFoundError("x")
    assert len({error, error, errors.NotFoundError("x")}) == 2
    assert error not in {errors.NotFoundError}
    assert error in (errors.NotFoundError, errors.DeletedError)
    assert error == mock.ANY


@each
def test_a_fresh_copy_is_the_same_error_without_its_history(kind: type[BrokerError]) -> None:
    error: BrokerError
    try:
        try:
            raise KeyError("context")
        except KeyError as cause:
            raise kind("what happened") from cause
    except BrokerError as caught:
        error = caught
    error.note = "kept"  # type: ignore[attr-defined]
    fresh = error.fresh()
    assert type(fresh) is kind
    assert fresh is not error
    assert fresh.message == "what happened"
    assert vars(fresh) == vars(error)
    assert (fresh.__traceback__, fresh.__cause__, fresh.__context__) == (None, None, None)


def test_a_copy_keeps_how_long_to_wait() -> None:
    error = errors.ThrottledError("slowly", retryAfter=2.5)
    for again in (error.fresh(), copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is errors.ThrottledError
        assert again.message == "slowly"
        assert again.retryAfter == 2.5
    assert errors.ThrottledError().retryAfter is None


def test_a_callers_own_subclass_replaces_nothing() -> None:
    before = dict(vars(BrokerError))
    for name in ("NotFoundError", "Message", "Fresh", "Retryable", "OwnError"):
        type(name, (errors.NotFoundError,), {"__module__": "callers_own"})
    assert dict(vars(BrokerError)) == before
