"""The result of an update is the container as the broker serves it to its author, in every field."""

import random
import uuid
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    Availability,
    ContainerAccessLevel,
    SecuredContainer,
    ServerProvider,
)
from tests.client.test_containers import pattern, share
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
