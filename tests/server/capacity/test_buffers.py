"""Memory for what comes in: as much as has come, and used again."""

from __future__ import annotations

from scbroker.server.capacity.buffers import Buffers

SIZE = 4 * 1_048_576


def test_a_buffer_is_taken_when_a_good_part_of_it_has_come_and_not_before() -> None:
    """Whoever announces much and sends little costs little."""
    with Buffers(SIZE).one() as received:
        received.add(b"a" * 1_048_576)
        assert [received.buffer] == [None]
        assert bytes(received.octets) == b"a" * 1_048_576
        received.add(b"b")
        assert [received.buffer] != [None]
        assert bytes(received.octets) == b"a" * 1_048_576 + b"b"


def test_a_buffer_that_was_given_back_is_used_again_and_shows_nothing_of_before() -> None:
    buffers = Buffers(SIZE)
    with buffers.one() as first:
        first.add(b"x" * SIZE)
    with buffers.one() as second, buffers.one() as third:
        second.add(b"y" * 1_500_000)
        third.add(b"z" * 1_500_000)
        assert second.buffer is first.buffer
        assert third.buffer is not first.buffer
        assert bytes(second.octets) == b"y" * 1_500_000
        assert bytes(third.octets) == b"z" * 1_500_000
        assert len(second.octets) == 1_500_000
