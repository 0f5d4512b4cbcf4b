"""rows.txt answers every row of docs/interface.toml, and the code declares what both say."""

import inspect
from typing import Any, Final

import pytest

import scbroker
from scbroker import BaseProvider, BrokerProvider, ContainerAccessLevel, KeyType, ServerProvider
from tests.conformance.interface import INTERFACE, ROOT, Operation, Parameter
from tests.conformance.page import ROWS, Row, names_of_tests
from tests.kit.cases import in_one_case
from tests.kit.declared import HOMES, STREAMS, promise_forms

ALL: Final = [*INTERFACE.operations, *INTERFACE.added, *INTERFACE.streams]
each_operation = in_one_case("operation", ALL)
each_row = in_one_case("row", ROWS)
# The defaults of the file, as the code has them. An empty list and None are the same access levels (A1, A3).
DEFAULTS: Final[dict[str, tuple[object, ...]]] = {
    "nil": (None,),
    "[]": ((), None),
    "()": ((),),
    '""': ("",),
    "false": (False,),
    "true": (True,),
    "64": (64,),
    "120.0": (120.0,),
    "KeyType.Signing": (KeyType.Signing,),
    "DefaultUserPermissions": (ContainerAccessLevel.DefaultUserPermissions,),
}


def form_of(operation: Operation) -> inspect.Signature:
    """The declared form that takes the row's parameters by position, in the row's order."""
    wanted = [parameter.name for parameter in operation.parameters]
    orders = []
    for form in promise_forms(operation.name):
        order = [
            name
            for name, each in form.parameters.items()
            if each.kind is each.POSITIONAL_OR_KEYWORD and name != "self"
        ]
        if order[: len(wanted)] == wanted:
            return form
        orders.append(order)
    pytest.fail(f"No form of {operation.name} takes {wanted} by position: {orders}")


def is_default(default: str, found: object) -> bool:
    """Whether a default in the code is the one that the file writes so; functions go by their names."""
    if default in DEFAULTS:
        return found in DEFAULTS[default]
    return inspect.isfunction(found) and found.__name__ == default


def check_default(operation: str, parameter: Parameter, found: object) -> None:
    """The interface's default, or ours where it states none, or none."""
    wanted = parameter.default or INTERFACE.default_beyond(operation, parameter.name)
    if wanted is None:
        assert found is inspect.Parameter.empty
    else:
        assert is_default(wanted, found)


def test_the_page_has_the_rows_of_the_interface_in_their_order_and_no_others() -> None:
    assert [row.says for row in ROWS if not row.is_beyond] == INTERFACE.cells


def test_the_page_marks_all_that_this_project_adds_and_nothing_else() -> None:
    assert [row.says for row in ROWS if row.is_beyond] == INTERFACE.cells_beyond


@pytest.mark.long
@each_row
def test_a_row_names_tests_that_exist(row: Row) -> None:
    assert row.tests
    for reference in row.tests:
        file, _, test = reference.partition("::")
        assert test in names_of_tests(ROOT / file), reference


def test_a_way_of_reading_a_row_stands_on_the_page() -> None:
    decided = {row.key: row.decided for row in ROWS}
    data = [*INTERFACE.rows("operation"), *INTERFACE.rows("access")]
    for row, operation in zip(data, [*INTERFACE.operations, *[None] * 3], strict=True):
        if "reads" in row:
            key = operation.declaration if operation else row["id"]
            assert row["reads"] in decided[key]


def test_the_code_has_the_operations_of_the_interface_and_those_that_are_marked_as_ours() -> None:
    """All other public members are properties of the interface, or marked as ours."""
    properties = {row["property"] for row in INTERFACE.rows("provider") if "property" in row}
    ours = {row["name"] for row in INTERFACE.beyond["member"]}
    assert {name for name in dir(ServerProvider) if not name.startswith("_")} == (
        HOMES.keys() | STREAMS.keys() | properties | ours
    )
    assert {operation.name for operation in ALL} == HOMES.keys() | STREAMS.keys()
    assert {operation.name for operation in INTERFACE.streams} == STREAMS.keys()
    assert len({operation.name for operation in INTERFACE.operations}) == 27


