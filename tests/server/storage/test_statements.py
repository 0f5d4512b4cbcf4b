"""No statement of the broker reads a table from end to end, however it grows."""

import pytest

from tests.kit.engines import PostgresServer
from tests.kit.plans import ENGINES, Plan, asked, plans, plans_for_any, prepare

# Who may read a table as a whole, and why.
WHOLE = {
    "ANY_API_KEY": "it counts the API keys, of which a broker has a few, to see the database answer",
    "COUNT_KEY_FILES": "an operator who rotates the broker's key is told how many KeyFiles were sealed anew",
    "COUNT_USERS": "a broker that starts on existing data says, once, how many users it found",
    "LAST_AUDIT": "it reads the last row by the table's key",
}
Found = dict[str, dict[str, Plan]]


@pytest.fixture(scope="module")
def urls(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> dict[str, str]:
    return {
        "postgresql": postgres_server.createdatabase(),
        "sqlite": f"sqlite:///{tmp_path_factory.mktemp('plans') / 'plans.sqlite'}",
    }


@pytest.fixture(scope="module")
def found(urls: dict[str, str]) -> Found:
    return {engine: plans(urls[engine], prepare) for engine in ENGINES}


@pytest.mark.only_on(*ENGINES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_is_served_by_an_index(engine: str, found: Found) -> None:
    scans = {name: plan.scans for name, plan in found[engine].items() if plan.scans}
    assert scans.keys() == WHOLE.keys(), scans
    served = {name for name, plan in found[engine].items() if plan.indexes}
    assert served == asked().keys() - WHOLE.keys()


def _check_pages(found: dict[str, Plan]) -> None:
    pages = {name.removeprefix("events_page by "): set(plan.indexes)
             for name, plan in found.items() if name.startswith("events_page")}  # fmt: skip
    assert len(pages) == 16
    for criteria, indexes in pages.items():
        names = ("containerId", "container"), ("containerType", "type"), ("eventType", "kind")
        first = next((index for name, index in names if name in criteria), "user")
        wanted = {f"events_of_{first}"}
        if first == "type" and "eventType" not in criteria:  # a change of type is an update
            wanted.add("events_of_previous_type")
        assert indexes == wanted, criteria


@pytest.mark.only_on(*ENGINES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_page_of_events_is_found_by_the_index_of_its_criterion(engine: str, found: Found) -> None:
    _check_pages(found[engine])


def test_so_it_is_where_postgresql_plans_for_any_parameters(
    found: Found, urls: dict[str, str]
) -> None:
    assert found
    _check_pages(plans_for_any(urls["postgresql"]))
