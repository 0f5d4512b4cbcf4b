"""A link is opened without an account, reads, and does nothing else."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scbroker import (
    BrokerError,
    FileTrustStore,
    Link,
    LinkProvider,
    MemoryTrustStore,
    ServerProvider,
    openLink,
)
from scbroker.client.people.links import LinkUrl
from scbroker.client.server_provider import READING
from tests.client.calls.test_operation import OPERATIONS, World
from tests.client.conftest import Account, drop
from tests.client.people.test_links import box_of, made, opened
from tests.kit import state
from tests.kit.declared import HOMES, STREAMS
from tests.kit.keychains import keychain_in_memory
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE, wait_until

REFUSED = {*HOMES, *STREAMS} - {"getSecuredContainer"} - READING


def test_operations_that_write_or_belong_to_an_account_are_refused_before_anything_is_sent(
    alice: ServerProvider, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # of the session that is kept
    box = box_of(alice)
    with keychain_in_memory(), opened(made(alice, box)) as guest, Network() as network:
        world = World(alice, box, account, tmp_path)
        left = set(REFUSED)
        for operation in OPERATIONS:
            if operation.name in REFUSED:
                arguments = operation.arguments(world)
                before = len(network.sent)
                with pytest.raises(BrokerError.permissionDeniedError) as refused:
                    getattr(guest, operation.name)(**arguments).result(PATIENCE)
                assert f"{operation.name} needs an account" in str(refused.value)
                assert len(network.sent) == before
                left.discard(operation.name)
    assert left == set()


def test_every_reading_operation_works_with_a_link(
    alice: ServerProvider, account: Account, tmp_path: Path
) -> None:
    box = alice.createContainer(b"old", {"old": 1}, type="old").result(PATIENCE).id
    with opened(made(alice, box)) as guest:
        world = World(guest, box, account, tmp_path)
        left = set(READING) - {"logout"} - STREAMS.keys()
        for operation in OPERATIONS:
            if operation.name in left:
                operation.check(operation.call(world).result(PATIENCE))
                left.discard(operation.name)
        assert left == set()
        assert [each.containerId for each in guest.getEvents().result(PATIENCE)][:1] == [box]
        guest.logout().result(PATIENCE)
        with pytest.raises(BrokerError.notAuthenticatedError):
            drop(guest.getContainer(box))


def test_a_closed_link_and_one_that_was_logged_out_say_how_to_open_it_again(
    alice: ServerProvider,
) -> None:
    link = made(alice, box_of(alice))
    closed, logged_out = opened(link), opened(link)
    closed.close()
    logged_out.logout().result(PATIENCE)
    for guest in (closed, logged_out):
        with pytest.raises(BrokerError.notAuthenticatedError, match="call openLink") as failed:
            drop(guest.listContainers())
        assert "logIn" not in str(failed.value)
    logged_out.close()


def test_a_stream_follows_what_members_change(alice: ServerProvider) -> None:
    box = box_of(alice)
    with opened(made(alice, box)) as guest, guest.followEvents(startId=1) as stream:
        assert next(iter(stream)).containerId == box


def test_a_link_is_opened_and_closed_in_every_style(alice: ServerProvider) -> None:
    box = box_of(alice)
    link = made(alice, box)

    async def awaited() -> bytes | None:
        async with await openLink(link, trustStore=MemoryTrustStore()) as guest:
            found = await guest.getContainerContent(box)
        assert repr(guest) == f"<LinkProvider of {alice.serverUrl}, unauthenticated>"
        return found

    assert asyncio.run(awaited()) == b"for guests"
    results: list[Any] = []
    with ThreadPoolExecutor(1) as queue:
        store = MemoryTrustStore()
        called: Any = openLink
        style = {"completionHandler": results.append, "errorHandler": results.append}
        assert called(link.url, trustStore=store, queue=queue, **style) is None
        openLink(
            "no link", completionHandler=results.append, errorHandler=results.append, queue=queue
        )
        wait_until(lambda: len(results) == 2)
    guest = next(each for each in results if isinstance(each, LinkProvider))
    error = next(each for each in results if isinstance(each, BrokerError))
    assert type(error) is BrokerError.invalidArgumentError
    with guest:
        assert guest.getContainerContent(box).result(PATIENCE) == b"for guests"


def test_the_parameters_are_those_of_a_provider(alice: ServerProvider, tmp_path: Path) -> None:
    link = made(alice, box_of(alice))
    folder = tmp_path / "trust"
    with openLink(link, trustStore=folder, timeout=99.0, applicationName="guest").result(
        PATIENCE
    ) as guest:
        assert (guest.applicationName, guest.serverUrl) == ("guest", alice.serverUrl)
        assert guest._endpoint.timeout == 99.0
    assert state.read(folder, "SELECT id FROM user") == [(link.userId.bytes,)]
    for wrong in ({"timeout": 0}, {"ssl": "no"}, {"objectStoreOrigins": "text"}, {"trustStore": 7}):
        options: dict[str, Any] = wrong
        with pytest.raises(BrokerError.invalidArgumentError):
            openLink(link, **options).result(PATIENCE)
    assert FileTrustStore(folder).read_pass(link.userId) is not None


def url(link: Link, **changes: Any) -> str:
    parts = LinkUrl.parse(link.url)
    names = ("serverUrl", "apiKey", "fingerprint", "secret", "hasPassword")
    return LinkUrl(**{name: changes.get(name, getattr(parts, name)) for name in names}).text


@pytest.mark.process
def test_a_text_that_is_not_a_link_is_refused_with_what_to_do(alice: ServerProvider) -> None:
    link = made(alice, box_of(alice))
    with Network() as network:
        for text, words in (
            ("", "copy the whole link"),
            (alice.serverUrl, "copy the whole link"),
            (link.url + "A", "damaged"),
            (url(link, serverUrl="http://broker.example"), "must be https"),
            (url(link, serverUrl="https://broker.example/"), "damaged"),
        ):
            with pytest.raises(BrokerError.invalidArgumentError, match=words):
                openLink(text).result(PATIENCE)
        with pytest.raises(BrokerError.invalidArgumentError, match="leave out password"):
            openLink(link, "password").result(PATIENCE)
        wrong: Any = link.userId
        with pytest.raises(BrokerError.invalidArgumentError, match="must be a str or a Link"):
            openLink(wrong).result(PATIENCE)
    assert network.sent == []


def test_a_link_of_a_deleted_container_says_that_it_opens_none(alice: ServerProvider) -> None:
    box = box_of(alice)
    link = made(alice, box)
    alice.deleteContainer(box).result(PATIENCE)
    with pytest.raises(BrokerError.notFoundError, match="its containers were deleted"):
        openLink(link, trustStore=MemoryTrustStore()).result(PATIENCE)
    alice.revokeLink(link).result(PATIENCE)
    assert alice.getLinks().result(PATIENCE) == []
