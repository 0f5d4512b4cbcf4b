"""Progress rises in several steps, also for small contents, and reaches the total once."""

from pathlib import Path

import pytest

from scbroker import ServerProvider
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
