"""`scbroker conformance broker`: our broker answers every question, and a broken one is found out."""

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from yarl import URL

from scbroker import BrokerError
from scbroker.client.calls.tasks import io_thread
from scbroker.conformance import stories
from scbroker.conformance.broker import CHAPTERS, probe
from scbroker.conformance.faults import every_operation
from scbroker.conformance.outcomes import Outcome
from scbroker.server.operations import OPERATIONS
from scbroker.wire.events import Events
from tests.hostile_broker.broker import Exchange, HostileBroker
from tests.hostile_broker.protocol import EVENTS, RECORD
from tests.kit.brokers import BrokerProcess, environment
from tests.kit.engines import free_port
from tests.kit.processes import run
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.process


def failures(outcomes: list[Outcome]) -> dict[str, str]:
    return {each.name: each.came for each in outcomes if not each.passed}


def test_our_broker_answers_every_question_and_nothing_of_the_probe_stays(
    broker: BrokerProcess,
) -> None:
    users = "SELECT count(*) FROM users WHERE NOT deleted"
    containers = "SELECT count(*) FROM containers WHERE NOT deleted"
    before = [query(broker.database_url, each) for each in (users, containers)]
    reported: list[Outcome] = []
    outcomes = probe(broker.url, broker.api_key, reported.append)
    assert failures(outcomes) == {}
    assert reported == outcomes
    assert [query(broker.database_url, each) for each in (users, containers)] == before
    asked = {each.name for each in outcomes}
    shown = {re.sub(r"\{\w+Id\}", "{id}", f"{each.method} {each.path}") for each in OPERATIONS}
    shown = {re.sub(r"\{version\}", "1", re.sub(r"\{index\}", "0", each)) for each in shown}
    # Chunks are reported only to a broker with an object store.
    missing = shown - {name.partition("?")[0] for name in asked}
    assert missing == {"POST /v1/containers/{id}/parts/{id}/chunks"}


def _accept_any_api_key(layer: HostileBroker) -> AbstractContextManager[None]:
    def accept(exchange: Exchange) -> None:
        if "Scbroker-Api-Key" in exchange.headers:
            exchange.headers["Scbroker-Api-Key"] = str(layer.behind.api_key)

    return layer.meddling("", before=accept)


def _answer_not_found_for_a_conflict(layer: HostileBroker) -> AbstractContextManager[None]:
    def confuse(exchange: Exchange) -> None:
        if exchange.status == 409 and exchange.answer_body.count(b'"conflict"'):
            exchange.fail(BrokerError.notFoundError())

    return layer.meddling(RECORD, after=confuse)


def _drop_an_event(layer: HostileBroker) -> AbstractContextManager[Any]:
    def drop(answer: Events) -> Events:
        return replace(answer, events=[each for each in answer.events if each.id != 2])

    return layer.lying(EVENTS, drop)


def _answer_a_log_out_without_one(layer: HostileBroker) -> AbstractContextManager[None]:
    def keep(exchange: Exchange) -> None:
        if "Authorization" in exchange.headers:
            exchange.invent(b"", 204)

    return layer.meddling("DELETE /v1/sessions/current", before=keep)


@contextmanager
def _listening(folder: Path) -> Iterator[tuple[HostileBroker, str]]:
    """A broker that breaks the protocol, and its address for the kit, which has a client of its own."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        body, at = await request.content.read(), URL(url).join(request.rel_url)
        async with layer.request(request.method, at, request.headers, body) as response:
            whole = b"".join([piece async for piece in response.pieces])
            headers = {k: v for k, v in response.headers.items() if k != "date"}
            return web.Response(status=response.status, body=whole, headers=headers)

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(respond))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    with HostileBroker(folder, origins=url) as layer:
        runner = io_thread.submit("listen", start()).result(PATIENCE)
        try:
            yield layer, url
        finally:
            io_thread.submit("end", runner.cleanup()).result(PATIENCE)


@pytest.mark.long
def test_a_broken_broker_is_found_out_by_the_questions_that_name_the_fault(tmp_path: Path) -> None:
    """Three faults at once."""
    with _listening(tmp_path) as (layer, url), ExitStack() as faults:
        faults.enter_context(_answer_not_found_for_a_conflict(layer))
        faults.enter_context(_drop_an_event(layer))
        faults.enter_context(_answer_a_log_out_without_one(layer))
        chapters = [stories.logging_in, stories.writing, stories.listing_events]
        found = failures(probe(url, layer.behind.api_key, chapters=chapters))
    expected = {
        "a log-out again": "204",
        "a request in a session that ended": "200",
        "a record with another parent": "404 not-found",
        "a record that leaves a version out": "404 not-found",
        "another second record": "404 not-found",
        "the ids and kinds of a log": "1 Added, 3 Updated content, 4 Updated type",
    }
    assert expected.items() <= found.items()
    assert "another first record" not in found


@pytest.mark.long
def test_a_broker_that_accepts_any_api_key_is_found_out(tmp_path: Path) -> None:
    with _listening(tmp_path) as (layer, url), _accept_any_api_key(layer):
        found = failures(probe(url, layer.behind.api_key, chapters=[every_operation]))
    assert "201 at POST /v1/users" in found["every operation refuses an unknown API key"]
    assert "every operation refuses no API key" not in found


def test_a_broker_that_does_not_answer_fails_every_chapter() -> None:
    outcomes = probe(f"http://127.0.0.1:{free_port()}", uuid.uuid4())
    assert len(outcomes) >= len(CHAPTERS)
    assert not any(each.passed for each in outcomes)


def test_an_address_that_no_client_may_use_is_refused() -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="must be https"):
        probe("http://broker.example", uuid.uuid4())


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_command_prints_what_is_wrong_and_exits_with_1(broker: BrokerProcess) -> None:
    variables = environment() | {"SCBROKER_API_KEY": str(uuid.uuid4())}
    status, output, _ = run(["conformance", "broker", broker.url], variables, 120)
    assert status == 1
    assert "WRONG  Registration: the valid requests succeed" in output
    assert "401 api-key" in output
    assert output.splitlines()[-1].endswith(" wrong")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_command_prints_json_and_exits_with_0(broker: BrokerProcess) -> None:
    options = ["conformance", "broker", broker.url, "--json"]
    variables = environment() | {"SCBROKER_API_KEY": str(broker.api_key)}
    status, output, _ = run(options, variables, 120)
    assert status == 0
    outcomes = json.loads(output)
    assert all(each["passed"] for each in outcomes)
    assert len(outcomes) > 150
