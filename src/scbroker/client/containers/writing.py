"""Changing a container: from what is verified and what is to change to a signed record on the broker.

Spec: docs/spec/container.md, section 9. The order is always the same: read, decide, seal, sign, judge
one's own record as a reader would, send, mark.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Final

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.clock import now
from scbroker.client.containers.change import KEEP, OWNER, Change, Grants, keys_of, seal_parts
from scbroker.client.containers.fetching import (
    Fetched,
    Opened,
    fetch,
    open_fetched,
    prove_deletion,
)
from scbroker.client.containers.sending import Draft, Prepared, finish, prepare, stored
from scbroker.client.core.judging import State, open_type
from scbroker.client.core.sealing import Grant, NewAccess, make_access, make_type
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import (
    BrokerError,
    ConflictError,
    DecryptionError,
    DeletedError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RejectedError,
    StaleKeysError,
)
from scbroker.records.access_list import Entry
from scbroker.records.container_record import (
    ContainerRecord,
    Governing,
    Link,
    Part,
    Role,
)
from scbroker.records.ids import container_id_of, user_id_of
from scbroker.records.judge import check_delegation
from scbroker.records.key_record import KeyChain, KnownKey
from scbroker.types import SecuredContainer
from scbroker.vocabulary import ContainerAccessLevel, KeyType
from scbroker.wire.containers import RecordReceipt

RETRIES: Final = 3
_MANY_WRAPS: Final = 8


async def create(session: Session, change: Change) -> SecuredContainer:
    """Begins a container. The same nonce on every attempt: a lost answer makes no second one."""
    await change.begin_upload(session, None)
    try:
        return await _create(session, change)
    finally:
        change.close()


async def _create(session: Session, change: Change) -> SecuredContainer:
    nonce = change.upload.nonce if change.upload is not None else random_bytes(HASH_SIZE)
    container_id = container_id_of(session.fingerprint, nonce).bytes
    grants = grants_of(session, change)
    for attempt in range(RETRIES):
        await seal_parts(session, change, container_id, None, partial(keys_of, session, grants))
        first = (session, change, container_id, nonce, await keys_of(session, grants))
        signing_key = await session.signing_key()
        if len(grants) > _MANY_WRAPS:
            draft = await io_thread.in_pool(draft_first, *first, signing_key)
        else:
            draft = draft_first(*first, signing_key)
        try:
            sent = await _commit(session, change, draft, None)
        except (StaleKeysError, RejectedError) as error:
            if attempt == RETRIES - 1 or not await _is_outdated(session, draft, error):
                raise
        else:
            prepared, receipt = sent
            await finish(session, prepared, receipt)
            return stored(session, prepared)
    raise AssertionError("unreachable")


async def update(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> SecuredContainer:
    """Append a change; return the container as its author is served it afterwards."""
    return stored(session, await append(session, container_id, change, if_version))


async def append(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> Prepared:
    """Append a change; if another field was changed meanwhile, on top of that change."""
    await change.begin_upload(session, container_id.bytes)
    try:
        return await _append(session, container_id, change, if_version)
    except DeletedError:
        await prove_deletion(session, container_id)
    finally:
        change.close()


async def _append(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> Prepared:
    seen: Fetched | None = None
    for attempt in range(RETRIES + 1):
        fetched = await fetch(
            session,
            container_id,
            header=change.carries(Role.Header),
            content=change.carries(Role.Content),
        )
        if seen is not None:
            _check_no_conflict(seen.state, fetched.state, change)
        seen = seen or fetched
        if if_version is not None and fetched.state.record.version != if_version:
            raise ConflictError(
                f"The container is at version {fetched.state.record.version}, not {if_version}."
            )
        _check_allowed(session, fetched.state, change)
        if change.grants is not KEEP and not change.grants:
            await _check_creator(session, fetched.state)
        recipients = _grants(fetched.state, change, now()) or ()
        commitment = None if recipients else fetched.state.governing.governing.keyCommitment
        verify = partial(keys_of, session, recipients, _members(fetched.state))
        await seal_parts(session, change, container_id.bytes, commitment, verify)
        draft = await _draft_next(session, change, open_or_without(session, fetched))
        try:
            sent = await _commit(session, change, draft, fetched)
        except (StaleKeysError, RejectedError) as error:
            if attempt == RETRIES or not await _is_outdated(session, draft, error):
                raise
        except ConflictError:
            if attempt == RETRIES or change.grants is not KEEP or if_version is not None:
                raise
        else:  # it is stored: what fails from here on is not tried again
            prepared, receipt = sent
            await finish(session, prepared, receipt)
            return prepared
    raise AssertionError("unreachable")


async def _is_outdated(session: Session, draft: Draft, error: BrokerError) -> bool:
    """Whether a record was refused for keys that are others by now: a recipient's, or one's own."""
    if isinstance(error, StaleKeysError):
        return True
    await look_at_own_keys(session)
    return has_old_key(session, draft)


async def look_at_own_keys(session: Session) -> None:
    async with session.changing_keys():  # a change that is under way has an answer first
        await session.directory.latest_own()


def has_old_key(session: Session, draft: Draft) -> bool:
    """Whether a draft is for another key than the latest that is known."""
    return draft.record.keyIndex != session.directory.own.latest(KeyType.Signing).index


def open_or_without(session: Session, fetched: Fetched) -> Opened:
    """The container with its key, or without one: whoever cannot open can still take away or replace."""
    try:
        return open_fetched(session, fetched)
    except (DecryptionError, IntegrityError):
        return Opened(fetched, None)


def _check_allowed(session: Session, state: State, change: Change) -> None:
    """Raises `PermissionDeniedError` for what the author's entry, or rule 4, does not allow."""
    moment = now()
    entry = state.governing.entry_of(session.fingerprint, moment)
    if entry is None:
        raise PermissionDeniedError("Your access to this container has expired.")
    missing = ContainerAccessLevel(change.needed() & ~entry.permissions)
    if missing:
        raise PermissionDeniedError(f"Your access to this container lacks {missing.name}.")
    if change.grants is KEEP:
        return
    unexpired = state.governing.access.unexpired(moment).values()
    before = {user_id_of(each.fingerprint): each for each in unexpired}
    try:
        check_delegation(entry, before, _named(state, change.grants), complete=True)
    except IntegrityError as error:
        raise PermissionDeniedError(f"This change is beyond your own access: {error}") from None


