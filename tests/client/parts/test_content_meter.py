"""Progress rises in several steps, also for small contents, and reaches the total once."""

from pathlib import Path

import pytest

from scbroker import ServerProvider
from scbroker.client.parts.content import Meter, no_progress
from scbroker.wire.containers import MAX_INLINE
from tests.kit.network import Network, lost
from tests.kit.waiting import PATIENCE

MIB = 1_048_576
Steps = list[tuple[int, int | None]]


def check(steps: Steps, size: int, fewest: int) -> None:
    done = [each for each, _ in steps]
    assert done == sorted(set(done))
    assert steps[-1] == (size, size)
    assert {total for _, total in steps} == {size}
    assert len(steps) >= fewest, steps


@pytest.mark.sampled
@pytest.mark.parametrize("size", [MAX_INLINE + 1, 200_000, MIB, 3 * MIB + 5, 8 * MIB, 20 * MIB])
def test_uploads_and_downloads_of_every_size_show_several_steps(
    alice: ServerProvider, tmp_path: Path, size: int
) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    steps: list[Steps] = [[], [], []]
    made = alice.createContainer(content[:size], progress=lambda *step: steps[0].append(step))
    box = made.result(PATIENCE).id
    alice.getContainerContent(box, progress=lambda *step: steps[1].append(step)).result(PATIENCE)
    target = tmp_path / "file"
    alice.saveContainerContent(box, target, progress=lambda *step: steps[2].append(step)).result(
        PATIENCE
    )
    assert target.read_bytes() == content[:size]
    check(steps[0], size, 4)
    for read in steps[1:]:
        check(read, size, 2)  # the system may hand over in one piece what came over loopback


def test_progress_does_not_fall_when_a_chunk_is_sent_again(alice: ServerProvider) -> None:
    steps: Steps = []
    with Network() as network:
        network.treat("PUT", "/chunks/0", lost(2))
        alice.createContainer(bytes(3 * MIB), progress=lambda *step: steps.append(step)).result(
            PATIENCE
        )
        assert len(network.those("PUT", "/chunks/0")) == 3
    check(steps, 3 * MIB, 4)


def test_the_last_byte_of_a_chunk_counts_when_the_chunk_is_confirmed() -> None:
    steps: Steps = []
    meter = Meter(lambda *step: steps.append(step), 100_000, 0)
    moved = meter.follow(0, 100_000, 131_088)
    assert moved is not None
    for count in (10_000, 60_000, 131_088, 131_088):
        moved(count)
    assert steps == [(32_768, 100_000), (98_304, 100_000)]
    meter.complete(0, 100_000)
    meter.complete(1, 0)  # padding alone
    assert steps[2:] == [(100_000, 100_000)]


def test_a_chunk_that_is_a_multiple_of_the_step_is_complete_only_when_confirmed() -> None:
    steps: Steps = []
    meter = Meter(lambda *step: steps.append(step), MIB, 0)
    moved = meter.follow(0, MIB, MIB)
    assert moved is not None
    moved(MIB)
    assert steps == [(MIB * 7 // 8, MIB)]
    moved(MIB // 2)  # sent again
    meter.complete(0, MIB)
    meter.complete(1, 0)
    assert steps[1:] == [(MIB, MIB)]


def test_progress_counts_resumed_bytes_and_contents_of_unknown_length() -> None:
    steps: Steps = []
    meter = Meter(lambda *step: steps.append(step), None, 5)
    meter.complete(0, 7)
    assert steps == [(5, None), (12, None)]


def test_a_transfer_without_progress_is_not_metered() -> None:
    assert Meter(no_progress, 100_000, 0).follow(0, 100_000, 100_000) is None
