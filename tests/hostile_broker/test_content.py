"""Attacks on sealed bytes: moved, cut, changed in the last byte, spliced, compared.

Attacks 16, 18, 19 and 24 of attacks.toml. Twice where it can be: by a broker, which the signed hashes
show; and by a writer who signs hashes that fit, so that nothing but the sealing itself stands in the way.
"""

import itertools
import json
import random
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, Header, ServerProvider
from scbroker.client.core.sealing import NewPart, OpenPart, seal_part_key
from scbroker.client.http.requests import CHUNKS_AT_ONCE
from scbroker.records.container_record import (
    SEALED_SEGMENT,
    SEGMENT,
    Part,
    Role,
    parse_record,
    sealed_size,
)
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import Mallory, check_no_file, level, save
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import DECRYPTION, HASHES, INTEGRITY, SEGMENTS, VIEW
from tests.hostile_broker.served import instead, same
from tests.kit.crypto import HASH_SIZE, sha256
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Story, User

TOO_LARGE = BrokerError.tooLargeError
SMALL = 40_000


def segments_of(sealed: bytes) -> list[bytes]:
    return [sealed[at : at + SEALED_SEGMENT] for at in range(0, len(sealed), SEALED_SEGMENT)]


Pieces = list[bytes]
Move = Callable[[Pieces], Pieces]


def swapped(at: int) -> Move:
    return lambda p: [*p[:at], p[at + 1], p[at], *p[at + 2 :]]


def doubled(at: int) -> Move:
    return lambda p: [*p[: at + 1], *p[at:]]


def dropped(at: int) -> Move:
    return lambda p: [*p[:at], *p[at + 1 :]]


def shorter(at: int, by: int = 1) -> Move:
    return lambda p: [*p[:at], p[at][:-by], *p[at + 1 :]]


def ended(at: int) -> Move:
    return lambda p: p[:at]


def followed(by: bytes) -> Move:
    return lambda p: [*p, by]


MOVES: dict[str, Move] = {
    "the first two swapped": swapped(0),
    "the last two swapped": swapped(1),
    "the first doubled": doubled(0),
    "the last doubled": doubled(2),
    "the first dropped": dropped(0),
    "the last full one dropped": dropped(1),
    "the last dropped": dropped(2),
    "a byte of a full one cut": shorter(1),
    "a byte of the last cut": shorter(2),
    "nothing there": ended(0),
    "a byte after the end": followed(b"\0"),
    "a tag after the end": followed(bytes(16)),
}


# Eight segments come with one request.
OVER_TWO_REQUESTS: dict[str, Move] = {
    "swapped over the end of a request": swapped(7),
    "the last of a request dropped": dropped(7),
    "the first of a request doubled": doubled(8),
    "nothing of the last request": ended(8),
}
AT_A_FULL_END: dict[str, Move] = {
    "the last two swapped": swapped(0),
    "the last doubled": doubled(1),
    "the last dropped": dropped(1),
    "a byte after the end": followed(b"\0"),
}
CONTENTS = {2 * SEGMENT + 9: MOVES, 8 * SEGMENT + 9: OVER_TWO_REQUESTS, 2 * SEGMENT: AT_A_FULL_END}


@contextmanager
def serving(mallory: Mallory, sealed: bytes, hashes: bytes) -> Iterator[None]:
    """Answers for a content's segments out of these bytes, whatever stands where; and these hashes."""
    count = len(hashes) // HASH_SIZE

    def before(exchange: Exchange) -> None:
        query = {name: int(value) for name, [value] in parse_qs(exchange.query).items()}
        first, end = query["first"], query["first"] + query["count"]
        rest = end * SEALED_SEGMENT if end < count else None
        exchange.status, exchange.answer = 200, sealed[first * SEALED_SEGMENT : rest]

    with mallory.meddling(SEGMENTS, before=before), mallory.answering(HASHES, hashes):
        yield


def sealed_content(
    mallory: Mallory, device: ServerProvider, container: uuid.UUID
) -> tuple[Pieces, bytes]:
    """The segments of a large content and their hashes, as they are truly served."""
    with mallory.lying(HASHES, same) as hashes, mallory.lying(SEGMENTS, same) as runs:
        device.getContainerContent(container).result(PATIENCE)
    runs.sort(key=len, reverse=True)  # the last is the short one
    return segments_of(b"".join(runs)), hashes[0]