async def _check_creator(session: Session, state: State) -> None:
    """Raise `InvalidArgumentError` if the creator, who gets access by default, was deleted."""
    creator = user_id_of(state.createdBy)
    try:
        await keys_of(session, [creator])
    except NotFoundError:
        raise InvalidArgumentError(
            "accessLevels must name users: by default they name the container's creator, "
            f"user {creator}, who was deleted"
        ) from None


def _named(state: State, grants: Grants) -> Grants:
    """Return the grants asked for; if there are none, the creator's (docs/guide/sharing.md)."""
    return grants or {user_id_of(state.createdBy): OWNER}


def _check_no_conflict(seen: State, found: State, change: Change) -> None:
    """Raises `ConflictError` where the same field was changed by both."""
    before, after = seen.governing.governing, found.governing.governing
    if change.grants is not KEEP and seen.governing.known.hash != found.governing.known.hash:
        raise ConflictError("Somebody else changed the access meanwhile: read it again.")
    old, new = seen.record, found.record
    both = {
        "header": change.header is not KEEP and _id(old.header) != _id(new.header),
        "content": change.content is not KEEP and _id(old.content) != _id(new.content),
        "type": change.type is not KEEP and before.type != after.type,
    }
    fields = " and ".join(name for name, changed in both.items() if changed)
    if fields:
        raise ConflictError(f"Somebody else changed the {fields} meanwhile: read it again.")


def _id(part: Part | None) -> bytes | None:
    return None if part is None else part.partId


def grants_of(session: Session, change: Change) -> Grants:
    """Who is to have access to what begins."""
    return {session.userId: OWNER} if change.grants is KEEP else change.grants


def draft_first(
    session: Session,
    change: Change,
    container_id: bytes,
    nonce: bytes,
    chains: Mapping[uuid.UUID, KeyChain],
    key: KnownKey,
) -> Draft:
    """The first record, for recipients with these keys, to be signed with one's own."""
    grants = grants_of(session, change)
    container_key = random_bytes(KEY_SIZE)
    text = None if change.type is KEEP else change.type
    salted, digest = make_type(container_id, text)
    access = make_access(
        container_id, 1, session.fingerprint, digest, container_key, grants, chains, {}
    )
    commitment = access.governing.keyCommitment
    parts = {
        role: sealed.finish(container_key, commitment) for role, sealed in change.sealed.items()
    }
    record = ContainerRecord(
        containerId=container_id,
        nonce=nonce,
        version=1,
        parent=None,
        author=session.fingerprint,
        keyIndex=key.index,
        time=max(now(), key.introduced),
        link=None,
        governing=access.governing,
        header=parts.get(Role.Header),
        content=parts.get(Role.Content),
        tombstone=False,
    )
    return Draft(record, access, salted, container_key, text)


