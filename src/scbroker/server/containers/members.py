"""Read access lists and departures, and check a record's users. Spec: docs/spec/container.md, section 10.

The broker keeps every list of a container, because readers judge older records by it. After a deletion only
the authors' entries stay, which readers need to judge the tombstone.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.records import judge
from scbroker.records.canonical import ContainerId, UserId, decoder, stored_user_id, user_id_of
from scbroker.records.container_record import AccessList, ContainerRecord, SaltedEntry, parse_entry
from scbroker.records.departure import parse_departure
from scbroker.records.key_record import Signed
from scbroker.records.roster import parse_group_departure
from scbroker.server.broker import SECOND, add_to_counter
from scbroker.server.containers.incoming import Transaction
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import Disclosed, ListView
from scbroker.wire.users import KeyChainState

_HOUR: Final = 3600 * SECOND
ID_SIZE: Final = 16
Users = Mapping[bytes, Row]
"""Rows of users by fingerprint."""

# Those of the users `some` who have blocked the user `blocked`.
BLOCKING: Final = sa.select(t.blocks.c.user_id).where(
    sql.among(t.blocks.c.user_id), t.blocks.c.blocked_id == b("blocked")
)
# The managers of some groups.
MANAGERS: Final = sa.select(t.group_members.c.group_id, t.group_members.c.user_id).where(
    sql.among(t.group_members.c.group_id), t.group_members.c.permissions > 0
)
COUNT_MEMBERS: Final = (
    sa.select(t.group_members.c.group_id, sa.func.count().label("members"))
    .where(sql.among(t.group_members.c.group_id), ~t.group_members.c.gone)
    .group_by(t.group_members.c.group_id)
)


class StoredList(msgspec.Struct, array_like=True, frozen=True):
    """An access list as the database keeps it: the hashes of all entries, and entries by position."""

    hashes: bytes
    entries: list[tuple[int, bytes, bytes]]
    """(position, salt, entry), ascending."""

    @classmethod
    def whole(cls, hashes: bytes, salted: Iterable[SaltedEntry]) -> StoredList:
        return cls(hashes, [(n, item.salt, item.entry) for n, item in enumerate(salted)])

    @classmethod
    def decode(cls, data: bytes) -> StoredList:
        return cast(StoredList, decoder(StoredList).decode(data))

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def verified(self) -> AccessList:
        """Return the list; hashes and parses every entry."""
        return self.view().verified()

    def only(self, fingerprints: Collection[bytes]) -> StoredList:
        """Return the list with the entries of these users alone."""
        kept = [item for item in self.entries if parse_entry(item[2]).fingerprint in fingerprints]
        return StoredList(self.hashes, kept)

    def view(self, left: Mapping[bytes, Signed] = MappingProxyType({})) -> ListView:
        """Return the list as the broker serves it, with the departures of the disclosed users."""
        disclosed = [Disclosed(position=n, salt=s, entry=entry) for n, s, entry in self.entries]
        served = []
        if left:
            shown = {parse_entry(entry).fingerprint for _, _, entry in self.entries}
            served = [SignedObject.of(left[name]) for name in sorted(left.keys() & shown)]
        return ListView(entryHashes=self.hashes, disclosed=disclosed, departures=served)


def chain_state(user_id: bytes, length: int) -> KeyChainState:
    """Return the state of a user's key chain; of a deleted user, who has no keys, sequence 0."""
    return KeyChainState(userId=str(uuid.UUID(bytes=user_id)), sequence=max(0, length - 1))


def actor_of(record: ContainerRecord) -> bytes:
    """Return the name by whose entry a record is judged: its author's, or that of the group of its via."""
    return record.author if record.via is None else record.via.group


def access_actor_of(record: ContainerRecord) -> bytes:
    """Return what `actor_of` does, for the record that made the list in force at a governing record."""
    governing = judge.governing_of(record)
    return governing.accessVia or governing.accessAuthor


