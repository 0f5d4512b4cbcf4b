"""A document in a container of the user's own stays one document, whatever devices, brokers and others do."""

import asyncio
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scbroker import BrokerError, ServerProvider
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers.fetching import own_nonce
from scbroker.client.people.links import OwnDocument
from scbroker.records.canonical import container_id_of
from tests.client.conftest import beside, put_own_document
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, Octets
from tests.kit.waiting import PATIENCE, until

TYPE = "test.words"


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[str, ...] = ()


def adding(*words: str) -> Callable[[Words], Words]:
    def edit(before: Words) -> Words:
        return Words((*before.words, *(word for word in words if word not in before.words)))

    return edit


def document(provider: ServerProvider, limit: int = 1000) -> OwnDocument[Words]:
    return OwnDocument(provider, TYPE, Words, limit)


def run(work: Any) -> Any:
    return io_thread.submit("test", work).result(PATIENCE)


def read(found: OwnDocument[Words]) -> tuple[str, ...]:
    words: Words = run(found.read())
    return words.words


def add(found: OwnDocument[Words], *words: str) -> None:
    run(found.change(adding(*words)))


def containers(provider: ServerProvider) -> list[uuid.UUID]:
    page = provider.listContainers(TYPE).result(PATIENCE)
    return [item.id for item in page.containers if not isinstance(item, BrokerError)]


def document_id(provider: ServerProvider) -> uuid.UUID:
    creator = provider.getKeyRing().result(PATIENCE).rawFingerprint
    return container_id_of(creator, own_nonce(TYPE, 0))


def test_a_document_is_empty_until_it_is_changed_and_then_the_same_on_every_device(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    here, there = document(alice), document(beside(alice, new_provider))
    assert read(here) == ()
    assert containers(alice) == []
    add(here, "a")
    add(there, "b")
    assert read(here) == read(there) == ("a", "b")
    assert len(containers(alice)) == 1


def test_documents_made_at_the_same_moment_are_one(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    here, there = document(alice), document(beside(alice, new_provider))

    async def change() -> None:
        await asyncio.gather(here.change(adding("a")), there.change(adding("b")))

    arrived = []

    async def both_at_once(go: Go) -> Octets:
        arrived.append(go)
        await until(lambda: len(arrived) > 1)
        return await go()

    with Network() as network:
        network.treat("GET", str(document_id(alice)), both_at_once)
        run(change())
    assert sorted(read(here)) == sorted(read(there)) == ["a", "b"]
    assert len(containers(alice)) == 1


def test_a_document_that_another_program_creates_just_after_it_was_denied_is_changed(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    """The two programs have one trust store, so the denial arrives when the mark exists."""
    ring, store = alice.getKeyRing().result(PATIENCE), alice._trust_store
    here, there = document(alice), document(new_provider(ring, trustStore=store))
    is_denied = list[bool]()

    async def create_after(go: Go) -> Octets:
        if is_denied:
            return await go()
        is_denied.append(True)
        with pytest.raises(BrokerError.notFoundError) as denial:
            await go()
        await there.change(adding("b"))
        raise denial.value

    with Network() as network:
        network.treat("GET", str(document_id(alice)), create_after)
        add(here, "a")
    assert read(here) == read(there) == ("b", "a")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b'{"version":0,"document":{"words":[]}}',
        b'{"version":1,"document":{"words":["a"],"more":1}}',
        b'{"version":1,"document":{"words":["a"]},"document":{"words":["b"]}}',
        b'{"version":1,"document":{"words":["a"]}} ',
        b'{"version":1,"document":{"words":[1]}}',
        b'{"version":1,"document":{"words":["\xff"]}}',
        b"[" * 900,
        b"x" * 1001,
    ],
)
def test_an_unreadable_document_is_an_error_and_stays_as_it_is(
    alice: ServerProvider, content: bytes
) -> None:
    made = put_own_document(alice, TYPE, content)
    for act in (read, add):
        with pytest.raises(BrokerError.integrityError, match=str(made)):
            act(document(alice))
    assert alice.getContainer(made).result(PATIENCE).content == content
    assert containers(alice) == [made]


def test_a_document_of_a_newer_version_is_an_error_and_stays_as_it_is(
    alice: ServerProvider,
) -> None:
    content = b'{"version":2,"documents":[]}'
    made = put_own_document(alice, TYPE, content)
    with pytest.raises(BrokerError.unsupportedVersionError, match="update"):
        add(document(alice), "a")
    assert alice.getContainer(made).result(PATIENCE).content == content


def test_a_document_goes_on_from_the_history_that_the_user_has_accepted(
    tmp_path: Path, new_provider: NewProvider
) -> None:
    """After a restored backup, another device has written another one of the same length."""
    with BrokerProcess(tmp_path / "broker") as broker:
        alice = new_provider(True, at=broker)
        other = new_provider(alice.getKeyRing().result(PATIENCE), at=broker)
        broker.stop()
        shutil.copytree(broker.directory, tmp_path / "backup")
        broker.start()
        mine = document(alice)
        add(mine, "refused")
        broker.stop()
        shutil.rmtree(broker.directory)
        shutil.move(tmp_path / "backup", broker.directory)
        broker.start()
        add(document(other), "accepted")
        heads = alice.resetContainerMark(document_id(alice)).result(PATIENCE)
        alice.resetContainerMark(document_id(alice), accept=heads.served).result(PATIENCE)
        add(mine, "later")
        assert read(document(other)) == ("accepted", "later")


def test_endless_changes_by_others_end_with_an_error(alice: ServerProvider) -> None:
    found = document(alice)
    add(found, "a")

    calls = []

    def always(before: Words) -> Words:
        calls.append(before)
        raise BrokerError.conflictError("another device was faster")

    with pytest.raises(BrokerError.conflictError, match="keep changing"):
        run(found.change(always))
    assert len(calls) == 16