async def _draft_next(session: Session, change: Change, opened: Opened) -> Draft:
    state = opened.state
    version = state.record.version + 1
    before = state.governing.governing
    shown = opened.fetched.view.type
    text = open_type(state, shown, session.fingerprint)
    salted, digest = None, before.type
    if change.type is not KEEP and (shown is None or change.type != text):
        text = change.type
        salted, digest = make_type(state.container_id, text)
    key = await session.signing_key()
    moment = max(now(), key.introduced, state.record.time, state.governing.record.time)
    grants = _grants(state, change, moment)
    access, container_key, governing = None, opened.container_key, None
    if grants is not None:
        container_key = random_bytes(KEY_SIZE)
        access = await _access(session, state, version, digest, container_key, grants)
        governing = access.governing
    elif digest != before.type:
        governing = Governing(
            before.accessVersion,
            before.accessAuthor,
            before.accessList,
            before.keyCommitment,
            digest,
        )
    commitment = (governing or before).keyCommitment
    parts = {
        role: _part(
            change, role, opened, container_key, commitment, changes_access=access is not None
        )
        for role in Role
    }
    record = ContainerRecord(
        containerId=state.container_id,
        nonce=None,
        version=version,
        parent=state.head.hash,
        author=session.fingerprint,
        keyIndex=key.index,
        time=moment,
        link=Link(state.governing.record.version, state.governing.known.hash),
        governing=governing,
        header=parts[Role.Header],
        content=parts[Role.Content],
        tombstone=change.delete,
    )
    return Draft(record, access, salted, container_key, text)


def _grants(state: State, change: Change, moment: int) -> Grants | None:
    """Who is to have access, if the record changes that: as asked, or renewed (rule 5)."""
    if change.delete:
        return None
    if change.grants is not KEEP:
        return _named(state, change.grants)
    if change.keeps(Role.Header) and change.keeps(Role.Content):
        return None  # nothing new is sealed, and a renewal goes with no other type
    if not state.governing.needs_renewal(moment):
        return None
    return {
        user_id_of(entry.fingerprint): Grant(entry.permissions, entry.expiresAt)
        for entry in state.governing.access.unexpired(moment).values()
    }


def _members(state: State) -> dict[uuid.UUID, Entry]:
    """The entries in force, by user; of some of these users the broker may have no keys any more."""
    return {user_id_of(name): entry for name, entry in state.governing.access.entries.items()}


async def _access(
    session: Session,
    state: State,
    version: int,
    digest: bytes,
    container_key: bytes,
    grants: Grants,
) -> NewAccess:
    members = _members(state)
    chains = await keys_of(session, grants, members)
    arguments = (
        state.container_id, version, session.fingerprint, digest, container_key, grants, chains,
        members,
    )  # fmt: skip
    if len(grants) > _MANY_WRAPS:
        return await io_thread.in_pool(make_access, *arguments)
    return make_access(*arguments)


def _part(
    change: Change,
    role: Role,
    opened: Opened,
    container_key: bytes | None,
    commitment: bytes,
    *,
    changes_access: bool,
) -> Part | None:
    """A part of the next record: none, new, or carried (sealed again for a new container key)."""
    if change.delete:
        return None
    if role in change.sealed:
        if container_key is None:
            raise DecryptionError(
                "The container's key does not open, so nothing can be sealed under it."
            )
        return change.sealed[role].finish(container_key, commitment)
    part = opened.state.record.part(role) if change.keeps(role) else None
    if part is None or not changes_access:
        return part
    found = opened.part(role)
    if found is None or container_key is None:
        raise DecryptionError(
            f"The container's {role.name.lower()} does not open and cannot be carried over: replace "
            "it with updateContainer, or delete the container."
        )
    return found.reseal(container_key)


async def _commit(
    session: Session, change: Change, draft: Draft, fetched: Fetched | None
) -> tuple[Prepared, RecordReceipt]:
    """Signs, judges as a reader would, and sends; gives what is left to be checked and marked."""
    prepared = prepare(session, change, draft, fetched)
    record = draft.record
    change.end_upload()
    receipt = await session.call(
        "PUT",
        f"/v1/containers/{uuid.UUID(bytes=record.containerId)}/records/{record.version}",
        RecordReceipt,
        message=prepared.request,
    )
    return prepared, receipt
