"""A document in a container of the user's own stays one document, whatever devices, brokers and others do."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, ServerProvider
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.people.own_document import OwnDocument
from scbroker.crypto.seal import Octets
from tests.client.conftest import id_of
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, lost, refused
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE

TYPE = "test.words"
OWNER = ContainerAccessLevel.DefaultOwnerPermissions


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[str, ...] = ()


def merged(first: Words, second: Words) -> Words:
    return adding(*second.words)(first)


def adding(*words: str) -> Callable[[Words], Words]:
    def edit(before: Words) -> Words:
        return Words((*before.words, *(word for word in words if word not in before.words)))

    return edit


def document(provider: ServerProvider, limit: int = 1000) -> OwnDocument[Words]:
    return OwnDocument(provider, TYPE, Words, merged, limit)


def run(work: Any) -> Any:
    return io_thread.submit("test", work).result(PATIENCE)


def read(found: OwnDocument[Words]) -> tuple[str, ...]:
    words: Words = run(found.read())
    return words.words


def add(found: OwnDocument[Words], *words: str) -> None:
    run(found.change(adding(*words)))


def beside(provider: ServerProvider, new_provider: NewProvider) -> ServerProvider:
    """Return another device of the same user."""
    return new_provider(provider.getKeyRing().result(PATIENCE))


def containers(provider: ServerProvider) -> list[uuid.UUID]:
    page = provider.listContainers(TYPE).result(PATIENCE)
    return [item.id for item in page.containers if not isinstance(item, BrokerError)]


def stored(provider: ServerProvider, *words: str) -> uuid.UUID:
    """Store a document as a device does that knows of no other."""
    content = msgspec.json.encode({"version": 1, "document": {"words": words}})
    made: uuid.UUID = provider.createContainer(content, type=TYPE).result(PATIENCE).id
    return made


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


def test_an_unchanged_document_costs_one_request_and_an_edit_without_a_change_no_other(
    alice: ServerProvider,
) -> None:
    found = document(alice)
    add(found, "a")
    with Network() as network:
        assert read(found) == ("a",)
        assert len(network.sent) == 1
        add(found, "a")
        assert len(network.sent) == 2


@pytest.mark.long
def test_changes_of_several_devices_at_once_are_all_kept(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    devices = [document(beside(alice, new_provider)) for _ in range(3)]

    async def change() -> None:
        words = [[f"{number}-{turn}" for turn in range(3)] for number in range(3)]
        await asyncio.gather(
            *(
                device.change(adding(word))
                for device, own in zip(devices, words, strict=True)
                for word in own
            )
        )

    run(change())
    expected = sorted(f"{number}-{turn}" for number in range(3) for turn in range(3))
    for device in devices:
        assert sorted(read(device)) == expected
    assert len(containers(alice)) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("count", [2, 3])
def test_documents_made_at_the_same_moment_become_the_one_with_the_lowest_id(
    alice: ServerProvider, new_provider: NewProvider, count: int
) -> None:
    made = sorted(stored(alice, f"of {number}") for number in range(count))
    known = document(alice)
    known._known = run(
        known._opened(id_of(alice), alice.getContainerMetadata(made[-1]).result(PATIENCE))
    )
    assert sorted(read(document(beside(alice, new_provider)))) == ["of 0", "of 1", "of 2"][:count]
    assert containers(alice) == made[:1]
    add(known, "by the device that had the other one")
    assert len(read(document(alice))) == count + 1
    assert containers(alice) == made[:1]


def test_an_entry_added_while_its_container_is_merged_is_not_lost(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    first, second = sorted([stored(alice, "a"), stored(alice, "b")])
    late = document(beside(alice, new_provider))
    late._known = run(
        late._opened(id_of(alice), late._provider.getContainerMetadata(second).result(PATIENCE))
    )
    merging = document(alice)
    delete = merging._delete

    async def delete_after_a_change(container: uuid.UUID) -> None:
        await late.change(adding("late"))
        await delete(container)

    merging._delete = delete_after_a_change  # type: ignore[method-assign] # the moment in between
    read(merging)
    assert sorted(read(document(alice))) == ["a", "b", "late"]
    assert containers(alice) == [first]


def test_a_merge_that_meets_a_change_of_another_device_is_begun_again(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    first, second = sorted([stored(alice, "a"), stored(alice, "b")])
    late = document(beside(alice, new_provider))
    late._known = run(
        late._opened(id_of(alice), late._provider.getContainerMetadata(second).result(PATIENCE))
    )
    merging = document(alice)
    store, changed = merging._store, list[object]()

    async def store_before_a_change(*given: Any) -> Any:
        result = await store(*given)
        if not changed:
            changed.append(await late.change(adding("late")))
        return result

    merging._store = store_before_a_change  # type: ignore[assignment, method-assign] # the moment in between
    assert sorted(read(merging)) == ["a", "b", "late"]
    assert containers(alice) == [first]


def test_a_merge_that_was_cut_off_is_completed_by_the_next_reader(alice: ServerProvider) -> None:
    first, second = sorted([stored(alice, "a"), stored(alice, "b")])
    with Network() as network:
        network.treat("DELETE", str(second), refused(BrokerError.unreachableError("cut")))
        network.treat("PUT", f"{second}/records/3", refused(BrokerError.unreachableError("cut")))
        with pytest.raises(BrokerError.unreachableError):
            read(document(alice))
    assert containers(alice) == [first, second]
    assert sorted(read(document(alice))) == ["a", "b"]
    assert containers(alice) == [first]


def test_a_container_that_another_user_shared_or_can_change_or_has_written_is_ignored(
    alice: ServerProvider, bob: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    me, him = id_of(alice), id_of(bob)
    content = msgspec.json.encode({"version": 1, "document": {"words": ["poison"]}})
    bob.createContainer(
        content, [AccessLevel(me, OWNER)], TYPE
    ).result(PATIENCE)  # fmt: skip
    shared = alice.createContainer(
        content, [AccessLevel(me, OWNER), AccessLevel(him, OWNER)], TYPE
    ).result(PATIENCE).id  # fmt: skip
    bob.updateContainerContent(shared, content).result(PATIENCE)
    with caplog.at_level(logging.WARNING):
        assert read(document(alice)) == ()
    assert f"user {him} created it" in caplog.text
    assert "others have access to it" in caplog.text
    alice.revokeAccess(shared, him).result(PATIENCE)
    assert alice.getContainerMetadata(shared).result(PATIENCE).modifiedBy == me
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        add(document(alice), "mine")
    assert "another user has written it" in caplog.text
    assert read(document(alice)) == ("mine",)


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
    made = alice.createContainer(content, type=TYPE).result(PATIENCE)
    for act in (read, add):
        with pytest.raises(BrokerError.integrityError, match=str(made.id)):
            act(document(alice))
    assert alice.getContainer(made.id).result(PATIENCE).content == content
    assert containers(alice) == [made.id]


def test_a_document_of_a_newer_version_is_an_error_and_stays_as_it_is(
    alice: ServerProvider,
) -> None:
    content = b'{"version":2,"documents":[]}'
    made = alice.createContainer(content, type=TYPE).result(PATIENCE)
    with pytest.raises(BrokerError.unsupportedVersionError, match="update"):
        add(document(alice), "a")
    assert alice.getContainer(made.id).result(PATIENCE).content == content


def test_a_document_that_grows_too_large_is_refused_before_it_is_sent(
    alice: ServerProvider,
) -> None:
    found = document(alice)
    add(found, "a")
    with pytest.raises(BrokerError.tooLargeError, match="remove"):
        add(found, "x" * 1000)
    assert read(found) == ("a",)


def test_a_document_follows_the_user_who_is_logged_in(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    found = document(alice)
    add(found, "a")
    ring = bob.getKeyRing().result(PATIENCE)
    alice.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
    assert read(found) == ()


def test_a_change_without_an_answer_is_made_once(alice: ServerProvider) -> None:
    found = document(alice)
    add(found, "a")
    with Network() as network:
        network.treat("PUT", "/records/2", lost(1))
        add(found, "b")
    assert read(document(alice)) == ("a", "b")


def test_a_container_of_another_type_is_no_longer_the_document_and_one_with_a_header_is_kept(
    alice: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    found = document(alice)
    add(found, "a")
    [made] = containers(alice)
    alice.updateContainerType(made, "another").result(PATIENCE)
    assert read(found) == ()
    assert "another type" in caplog.text
    kept = alice.createContainer(None, {"a": 1}, type=TYPE).result(PATIENCE).id
    add(found, "b")
    assert read(document(alice)) == ("b",)
    assert kept in containers(alice)


def test_a_deleted_document_is_begun_anew(alice: ServerProvider) -> None:
    found = document(alice)
    add(found, "a")
    alice.deleteContainer(containers(alice)[0]).result(PATIENCE)
    assert read(found) == ()
    add(found, "b")
    assert read(document(alice)) == ("b",)


def test_a_document_that_was_in_use_during_a_fork_is_not_locked_in_the_child(
    alice: ServerProvider,
) -> None:
    found = document(alice)
    add(found, "a")
    run(found._lock.acquire())  # as a task of the parent has it
    assert found in io_thread._bound
    found.after_fork()
    assert read(found) == ("a",)


def test_a_document_that_the_broker_denies_is_an_error_and_no_empty_document(
    alice: ServerProvider, broker: BrokerProcess
) -> None:
    """Nobody else can have ended the user's access: it is not a contact that is not found."""
    found = document(alice)
    add(found, "a")
    query(
        broker.database_url,
        "DELETE FROM members WHERE container_id = ?",
        containers(alice)[0].bytes,
    )
    for act in (read, lambda it: add(it, "b")):
        with pytest.raises(BrokerError.rollbackError, match="denies container"):
            act(found)


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


