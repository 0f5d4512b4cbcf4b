"""Remember the records that this device has sent, until a verified history says what became of them.

A broker that refuses a record has it nevertheless: it can store the record, or show it to a member, at any
later time. So the client keeps version and hash of each record in the trust store before the record leaves,
and every later reading compares them with the history that it verifies. Spec: docs/spec/container.md, section
9.

An entry needs no second write when the record is confirmed at once: its version is then not above the mark's.
A writer reads the container before it writes, so an open entry is at most one version above the mark. The
record after the mark therefore shows whether the entry took effect.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterable
from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from scbroker.client.core.judging import State
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import raise_to
from scbroker.errors import WriteOutcome
from scbroker.records.canonical import decoder
from scbroker.types import SentChange

KIND: Final = "pending"
_MOST: Final = 32
"""Entries kept for one container. The oldest is dropped first; its record then counts as another device's."""
Known = Callable[[int], bytes | None]
"""Return the hash of the record of a version; None if the verified history does not show it."""
_log = logging.getLogger("scbroker")


class Fate(IntEnum):
    """The outcome of a record, as far as this device has verified it."""

    Open = 0
    Stored = 1
    Voided = 2
    Unknown = 3
    """Its version has passed, and the broker keeps no record of that version any more."""


class Sent(msgspec.Struct, array_like=True, frozen=True):
    """A record that was about to leave this device."""

    version: int
    hash: bytes
    fate: int = Fate.Open


def remember(session: Session, container_id: bytes, version: int, record_hash: bytes) -> bool:
    """Store that this record is about to be sent; return whether others of its version may be stored instead.

    Forgets entries of earlier versions that were confirmed when they were sent.
    """
    entry = Sent(version, record_hash)
    if version == 1 and session.marks.swap(KIND, container_id, None, _encoded([entry])):
        return False  # a new container has no other records of this version
    has_rivals = False

    def decide(stored: bytes | None) -> bytes:
        nonlocal has_rivals
        kept = [e for e in _decoded(stored) if e.fate or e.version >= entry.version]
        has_rivals = any(not e.fate and e.hash != entry.hash for e in kept)
        if entry not in kept:
            kept.append(entry)
        return _encoded(kept[-_MOST:])

    raise_to(session.marks, KIND, container_id, decide)
    return has_rivals


def forget(session: Session, container_id: bytes, record_hash: bytes) -> None:
    """Drop the entry of a record that surely did not leave this device."""

    def decide(stored: bytes | None) -> bytes | None:
        kept = [e for e in _decoded(stored) if e.hash != record_hash]
        return None if stored is None else _encoded(kept)

    raise_to(session.marks, KIND, container_id, decide)


def settle(session: Session, state: State, reached: int) -> None:
    """Note what became of open entries, given a verified history from the version `reached` to this state.

    Called before the mark is raised, so that a crash in between loses nothing.
    """
    known = {state.record.version: state.head.hash}
    if state.record.parent is not None:
        known[state.record.version - 1] = state.record.parent
    if state.follower is not None:
        known[reached + 1] = state.follower
    settle_by(session, state.container_id, known.get, reached, state.record.version)


def settle_by(
    session: Session,
    container_id: bytes,
    known: Known,
    reached: int,
    last: int,
    only: Collection[bytes] | None = None,
) -> None:
    """Note what became of open entries from above the version `reached` to `last`, by the hashes in between.

    Logs a warning for each record that took effect although the broker had refused it, or had not answered.
    With `only`, entries with other hashes stay as they are.
    """

    def is_passed(entry: Sent) -> bool:
        is_wanted = only is None or entry.hash in only
        return not entry.fate and reached < entry.version <= last and is_wanted

    passed = {each.hash for each in entries(session, container_id) if is_passed(each)}
    if not passed:
        return

    def decide(stored: bytes | None) -> bytes:
        return _encoded(
            replace(each, fate=_fate(each, known)) if is_passed(each) else each
            for each in _decoded(stored)
        )

    raise_to(session.marks, KIND, container_id, decide)
    for each in entries(session, container_id):
        if each.fate == Fate.Stored and each.hash in passed - session.sending:
            _log.warning(
                "Container %s: version %d is a change that this device sent without getting it "
                "confirmed; it took effect.",
                uuid.UUID(bytes=container_id),
                each.version,
            )


def entries(session: Session, container_id: bytes) -> list[Sent]:
    """Return a container's entries, oldest first."""
    return _decoded(session.marks.get(KIND, container_id))


def shown(found: Iterable[Sent], reached: int) -> list[SentChange]:
    """Return entries for the caller; `reached` is the version of the mark.

    An open entry that is not above the mark was confirmed at once: its operation has succeeded.
    """
    outcomes = {
        Fate.Open: WriteOutcome.Uncertain,
        Fate.Stored: WriteOutcome.Stored,
        Fate.Voided: WriteOutcome.NotStored,
        Fate.Unknown: WriteOutcome.Uncertain,
    }
    return [
        SentChange(each.version, outcomes[Fate(each.fate)])
        for each in found
        if each.fate or each.version > reached
    ]


def _fate(entry: Sent, known: Known) -> Fate:
    """Return the fate of an entry whose version the verified history has passed."""
    found = known(entry.version)
    if found is None:
        return Fate.Unknown
    return Fate.Stored if found == entry.hash else Fate.Voided


def _encoded(found: Iterable[Sent]) -> bytes:
    return msgspec.msgpack.encode(list(found))


def _decoded(stored: bytes | None) -> list[Sent]:
    return [] if stored is None else decoder(list[Sent]).decode(stored)
