"""The result of an update is the container as the broker serves it to its author, in every field."""

import random
import uuid
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    Availability,
    BrokerError,
    ContainerAccessLevel,
    SecuredContainer,
    ServerProvider,
)
from tests.client.conftest import id_of
from tests.client.test_containers import OWNER, pattern, share
from tests.kit.both_engines import both_engines
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel
WRITER = Level.Upload | Level.Decrypt | Level.ViewAccess
CONTENTS = [None, b"", b"c", pattern(60_000), pattern(70_000)]
HEADERS = [None, {}, {"h": "x" * 5000}]
ALL_WRITERS = [
    level
    for bits in range(512)
    if WRITER in (level := Level(bits))
    and Level.ModifyAccess | Level.ModifyType in level
    and not level.missing()
]


def secured(provider: ServerProvider, container: uuid.UUID) -> SecuredContainer:
    return provider.getSecuredContainer(container).result(PATIENCE)


def random_update(
    provider: ServerProvider, container: uuid.UUID, levels: list[AccessLevel], chance: random.Random
) -> SecuredContainer:
    content, header = chance.choice(CONTENTS), chance.choice(HEADERS)
    match chance.randrange(3):
        case 0:
            promise = provider.updateContainerHeader(container, header)
        case 1:
            promise = provider.updateContainerContent(container, content)
        case _:
            promise = provider.updateContainer(
                container,
                content=content,
                customHeaderObject=header,
                accessLevels=levels,
                type=chance.choice([None, "t", "u"]),
            )
    return promise.result(PATIENCE)


@pytest.mark.sampled
@both_engines
@pytest.mark.parametrize("seed", range(12))
def test_what_create_and_update_give_is_what_get_secured_container_gives(
    alice: ServerProvider, bob: ServerProvider, seed: int
) -> None:
    """Of random containers, by an owner and by a member who lacks any permissions but those to write."""
    chance = random.Random(seed)
    level = chance.choice(ALL_WRITERS)
    levels = share(alice, (bob, level))
    arguments = (chance.choice(CONTENTS), chance.choice(HEADERS))
    made = alice.createContainer(*arguments, accessLevels=levels, type="t").result(PATIENCE)
    assert made == secured(alice, made.id)
    for _ in range(6):
        for provider in (bob, alice):
            given = random_update(provider, made.id, levels, chance)
            assert given == secured(provider, made.id), (seed, level)


@pytest.mark.sampled
@both_engines
@pytest.mark.parametrize("download", [False, True], ids=["", "Download"])
def test_the_part_that_an_update_leaves_is_in_its_result_as_it_is_kept(
    alice: ServerProvider, bob: ServerProvider, download: bool
) -> None:
    level = WRITER | Level.Download if download else WRITER
    levels = share(alice, (bob, level))
    made = alice.createContainer(b"c", {"h": 1}, accessLevels=levels).result(PATIENCE)
    header = bob.updateContainerHeader(made.id, {"h": 2}).result(PATIENCE)
    content = bob.updateContainerContent(made.id, b"d").result(PATIENCE)
    assert header.sealedContent == (made.sealedContent if download else None)
    assert (header.sealedHeader is not None) is download
    assert header.sealedHeader != made.sealedHeader
    assert content.sealedHeader == header.sealedHeader
    assert content == secured(bob, made.id)
    shown = Availability.Available if download else Availability.Hidden
    assert {header.contentAvailability, header.headerAvailability} == {shown}
    assert header.hasContent
    assert header.hasHeader


def test_an_author_who_is_not_in_the_new_list_sees_no_more_than_that_it_was_made(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    levels = [AccessLevel(id_of(bob), OWNER)]
    made = alice.createContainer(b"c", {"h": 1}, accessLevels=levels, type="t").result(PATIENCE)
    assert (made.id, made.version, made.createdBy) == (made.id, 1, id_of(alice))
    hidden = (made.type, made.access, made.length, made.wrap, made.sealedHeader, made.sealedContent)
    assert hidden == (None,) * 6
    assert made.contentAvailability is made.headerAvailability is Availability.Hidden
    with pytest.raises(BrokerError.notFoundError):
        secured(alice, made.id)


SHOWN = [
    # content and header as asked for, the permissions, what is said of each part that exists
    (Level.Download | Level.Decrypt, "whole", Availability.Available),
    (Level.Download | Level.Decrypt, "metadata", Availability.NotIncluded),
    (Level.Download | Level.Decrypt, "sealed", Availability.Available),
    (Level.Download, "whole", Availability.Hidden),
    (Level.Download, "metadata", Availability.NotIncluded),
    (Level.Download, "sealed", Availability.Available),
    (Level.Decrypt, "whole", Availability.Hidden),
    (Level.Decrypt, "sealed", Availability.Hidden),
    (Level.ViewType, "whole", Availability.Hidden),
    (Level.ViewType, "sealed", Availability.Hidden),
]


@pytest.mark.sampled
@pytest.mark.parametrize("level, asked, there", SHOWN, ids=range(len(SHOWN)))
@pytest.mark.parametrize("content", [None, b"", pattern(70_000)], ids=["none", "empty", "large"])
@pytest.mark.parametrize("header", [None, {"h": 1}], ids=["", "header"])
def test_absent_hidden_and_not_included_are_told_apart(
    alice: ServerProvider,
    bob: ServerProvider,
    level: Level,
    asked: str,
    there: Availability,
    content: bytes | None,
    header: object,
) -> None:
    levels = share(alice, (bob, level))
    container = alice.createContainer(content, header, accessLevels=levels).result(PATIENCE).id
    read: dict[str, list[Any]] = {
        "whole": [bob.getContainer(container), bob.getContainers([container])],
        "metadata": [bob.getContainerMetadata(container)],
        "sealed": [bob.getSecuredContainer(container)],
    }
    for promise in read[asked]:
        result = promise.result(PATIENCE)
        [found] = result if isinstance(result, list) else [result]
        assert (found.hasContent, found.hasHeader) == (content is not None, header is not None)
        of_content = Availability.Absent if content is None else there
        is_large = content is not None and len(content) > 65_536
        if asked == "sealed" and is_large and there is Availability.Available:
            of_content = Availability.NotIncluded
        assert found.contentAvailability is of_content
        assert found.headerAvailability is (Availability.Absent if header is None else there)
        if asked == "sealed":
            values = (found.sealedContent, found.sealedHeader)
        else:
            values = (found.content, found.header)
        for value, availability in zip(
            values, (found.contentAvailability, found.headerAvailability), strict=True
        ):
            assert (value is not None) is (availability is Availability.Available)
