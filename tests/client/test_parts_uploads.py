"""After an upload is given up, the broker keeps nothing of it, and the caller gets the first error."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from scbroker import BrokerError, FileTrustStore, Promise, ServerProvider
from scbroker.records.container_record import SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS
from tests.client.conftest import id_of, refusal
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, refused
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, wait_until

CHUNK = CHUNK_SEGMENTS * SEGMENT
CUT = BrokerError.permissionDeniedError("cut off")


def unfinished(broker: BrokerProcess, provider: ServerProvider) -> int:
    """Return the number of the user's uploads at the broker that no record names yet."""
    statement = "SELECT touched_at FROM parts WHERE NOT committed AND user_id = ?"
    rows = query(broker.database_url, statement, id_of(provider).bytes)
    return sum(touched_at > 0 for (touched_at,) in rows)  # 0 marks a dropped part


class Broken:
    """A content of which one chunk is stored when its reading fails."""

    def __init__(self) -> None:
        self.is_stored = threading.Event()

    def progress(self, done: int, total: int | None) -> None:
        del total
        if done >= CHUNK:
            self.is_stored.set()

    def content(self) -> Iterator[bytes]:
        yield bytes(CHUNK + 1)
        assert self.is_stored.wait(PATIENCE)
        raise OSError("gone")


@both_engines
def test_an_upload_that_fails_for_good_is_dropped_at_the_broker(
    broker: BrokerProcess, alice: ServerProvider, network: Network
) -> None:
    made = alice.createContainer(b"").result(PATIENCE)
    uploads: list[Callable[..., Promise[Any]]] = [
        alice.createContainer,
        partial(alice.updateContainerContent, made.id),
    ]
    for upload in uploads:
        broken = Broken()
        promise = upload(content=broken.content(), progress=broken.progress)
        refusal(promise, BrokerError.invalidArgumentError, "gone")
        assert unfinished(broker, alice) == 0
    [first, second] = network.those("DELETE", "")
    assert first.path != second.path


def test_a_cancelled_upload_is_dropped_at_the_broker(
    broker: BrokerProcess, alice: ServerProvider, network: Network
) -> None:
    stored, go_on = threading.Event(), threading.Event()

    def content() -> Iterator[bytes]:
        yield bytes(CHUNK + 1)
        go_on.wait(PATIENCE)
        yield b"end"

    def progress(done: int, total: int | None) -> None:
        del total
        if done >= CHUNK:
            stored.set()

    promise = alice.createContainer(content(), progress=progress)
    assert stored.wait(PATIENCE)
    assert unfinished(broker, alice) == 1
    assert promise.cancel()
    go_on.set()
    wait_until(lambda: network.those("DELETE", ""))
    wait_until(lambda: unfinished(broker, alice) == 0)


def test_nothing_is_dropped_if_nothing_was_sent_or_the_broker_does_not_answer(
    alice: ServerProvider, network: Network
) -> None:
    broken = (_ for _ in [b"x"] if 1 // 0)
    refusal(alice.createContainer(broken), BrokerError.invalidArgumentError, "ZeroDivisionError")
    down = BrokerError.overloadedError("no capacity")
    network.treat("PUT", "/chunks/0", refused(down))
    refusal(alice.createContainer(bytes(CHUNK)), type(down))
    assert not network.those("DELETE", "")


def test_an_upload_that_a_journal_can_resume_is_kept(
    broker: BrokerProcess, new_provider: NewProvider, network: Network, tmp_path: Path
) -> None:
    device = new_provider(True, trustStore=FileTrustStore(tmp_path / "device"))
    (tmp_path / "file").write_bytes(bytes(2 * CHUNK))

    async def cut(_: Go) -> Any:
        await asyncio.to_thread(wait_until, lambda: unfinished(broker, device) == 1)
        raise CUT

    network.treat("PUT", "/chunks/1", cut)
    refusal(device.createContainer(tmp_path / "file"), type(CUT))
    assert not network.those("DELETE", "")
    assert unfinished(broker, device) == 1
