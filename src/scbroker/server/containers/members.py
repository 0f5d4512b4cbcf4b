"""Whom a record concerns: known and living users with their latest keys, and the rows that serve them.

Part of appending a record (`containers`). Spec: docs/spec/container.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row

from scbroker.errors import (
    NotAuthenticatedError,
    NotFoundError,
    RejectedError,
    StaleKeysError,
)
from scbroker.records.access_list import AccessList, SaltedEntry
from scbroker.records.ids import user_id_of
from scbroker.records.judge import InForce
from scbroker.server.containers.incoming import Incoming
from scbroker.server.containers.stored_lists import StoredList
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.vocabulary import ContainerAccessLevel


class KeysChangedError(Exception):
    """The author's keys are others than those that their signature was verified with."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length


Users = Mapping[bytes, Row[Any]]


def hold_all(connection: Connection, items: Iterable[Incoming]) -> Users:
    """Everybody who stands in a new list of one of these records, and their author, held."""
    names = {item.user.fingerprint for item in items}
    for item in items:
        names |= item.access.entries.keys() if item.access is not None else set()
    return _rows(connection, sql.SHARE_USERS, names)


def hold_users(
    connection: Connection,
    incoming: Incoming,
    before: InForce | None,
    chain_length: int,
    held: Users | None = None,
) -> Users:
    """Everybody whom the record concerns, by fingerprint; the author living, with these very keys.

    Author and newcomers are held: their deletion, or a change of keys, comes before or after this
    record and not beside it. Whose deletion would touch this container waits for its row anyway. `held`
    are those of a batch, who were held before.
    """
    old = before.access.entries.keys() if before else set()
    new = incoming.access.entries.keys() if incoming.access is not None else set()
    author = incoming.user.fingerprint
    wanted = {author} | (new - old)
    if held is not None:
        found = {name: held[name] for name in wanted if name in held}
    else:
        found = _rows(connection, sql.SHARE_USERS, wanted)
    if found[author].deleted:
        raise NotAuthenticatedError("The account was deleted.")
    if found[author].chain_length != chain_length:
        raise KeysChangedError(found[author].chain_length)
    if others := old - wanted:
        found |= _rows(connection, sql.FIND_USERS, others)
    return found


def _rows(connection: Connection, statement: Any, names: Iterable[bytes]) -> dict[bytes, Row[Any]]:
    """Rows by fingerprint. An id covers 122 bits of it: what a row has of the rest must agree."""
    by_id = {user_id_of(fingerprint).bytes: fingerprint for fingerprint in names}
    rows = connection.execute(statement, {"ids": list(by_id)})
    return {by_id[row.id]: row for row in rows if row.fingerprint in (None, by_id[row.id])}


def living(users: Users) -> set[bytes]:
    return {fingerprint for fingerprint, user in users.items() if not user.deleted}


def check_recipients(access: AccessList, before: InForce | None, users: Users) -> None:
    """Every user is known, living unless in the list already, and named with their latest key."""
    known_before = before.access.entries if before else {}
    for fingerprint, entry in access.entries.items():
        user = users.get(fingerprint)
        if user is None:
            raise NotFoundError(f"The broker knows no user {user_id_of(fingerprint)}.")
        if user.deleted and fingerprint not in known_before:
            raise NotFoundError(f"User {user_id_of(fingerprint)} was deleted: give them no access.")
        if user.deleted:
            continue
        if entry.wrapHash is None and entry.allows(ContainerAccessLevel.Decrypt):
            raise RejectedError(f"User {user_id_of(fingerprint)} may decrypt and gets no wrap.")
        if entry.keyIndex != user.encryption_index:
            raise StaleKeysError(f"User {user_id_of(fingerprint)} has newer keys: read them again.")


def store_access(
    connection: Connection,
    incoming: Incoming,
    access: AccessList,
    users: Users,
    moment: int,
    new: NewRows,
) -> None:
    """The list as it was sent, for judging; a row of each living member, for serving.

    Whose time was over before `moment`, by a writer's slow clock, was told of it already.
    """
    container_id = incoming.container_id
    sent = incoming.message.accessList or []
    stored = StoredList.whole([SaltedEntry(item.salt, item.entry) for item in sent])
    new.add(
        sql.ADD_LIST,
        [
            {
                "container_id": container_id,
                "access_version": incoming.known.record.version,
                "entries": stored.encode(),
            }
        ],
    )
    if not incoming.is_first:
        connection.execute(sql.DROP_MEMBERS, {"container": container_id})
    rows = [
        {
            "container_id": container_id,
            "user_id": user_id_of(fingerprint).bytes,
            "permissions": entry.permissions,
            "expires_at": entry.expiresAt,
            "wrap": item.wrap,
            "expiry_told": entry.is_expired(moment),
        }
        for (fingerprint, entry), item in zip(access.entries.items(), sent, strict=True)
        if not users[fingerprint].deleted
    ]
    new.add(sql.ADD_MEMBERS, rows)


def release_keys(connection: Connection, authors: Sequence[bytes]) -> None:
    """Make the deleted among these users pending: a container needs their keys no longer.

    All are locked until the transaction removes their rows of `authors`. Otherwise one who is deleted
    meanwhile could still find a row and keep the keys for ever.
    """
    for user in connection.execute(sql.SHARE_USERS, {"ids": authors}).all():
        if user.deleted:
            connection.execute(sql.ADD_PENDING_USER, {"user": user.id})
