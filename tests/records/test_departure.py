"""What the vectors of departures.json do not show: docs/spec/container.md, 4 and 7."""

import dataclasses

import pytest
from msgspec.structs import replace

from scbroker.errors import BrokerError, ClockError, IntegrityError
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import AccessList
from scbroker.records.departure import LABEL, Departure
from scbroker.records.judge import (
    Grant,
    InForce,
    Known,
    check_delegation,
    judge_next,
    verify_departure,
)
from scbroker.records.key_record import Signed
from tests.vectors.cast import DAY, MINUTE, START, Person
from tests.vectors.container_records import ADMIN, ALL, READ, WRITE, Stage, access_of
from tests.vectors.story import Made

NOW = START + 100 * DAY


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


def in_force(made: Made, *left: Person) -> InForce:
    known = Known.parse(made.signed.body)
    access = AccessList.whole(access_of(made).salted)
    return InForce(known, access, known.record.time, frozenset(one.fingerprint for one in left))


def said_by(leaver: Person, governing: InForce, time: int, index: int = 0) -> Departure:
    named = governing.governing
    return Departure(
        governing.record.containerId, named.accessVersion, named.accessList,
        leaver.fingerprint, index, time,
    )  # fmt: skip


def signed_by(leaver: Person, said: Departure) -> Signed:
    return leaver.sign(encode_object(said), LABEL, said.keyIndex)


def verdict(signed: Signed, governing: InForce, leaver: Person) -> type[BrokerError] | None:
    try:
        verify_departure(signed, governing, leaver.chain(), NOW)
    except BrokerError as error:
        return type(error)
    return None


def test_a_departure_is_of_one_list_of_one_container_and_of_its_user_alone(stage: Stage) -> None:
    governing = in_force(stage.shared)
    said = said_by(stage.bob, governing, NOW)
    assert verdict(signed_by(stage.bob, said), governing, stage.bob) is None
    for change in (
        {"containerId": bytes(16)}, {"accessVersion": 1}, {"accessList": bytes(32)},
        {"time": governing.since - 1}, {"fingerprint": stage.dora.fingerprint},
    ):  # fmt: skip
        changed = signed_by(stage.bob, replace(said, **change))
        assert verdict(changed, governing, stage.bob) is IntegrityError, change
    assert verdict(signed_by(stage.carol, said), governing, stage.bob) is IntegrityError
    assert verdict(signed_by(stage.bob, said), governing, stage.carol) is IntegrityError
    late = replace(said, time=NOW + 15 * MINUTE)
    assert verdict(signed_by(stage.bob, late), governing, stage.bob) is None
    late = replace(said, time=NOW + 15 * MINUTE + 1)
    assert verdict(signed_by(stage.bob, late), governing, stage.bob) is ClockError


def test_no_departure_from_the_list_before_counts_after_a_new_grant(stage: Stage) -> None:
    governing, later = in_force(stage.first), in_force(stage.shared)
    old = signed_by(stage.bob, said_by(stage.bob, governing, NOW))
    assert verdict(old, governing, stage.bob) is None
    assert verdict(old, later, stage.bob) is IntegrityError


def test_a_retired_key_leaves_no_list_that_was_made_after_its_retirement(stage: Stage) -> None:
    """Only the lower bound on the time shows it: the key was good at the time that is signed."""
    governing = in_force(stage.renewed)
    said = said_by(stage.erin, governing, START + 19 * DAY)
    assert verdict(signed_by(stage.erin, said), governing, stage.erin) is IntegrityError
    unbound = dataclasses.replace(governing, since=0)
    assert verdict(signed_by(stage.erin, said), unbound, stage.erin) is None
    assert verdict(signed_by(stage.erin, said_by(stage.erin, governing, NOW)), governing,
                   stage.erin) is IntegrityError  # fmt: skip


def test_a_user_without_a_disclosed_entry_leaves_nothing(stage: Stage) -> None:
    governing = in_force(stage.first)
    items = access_of(stage.first).salted
    hashes = b"".join(item.hash for item in items)
    shown = [(n, item) for n, item in enumerate(items)
             if stage.bob.fingerprint not in item.entry]  # fmt: skip
    hidden = dataclasses.replace(governing, access=AccessList.disclosed(hashes, shown))
    assert verdict(signed_by(stage.bob, said_by(stage.bob, governing, NOW)), hidden,
                   stage.bob) is IntegrityError  # fmt: skip
    dora = signed_by(stage.dora, said_by(stage.dora, governing, NOW))
    assert verdict(dora, governing, stage.dora) is IntegrityError


def test_the_container_key_is_renewed_once_a_user_with_decrypt_has_left(stage: Stage) -> None:
    time = START + 13 * DAY
    assert not in_force(stage.shared).needs_renewal(time)
    governing = in_force(stage.shared, stage.bob)
    assert governing.needs_renewal(time)
    assert governing.present(time).keys() == governing.access.entries.keys() - {
        stage.bob.fingerprint
    }
    entries = dict(governing.access.entries)
    entries[stage.bob.fingerprint] = replace(entries[stage.bob.fingerprint], permissions=1)
    blind = dataclasses.replace(governing.access, entries=entries)
    assert not dataclasses.replace(governing, access=blind).needs_renewal(time)


def test_a_change_of_type_keeps_departures_and_the_age_of_the_list(stage: Stage) -> None:
    governing = in_force(stage.first, stage.carol)
    edit, typed = (Known.parse(made.signed.body) for made in (stage.edit, stage.typed))
    after = judge_next(typed, governing, None, edit, NOW)
    assert (after.left, after.since) == (governing.left, governing.since)


def test_a_user_who_left_may_be_left_out_kept_or_granted_access_anew(stage: Stage) -> None:
    author = in_force(stage.shared).access.entries[stage.erin.fingerprint]
    assert author.permissions == ADMIN
    before = {"owner": Grant(ALL, None), "erin": Grant(ADMIN, author.expiresAt)}
    erin = {"erin": Grant(ADMIN, author.expiresAt)}
    ways = {"out": erin, "kept": before, "less": erin | {"owner": Grant(READ, author.expiresAt)}}
    for after in ways.values():
        check_delegation(author, before, after, complete=True, left={"owner"})
    for name in ("out", "less"):
        with pytest.raises(IntegrityError):
            check_delegation(author, before, ways[name], complete=True)
    for given in (Grant(WRITE | 64, author.expiresAt), Grant(READ, None), Grant(ALL, START)):
        with pytest.raises(IntegrityError):
            check_delegation(author, before, erin | {"owner": given}, complete=True, left={"owner"})
