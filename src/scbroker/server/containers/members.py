"""Store access lists and members, and check the users of a record. Spec: docs/spec/container.md, section 10.

The broker keeps every list of a container, because readers judge older records by it. After a deletion
only the authors' entries stay, which readers need to judge the tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row

from scbroker import errors
from scbroker.records.access_list import AccessList, SaltedEntry, parse_entry
from scbroker.records.ids import UserId, stored_user_id, user_id_of
from scbroker.records.judge import InForce
from scbroker.server.broker import SECOND, Broker, add_to_counter
from scbroker.server.containers.incoming import Incoming
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType
from scbroker.wire.containers import Disclosed, ListView

_HOUR: Final = 3600 * SECOND
Users = Mapping[bytes, Row[Any]]
"""Rows of users by fingerprint."""


class KeysChangedError(Exception):
    """The author's key records changed since the signature was verified; `length` is their number now."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length


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
        return msgspec.msgpack.decode(data, type=StoredList)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def verified(self) -> AccessList:
        """Return the list; hashes and parses every entry."""
        return AccessList.disclosed(
            self.hashes,
            [(position, SaltedEntry(salt, entry)) for position, salt, entry in self.entries],
        )

    def only(self, fingerprints: Collection[bytes]) -> StoredList:
        """Return the list with the entries of these users alone."""
        return StoredList(
            self.hashes,
            [item for item in self.entries if parse_entry(item[2]).fingerprint in fingerprints],
        )

    def view(self) -> ListView:
        """Return the list as the broker serves it."""
        disclosed = [Disclosed(position=n, salt=s, entry=entry) for n, s, entry in self.entries]
        return ListView(entryHashes=self.hashes, disclosed=disclosed)


def lock_users(connection: Connection, items: Iterable[Incoming]) -> Users:
    """Lock the author of these records and all users in their new lists, in one statement.

    So their deletion, or a change of their keys, happens before or after this transaction. Members who are
    in an old list alone need no lock: whatever deletes them waits for the lock of the container.
    """
    names: set[bytes] = {item.user.fingerprint for item in items}
    names |= {name for item in items if item.access is not None for name in item.access.entries}
    return _rows(connection, sql.SHARE_USERS, names)


def concerned_users(
    connection: Connection,
    incoming: Incoming,
    before: InForce | None,
    chain_length: int,
    locked: Users,
) -> Users:
    """Return the author and all users in the old and the new list, as far as the broker knows them.

    Raises `KeysChangedError` unless the author still has this number of key records.
    """
    author = locked[incoming.user.fingerprint]
    if author.deleted:
        raise errors.NotAuthenticatedError("The account was deleted.")
    if author.chain_length != chain_length:
        raise KeysChangedError(author.chain_length)
    named = {incoming.user.fingerprint, *(incoming.access.entries if incoming.access else ())}
    users = {name: locked[name] for name in named if name in locked}
    if before is not None and (others := before.access.entries.keys() - named):
        users |= _rows(connection, sql.FIND_USERS, others)
    return users


def _rows(connection: Connection, statement: Any, names: Iterable[bytes]) -> dict[bytes, Row[Any]]:
    """Return rows by fingerprint. A user id covers 122 bits of it; the row's own must match the rest."""
    by_id: dict[bytes, bytes] = {stored_user_id(fingerprint): fingerprint for fingerprint in names}
    rows = connection.execute(statement, {"ids": list(by_id)})
    return {by_id[row.id]: row for row in rows if row.fingerprint in (None, by_id[row.id])}


def check_recipients(access: AccessList, before: InForce | None, users: Users) -> None:
    """Raise unless every user of a new list is known, has their latest key in it, and is not deleted.

    A deleted user who is in the old list may stay in the new one.
    """
    known_before = before.access.entries if before else {}
    for fingerprint, entry in access.entries.items():
        user, user_id = users.get(fingerprint), user_id_of(fingerprint)
        if user is None:
            raise errors.NotFoundError(f"The broker knows no user {user_id}.")
        if user.deleted and fingerprint not in known_before:
            raise errors.NotFoundError(f"User {user_id} was deleted: give them no access.")
        if user.deleted:
            continue
        if entry.wrapHash is None and entry.allows(ContainerAccessLevel.Decrypt):
            raise errors.RejectedError(f"User {user_id} may decrypt, but the entry has no wrap.")
        if entry.keyIndex != user.encryption_index:
            raise errors.StaleKeysError(f"User {user_id} has newer keys: read them again.")


def store_access(
    connection: Connection, incoming: Incoming, users: Users, moment: int, new: NewRows
) -> None:
    """Add the new list, which readers judge by, and a row for each member who is not deleted.

    A member whose entry has expired at `moment` already has the event of it, if another broker's clock is
    ahead of this one.
    """
    access, sent = incoming.access, incoming.message.accessList
    if access is None or sent is None:
        return
    container_id = incoming.container_id
    stored = StoredList.whole(access.entryHashes, (item.salted for item in sent))
    row = {
        "container_id": container_id,
        "access_version": incoming.known.record.version,
        "entries": stored.encode(),
    }
    new.add(sql.ADD_LIST, [row])
    if not incoming.is_first:
        connection.execute(sql.DROP_MEMBERS, {"container": container_id})
    rows = [
        {
            "container_id": container_id,
            "user_id": stored_user_id(fingerprint),
            "permissions": entry.permissions,
            "expires_at": entry.expiresAt,
            "wrap": item.wrap,
            "expiry_told": entry.is_expired(moment),
        }
        for (fingerprint, entry), item in zip(access.entries.items(), sent, strict=True)
        if not users[fingerprint].deleted
    ]
    new.add(sql.ADD_MEMBERS, rows)


def count_grants(
    connection: Connection, broker: Broker, author: UserId, new: NewRows, moment: int
) -> None:
    """Count the users who get access by these rows and had none; a refused request counts nothing.

    Each of them gets an event, so that an unlimited author could fill other users' logs. Raises
    `ThrottledError` above the limit of an hour, and `TooLargeError` if one request alone exceeds it.
    """
    events = new.of(sql.ADD_EVENTS)
    added = [row["user_id"] for row in events if row["event_type"] == ContainerEventType.Added]
    more, limit = sum(user_id != author for user_id in added), broker.settings.max_new_grants
    if not more:
        return
    if more > limit:
        raise errors.TooLargeError(
            f"This broker lets a user give access to at most {limit} others in an hour."
        )
    what = f"You gave access to more than {limit} users in an hour"
    bucket = broker.keyed("grants", author)
    add_to_counter(connection, bucket, limit, _HOUR, moment, more=more, what=what)


def release_keys(connection: Connection, authors: Sequence[bytes]) -> None:
    """Mark the deleted users among these as pending deletion: a container no longer needs their keys.

    All are locked until the transaction removes their rows of `authors`. Otherwise the purge of a user who
    is deleted meanwhile could still find such a row, and keep the keys for ever.
    """
    for user in connection.execute(sql.SHARE_USERS, {"ids": authors}).all():
        if user.deleted:
            connection.execute(sql.ADD_PENDING_USER, {"user": user.id})
