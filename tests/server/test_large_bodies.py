"""Large-body slots are limited for a process and for each user; buffers are reused."""

import asyncio

import pytest

from scbroker.errors import OverloadedError
from scbroker.server import capacity
from scbroker.server.capacity import Buffers, LargeBodies
from tests.kit.waiting import tick

MIB = 1_048_576
SIZE = 4 * MIB


async def test_a_process_has_so_many_slots_and_a_waiting_request_gets_the_next_free_one() -> None:
    process = LargeBodies(3)
    taken = [await process.acquire(user) for user in (b"a", b"b", b"c")]
    waiting = asyncio.ensure_future(process.acquire(b"d"))
    await tick()
    assert not waiting.done()
    taken[1]()
    (await waiting)()


@pytest.mark.long
async def test_waiting_for_a_slot_ends_and_a_request_that_gave_up_holds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "_WAIT_SECONDS", 0.1)

    process = LargeBodies(1)
    release = await process.acquire(b"a")
    for _ in range(8):
        with pytest.raises(OverloadedError) as caught:
            await process.acquire(b"b")
        assert caught.value.retryAfter
    release()
    (await process.acquire(b"b"))()


async def test_the_waiting_requests_of_one_user_are_limited() -> None:
    process = LargeBodies(1)
    release = await process.acquire(b"a")
    waiting = [asyncio.ensure_future(process.acquire(b"a")) for _ in range(64)]
    await tick()
    with pytest.raises(OverloadedError, match="fewer at once"):
        await process.acquire(b"a")
    release()
    for acquiring in waiting:
        (await acquiring)()


def test_a_user_without_unread_responses_may_get_one_of_any_size() -> None:
    process = LargeBodies(1)
    release = process.count_unread(b"a", 20 * MIB)
    with pytest.raises(OverloadedError):
        process.count_unread(b"a", 1)
    process.count_unread(b"b", 8 * MIB)()  # others are not concerned
    release()
    process.count_unread(b"a", 20 * MIB)


def test_a_released_buffer_is_reused_and_another_is_used_beside_it() -> None:
    buffers = Buffers(SIZE)
    with buffers.receiving() as first:
        assert len(first) == SIZE
    with buffers.receiving() as second, buffers.receiving() as third:
        assert second is first
        assert third is not first
