"""The commands that show and reset a device's marks, and tell what it has sent, against a real broker."""

import uuid
from typing import Any

import pytest

from scbroker import BrokerError, ServerProvider
from scbroker.client import events
from scbroker.client.containers import fetching
from scbroker.client.containers.fetching import mark_of
from tests.kit.network import Network
from tests.kit.people import Person, put
from tests.kit.waiting import PATIENCE


def put_ahead(device: ServerProvider, container: uuid.UUID) -> None:
    """Make the device's marks those of a history that the broker does not have."""
    session: Any = device._current
    stored, mark = mark_of(session, container.bytes)
    assert mark is not None
    ahead = type(mark)(7, b"a" * 32, mark.governingVersion, mark.governingHash, True,
                       mark.createdBy, mark.createdAt)  # fmt: skip
    assert session.marks.swap(fetching.KIND, container.bytes, stored, ahead.encode())
    log = session.marks.get("events", b"")
    assert session.marks.swap("events", b"", log, events.Mark(7, 7, b"b" * 32).encode())


@pytest.mark.long
def test_both_heads_are_shown_and_the_served_one_is_accepted_as_it_was_printed(
    alice: Person, session: ServerProvider
) -> None:
    container = put(session, "plan", b"content")
    session.getEvents().result()
    put_ahead(session, container)
    for command in (["container", str(container)], ["events"]):
        shown = alice.run("mark", *command)
        assert "stored\t7:" in shown.output
        accept = shown.error.split("--accept ")[1].split()[0]
        assert accept.startswith("1:")
        assert alice.json("mark", *command)["served"] == accept
        done = alice.run("mark", *command, "--accept", accept, "--yes")
        assert "accepted\tyes" in done.output
        assert "--accept" not in alice.run("mark", *command).error
    assert alice.json("verify", "plan")["verified"] == 1
    assert len(alice.json("events")) == 1


@pytest.mark.long
def test_sent_shows_the_outcome_of_an_uncertain_change(
    alice: Person, session: ServerProvider
) -> None:
    container = put(session, "plan")
    assert alice.json("sent", "plan") == []
    assert "got an answer" in alice.run("sent", "plan").error

    async def lose(go: Any) -> bytes:
        del go
        raise BrokerError.unreachableError("Nothing came back.")

    with Network() as network:
        network.treat("PUT", "/records/2", lose)
        with pytest.raises(BrokerError.unreachableError):
            session.updateContainerContent(container, b"new").result(PATIENCE)
    assert alice.json("sent", "plan") == [{"version": 2, "outcome": "Uncertain"}]
    session.updateContainerContent(container, b"newer").result()
    assert "2\tNotStored" in alice.run("sent", "plan").lines
