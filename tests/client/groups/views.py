"""Answers about groups as a broker would give them, made of records that a test has signed.

with lying(serve(team, bob), about=(GroupViews,)):
    refusal(provider.getGroupMembers(team.uuid), BrokerError.forkError)
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from scbroker.records.roster import SaltedMember
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import ListView, RecordRequest
from scbroker.wire.groups import GroupMembership, GroupOutcome, GroupRecord, GroupView, GroupViews
from scbroker.wire.rosters import Leaf
from scbroker.wire.users import KeyChainState
from tests.kit.groups import Group
from tests.kit.writers import User

Lie = Callable[[Any], Any]


def record_of(request: RecordRequest) -> GroupRecord:
    """The record of a request, as it is served with everything that came with it."""
    salted = [entry.salted for entry in request.accessList or ()]
    return GroupRecord(
        record=request.record,
        accessList=ListView.of(salted, range(len(salted))) if salted else None,
        type=request.type,
        roster=None if request.roster is None else request.roster.roster,
    )


def view_of(
    team: Group,
    requests: Sequence[RecordRequest],
    *,
    reader: User | None = None,
    leaves: Sequence[SaltedMember] | None = None,
    **membership: Any,
) -> GroupView:
    """The records of these requests, for a member with the leaves of the group's state."""
    found = None
    if reader is not None:
        state = team.state
        known = {
            "leaves": [Leaf.of(leaf) for leaf in (state.leaves if leaves is None else leaves)],
            "wrap": team.wrap(state, reader).wrap,
            "info": state.info,
            "departures": list[SignedObject](),
            "owed": list[KeyChainState](),
            "accepted": True,
        }
        found = GroupMembership(**{**known, **membership})
    records = [record_of(request) for request in requests]
    return GroupView(records=records, last=len(requests), keyChains=[], membership=found)


def serve(view: GroupView) -> Lie:
    """In place of every answer: this view."""
    return lambda _: GroupViews(groups=[GroupOutcome(view=view, problem=None)])


def changed(**changes: Any) -> Lie:
    """The honest answer with fields of its first view changed; a function is given the honest value."""

    def lie(answer: GroupViews) -> GroupViews:
        first, *others = answer.groups
        assert first.view is not None
        view = replace(first.view, **_values(first.view, changes))
        return GroupViews(groups=[replace(first, view=view), *others])

    return lie


def changed_membership(**changes: Any) -> Lie:
    """The honest answer with fields of its membership changed."""
    return changed(
        membership=lambda found: (
            None if found is None else replace(found, **_values(found, changes))
        )
    )


def _values(of: Any, changes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value(getattr(of, name)) if callable(value) else value
        for name, value in changes.items()
    }


def in_pages(size: int) -> Lie:
    """The honest answer, cut after so many records; the membership comes with the last page."""

    def lie(answer: GroupViews) -> GroupViews:
        outcomes = []
        for each in answer.groups:
            view = each.view
            if view is not None and len(view.records) > size:
                view = replace(view, records=view.records[:size], membership=None)
            outcomes.append(replace(each, view=view))
        return GroupViews(groups=outcomes)

    return lie
