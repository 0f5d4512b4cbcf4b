"""A large request or answer takes one of its user's few large-body slots until it is complete."""

import asyncio
import socket
import uuid
from contextlib import ExitStack

import pytest
from starlette.applications import Starlette
from starlette.types import Message

from scbroker.crypto.seal import random_bytes
from scbroker.records.container_record import SEGMENT, Role
from scbroker.server import capacity
from scbroker.server.app import create_app
from scbroker.server.capacity import ADMITTED, Kind
from scbroker.server.commands import open_broker
from scbroker.server.settings import load_settings
from tests.kit.brokers import BrokerProcess, Wire, environment
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import OWNER, READER, Story, User, chunks_of
from tests.server.conftest import NewUser
from tests.server.events.test_following import metric

pytestmark = [pytest.mark.process, pytest.mark.parametrize("engine", ["sqlite"], indirect=True)]
PLACES = 4


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
    raw.settimeout(PATIENCE)
    raw.connect(("127.0.0.1", broker.port))
    headers = "".join(f"{name}: {value}\r\n" for name, value in user.wire.headers().items())
    raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
    return raw


@pytest.mark.long
def test_a_client_that_does_not_read_its_answers_delays_only_itself(
    shared: Shared, broker: BrokerProcess
) -> None:
    story, alice, bob = shared
    path = path_of(story)
    with ExitStack() as stack:
        held = [ask(stack, broker, bob, path) for _ in range(PLACES)]
        for raw in held:
            assert raw.recv(12) == b"HTTP/1.1 200"
        waiting = ask(stack, broker, bob, path)
        wait_until(lambda: metric(broker, "scbroker_requests_waiting") == PLACES + 1)
        with Wire(broker, token=alice.wire.token) as wire:
            assert len(wire.call("GET", path).expect(200).body) > 8 * SEGMENT
        bob.wire.call("GET", "/v1/key-file").expect(200)  # what is small goes on
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        held[0].close()
        waiting.settimeout(PATIENCE)
        assert waiting.recv(12) == b"HTTP/1.1 200"


@pytest.mark.long
def test_a_refused_request_gives_its_place_back(shared: Shared) -> None:
    story, _, bob = shared
    for _ in range(3 * PLACES):
        bob.wire.call("GET", f"{path_of(story)}8").expect(400, "invalid")
    assert len(bob.wire.call("GET", path_of(story)).expect(200).body) > 8 * SEGMENT


class Reader:
    """Asks an application of this process for a path, and reads the answer's head and no more."""

    def __init__(self, app: Starlette, state: object, user: User, path: str) -> None:
        self.status = 0
        self._known = asyncio.Event()
        headers = [(k.lower().encode(), v.encode()) for k, v in user.wire.headers().items()]
        where, _, query = path.partition("?")
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": where,
            "query_string": query.encode(), "headers": headers, "client": ("127.0.0.1", 1),
            "state": state, ADMITTED: Kind.Reading,
        }  # fmt: skip
        self._task = asyncio.ensure_future(app(scope, self._nothing, self._take))

    async def _nothing(self) -> Message:
        return {"type": "http.disconnect"}

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._known.set()
        else:
            await asyncio.Event().wait()

    async def answer(self) -> int:
        await self._known.wait()
        return self.status

    async def give_up(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.long
def test_a_client_that_does_not_read_long_answers_has_a_quota_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch, fresh_broker: BrokerProcess, new_user: NewUser
) -> None:
    monkeypatch.setattr(capacity, "_MAX_UNREAD_OF_A_USER", 2**20)
    alice, bob = (new_user(at=fresh_broker) for _ in range(2))
    story = Story(alice).created({alice: OWNER, bob: READER}, header=bytes(262_144))
    fresh_broker.stop()
    settings = load_settings(
        environment(fresh_broker.settings), data_dir=str(fresh_broker.directory)
    )
    path = f"{story.path}?header=1"

    async def work() -> None:
        app = create_app(lambda: open_broker(settings, frozenset()))
        async with app.router.lifespan_context(app) as state:
            asked = [Reader(app, state, alice, path) for _ in range(5)]
            assert sorted([await one.answer() for one in asked]) == [200, 200, 200, 503, 503]
            assert await Reader(app, state, bob, path).answer() == 200
            assert await Reader(app, state, alice, story.path).answer() == 200
            for one in asked:
                await one.give_up()
            assert await Reader(app, state, alice, path).answer() == 200

    asyncio.run(work())
