"""Links: anybody with the URL reads the containers until the end, which the creator can bring about."""

import datetime as dt
import logging
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BaseProvider,
    BrokerError,
    Contacts,
    ContainerAccessLevel,
    KeyFile,
    Link,
    LinkProvider,
    MemoryTrustStore,
    ServerProvider,
    openLink,
    types,
)
from scbroker.client.http.requests import Requests
from scbroker.client.people import links
from scbroker.client.people.links import LinkUrl
from scbroker.client.users import accounts
from tests.client.conftest import id_of, refusal
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel


class Clocks:
    """The clocks of a broker and of this process, which a test sets forward together."""

    def __init__(self, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self._broker, right = broker, time.time_ns

        class Now(dt.datetime):
            @classmethod
            def now(cls, tz: dt.tzinfo | None = None) -> "Now":
                return cls.fromtimestamp(time.time(), tz)

        monkeypatch.setattr(time, "time_ns", lambda: right() + round(broker.clock_ahead * 1e9))
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
        monkeypatch.setattr(types, "dt", SimpleNamespace(datetime=Now, UTC=dt.UTC))

    def set_forward(self, seconds: float) -> None:
        self._broker.clock_ahead += seconds


def tomorrow() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def box_of(provider: ServerProvider, content: bytes = b"for guests") -> uuid.UUID:
    return provider.createContainer(content, {"title": "shared"}).result(PATIENCE).id


def made(provider: ServerProvider, *boxes: uuid.UUID, **more: Any) -> Link:
    given: dict[str, Any] = {"expiresAt": tomorrow(), **more}
    link: Link = provider.createLink(boxes, **given).result(PATIENCE)
    return link


def opened(link: Link | str, password: str | None = None) -> LinkProvider:
    return openLink(link, password, trustStore=MemoryTrustStore()).result(PATIENCE)


def refused(link: Link | str, kind: type[BrokerError], words: str, password: Any = None) -> None:
    with pytest.raises(kind, match=words):
        openLink(link, password, trustStore=MemoryTrustStore()).result(PATIENCE)


def members(provider: ServerProvider, box: uuid.UUID) -> set[uuid.UUID]:
    access = provider.getContainerMetadata(box).result(PATIENCE).access
    assert access is not None
    return {level.userId for level in access}


def listed(provider: ServerProvider) -> list[Link]:
    return provider.getLinks().result(PATIENCE)


def test_a_link_reads_the_containers_that_it_names_and_no_others(alice: ServerProvider) -> None:
    first, second, other = (box_of(alice, content) for content in (b"1", b"2", b"3"))
    link = made(alice, first, second)
    with opened(link) as guest:
        found = guest.getContainers([first, second]).result(PATIENCE)
        assert [each.content for each in found if not isinstance(each, BrokerError)] == [b"1", b"2"]
        assert {
            each.id for each in guest.iterContainers() if not isinstance(each, BrokerError)
        } == {first, second}
        refusal(guest.getContainer(other), BrokerError.notFoundError)
        assert guest.getUserId().result(PATIENCE) == link.userId
        content = guest.openContainerContent(first).result(PATIENCE)
        assert content is not None
        assert content.read() == b"1"


def test_a_link_has_the_name_and_the_api_key_that_were_given(alice: ServerProvider) -> None:
    box, other = box_of(alice), uuid.uuid4()
    plain, named = made(alice, box), made(alice, box, name="Für Bob", apiKey=str(other))
    assert [LinkUrl.parse(each.url).apiKey for each in (plain, named)] == [alice.apiKey, other]
    assert [(each.name, each.hasPassword) for each in listed(alice)] == [
        (None, False),
        ("Für Bob", False),
    ]
    refused(named, BrokerError.apiKeyError, "API key")
    assert opened(plain).getContainer(box).result(PATIENCE).content == b"for guests"


def test_a_link_with_a_password_opens_with_it_alone(alice: ServerProvider) -> None:
    box = box_of(alice)
    link = made(alice, box, password="Pässword 9")
    assert link.hasPassword
    refused(link, BrokerError.credentialsError, "needs its password")
    refused(link, BrokerError.credentialsError, "password of the link is wrong", "password")
    with opened(link, "Pa\u0308ssword 9") as guest:
        assert guest.getContainerContent(box).result(PATIENCE) == b"for guests"


def test_the_key_file_of_a_link_opens_with_its_passphrase_alone(
    alice: ServerProvider, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its password is new for each link and kept nowhere: it is no way around the link's password."""
    published: list[tuple[str, str]] = []
    honest = accounts.publish

    async def noted(requests: Any, ring: Any, password: str, passphrase: str, *rest: Any) -> Any:
        published.append((password, passphrase))
        return await honest(requests, ring, password, passphrase, *rest)

    monkeypatch.setattr(accounts, "publish", noted)
    box = box_of(alice)
    found = [made(alice, box, password="Secret 99") for _ in range(2)]
    assert len({each for pair in published for each in pair}) == 4
    for link, (password, passphrase) in zip(found, published, strict=True):
        assert passphrase == LinkUrl.parse(link.url).passphrase("Secret 99")
        assert len(password) == 43
        stored = new_provider().logIn(link.userId, passphrase=passphrase).result(PATIENCE)
        assert KeyFile(stored).open(passphrase=passphrase).userId == link.userId
        with pytest.raises(BrokerError.decryptionError):
            KeyFile(stored).open(passphrase="Secret 99")


def test_a_container_that_cannot_be_shared_is_named_and_nothing_is_changed(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    mine, read, gone = box_of(bob), box_of(alice), box_of(bob)
    alice.grantAccess(read, AccessLevel(id_of(bob))).result(PATIENCE)
    bob.deleteContainer(gone).result(PATIENCE)
    for box, kind in (
        (read, BrokerError.permissionDeniedError),
        (uuid.uuid4(), BrokerError.notFoundError),
        (gone, BrokerError.deletedError),
    ):
        with Network() as network, pytest.raises(kind) as denied:
            made(bob, mine, box)
        assert denied.value.containerId == box
        assert network.those("POST", "/v1/users") == []
        assert (listed(bob), members(bob, mine)) == ([], {id_of(bob)})


def test_a_link_to_the_users_own_links_or_address_book_is_refused(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    """Links are shared with nobody: they have private keys, and a shared list is ignored."""
    link = made(alice, box_of(alice))
    Contacts(alice).add(bob.getContactCard("Bob").result(PATIENCE)).result(PATIENCE)
    for kind in ("scbroker.links", "scbroker.contacts"):
        [own] = alice.listContainers(kind).result(PATIENCE).containers
        assert not isinstance(own, BrokerError)
        promise = alice.createLink([*link.containerIds, own.id], expiresAt=tomorrow())
        refusal(promise, BrokerError.invalidArgumentError, "for your contacts or your links")
    assert listed(alice) == [link]


def test_a_link_that_cannot_be_given_one_of_its_containers_is_revoked_and_opens_none(
    alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check passes, and the grant fails: others took the permission away meanwhile."""
    kept, lost = box_of(alice), box_of(alice)

    async def unchecked(*_: object) -> None:
        await alice.deleteContainer(lost)

    monkeypatch.setattr(links, "_check_can_share", unchecked)
    with pytest.raises(BrokerError.deletedError) as failed:
        made(alice, kept, lost)
    assert failed.value.containerId == lost
    assert (listed(alice), members(alice, kept)) == ([], {id_of(alice)})


class Crash:
    """All requests of a process after the first `alive` ones get no answer: as if it had ended there."""

    def __init__(self, alive: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.alive, honest = 0, alive, Requests._once

        async def once(requests: Requests, *about: Any) -> Any:
            self.count += 1
            if self.count > self.alive:
                raise BrokerError.brokerFaultError("The process has ended.")
            return await honest(requests, *about)

        monkeypatch.setattr(Requests, "_once", once)


def test_a_link_that_could_neither_be_made_nor_revoked_is_logged_and_stays_in_the_list(
    alice: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    box = box_of(alice)
    with Network() as network:
        fault = BrokerError.brokerFaultError("down")

        async def down(go: Any) -> bytes:
            del go
            raise fault.fresh()

        network.treat("POST", "/v1/users", down)
        network.treat("POST", "/v1/session-challenges", down)
        with caplog.at_level(logging.WARNING), pytest.raises(BrokerError.brokerFaultError):
            made(alice, box)
    [link] = listed(alice)
    assert f"call revokeLink for user {link.userId}" in caplog.text
    assert link.url[-40:] not in caplog.text
    alice.revokeLink(link).result(PATIENCE)
    assert listed(alice) == []


@pytest.mark.long
def test_revoking_goes_on_where_the_creator_may_not_change_access_any_more_and_says_so(
    alice: ServerProvider, bob: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """Alice, who made the link, is a reader of one of its containers by now, and was removed from another."""
    me, him = id_of(alice), id_of(bob)
    boxes = [box_of(alice), box_of(alice), box_of(alice)]
    owner = AccessLevel(him, Level.DefaultOwnerPermissions)
    alice.grantAccess(boxes, owner).result(PATIENCE)
    link = made(alice, *boxes)
    bob.grantAccess(boxes[0], AccessLevel(me)).result(PATIENCE)
    bob.revokeAccess(boxes[1], me).result(PATIENCE)
    guest = opened(link)
    with caplog.at_level(logging.WARNING):
        alice.revokeLink(link).result(PATIENCE)
    for box in boxes[:2]:
        assert f"can no longer change the access to container {box}" in caplog.text
        refusal(guest.getContainer(box), BrokerError)
    assert str(boxes[2]) not in caplog.text
    assert members(bob, boxes[2]) == {me, him}
    assert listed(alice) == []
    bob.updateContainerContent(boxes[0], b"new").result(PATIENCE)
    assert bob.getContainerContent(boxes[0]).result(PATIENCE) == b"new"


def test_a_failed_revocation_keeps_the_link_but_deletes_its_user(alice: ServerProvider) -> None:
    box = box_of(alice)
    link = made(alice, box)
    with pytest.MonkeyPatch.context() as patched:

        async def failing(self: Any, boxes: Any, user: Any) -> Any:
            del self, user
            return [BrokerError.integrityError("damaged") for _ in boxes]

        patched.setattr(BaseProvider, "revokeAccess", failing)
        with pytest.raises(BrokerError.integrityError) as failed:
            alice.revokeLink(link).result(PATIENCE)
    assert failed.value.containerId == box
    assert listed(alice) == [link]
    refused(link, BrokerError.notFoundError, "was revoked")
    alice.revokeLink(link).result(PATIENCE)
    assert (listed(alice), members(alice, box)) == ([], {id_of(alice)})
