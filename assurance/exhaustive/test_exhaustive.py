"""The short form of the exhaustive searches, and that each notices a rule that is taken out."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec import structs

from assurance.exhaustive import acts, chains, groups, keychains, rosters, views
from scbroker.client.core import judging
from scbroker.errors import RollbackError
from scbroker.records import group, judge, roster
from scbroker.records.container_record import AccessList, ContainerRecord, Entry, Via
from scbroker.records.group import GroupChain, Moment
from scbroker.records.judge import Acting, InForce
from scbroker.records.key_record import KeyChain
from scbroker.records.roster import Member, MembershipProof

_FEW: Final = rosters.GroupAlphabet(users=2, roles=(acts.READER, acts.SHARER), times=(1,))
SHORT: Final[dict[str, Callable[[], object]]] = {
    "records": lambda: (
        chains.search(acts.KEPT["short"], 3), chains.search(acts.KEPT["short-keys"], 3)
    ),
    "departures": lambda: chains.search(acts.KEPT["short-departures"], 3),
    "rosters": lambda: rosters.search(_FEW, 2),
    "groups": lambda: groups.search(groups.KEPT["short"], 2),
    "views of groups": lambda: views.search(views.THROUGH, 2),
    "key chains": lambda: keychains.search(4),
    "views": lambda: views.search(views.ALONE, 2),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("search", SHORT)
def test_code_and_oracle_agree_on_every_small_history(search: str) -> None:
    SHORT[search]()


def _allowed(*_: object, **__: object) -> None:
    """Stand in for a check that is taken out."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "search, owner, name",
    [
        ("records", judge, "check_delegation"),
        ("records", judge, "_check_renewal"),
        ("records", judge, "_check_parts"),
        ("records", judge, "_check_governing"),
        ("records", judge, "_check_link"),
        ("records", judge, "_check_time"),
        ("records", judge, "_check_key_indices"),
        ("records", judge, "_raises_key_index"),
        ("records", InForce, "needs_renewal"),
        ("departures", InForce, "needs_renewal"),
        ("departures", judge, "verify_departure"),
        ("rosters", group, "_check_form"),
        ("rosters", group, "_check_epoch"),
        ("rosters", group, "_check_managers"),
        ("rosters", group, "check_roster"),
        ("rosters", group, "check_since"),
        ("rosters", group, "check_keys"),
        ("rosters", roster, "check_group_type"),
        ("groups", judge, "_check_acting"),
        ("groups", judge, "_check_governing"),
        ("groups", judge, "_check_key_indices"),
        ("groups", judge, "_check_renewal"),
        ("groups", judge, "check_delegation"),
        ("groups", InForce, "needs_renewal"),
        ("views of groups", judge, "_check_acting"),
        ("views of groups", judging.Evidence, "_is_unsettled"),
        ("views", judging, "_check_disclosed"),
        ("views", judging.Evidence, "_check_mark"),
        ("key chains", KeyChain, "check_active"),
    ],
)
def test_a_check_that_is_taken_out_is_noticed(
    search: str, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, _allowed)
    with pytest.raises(AssertionError):
        SHORT[search]()


def test_a_rule_4_that_knows_no_departures_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    check = judge.check_delegation

    def ignoring(*given: Any, left: object = (), **rest: Any) -> None:
        del left
        check(*given, **rest)

    monkeypatch.setattr(judge, "check_delegation", ignoring)
    with pytest.raises(AssertionError):
        SHORT["departures"]()


def _acting_without(**conditions: Any) -> Callable[..., Acting]:
    proven = GroupChain.acting

    def acting(chain: GroupChain, via: Via, author: bytes, proof: Any) -> Acting:
        return dataclasses.replace(proven(chain, via, author, proof), **conditions)

    return acting


def _without_epochs(acting: Acting, governing: InForce, record: ContainerRecord) -> Entry | None:
    entry = governing.entry_of(acting.group, record.time)
    bits = 0 if entry is None else roster.cut(entry.permissions, acting.role)
    return entry and structs.replace(entry, permissions=bits, keyIndex=0)


def _uncut(acting: Acting, governing: InForce, record: ContainerRecord) -> Entry | None:
    return governing.entry_of(acting.group, record.time)


def _checked_without_list(
    record: ContainerRecord, acting: Acting, entry: Entry, access: AccessList | None
) -> None:
    del access
    _check_acting(record, acting, entry, None)


_check_acting = judge._check_acting


def _shown(members: bytes, count: int, proof: MembershipProof) -> Member:
    """Believe a proof that leads to another root."""
    del members, count
    return roster.parse_member(proof.leaf.member)


@pytest.mark.parametrize(
    "owner, name, changed",
    [
        (Acting, "entry_in", _uncut),
        (Acting, "entry_in", _without_epochs),
        (GroupChain, "acting", _acting_without(ended=None)),
        (GroupChain, "acting", _acting_without(since=0)),
        (GroupChain, "acting", _acting_without(deleted=None)),
        (judge, "_check_acting", _checked_without_list),
        (roster, "proven", _shown),
    ],
    ids=["V2 roles", "V3 epoch", "V4 end", "V5 begin", "V7 tombstone", "V6 own index", "V2 proof"],
)
def test_a_condition_on_acting_through_a_group_that_is_taken_out_is_noticed(
    owner: Any, name: str, changed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, changed)
    with pytest.raises(AssertionError):
        SHORT["groups"]()


def _any_version(chain: GroupChain, via: Via) -> Moment:
    """Believe a version that is in the chain, whatever its hash."""
    if via.version not in chain.moments:
        raise RollbackError
    return chain.moments[via.version]


def _standing(*_: object) -> bool:
    """Take everybody for a member who has a proof of any membership, or none."""
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("name, changed", [("at", _any_version), ("stands", _standing)])
def test_a_member_who_believes_a_forked_group_or_a_former_member_is_noticed(
    name: str, changed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupChain, name, changed)
    with pytest.raises(AssertionError):
        SHORT["views of groups"]()
