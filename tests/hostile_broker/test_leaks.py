"""Sealed bytes tell a broker, or a thief of its database, nothing of the plaintext but its length.

Attack 24 of `catalogue`.
"""

import random
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import Final

import pytest
from msgspec.structs import replace

from scbroker.client.core.sealing import NewPart, seal_part_key
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import Part, Role, parse_record, sealed_size
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import INTEGRITY
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User

all_mount(__name__, 24, "equality and length leaks")

RUN: Final = 16
LARGE: Final = 70_000


def stored_parts(mallory: Mallory, container: uuid.UUID) -> dict[bytes, bytes]:
    """The sealed bytes of every part that the broker keeps of a container, by part id."""
    url = mallory.behind.database_url
    rows = query(url, "SELECT part_id, inline FROM parts WHERE container_id = ?", container.bytes)
    found = {}
    for part_id, inline in rows:
        chunks = query(url, "SELECT blob FROM chunks WHERE part_id = ? ORDER BY chunk", part_id)
        files = [path for (blob,) in chunks for path in mallory.behind.directory.rglob(blob)]
        found[part_id] = inline or b"".join(path.read_bytes() for path in files)
    assert all(found.values())
    return found


def made_of_plaintext(mallory: Mallory, container: uuid.UUID) -> Iterator[bytes]:
    """All that the broker keeps of a container and that depends on content, header, type, keys or list."""
    url = mallory.behind.database_url
    yield from stored_parts(mallory, container).values()
    for (body,) in query(url, "SELECT body FROM records WHERE container_id = ?", container.bytes):
        record = parse_record(body)
        for part in (record.header, record.content):
            if part is not None:
                yield from (part.segments, part.sealedKey)
        if record.governing is not None:
            yield from (record.governing.keyCommitment, record.governing.type)
            yield record.governing.accessList
    for (wrap,) in query(url, "SELECT wrap FROM members WHERE container_id = ?", container.bytes):
        yield from () if wrap is None else (wrap,)


def hashes_of_entries(request: RecordRequest) -> Iterator[bytes]:
    for entry in request.accessList or ():
        yield from (entry.salt, entry.salted.hash)


def runs(data: bytes) -> set[bytes]:
    return {data[at : at + RUN] for at in range(len(data) - RUN + 1)}


@pytest.mark.long
def test_equal_containers_and_equal_versions_share_no_run_of_bytes_in_storage(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Written by one program for the same members, small and large; Carol may see the type alone."""
    device = mallory.device_of(alice)
    levels = [level(alice), level(bob, READER), level(carol, Level.ViewType)]
    pieces: list[bytes] = []
    for size in (1000, LARGE):
        for _ in range(2):
            made = device.createContainer(
                bytes(size), {"h": 1}, accessLevels=levels, type="t"
            ).result(PATIENCE)
            pieces += hashes_of_entries(mallory.sent_record())
            device.updateContainerContent(made.id, bytes(size)).result(PATIENCE)
            pieces += set(made_of_plaintext(mallory, made.id))
    seen = [runs(piece) for piece in pieces]
    assert len(seen) == 4 * (3 * 2 + 3 * 3 + 3 + 2), "more or less is stored than this test knows"
    for one, other in combinations(seen, 2):
        assert one.isdisjoint(other)


def contents(size: int) -> list[bytes]:
    """Return contents of one size that compress best, and not at all."""
    return [bytes(size), random.Random(size).randbytes(size), (b"abc" * size)[:size]]


@pytest.mark.sampled
@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 65_536, LARGE])
def test_nothing_is_compressed_so_that_the_stored_size_tells_the_length_alone(
    mallory: Mallory, size: int
) -> None:
    device = mallory.device(mallory.new_user())
    sent: set[tuple[int, ...]] = set()
    for content in contents(size):
        count = len(mallory.heard)
        made = device.createContainer(content).result(PATIENCE)
        [sealed] = stored_parts(mallory, made.id).values()
        assert len(sealed) == sealed_size(size)
        device.getContainerContent(made.id).result(PATIENCE)
        exchanges = [each for each in mallory.heard[count:] if "containers" in each.path]
        sent.add(tuple(len(each.body) for each in exchanges))
        for each in exchanges:
            names = {name.lower() for name in [*each.headers, *each.answer_headers]}
            assert names.isdisjoint({"content-encoding", "accept-encoding", "te"})
    assert len(sent) == 1


def padded(story: Story, author: User, plaintext: bytes, length: int) -> tuple[Part, bytes]:
    """A part whose plaintext holds more than its length says."""
    new = NewPart.begin(story.id, Role.Content, author.name)
    sealed = new.seal_segment(0, True, plaintext)
    key = seal_part_key(
        story.key, story.id, new.part_id, Role.Content, author.name, new.key, length
    )
    return replace(new.finish(story.key, len(plaintext), sha256(sealed)), sealedKey=key), sealed


def test_what_another_program_padded_is_read_without_and_padding_that_says_something_is_refused(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Else a writer could hide in it what some programs show and others do not."""
    device = mallory.device_of(alice, bob)

    def written(plaintext: bytes, length: int) -> uuid.UUID:
        story = Story(bob)
        part, sealed = padded(story, bob, plaintext, length)
        request = story.begin({bob: OWNER, alice: OWNER})
        story.tell(bob, replace(story.altered(bob, request, content=part), content=sealed))
        return story.uuid

    found = device.getContainer(written(b"content" + bytes(57), 7)).result(PATIENCE)
    assert (found.content, found.length) == (b"content", 7)
    for plaintext, length in ((b"content" + bytes(56) + b"x", 7), (b"content", 8)):
        container = written(plaintext, length)
        with suppress(INTEGRITY):  # the chain is right, and is marked
            device.getContainerMetadata(container).result(PATIENCE)
        mallory.check_refused(device, container, INTEGRITY, "getContainer", "getContainerContent")
