"""The command that lists and follows events."""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from scbroker import AccessLevel, MemoryTrustStore, ServerProvider
from tests.kit.ageing import age, drop_old_events
from tests.kit.people import Person, befriend, put, screen
from tests.kit.processes import command
from tests.kit.waiting import PATIENCE


@pytest.fixture
def following(alice: Person) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start `events --follow --json` in the background, with a pipe: Alice's, or of somebody else."""
    started = []

    def start(*options: str, of: Person = alice) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command("events", "--follow", "--json", *options), env=of.environment, cwd=of.home,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_events_are_listed_with_kind_container_author_and_program(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob = person("Bob")
    own, bobs = session.getUserId().result(), befriend(session, bob, "Bob")
    with bob.session() as other:
        id = put(
            other, "plan", type="note", accessLevels=[AccessLevel(own, 75), AccessLevel(bobs, 511)]
        )
    (event,) = [each for each in alice.json("events") if each["containerId"] == str(id)]
    assert event["eventType"] == "Added"
    assert (event["containerType"], event["version"]) == ("note", 1)
    assert (event["relatedUserId"], event["applicationName"]) == (str(bobs), "scbroker")
    cells = alice.run("events", "--type", "note").lines[0].split("\t")
    assert cells[2:8] == ["Added", str(id), "note", "1", "Bob", "scbroker"]
    shown = screen(alice, "events", "--names")
    assert id.hex[:8] in shown
    assert "plan" in shown


@pytest.mark.long
def test_events_are_selected_by_container_kind_number_and_count(
    alice: Person, session: ServerProvider
) -> None:
    first, second = put(session, "first"), put(session, "second")
    session.updateContainerContent(first, b"x").result()
    session.deleteContainer(second).result()

    def ids(*options: str) -> list[int]:
        return [event["id"] for event in alice.json("events", *options)]

    assert ids() == [1, 2, 3, 4]
    # The broker has emptied the events before a deletion: their version is no version.
    assert [row["version"] for row in alice.json("events")] == [1, 0, 2, 2]
    assert [line.split("\t")[5] for line in alice.run("events").lines] == ["1", "", "2", "2"]
    assert ids("--container", "first") == [1, 3]
    assert ids("--kind", "updated, Deleted") == [3, 4]
    assert ids("--since", "3") == [3, 4]
    assert ids("--limit", "1") == [4]
    assert "pass one or more of Added" in alice.run("events", "--kind", "Made", status=2).error
    alice.run("events", "--since", "0", status=2)


@pytest.mark.long
def test_dropped_events_are_an_error_that_names_the_first_one_left(
    alice: Person, session: ServerProvider
) -> None:
    for name in ("a", "b"):
        put(session, name)
    ring, broker = session.getKeyRing().result(), alice.broker
    with ServerProvider(
        broker.api_key, broker.url, "another device", trustStore=MemoryTrustStore()
    ) as other:
        other.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
        assert len(other.getEvents().result()) == 2  # the broker numbers events when they are read
    age(alice.broker, session.getUserId().result(), "id = 1")
    drop_old_events(alice.broker)
    for follow in ((), ("--follow",)):
        error = alice.run("events", "--since", "1", *follow, status=1).error
        assert "keeps no events below 2" in error
    assert [event["id"] for event in alice.json("events")] == [2]


@pytest.mark.long
def test_followed_events_are_lines_of_json_as_they_happen_and_the_stream_ends_after_limit(
    session: ServerProvider, following: Callable[..., "subprocess.Popen[str]"]
) -> None:
    put(session, "before")
    process = following("--since", "1", "--limit", "2")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["id"] == 1
    id = put(session, "after")
    event = json.loads(process.stdout.readline())
    assert (event["id"], event["containerId"]) == (2, str(id))
    assert process.wait(PATIENCE) == 0