@each_operation
def test_an_operation_takes_its_parameters_by_position_and_by_name_with_their_defaults(
    operation: Operation,
) -> None:
    form = form_of(operation)
    for parameter in operation.parameters:
        check_default(operation.name, parameter, form.parameters[parameter.name].default)


@each_operation
def test_a_form_takes_more_than_its_row_only_if_it_is_marked_as_ours_and_may_be_left_out(
    operation: Operation,
) -> None:
    wanted = {parameter.name for parameter in operation.parameters}
    ours = INTERFACE.parameters_beyond(operation.name)
    more = {
        name: each.default
        for name, each in form_of(operation).parameters.items()
        if name not in wanted | {"self"}
    }
    assert more.keys() == ours.keys()
    for name, default in more.items():
        assert is_default(ours[name], default)


@in_one_case("name", sorted([*HOMES, *STREAMS]))
def test_the_code_has_no_form_of_an_operation_that_is_not_a_row(name: str) -> None:
    """Forms of one row differ in what is ours alone: `headerType` gives the result another type."""
    rows = [operation for operation in ALL if operation.name == name]
    ours = INTERFACE.parameters_beyond(name).keys() | {"self"}
    for form in promise_forms(name):
        assert [each for each in form.parameters if each not in ours] in [
            [parameter.name for parameter in row.parameters] for row in rows
        ]


@each_operation
def test_an_operation_stands_on_its_class(operation: Operation) -> None:
    assert callable(getattr(ServerProvider, operation.name))
    if operation.provider == "BaseProvider":
        assert callable(getattr(BaseProvider, operation.name))


def test_an_operation_of_the_server_provider_alone_is_on_no_other_class() -> None:
    only = {row["name"] for row in INTERFACE.rows("operation") if row.get("only")}
    assert only == {"getSecuredContainer"}
    assert not any(hasattr(BaseProvider, name) for name in only)


@in_one_case("name", ["apiKey", "serverUrl", "applicationName"])
def test_a_field_of_the_provider_is_a_property(name: str) -> None:
    assert name in [row.get("property") for row in INTERFACE.rows("provider")]
    assert isinstance(vars(ServerProvider)[name], property)


def test_a_constructor_takes_its_parameters_by_position_and_all_else_is_ours() -> None:
    signature = inspect.signature(ServerProvider).parameters
    rows = [row["parameters"] for row in INTERFACE.rows("provider") if "parameters" in row]
    assert len(rows) == 2
    for row in rows:
        wanted = [Parameter(**each) for each in row]
        assert [
            name for name, each in signature.items() if each.kind is each.POSITIONAL_OR_KEYWORD
        ] == [parameter.name for parameter in wanted]
        for parameter in wanted:
            check_default("ServerProvider", parameter, signature[parameter.name].default)
    ours = INTERFACE.parameters_beyond("ServerProvider")
    more = {name: each for name, each in signature.items() if each.kind is each.KEYWORD_ONLY}
    assert more.keys() == ours.keys()
    for name, each in more.items():
        assert is_default(ours[name], each.default)


def test_a_provider_is_of_the_classes_that_the_interface_names() -> None:
    assert issubclass(ServerProvider, BaseProvider)
    assert issubclass(BaseProvider, BrokerProvider)


@in_one_case("row", INTERFACE.rows("type"))
def test_a_named_type_is_a_public_name_with_the_fields_of_its_row(row: dict[str, Any]) -> None:
    assert row["name"] in scbroker.__all__
    kind = getattr(scbroker, row["name"])
    assert isinstance(kind, type)
    for name in row["fields"]:
        assert hasattr(kind, name)


@in_one_case("row", INTERFACE.rows("field"))
def test_a_shared_field_has_its_type_and_default_wherever_an_operation_takes_it(
    row: dict[str, Any],
) -> None:
    """A content may have to be given to create a container; left out of an update, it goes."""
    found = [
        parameter
        for operation in INTERFACE.operations
        for parameter in operation.parameters
        if parameter.name == row["name"]
    ]
    assert found
    for parameter in found:
        assert parameter.type.removesuffix("?") == row["type"].removesuffix("?")
        assert parameter.default in (None, row.get("default", "nil"))
