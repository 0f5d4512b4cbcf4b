"""Keep in the trust store what this device has verified of groups.

| kind            | key                    | value                                                        |
|-----------------|------------------------|--------------------------------------------------------------|
| `group`         | group id               | the pinned name, the mark of its container, the latest epoch |
| `group-members` | group id               | the roster and the members that were verified last, for C9   |
| `group-wrap`    | group id, epoch        | the wrap of the epoch's secret: sealed to the user's own key |

A wrap is kept because a manager can leave an older secret out of the info. Groups have a kind of mark of
their own, because a list of containers never has them. Spec: docs/spec/groups.md, 1, 3.4 and 4.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from scbroker.client.core import group_judging
from scbroker.client.core.judging import Mark
from scbroker.client.users.trust_store import Marks, each_mark, raise_to
from scbroker.errors import KeySubstitutionError
from scbroker.records import roster
from scbroker.records.canonical import decoder
from scbroker.records.group import GroupChain
from scbroker.records.roster import Member, Roster, SaltedMember

PIN: Final = "group"
_MEMBERS: Final = "group-members"
_WRAP: Final = "group-wrap"


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """A group's name, and the mark of its container."""

    name: bytes
    mark: Mark
    epoch: int = 0
    """The latest epoch at the mark. A process that has not read the group yet compares lists with it."""


class Verified(msgspec.Struct, array_like=True, frozen=True):
    """The newest roster of which this device has verified the members."""

    roster: bytes
    members: list[bytes]
    departed: int = 0
    """The version of the user's leaf from which this device sent a departure; 0 if it sent none."""
    denied: int = -1
    """The epoch in which the broker served no membership to the user any more; -1 while it does."""
    unknown: bool = False
    """True if the broker did not know the group at the last read, and the user was warned."""

    @property
    def epoch(self) -> int:
        return roster.parse_roster(self.roster).epoch

    @property
    def before(self) -> tuple[Roster, Mapping[bytes, Member]]:
        """Return roster and members with which C9 compares those of a later roster."""
        found = map(roster.parse_member, self.members)
        return roster.parse_roster(self.roster), {each.fingerprint: each for each in found}

    def has_left(self, fingerprint: bytes) -> bool:
        """Return whether the user, with this fingerprint, has left by a departure from the kept leaf."""
        return self.departed > 0 and self.departed == self.before[1][fingerprint].version

    def has_member(self, fingerprint: bytes) -> bool:
        """Return whether the user with this fingerprint was a member when this device read the group last."""
        return self.denied < 0 and not self.unknown and not self.has_left(fingerprint)


class _Wrap(msgspec.Struct, array_like=True, frozen=True):
    keyIndex: int
    wrap: bytes


def pin_of(marks: Marks, group_id: uuid.UUID) -> Pin | None:
    stored = marks.get(PIN, group_id.bytes)
    return None if stored is None else _pin(stored)


def keep(marks: Marks, group_id: uuid.UUID, chain: GroupChain, *, partial: bool) -> bool:
    """Raise pin and mark to a chain; return False if the mark is of a later version than the chain.

    With `partial`, the mark becomes a partial one, unless the stored mark is not: the end is not read yet.
    """
    is_older = False

    def decide(stored: bytes | None) -> bytes | None:
        nonlocal is_older
        mark = group_judging.mark_of(chain, partial=partial)
        if stored is not None:
            pin = _pin(stored)
            check_name(pin.name, chain)
            is_older = pin.mark.version > chain.version
            if is_older:
                return stored
            group_judging.check_follows(chain, pin.mark)
            mark = replace(mark, partial=partial and pin.mark.partial)
        return msgspec.msgpack.encode(Pin(chain.name, mark, chain.roster.epoch))

    raise_to(marks, PIN, group_id.bytes, decide)
    return not is_older


def replace_mark(marks: Marks, group_id: uuid.UUID, chain: GroupChain, before: Mark | None) -> bool:
    """Replace a mark by the head of a history that the caller accepts; False if it is not `before` any more.

    The members that were verified last may belong to the history that is given up: forget them.
    """
    stored = marks.get(PIN, group_id.bytes)
    pin = None if stored is None else _pin(stored)
    if (None if pin is None else pin.mark) != before:
        return False
    if pin is not None:
        check_name(pin.name, chain)
    raise_to(marks, _MEMBERS, group_id.bytes, lambda found: None if found is None else b"")
    pinned = Pin(chain.name, group_judging.mark_of(chain), chain.roster.epoch)
    new = msgspec.msgpack.encode(pinned)
    return marks.swap(PIN, group_id.bytes, stored, new)


def check_name(name: bytes, chain: GroupChain) -> None:
    if chain.name != name:
        raise KeySubstitutionError(
            "The broker serves another group for this id than this device has pinned."
        )


def verified_of(marks: Marks, group_id: uuid.UUID) -> Verified | None:
    stored = marks.get(_MEMBERS, group_id.bytes)
    return _verified(stored) if stored else None


def keep_verified(
    marks: Marks, group_id: uuid.UUID, chain: GroupChain, leaves: Sequence[SaltedMember]
) -> None:
    """Keep the members of the roster in force, unless those of a later one are kept."""
    found = Verified(chain.roster_bytes, [leaf.member for leaf in leaves])

    def decide(stored: bytes | None) -> bytes | None:
        if stored:
            before = _verified(stored)
            if roster.parse_roster(before.roster).version > chain.roster.version:
                return stored
            return msgspec.msgpack.encode(replace(found, departed=before.departed))
        return msgspec.msgpack.encode(found)

    raise_to(marks, _MEMBERS, group_id.bytes, decide)


def note(marks: Marks, group_id: uuid.UUID, **changes: int) -> None:
    """Change `departed`, `denied` or `unknown` of the kept `Verified`."""

    def decide(stored: bytes | None) -> bytes | None:
        if not stored:
            return stored
        return msgspec.msgpack.encode(replace(_verified(stored), **changes))

    raise_to(marks, _MEMBERS, group_id.bytes, decide)


def all_verified(marks: Marks) -> Iterator[tuple[uuid.UUID, Verified]]:
    """Return every group of which this device has verified a membership, ascending by id."""
    for key, stored in each_mark(marks, _MEMBERS):
        if stored:
            yield uuid.UUID(bytes=key), _verified(stored)


def keep_wrap(marks: Marks, group_id: uuid.UUID, epoch: int, key_index: int, wrap: bytes) -> None:
    stored = msgspec.msgpack.encode(_Wrap(key_index, wrap))
    raise_to(marks, _WRAP, _wrap_key(group_id, epoch), lambda before: before or stored)


def wrap_of(marks: Marks, group_id: uuid.UUID, epoch: int) -> tuple[int, bytes] | None:
    """Return key index and wrap of an epoch that this device has opened."""
    stored = marks.get(_WRAP, _wrap_key(group_id, epoch))
    if stored is None:
        return None
    found: _Wrap = decoder(_Wrap).decode(stored)
    return found.keyIndex, found.wrap


def _wrap_key(group_id: uuid.UUID, epoch: int) -> bytes:
    return group_id.bytes + epoch.to_bytes(4, "big")


def _pin(stored: bytes) -> Pin:
    found: Pin = decoder(Pin).decode(stored)
    return found


def _verified(stored: bytes) -> Verified:
    found: Verified = decoder(Verified).decode(stored)
    return found
