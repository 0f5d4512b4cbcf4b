"""Followers: requests that wait for events."""

from scbroker.server.capacity import Followers

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