def group_ids_of(container: Row) -> list[bytes]:
    """Return the ids of the groups in a container's access list in force."""
    ids = container.groups or b""
    return [bytes(ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE)]


def departures_from(
    connection: Connection, container_id: ContainerId, version: int
) -> list[Signed]:
    """Return the departures from the access list of a version."""
    rows = connection.execute(sql.DEPARTURES, {"container": container_id, "number": version})
    return [Signed(row.body, row.signature) for row in rows]


def leaver_of(signed: Signed) -> bytes:
    """Return the fingerprint of the user who signed a stored departure."""
    return parse_departure(signed.body).fingerprint


def leaver_of_group(signed: Signed) -> bytes:
    """Return the fingerprint of the user who signed a stored departure from a group."""
    return parse_group_departure(signed.body).fingerprint


def known_at(connection: Connection, container_id: bytes, version: int) -> judge.Known:
    """Return the stored record of a version, which must exist."""
    place = {"container": container_id, "number": version}
    return judge.Known.parse(sql.the(connection, sql.FIND_RECORD, **place).body)


def in_force(
    connection: Connection, container_id: ContainerId, governing: judge.Known
) -> judge.InForce:
    """Return a governing record with its verified access list, and the users who have left that list."""
    made, number = governing.record, judge.governing_of(governing.record).accessVersion
    place = {"container": container_id, "number": number}
    access = StoredList.decode(sql.the(connection, sql.FIND_LIST, **place).entries).verified()
    if made.version != number:  # this record changed only the type: the list is older
        made = known_at(connection, container_id, number).record
    left = frozenset(map(leaver_of, departures_from(connection, container_id, number)))
    return judge.InForce(governing, access, made.time, left)


def users_of(
    connection: Connection,
    names: Iterable[bytes],
    statement: Any = sql.FIND_USERS,
    group_ids: Iterable[bytes] = (),
) -> dict[bytes, Row]:
    """Return rows by fingerprint or name. An id covers 122 bits of it; the row's own must match the rest.

    `group_ids` are groups of which only the ids are known.
    """
    by_id: dict[bytes, bytes] = {stored_user_id(each): each for each in names}
    rows = connection.execute(statement, {"ids": [*by_id, *({*group_ids} - by_id.keys())]})
    named = ((by_id.get(row.id, row.fingerprint), row) for row in rows)
    return {name: row for name, row in named if name and row.fingerprint in (None, name)}


def check_recipients(access: AccessList, before: AccessList | None, users: Users) -> None:
    """Raise unless every user and group of a new list is known, not deleted, and in it with its latest key.

    A deleted user or group that is in the old list may stay in the new one; the group with its last epoch.
    """
    for fingerprint, entry in access.entries.items():
        user, user_id = users.get(fingerprint), user_id_of(fingerprint)
        if user is None:
            raise errors.NotFoundError(f"The broker knows no user or group {user_id}.")
        what = "User" if user.group_version is None else "Group"
        if user.deleted:
            if before is None or fingerprint not in before.entries:
                raise errors.NotFoundError(
                    f"{what} {user_id} was deleted: remove the {what.lower()} from accessLevels."
                )
            if user.group_version is None:
                continue
        if entry.wrapHash is None and entry.allows(ContainerAccessLevel.Decrypt):
            raise errors.RejectedError(f"{what} {user_id} may decrypt, but the entry has no wrap.")
        if entry.keyIndex != user.encryption_index:
            raise errors.StaleKeysError(f"{what} {user_id} has newer keys: read them again.")


def groups_among(access: AccessList, users: Users) -> list[bytes]:
    """Return the ids of the groups in a list, in ascending order."""
    found = (users[name] for name in access.entries if name in users)
    return sorted(bytes(row.id) for row in found if row.group_version is not None)


