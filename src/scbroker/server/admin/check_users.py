"""Whether what is kept of a user is whole: public keys, KeyFile, event log."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records.key_record import KeyChain
from scbroker.server.broker import now
from scbroker.server.storage import statements as sql
from scbroker.vocabulary import KeyType

_MORE_THAN_ANY: Final = 100_000


def check_user(
    connection: Connection,
    user: Row[Any],
    key_file: Row[Any] | None,
    log: Row[Any] | None,
    *,
    doomed: bool,
) -> None:
    """Raises `IntegrityError` for the first thing that is wrong; `log` is of the numbered events.

    `doomed` says that the user is pending deletion: a broker, or a sweep, still removes what is left.
    """
    if user.fingerprint is not None or not user.deleted:
        _check_keys(connection, user)
    if user.deleted:
        _check_needed(connection, user, doomed=doomed)
    if not doomed:
        _check_log(user, log)
    elif not user.deleted:
        raise IntegrityError("What is theirs is to go, and they were not deleted.")
    if key_file is not None:
        if user.deleted:
            raise IntegrityError("They were deleted, and their KeyFile was not.")
        if sha256(key_file.key_file) != key_file.key_file_hash:
            raise IntegrityError("Their KeyFile is not the one that was stored.")


def _check_keys(connection: Connection, user: Row[Any]) -> None:
    records = sql.key_chain(connection, user.id, 0, _MORE_THAN_ANY)
    if len(records) != user.chain_length:
        raise IntegrityError(f"{len(records)} of {user.chain_length} key records are there.")
    chain = KeyChain.verify(records, now())
    if (chain.userId.bytes, chain.fingerprint) != (user.id, user.fingerprint):
        raise IntegrityError("Their key records are another user's.")
    if chain.closed and not user.deleted:
        raise IntegrityError("Their key records say that they were deleted, and they were not.")
    if chain.of_type(KeyType.Encryption)[-1].index != user.encryption_index:
        raise IntegrityError("Another key is named as their latest than is.")


def _check_needed(connection: Connection, user: Row[Any], *, doomed: bool) -> None:
    """Check that a deleted user's keys are kept exactly as long as a container needs them."""
    needed = sql.one(connection, sql.ANY_CONTAINER_OF_AUTHOR, user=user.id) is not None
    kept = user.fingerprint is not None
    if needed and not kept:
        raise IntegrityError("Containers need their key records, which are missing.")
    if kept and not needed and not doomed:
        raise IntegrityError("They were deleted, and their key records were not.")
    if not kept and (user.chain_length or sql.key_chain(connection, user.id)):
        raise IntegrityError("Their key records are there without their fingerprint.")


def _check_log(user: Row[Any], log: Row[Any] | None) -> None:
    expected = user.last_event - user.first_event + 1
    found = (
        (0, user.first_event, user.last_event) if log is None else (log.count, log.first, log.last)
    )
    if expected < 0 or found != (expected, user.first_event, user.last_event):
        raise IntegrityError("Their event log has a gap.")
    if (user.dropped_digest is None) != (user.first_event == 1):
        raise IntegrityError("The digest of their dropped events is missing.")
