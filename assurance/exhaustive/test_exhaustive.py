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


# Replacements of a check that is taken out.


def _allowed(*_: object, **__: object) -> None:
    pass


_check_delegation, _check_acting = judge.check_delegation, judge._check_acting


def _without_departures(*given: Any, left: object = (), **rest: Any) -> None:
    del left
    _check_delegation(*given, **rest)


def _acting_without(**conditions: Any) -> Callable[..., Acting]:
    proven = GroupChain.acting

    def acting(chain: GroupChain, via: Via, author: bytes, proof: Any) -> Acting:
        return dataclasses.replace(proven(chain, via, author, proof), **conditions)

    acting.__name__ = f"without {' '.join(conditions)}"
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


def _shown(members: bytes, count: int, proof: MembershipProof) -> Member:
    """Believe a proof that leads to another root."""
    del members, count
    return roster.parse_member(proof.leaf.member)


def _any_version(chain: GroupChain, via: Via) -> Moment:
    """Believe a version that is in the chain, whatever its hash."""
    if via.version not in chain.moments:
        raise RollbackError
    return chain.moments[via.version]


def _standing(*_: object) -> bool:
    """Take everybody for a member who has a proof of any membership, or none."""
    return True


@pytest.mark.sampled
@pytest.mark.parametrize(
    "search, owner, name, instead",
    [
        ("records", judge, "check_delegation", _allowed),
        ("records", judge, "_check_renewal", _allowed),
        ("records", judge, "_check_parts", _allowed),
        ("records", judge, "_check_governing", _allowed),
        ("records", judge, "_check_link", _allowed),
        ("records", judge, "_check_time", _allowed),
        ("records", judge, "_check_key_indices", _allowed),
        ("records", judge, "_raises_key_index", _allowed),
        ("records", InForce, "needs_renewal", _allowed),
        ("departures", InForce, "needs_renewal", _allowed),
        ("departures", judge, "verify_departure", _allowed),
        ("departures", judge, "check_delegation", _without_departures),
        ("rosters", group, "_check_form", _allowed),
        ("rosters", group, "_check_epoch", _allowed),
        ("rosters", group, "_check_managers", _allowed),
        ("rosters", group, "check_roster", _allowed),
        ("rosters", group, "check_since", _allowed),
        ("rosters", group, "check_keys", _allowed),
        ("rosters", roster, "check_group_type", _allowed),
        ("groups", judge, "_check_acting", _allowed),
        ("groups", judge, "_check_governing", _allowed),
        ("groups", judge, "_check_key_indices", _allowed),
        ("groups", judge, "_check_renewal", _allowed),
        ("groups", judge, "check_delegation", _allowed),
        ("groups", InForce, "needs_renewal", _allowed),
        ("groups", Acting, "entry_in", _uncut),  # V2, roles
        ("groups", Acting, "entry_in", _without_epochs),  # V3
        ("groups", GroupChain, "acting", _acting_without(ended=None)),  # V4
        ("groups", GroupChain, "acting", _acting_without(since=0)),  # V5
        ("groups", GroupChain, "acting", _acting_without(deleted=None)),  # V7
        ("groups", judge, "_check_acting", _checked_without_list),  # V6, own index
        ("groups", roster, "proven", _shown),  # V2, proof
        ("views of groups", judge, "_check_acting", _allowed),
        ("views of groups", judging.Evidence, "_is_unsettled", _allowed),
        ("views of groups", GroupChain, "at", _any_version),
        ("views of groups", GroupChain, "stands", _standing),
        ("views", judging, "_check_disclosed", _allowed),
        ("views", judging.Evidence, "_check_mark", _allowed),
        ("key chains", KeyChain, "check_active", _allowed),
    ],
)
def test_a_check_that_is_taken_out_is_noticed(
    search: str, owner: Any, name: str, instead: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        SHORT[search]()
