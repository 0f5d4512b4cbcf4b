"""The permission matrix: every allowed combination, every operation; the client's answer and the broker's.

Two tables say which permission each operation needs, and which permission shows each field.
"""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, Promise, ServerProvider
from scbroker.records.container_record import Role
from scbroker.types import Metadata
from tests.client.conftest import Users, id_of
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story, User

Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions
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