@pytest.mark.long
@pytest.mark.parametrize("answered", [True, False], ids=["after the answer was lost", "before"])
def test_a_program_that_ends_at_any_request_loses_no_entry_and_leaves_one_document_in_the_end(
    new_provider: NewProvider, answered: bool
) -> None:
    """Each request of a change that finds two documents is the last one of its program, in turn."""
    count, cut_off = 0, True
    while cut_off:
        alice = new_provider(True)
        stored(alice, "a")
        stored(alice, "b")
        device = document(beside(alice, new_provider))
        left = count

        async def cut(go: Go) -> Octets:
            nonlocal left
            if left == 0 and not answered:
                raise BrokerError.unreachableError("cut", sent=False)
            answer = await go()
            left -= 1
            if left == -1:
                raise BrokerError.invalidArgumentError("The program ended.")
            return answer

        with Network() as network:
            for method in ("GET", "POST", "PUT", "DELETE"):
                network.treat(method, "", cut)
            try:
                add(device, "c")
                cut_off = False
            except BrokerError:
                pass
        found = document(beside(alice, new_provider))
        words = set(read(found))
        assert {"a", "b"} <= words <= {"a", "b", "c"}, count
        add(found, "c")
        assert sorted(read(document(alice))) == ["a", "b", "c"]
        assert len(containers(alice)) == 1
        count += 1
    assert count > 8
