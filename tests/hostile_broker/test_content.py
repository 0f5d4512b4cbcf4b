"""Attacks on sealed bytes: moved, cut, changed in the last byte, spliced.

Attacks 16, 18 and 19 of `catalogue`. Twice where it can be: by a broker, which the signed hashes show; and
by a writer who signs hashes that fit, so that nothing but the sealing itself stands in the way.
"""

import functools
import itertools
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, Header, ServerProvider
from scbroker.client.core.sealing import OpenPart
from scbroker.client.http.requests import CHUNKS_AT_ONCE
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from tests.hostile_broker.accomplices import Mallory, check_no_file, save
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, HASHES, INTEGRITY, SEGMENTS, VIEW
from tests.hostile_broker.served import instead, same
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, WRITER, Story, User

TOO_LARGE = BrokerError.tooLargeError
SMALL = 40_000
_HEAD, _CHUNK = 56, 16_384 + 16


def cut_into(sealed: bytes, size: int, head: int = 0) -> list[bytes]:
    return [sealed[at : at + size] for at in range(head, len(sealed), size)]


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
    return cut_into(b"".join(runs), SEALED_SEGMENT), hashes[0]


@pytest.mark.sampled
@attack(16, "chunks moved or cut")
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
        fitting = b"".join(map(sha256, cut_into(moved, SEALED_SEGMENT)))
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


def inner_moves(sealed: bytes) -> dict[str, bytes]:
    """A sealed segment with its chunks moved, and cut at each of its boundaries and beside them."""
    head, chunks = sealed[:_HEAD], cut_into(sealed, _CHUNK, _HEAD)
    moves: dict[str, Move] = {
        **{f"swapped {at}": swapped(at) for at in range(len(chunks) - 1)},
        **{f"doubled {at}": doubled(at) for at in range(len(chunks))},
        **{f"dropped {at}": dropped(at) for at in range(len(chunks))},
        "followed by a chunk": followed(chunks[0]),
        "followed by a byte": followed(b"\0"),
    }
    ends = {0, 24, *range(_HEAD, len(sealed), _CHUNK), len(sealed)}
    cuts = {at + by for at in ends for by in (-1, 0, 1)} & set(range(len(sealed)))
    return {
        **{name: head + b"".join(move(chunks)) for name, move in moves.items()},
        **{f"cut at {at}": sealed[:at] for at in sorted(cuts)},
        "its beginning cut": sealed[1:],
    }


def inner_move(name: str, sealed: bytes) -> bytes:
    return inner_moves(sealed)[name]


def sign_for(
    mallory: Mallory, story: Story, writer: User, change: Callable[[bytes], bytes]
) -> None:
    """A writer's own record with a new content whose sealed bytes were changed before it was signed."""
    request = story.follow(writer, content=bytes(SMALL))
    assert request.content is not None
    sealed = change(request.content)
    new, length = next(reversed(story.parts.values()))
    part = new.finish(story.key, length, sha256(sealed))
    mallory.plant(story, replace(story.altered(writer, request, content=part), content=sealed))


@attack(16, "chunks moved or cut")
def test_no_chunk_is_moved_or_cut_even_where_a_writer_signs_for_it(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    device = mallory.device_of(alice, bob)
    names = ["doubled 1", "dropped 0", "dropped 2", "followed by a byte"]
    cuts = [f"cut at {_HEAD + 2 * _CHUNK}", f"cut at {_HEAD}"]
    for name in ["swapped 0", *names, *cuts]:
        error = DECRYPTION if name == "swapped 0" else INTEGRITY  # the others change the length
        sign_for(mallory, story, bob, functools.partial(inner_move, name))
        device.getContainerMetadata(story.uuid).result(PATIENCE)  # the chain itself is right
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
@attack(18, "plaintext released early")
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


@attack(19, "parts spliced")
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