def check_wraps_in_use(access: AccessList, users: Users) -> None:
    """Raise `StaleKeysError` if a wrap in the list in force is for a key or an epoch that was replaced.

    The rows of users are not locked: a record that is stored while a member changes their keys counts as
    stored before that. The rows of groups are locked: no record may be stored after an answered removal.
    """
    for fingerprint, entry in access.entries.items():
        user = users.get(fingerprint)
        if user is None or entry.wrapHash is None or entry.keyIndex >= user.encryption_index:
            continue
        what = "User" if user.group_version is None else "Group"
        if what == "Group" or not user.deleted:
            raise errors.StaleKeysError(
                f"{what} {user_id_of(fingerprint)} has newer keys: renew the container key before "
                "storing anything new (rule 5)."
            )


def check_grants(tx: Transaction, author: UserId, new: NewRows) -> None:
    """Check and count the users who get access by these rows and had none: each of them gets an `Added`.

    A group counts as its members, and not at all if the author is one of them.
    Raises `BlockedError` if a user, or a manager of a group, has blocked the author. Raises `ThrottledError`
    above the limit of an hour, and `TooLargeError` if one request alone exceeds it: an unlimited author could
    fill other users' logs. A refused request counts nothing.
    """
    added = {
        row["user_id"]
        for row in new.of(t.events)
        if row["event_type"] == ContainerEventType.Added and row["user_id"] != author
    }
    if not added:
        return
    connection = tx.connection
    groups = added & {row.id for row in tx.users.values() if row.group_version is not None}
    _check_blocks(connection, author, added - groups)
    more = len(added - groups)
    if groups:
        _check_managers(connection, author, groups)
        for row in connection.execute(COUNT_MEMBERS, {"some": sorted(groups)}):
            asked = {"group": row.group_id, "user": author}
            if sql.one(connection, sql.FIND_MEMBERSHIP, **asked) is None:
                more += row.members
    limit = tx.broker.settings.max_new_grants
    if more > limit:
        raise errors.TooLargeError(
            f"This broker lets a user give access to at most {limit} others in an hour."
        )
    if more:
        what = f"You gave access to more than {limit} users in an hour"
        bucket = tx.broker.keyed("grants", author)
        add_to_counter(connection, bucket, limit, _HOUR, tx.moment, more=more, what=what)


def _check_blocks(connection: Connection, author: UserId, added: Collection[bytes]) -> None:
    """Raise `BlockedError` if one of the users who get access has blocked the author.

    The users' rows are locked: a user who blocks the author meanwhile waits for this transaction.
    """
    names = {"some": sorted(added), "blocked": author}
    if added and (blocking := sorted(connection.execute(BLOCKING, names).scalars())):
        raise errors.BlockedError(
            f"User {uuid.UUID(bytes=blocking[0])} has blocked you: leave the user out."
        )


def _check_managers(connection: Connection, author: UserId, groups: Collection[bytes]) -> None:
    """Raise `BlockedError` if a manager of a group that gets access has blocked the author."""
    managers = connection.execute(MANAGERS, {"some": sorted(groups)}).all()
    ids = sorted({row.user_id for row in managers})
    connection.execute(sql.SHARE_USERS, {"ids": ids})
    blocking = set(connection.execute(BLOCKING, {"some": ids, "blocked": author}).scalars())
    if found := sorted(row.group_id for row in managers if row.user_id in blocking):
        raise errors.BlockedError(
            f"A manager of group {uuid.UUID(bytes=found[0])} has blocked you: leave the group out."
        )


def release_keys(connection: Connection, authors: Iterable[bytes]) -> None:
    """Mark the deleted users and groups among these as pending deletion: a container needs them no longer.

    All are locked until the transaction removes their rows of
    `authors`. Otherwise the purge of a user who is deleted meanwhile could still find such a row, and keep
    the keys for ever.
    """
    ids = sorted({*authors})
    for row in connection.execute(sql.SHARE_USERS, {"ids": ids}) if ids else ():
        if row.deleted and row.group_version is not None:
            connection.execute(sql.ADD_PENDING_GROUP, {"group": row.id})
        elif row.deleted:
            connection.execute(sql.ADD_PENDING_USER, {"user": row.id})
