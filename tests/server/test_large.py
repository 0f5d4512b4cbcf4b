"""What takes megabytes takes one of its user's few places until it is through, and nobody else's."""

from __future__ import annotations

import socket
import uuid
from contextlib import ExitStack

import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.records.container_record import SEGMENT, Role
from tests.brokers import BrokerProcess, Wire
from tests.server.conftest import NewUser
from tests.server.writers import OWNER, READER, Story, User, chunks_of

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
PLACES = 4
SHORT = 1.0
"""Seconds after which an answer that has to wait for a place is not there."""
PATIENCE = 20.0


Shared = tuple[Story, User, User]


@pytest.fixture
def shared(new_user: NewUser) -> Shared:
    """Eight megabytes of Alice's, who shares them with Bob."""
    alice, bob = new_user(), new_user()
    made = Story(alice)
    part, sealed = made.seal(Role.Content, alice, random_bytes(SEGMENT) * 8, made.key)
    for index, piece in enumerate(chunks_of(sealed)):
        made.chunk(alice, part, index, piece).expect(204)
    made.tell(alice, made.begin({alice: OWNER, bob: READER}, content=part))
    return made, alice, bob


def path_of(story: Story) -> str:
    part = story.head.content
    assert part is not None
    return f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/segments?first=0&count=8"


def ask(stack: ExitStack, broker: BrokerProcess, user: User, path: str) -> socket.socket:
    """A request whose answer is not read for now, over a connection that holds little of it."""
    raw = stack.enter_context(socket.socket())
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(SHORT)
    raw.connect(("127.0.0.1", broker.port))
    headers = "".join(f"{name}: {value}\r\n" for name, value in user.wire.headers().items())
    raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
    return raw


def test_who_does_not_read_their_answers_waits_for_themselves_alone(
    shared: Shared, broker: BrokerProcess
) -> None:
    story, alice, bob = shared
    path = path_of(story)
    with ExitStack() as stack:
        held = [ask(stack, broker, bob, path) for _ in range(PLACES)]
        for raw in held:
            assert raw.recv(12) == b"HTTP/1.1 200"
        waiting = ask(stack, broker, bob, path)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        with Wire(broker, token=alice.wire.token) as wire:
            assert len(wire.call("GET", path).expect(200).body) > 8 * SEGMENT
        bob.wire.call("GET", "/v1/key-file").expect(200)  # what is small goes on
        held[0].close()
        waiting.settimeout(PATIENCE)
        assert waiting.recv(12) == b"HTTP/1.1 200"


def test_a_refused_request_gives_its_place_back(shared: Shared) -> None:
    story, _, bob = shared
    for _ in range(3 * PLACES):
        bob.wire.call("GET", f"{path_of(story)}8").expect(400, "invalid")
    assert len(bob.wire.call("GET", path_of(story)).expect(200).body) > 8 * SEGMENT
