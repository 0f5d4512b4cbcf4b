"""What a record says that is made through a group, when clocks differ."""

from types import SimpleNamespace
from typing import Any

import pytest

from scbroker.client.containers.writing import via_at
from scbroker.records.container_record import Via
from scbroker.records.group import Moment
from scbroker.records.roster import Member

MINE, TEAM = bytes(32), b"t" * 32


def group(*moments: tuple[int, int], leaf: int = 1) -> Any:
    """A group with records of these times and epochs; the user's leaf came with the version `leaf`."""
    found = {
        version: Moment(bytes([version]) * 32, time, epoch, b"", 1)
        for version, (time, epoch) in enumerate(moments, 1)
    }
    chain = SimpleNamespace(name=TEAM, moments=found)
    members = {MINE: Member(MINE, 0, 1, leaf)}
    return SimpleNamespace(
        chain=chain, fingerprint=MINE, members=members, epoch=found[len(moments)].epoch
    )


@pytest.mark.parametrize(
    "team, named",
    [
        (group((10, 0), (20, 0), (30, 0)), 3),
        (group((10, 0), (20, 0), (130, 0)), 2),
        (group((10, 0), (120, 1), (130, 1)), 2),
        (group((10, 0), (20, 0), (130, 0), leaf=3), 3),
        (group((10, 0), (20, 0), (130, 0), (140, 0), leaf=3), 3),
    ],
    ids=[
        "the newest",
        "the newest that is not ahead",
        "the oldest of the epoch",
        "that of the leaf",
        "the oldest with the leaf",
    ],
)
def test_a_record_names_the_newest_record_of_the_epoch_that_is_not_dated_ahead(
    team: Any, named: int
) -> None:
    assert via_at(team, 100) == Via(TEAM, team.epoch, named, bytes([named]) * 32)