@pytest.mark.sampled
@pytest.mark.parametrize("size", CONTENTS)
def test_no_segment_is_moved_doubled_dropped_cut_or_added(
    mallory: Mallory, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All plaintext is alike, so that nothing but the place tells one from another.

    With hashes that are made to fit it goes no further than those: not one segment is opened, and no more
    are asked for than are fetched beside the hashes.
    """
    opened: list[int] = []

    def noted(part: OpenPart, target: memoryview, index: int, *rest: Any) -> int:
        opened.append(index)
        return honest(part, target, index, *rest)

    honest = OpenPart.open_segment_into
    monkeypatch.setattr(OpenPart, "open_segment_into", noted)
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    container = device.createContainer(bytes(size)).result(PATIENCE).id
    pieces, hashes = sealed_content(mallory, device, container)
    assert len(pieces) == len(hashes) // HASH_SIZE
    all_moved = [b"".join(move(pieces)) for move in CONTENTS[size].values()]
    opened.clear()
    # These first: a thread may still open what came with the true hashes after the call has failed.
    for moved in all_moved:
        fitting = b"".join(map(sha256, segments_of(moved)))
        error = TOO_LARGE if len(fitting) > len(hashes) else INTEGRITY
        count = len(mallory.heard)
        if fitting != hashes:
            with serving(mallory, moved, fitting):
                mallory.check_refused(device, container, error, "getContainerContent")
            assert not opened
            assert mallory.since(count).count(SEGMENTS) <= CHUNKS_AT_ONCE
    for moved in all_moved:
        with serving(mallory, moved, hashes):
            mallory.check_refused(device, container, INTEGRITY, "getContainerContent")
    assert device.getContainerContent(container).result(PATIENCE) == bytes(size)


INNER_MOVES: dict[str, Move] = {
    "swapped": swapped(0),
    "doubled": doubled(1),
    "the first dropped": dropped(0),
    "the last dropped": dropped(2),
    "followed by a byte": followed(b"\0"),
    "all cut": ended(0),
}


def test_no_chunk_is_moved_or_cut_even_where_a_writer_signs_for_it(mallory: Mallory) -> None:
    """The sealing of a segment has a head of 56 bytes, and chunks of 16 KiB with a tag each."""
    alice, bob = mallory.people(2)
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    device = mallory.device_of(alice, bob)
    for name, move in INNER_MOVES.items():
        request = story.follow(bob, content=bytes(SMALL))
        assert request.content is not None
        chunks = [
            request.content[at : at + 16_400] for at in range(56, len(request.content), 16_400)
        ]
        sealed = request.content[:56] + b"".join(move(chunks))
        new, length = next(reversed(story.parts.values()))
        part = new.finish(story.key, length, sha256(sealed))
        mallory.plant(story, replace(story.altered(bob, request, content=part), content=sealed))
        device.getContainerMetadata(story.uuid).result(PATIENCE)  # the chain itself is right
        error = DECRYPTION if name == "swapped" else INTEGRITY  # the others change the length
        mallory.check_refused(device, story, error, "getContainer")


def last_byte_changed(sealed: bytes) -> bytes:
    return sealed[:-1] + bytes([sealed[-1] ^ 1])


def check_nothing_is_held(error: BaseException, plaintext: bytes) -> None:
    """No frame that the error keeps, and no other error that it came from, has anything of it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if "/src/scbroker/" in frame.f_code.co_filename]
    assert own, "the error says nothing of where it was raised"
    for frame in own:
        for value in frame.f_locals.values():
            assert not isinstance(value, (bytes, bytearray)) or plaintext[:64] not in value
    assert error.__context__ is None
    assert error.__cause__ is None


@pytest.mark.sampled
@pytest.mark.parametrize("size", [SMALL, 8 * SEGMENT + 9], ids=["small", "large"])
def test_a_reader_sees_nothing_of_a_content_whose_last_byte_was_changed(
    mallory: Mallory, tmp_path: Path, size: int, alice: User
) -> None:
    """All that came before it is right, and was opened already."""
    plaintext = b"the plaintext that nobody is to see; " * (size // 37 + 1)
    device = mallory.device_of(alice)
    container = device.createContainer(plaintext[:size], "header").result(PATIENCE).id
    told: list[tuple[int, int | None]] = []

    def change(exchange: Exchange) -> None:
        if exchange.name == SEGMENTS and "first=8" in exchange.query:
            exchange.answer = last_byte_changed(exchange.answer)
        elif exchange.name == VIEW and exchange.answer.content is not None:
            exchange.answer = replace(
                exchange.answer, content=last_byte_changed(exchange.answer.content)
            )

    def progress(done: int, total: int | None) -> None:
        told.append((done, total))

    with mallory.meddling("", after=change):
        with mallory.refused(device, INTEGRITY) as attempt:
            for promise in (
                device.getContainer(container, progress=progress),
                device.getContainerContent(container, progress=progress),
            ):
                check_nothing_is_held(attempt(promise), plaintext)
        check_no_file(device, container, tmp_path, INTEGRITY)
        assert device.getContainerHeader(container).result(PATIENCE) == Header("header")
    assert all(done < size for done, _ in told)
    save(device, container, tmp_path / "content")
    assert (tmp_path / "content").read_bytes() == plaintext[:size]


def test_no_header_and_content_are_put_together_that_were_not_written_together(
    mallory: Mallory, alice: User
) -> None:
    """All pairs of the parts of two containers and three versions, each also in the other's place."""
    story, other = Story(alice).created(header=b"1", content=b"1"), Story(alice)
    other.created(header=b"1", content=b"1")
    for _ in range(2):
        story.tell(alice, story.follow(alice, header=b"1", content=b"1"))
    device = mallory.device_of(alice)
    device.getContainer(story.uuid).result(PATIENCE)
    requests = [*story.requests, *other.requests]
    sealed = [part for request in requests for part in (request.header, request.content)]
    truth = (story.requests[-1].header, story.requests[-1].content)
    pairs = [pair for pair in itertools.product(sealed, repeat=2) if pair != truth]
    assert len(pairs) == 63
    for header, content in pairs:
        with (
            mallory.lying(VIEW, instead(header=header, content=content)),
            mallory.refused(device, INTEGRITY) as attempt,
        ):
            attempt(device.getContainer(story.uuid))
            if truth[0] == header or truth[1] == content:
                attempt(device.getSecuredContainer(story.uuid))


# Sealed bytes tell a broker, or a thief of its database, nothing of the plaintext but its length.


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


# Limits


def test_the_lengths_of_content_and_header_are_the_limit(mallory: Mallory) -> None:
    """The format has room for padding, and nothing is padded: the record says the length to everybody."""
    device = mallory.device(mallory.new_user())
    for size in (0, 7, LARGE):
        header = "x" * size
        device.createContainer(bytes(size), header).result(PATIENCE)
        record = parse_record(mallory.sent_record().record.body)
        assert record.content is not None
        assert record.header is not None
        assert record.content.paddedLength == size
        assert record.header.paddedLength == len(json.dumps(header))
