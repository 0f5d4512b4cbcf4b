"""Users' public keys as callers see them, from verified chains."""

from __future__ import annotations

import uuid

from scbroker.client.containers.fetching import moment
from scbroker.client.users.session import Session
from scbroker.errors import InvalidArgumentError, NotFoundError
from scbroker.records.ids import show_fingerprint
from scbroker.records.key_record import KeyChain, KnownKey
from scbroker.types import PublicKey
from scbroker.vocabulary import KeyType, member_of


def checked_user(userId: object) -> uuid.UUID:
    if not isinstance(userId, uuid.UUID):
        raise InvalidArgumentError("userId is a uuid.UUID.")
    return userId


def checked_key_type(keyType: object) -> KeyType | None:
    return None if keyType is None else member_of(KeyType, keyType, "keyType")


def checked_index(index: object) -> int | None:
    if index is not None and (isinstance(index, bool) or not isinstance(index, int) or index < 0):
        raise InvalidArgumentError("index is a key's index, an int of 0 or more, or None.")
    return index


async def public_keys(
    session: Session, user_id: uuid.UUID, kind: KeyType | None, index: int | None
) -> list[PublicKey]:
    """Return a user's keys that match; a deleted user has none, or only retired ones."""
    chain = (await session.directory.latest([user_id])).get(user_id)
    if chain is None:
        return []
    return [
        _public_key(chain, key)
        for wanted in KeyType
        if kind in (None, wanted)
        for key in chain.of_type(wanted)
        if index in (None, key.index)
    ]


async def latest_active(session: Session, user_id: uuid.UUID, kind: KeyType) -> PublicKey | None:
    """Return the key to use now; None for an unknown user, or one without an active key."""
    try:
        keys = await public_keys(session, user_id, kind, None)
    except NotFoundError:
        return None
    return max((key for key in keys if key.active), key=lambda key: key.index, default=None)


def _public_key(chain: KeyChain, key: KnownKey) -> PublicKey:
    return PublicKey(
        userId=chain.userId,
        keyType=key.type,
        index=key.index,
        key=key.public,
        active=key.retired is None,
        createdAt=moment(key.introduced),
        retiredAt=None if key.retired is None else moment(key.retired),
        fingerprint=show_fingerprint(chain.fingerprint),
    )
