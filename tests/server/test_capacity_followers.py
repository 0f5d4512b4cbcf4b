"""Followers: the wake-ups of requests that wait for events, however many notices arrive."""

import asyncio

import pytest

from scbroker.server import capacity
from scbroker.server.capacity import Followers
from tests.kit.waiting import PATIENCE

A, B = b"a" * 16, b"b" * 16


async def test_a_request_that_arrives_while_the_process_stops_does_not_wait() -> None:
    followers = Followers(8)
    waiting, _ = followers.add(A)
    followers.end()
    late, release = followers.add(B)
    assert waiting.is_set()
    assert late.is_set()
    release()
    assert followers.count == 1


async def test_any_number_of_notices_to_all_take_the_timers_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "_SPREAD_SECONDS", 0.05)
    followers, loop = Followers(100), asyncio.get_running_loop()
    waiting = [followers.add(bytes([number]) * 16)[0] for number in range(50)]
    timers: list[object] = []
    call_later = loop.call_later

    def count(*call: object) -> asyncio.TimerHandle:
        timers.append(call)
        return call_later(*call)  # type: ignore[arg-type] # as they came

    monkeypatch.setattr(loop, "call_later", count)
    for _ in range(1000):
        followers.wake(None)
    await asyncio.wait_for(asyncio.gather(*(woken.wait() for woken in waiting)), PATIENCE)
    assert len(timers) < 200  # those of the test itself as well


async def test_a_request_that_was_woken_is_woken_again_by_a_later_notice_to_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "_SPREAD_SECONDS", 0.05)
    followers = Followers(8)
    woken, _ = followers.add(A)
    for _ in range(2):  # the second while the first is under way
        followers.wake(None)
    for _ in range(2):
        await asyncio.wait_for(woken.wait(), PATIENCE)
        woken.clear()
