"""Attacks by a network that gives little at a time, or breaks off: no short read is taken for the end.

Attack 17 of `catalogue`.
"""

import socket
import uuid
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError, Header, MemoryTrustStore
from scbroker.records.container_record import Role
from scbroker.wire import codec
from scbroker.wire.parts import Chunks
from tests.hostile_broker.accomplices import people
from tests.hostile_broker.broker import PATIENCE, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.hostile_broker.files import check_no_file
from tests.hostile_broker.relay import FRAMINGS, byte_by_byte, relay, torn, whole
from tests.kit.impatience import be_impatient
from tests.kit.writers import Story


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program asks again at once."""
    be_impatient(monkeypatch)


class OneByteAtATime:
    """A file that gives less than it is asked for; and where it is told to, nothing yet."""

    def __init__(self, data: bytes, nothing_at: int | None = None) -> None:
        self._pieces = iter(range(len(data)))
        self._data, self._nothing_at = data, nothing_at

    def read(self, size: int) -> bytes | None:
        assert size > 1
        at = next(self._pieces, len(self._data))
        return None if at == self._nothing_at else self._data[at : at + 1]


@attack(17, "short read taken for the end")
def test_a_network_and_a_file_that_give_one_byte_at_a_time_work(mallory: HostileBroker) -> None:
    small, large = bytes(range(256)) * 4, bytes(range(256)) * 257
    for framing, content in zip(FRAMINGS.values(), (small, large, small), strict=True):
        with relay(mallory, byte_by_byte(framing)) as proxy:
            device = mallory.device(mallory.new_user(), proxy=proxy.url)
            source: Any = OneByteAtATime(content)
            container = device.createContainer(source, {"h": 1}).result(PATIENCE).id
            found = device.getContainer(container).result(PATIENCE)
            assert (found.content, found.header) == (content, Header({"h": 1}))


@attack(17, "short read taken for the end")
@pytest.mark.parametrize("size", [100, 70_000])
def test_a_file_that_has_nothing_yet_is_an_error_and_nothing_is_created(
    mallory: HostileBroker, size: int
) -> None:
    """A pipe that does not block gives None until there is more: that is no end."""
    device = mallory.device(mallory.new_user())
    source: Any = OneByteAtATime(bytes(size), nothing_at=size // 2)
    with refused(mallory, device, BrokerError.invalidArgumentError) as attempt:
        attempt(device.createContainer(source))


ENDS: dict[str, tuple[str, type[BrokerError]]] = {
    "the view": (r"/containers/[^/]+\?", BrokerError.brokerFaultError),
    "the hashes": ("/hashes$", BrokerError.integrityError),
    "the segments": (r"/segments\?", BrokerError.integrityError),
}


@attack(17, "short read taken for the end")
@pytest.mark.parametrize("what", ENDS)
@pytest.mark.usefixtures("impatient")
def test_an_answer_that_is_torn_off_is_an_error_and_no_file_is_left(
    mallory: HostileBroker, tmp_path: Path, what: str
) -> None:
    """Where nothing of HTTP says how long it is, what was signed does."""
    ring, content = mallory.new_user(), bytes(70_000)
    container = mallory.device(ring).createContainer(content).result(PATIENCE).id
    store = MemoryTrustStore()
    mallory.device(ring, store).getContainerContent(container).result(PATIENCE)
    pattern, error = ENDS[what]
    for name, framing in FRAMINGS.items():
        kind = error if name == "until the end" else BrokerError.unreachableError
        for at in (0, -1):
            with relay(mallory, torn(pattern, framing, at)) as proxy:
                device = mallory.device(ring, store, proxy=proxy.url)
                with refused(mallory, device, kind) as attempt:
                    attempt(device.getContainerContent(container))
        with relay(mallory, torn(pattern, framing, 31)) as proxy:
            device = mallory.device(ring, store, proxy=proxy.url)
            check_no_file(device, container, tmp_path, kind)
        with relay(mallory, whole(framing)) as proxy:
            device = mallory.device(ring, store, proxy=proxy.url)
            assert device.getContainerContent(container).result(PATIENCE) == content


@attack(17, "short read taken for the end")
def test_a_chunk_whose_sender_breaks_off_is_not_kept(mallory: HostileBroker) -> None:
    [alice] = people(mallory, 1)
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    path = f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/chunks"
    headers = {"Content-Type": codec.OCTETS, "Content-Length": str(len(sealed))}
    lines = "".join(f"{k}: {v}\r\n" for k, v in alice.wire.headers(headers).items())
    request = f"PUT {path}/0 HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode() + sealed[:-1]
    with socket.create_connection(("127.0.0.1", mallory.behind.port), PATIENCE) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):  # until the broker is done with it
            pass
    assert alice.wire.call("GET", path).expect(200).message(Chunks).chunks == []
    forged = story.follow(alice, content=part)
    story.send(alice, forged).expect(422, "incomplete")
