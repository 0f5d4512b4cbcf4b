"""The permission matrix: every allowed combination, every operation; the client's answer and the broker's.

What an operation needs and what shows a field stands in two tables here, and nowhere else in this
file. Combinations that may not be given are refused before anything is sent (test_containers).
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    ContainerEventType,
    Promise,
    ServerProvider,
)
from scbroker.records.container_record import Role
from scbroker.types import Metadata
from scbroker.wire.containers import RecordRequest
from tests.client.conftest import Users, id_of
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.tables import added, dump, gone
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import Story, User

Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions
NOTHING = Level(0)
ALLOWED = [Level(bits) for bits in range(1, 512) if not Level(bits).missing()]
LARGE = bytes(70_000)
HEADER = {"title": "t"}

# What shows a field of what is read.
SHOWN = {
    "content": Level.Download | Level.Decrypt, "header": Level.Download | Level.Decrypt,
    "length": Level.Decrypt, "type": Level.ViewType, "access": Level.ViewAccess,
    "wrap": Level.Decrypt, "sealedHeader": Level.Download, "sealedContent": Level.Download,
}  # fmt: skip
# What an operation needs. In the order in which they are tried: the last one ends the container.
Act = Callable[[ServerProvider, uuid.UUID, list[AccessLevel]], Promise[Any]]
NEEDED: dict[str, tuple[Level, Act]] = {
    "updateContainerHeader": (Level.Upload, lambda p, c, _: p.updateContainerHeader(c, 1)),
    "updateContainerContent": (Level.Upload, lambda p, c, _: p.updateContainerContent(c, b"n")),
    "updateContainerType": (
        Level.Upload | Level.ModifyType,
        lambda p, c, _: p.updateContainerType(c, "n"),
    ),
    "updateContainerAccessLevels": (
        Level.Upload | Level.ModifyAccess,
        lambda p, c, levels: p.updateContainerAccessLevels(c, levels),
    ),
    "updateContainer": (
        Level.Upload | Level.ModifyAccess | Level.ModifyType,
        lambda p, c, levels: p.updateContainer(
            c, content=b"n", customHeaderObject=2, accessLevels=levels, type="m"
        ),
    ),
    "deleteContainer": (Level.Delete, lambda p, c, _: p.deleteContainer(c)),
}


def named(level: Level) -> str:
    return "+".join(bit.name or "" for bit in level)


@pytest.fixture
def levels(alice: ServerProvider, bob: ServerProvider) -> Callable[[Level], list[AccessLevel]]:
    me, him = id_of(alice), id_of(bob)
    return lambda his: [AccessLevel(me, OWNER), AccessLevel(him, his)]


Levels = Callable[[Level], list[AccessLevel]]


each_group = pytest.mark.parametrize(
    "group",
    [ALLOWED[start : start + 16] for start in range(0, len(ALLOWED), 16)],
    ids=lambda group: f"{int(group[0])} to {int(group[-1])}",
)


@pytest.mark.long
@each_group
def test_a_reader_gets_exactly_what_their_permissions_show(
    alice: ServerProvider, bob: ServerProvider, levels: Levels, group: list[Level]
) -> None:
    made = {
        level: alice.createContainer(b"c", HEADER, accessLevels=levels(level), type="t")
        for level in group
    }
    for level, promise in made.items():
        container = promise.result(PATIENCE).id
        whole = bob.getContainer(container).result(PATIENCE)
        metadata = bob.getContainerMetadata(container).result(PATIENCE)
        secured = bob.getSecuredContainer(container).result(PATIENCE)
        assert bob.getContainer(container).result(PATIENCE) == whole, (
            "with a mark it is judged alike"
        )
        assert whole.createdBy == id_of(alice)
        header = bob.getContainerHeader(container).result(PATIENCE)
        content = bob.getContainerContent(container).result(PATIENCE)
        found = {
            "content": whole.content == b"c",
            "header": whole.header is not None and whole.header.customHeaderObject == HEADER,
            "wrap": secured.wrap is not None,
            "sealedHeader": secured.sealedHeader is not None,
            "sealedContent": secured.sealedContent is not None,
        }
        described: list[Metadata] = [whole, metadata, secured]
        for shown in described:
            for field, value in {"length": 1, "type": "t"}.items():
                assert getattr(shown, field) == (value if SHOWN[field] in level else None)
            everybody = {(each.userId, each.permissions) for each in shown.access or ()}
            all_of_them = {(each.userId, each.permissions) for each in levels(level)}
            assert everybody == (all_of_them if SHOWN["access"] in level else set())
        assert found == {field: SHOWN[field] in level for field in found}, named(level)
        assert (header is not None) is (SHOWN["header"] in level)
        assert content == (b"c" if SHOWN["content"] in level else None)
        assert (metadata.content, metadata.header) == (None, None)


@pytest.mark.sampled
@pytest.mark.parametrize("download", [NOTHING, Level.Download], ids=["", "Download"])
@pytest.mark.parametrize("decrypt", [NOTHING, Level.Decrypt], ids=["", "Decrypt"])
@pytest.mark.parametrize("view", [Level.ViewAccess, Level.ViewType], ids=named)
def test_a_large_content_is_shown_as_a_small_one_is(
    alice: ServerProvider,
    bob: ServerProvider,
    levels: Levels,
    download: Level,
    decrypt: Level,
    view: Level,
) -> None:
    level = view | download | decrypt
    creation = alice.createContainer(LARGE, HEADER, accessLevels=levels(level), type="t")
    made = creation.result(PATIENCE)
    expected = LARGE if SHOWN["content"] in level else None
    assert bob.getContainerContent(made.id).result(PATIENCE) == expected
    whole = bob.getContainer(made.id).result(PATIENCE)
    assert bob.getContainer(made.id).result(PATIENCE) == whole
    assert whole.content == expected
    secured = bob.getSecuredContainer(made.id).result(PATIENCE)
    for found, fields in (whole, "header length type access"), (secured, "wrap sealedHeader"):
        for field in fields.split():
            assert (getattr(found, field) is not None) is (SHOWN[field] in level), field


@pytest.mark.long
@each_group
def test_a_member_does_exactly_what_their_permissions_allow(
    alice: ServerProvider, bob: ServerProvider, levels: Levels, group: list[Level]
) -> None:
    made = {
        level: alice.createContainer(b"c", HEADER, accessLevels=levels(level), type="t")
        for level in group
    }
    for level, promise in made.items():
        container = promise.result(PATIENCE).id
        before = 1
        for name, (needed, act) in NEEDED.items():
            attempt = act(bob, container, levels(level))
            if needed in level:
                attempt.result(PATIENCE)
                before += 1
                continue
            with pytest.raises(BrokerError.permissionDeniedError) as caught:
                attempt.result(PATIENCE)
            lacking = needed & ~level
            assert any(str(bit.name) in str(caught.value) for bit in lacking), (name, named(level))
        if Level.Delete in level:
            with pytest.raises(BrokerError.deletedError):
                bob.getContainerMetadata(container).result(PATIENCE)
        else:
            assert alice.getContainerMetadata(container).result(PATIENCE).version == before


@pytest.mark.sampled
@both_engines
@pytest.mark.parametrize(
    "level", [*OWNER, *(OWNER & ~bit for bit in OWNER if not (OWNER & ~bit).missing())], ids=named
)
def test_the_broker_itself_serves_what_the_permissions_allow_and_nothing_else(
    broker: BrokerProcess, user_pool: Users, level: Level
) -> None:
    """Asked by hand, without a client that would hold back by itself."""
    level |= level.missing()
    with Wire(broker) as mine, Wire(broker) as his:
        first, second, third = user_pool(3)
        alice, bob = User(first, mine.log_in(first)), User(second, his.log_in(second))
        carol = User(third, mine)
        story = Story(alice)
        part = story.upload(alice, LARGE)
        grants = {alice: int(OWNER), bob: int(level), carol: int(Level.Download)}
        story.created(grants, header=b"{}", content=part, type="t")
        view = bob.view(story, "header=1&content=1")
        assert (view.header is not None) is (Level.Download in level)
        assert (view.wrap is not None) is (Level.Decrypt in level)
        assert (view.type is not None) is (Level.ViewType in level)
        shown = view.governing[0].accessList
        assert shown is not None
        assert len(shown.disclosed) == (3 if Level.ViewAccess in level else 2), "own and author's"
        path = f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}"
        for question in ("/hashes", "/segments?first=0&count=1"):
            answer = bob.wire.call("GET", path + question)
            if Level.Download in level:
                answer.expect(200)
            else:
                answer.expect(403, "permission")
        new, sealed = story.seal(Role.Content, bob, LARGE, story.key)
        answer = story.chunk(bob, new, 0, sealed)
        answer.expect(204) if Level.Upload in level else answer.expect(403, "permission")


# A change that a modified client sends without the permission for it, and what it needs.
FORGED: dict[str, tuple[Level, dict[str, Any]]] = {
    "content": (Level.Upload, {"content": None}),
    "type": (Level.ModifyType, {"type": "forged"}),
    "access": (Level.ModifyAccess, {"grants": ()}),
    "tombstone": (Level.Delete, {"tombstone": True}),
}


@pytest.fixture
def people(broker: BrokerProcess, user_pool: Users) -> Iterator[tuple[User, User]]:
    with Wire(broker) as mine, Wire(broker) as his:
        first, second = user_pool(2)
        yield User(first, mine.log_in(first)), User(second, his.log_in(second))


def forged(people: tuple[User, User], name: str) -> tuple[Story, RecordRequest]:
    """A container where bob has everything but one permission, and his change that needs it."""
    alice, bob = people
    lacking, change = FORGED[name]
    level = OWNER & ~lacking
    level &= ~sum((bit for bit in OWNER if bit.missing() & lacking), start=NOTHING)
    story = Story(alice).created({alice: int(OWNER), bob: int(level)}, type="t")
    if name == "access":
        change = {"grants": {alice: int(OWNER), bob: int(OWNER)}}
    return story, story.follow(bob, **change)


@pytest.mark.sampled
@pytest.mark.parametrize("name", FORGED)
def test_the_broker_refuses_a_signed_change_that_its_author_has_no_right_to(
    broker: BrokerProcess, people: tuple[User, User], name: str
) -> None:
    story, request = forged(people, name)
    before = dump(broker.database_url)
    answer = story.send(people[1], request)
    assert (answer.status, answer.code) in {(403, "permission"), (422, "rejected")}
    after = dump(broker.database_url)
    assert not added(before, after)
    assert not gone(before, after)


@pytest.mark.long
@pytest.mark.parametrize("receives", [NOTHING, Level.ReceiveAccessEvents], ids=["", "receives"])
@pytest.mark.parametrize("sees", [NOTHING, Level.ViewType], ids=["", "sees"])
def test_a_fetch_is_told_to_who_receives_it_and_the_type_to_who_sees_it(
    alice: ServerProvider,
    bob: ServerProvider,
    carol: ServerProvider,
    levels: Levels,
    receives: Level,
    sees: Level,
) -> None:
    level = Level.Download | Level.Decrypt | Level.ViewAccess
    witness = AccessLevel(id_of(carol), level | Level.ReceiveAccessEvents)
    start = max((event.id for event in bob.getEvents().result(PATIENCE)), default=0) + 1
    access = [*levels(level | receives | sees), witness]
    made = alice.createContainer(b"c", accessLevels=access, type="t").result(PATIENCE)
    alice.getContainerContent(made.id).result(PATIENCE)
    # Whoever is told of a fetch is told in the same transaction.
    wait_until(lambda: len(carol.getEvents(containerId=made.id).result(PATIENCE)) == 2)
    told = [ContainerEventType.Added]
    if receives:
        told.append(ContainerEventType.Accessed)
    events = bob.getEvents(startId=start, containerId=made.id).result(PATIENCE)
    assert [event.eventType for event in events] == told
    assert {event.containerType for event in events} == {"t" if sees else None}
    found = bob.getEvents(startId=start, containerType="t", containerId=made.id).result(PATIENCE)
    assert len(found) == (len(told) if sees else 0)
