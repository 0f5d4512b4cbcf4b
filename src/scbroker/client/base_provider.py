"""Implement the container operations over a session that a subclass provides.

Each `_name` takes checked arguments and the current session at once, and returns the coroutine of the rest;
`operation` runs it in either call style.
"""

from __future__ import annotations

import builtins
import logging
import os
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from scbroker import errors
from scbroker.client import arguments
from scbroker.client.calls.stream import Pages
from scbroker.client.containers import contents, fetching, leaving, listing, opening, writing
from scbroker.client.containers.change import (
    OWNER,
    Change,
    Grants,
    Merge,
    check_own_type,
    decode_header,
    encode_header,
)
from scbroker.client.containers.contents import ContentReader
from scbroker.client.parts import downloads
from scbroker.client.parts.content import Progress, checked_content, no_progress
from scbroker.client.provider import BrokerProvider
from scbroker.client.users.session import Session
from scbroker.keys import KeyRing
from scbroker.records.container_record import Role
from scbroker.types import (
    AccessChange,
    Container,
    ContainerPage,
    ContentSource,
    Header,
    NewContainer,
    SecuredContainer,
)
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, holder_of, uuid_of
from scbroker.wire.containers import MAX_BATCH

_log = logging.getLogger("scbroker")
T = TypeVar("T")
Work = Coroutine[Any, Any, T]


class BaseProvider(BrokerProvider):
    """Container operations over a session that a subclass provides."""

    _current: Session | None = None

    def _session(self) -> Session:
        """Return the current session; `NotAuthenticatedError` without one."""
        session = self._current
        if session is None or session.keys.is_forgotten:
            raise errors.NotAuthenticatedError(self._how_to_begin())
        session.check_process()
        return session

    def _how_to_begin(self) -> str:
        """Return why there is no session and how to begin one; "" for the error's own message."""
        return ""

    def _getKeyRing(self) -> Work[KeyRing]:
        return _ready(self._session().keys.ring)

    def _getUserId(self) -> Work[uuid.UUID]:
        return _ready(self._session().userId)

    def _createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        progress: Progress = no_progress,
        nonce: bytes | None = None,
    ) -> Work[SecuredContainer]:
        session = self._session()
        new = NewContainer(content, customHeaderObject, accessLevels, type)
        change = _change(new, progress, session.userId)
        change.nonce = nonce
        _warn_of_closed(session.userId, change, "The new container")
        return session.hold(writing.create(session, change))

    def _createContainers(
        self, containers: Iterable[NewContainer]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]:
        session = self._session()
        changes = [_new(session.userId, number, item) for number, item in enumerate(containers)]
        for number, change in enumerate(changes):
            _warn_of_closed(session.userId, change, f"containers[{number}]")
        return session.hold(writing.create_each(session, changes))

    def _updateContainer(
        self,
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        ifVersion: int | None = None,
        progress: Progress = no_progress,
    ) -> Work[SecuredContainer]:
        new = NewContainer(content, customHeaderObject, accessLevels, type)
        return self._update(containerId, _change(new, progress), ifVersion)

    def _updateContainerHeader(
        self,
        containerId: uuid.UUID,
        customHeaderObject: object = None,
        ifVersion: int | None = None,
    ) -> Work[SecuredContainer]:
        change = Change(header=encode_header(customHeaderObject))
        return self._update(containerId, change, ifVersion)

    def _updateContainerContent(
        self,
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        ifVersion: int | None = None,
        progress: Progress = no_progress,
    ) -> Work[SecuredContainer]:
        change = Change(content=checked_content(content), progress=progress)
        return self._update(containerId, change, ifVersion)

    def _updateContainerAccessLevels(
        self,
        containerId: uuid.UUID,
        accessLevels: Iterable[AccessLevel] | None = None,
        ifVersion: int | None = None,
    ) -> Work[None]:
        change = Change(grants=arguments.checked_grants(accessLevels))
        return self._append(containerId, change, ifVersion)

    def _updateContainersAccessLevels(
        self, changes: Iterable[AccessChange]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]:
        items = [_access_change(number, item) for number, item in enumerate(changes)]
        return self._update_each("changes", items)

    def _grantAccess(
        self, containerIds: Sequence[uuid.UUID], accessLevels: Sequence[AccessLevel]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]:
        merge = Merge(arguments.checked_grants(accessLevels), frozenset())
        return self._update_each("containerIds", [(each, merge) for each in containerIds])

    def _revokeAccess(
        self, containerIds: Sequence[uuid.UUID], userIds: Sequence[uuid.UUID]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]:
        merge = Merge({}, frozenset(userIds))
        return self._update_each("containerIds", [(each, merge) for each in containerIds])

    def _updateContainerType(
        self, containerId: uuid.UUID, type: str | None = None, ifVersion: int | None = None
    ) -> Work[None]:
        return self._append(containerId, Change(type=arguments.checked_type(type)), ifVersion)

    def _deleteContainer(self, containerId: uuid.UUID) -> Work[None]:
        return self._append(containerId, Change(delete=True), None)

    def _leaveContainer(self, containerId: uuid.UUID, abandon: bool = False) -> Work[None]:
        session = self._session()
        return session.hold(leaving.leave(session, containerId, abandon=abandon))

    def _update(
        self, containerId: uuid.UUID, change: Change, ifVersion: int | None
    ) -> Work[SecuredContainer]:
        session = self._session()
        return session.hold(writing.update(session, containerId, change, ifVersion))

    def _update_each(
        self, argument: str, items: Sequence[tuple[uuid.UUID, Grants | Merge]]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]:
        """Change the access of the containers that an argument names; raise if it names one twice."""
        session = self._session()
        arguments.check_named_once(argument, [container_id for container_id, _ in items])
        changes = {container_id: Change(grants=grants) for container_id, grants in items}
        return session.hold(writing.update_each(session, changes))

    def _append(self, containerId: uuid.UUID, change: Change, ifVersion: int | None) -> Work[None]:
        session = self._session()

        async def work() -> None:
            await writing.append(session, containerId, change, ifVersion)

        return session.hold(work())

    def _getContainer(
        self,
        containerId: uuid.UUID,
        headerType: builtins.type[Any] | None = None,
        progress: Progress = no_progress,
    ) -> Work[Container[Any]]:
        async def use(session: Session, opened: opening.Opened) -> Container[Any]:
            header = _header(opening.read_part(opened, Role.Header), headerType)
            content = await contents.read(session, opened, progress)
            return opening.container(session, opened, content, header)

        return self._read(containerId, use, header=True, content=True)

    def _getContainers(
        self,
        containerIds: Iterable[uuid.UUID],
        headerType: builtins.type[Any] | None = None,
        content: bool = True,
        headers: bool = True,
    ) -> Work[list[Container[Any] | errors.BrokerError]]:
        session, open_header = self._session(), partial(_header, header_type=headerType)
        wanted = {Role.Header: headers, Role.Content: content}
        asked = [role for role, is_wanted in wanted.items() if is_wanted]
        return session.hold(contents.get_each(session, list(containerIds), open_header, asked))

    def _listContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | None = None,
        limit: int = MAX_BATCH,
        headers: bool = True,
        headerType: builtins.type[Any] | None = None,
    ) -> Work[ContainerPage[Any]]:
        session = self._session()
        wanted = _wanted(containerType, limit, headers, headerType)
        return session.hold(listing.page(session, wanted, startAfter))

    def _iterContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | None = None,
        headers: bool = True,
        headerType: builtins.type[Any] | None = None,
    ) -> Pages[Container[Any] | errors.BrokerError]:
        session = self._session()
        wanted = _wanted(containerType, MAX_BATCH, headers, headerType)
        return listing.pages(session, wanted, startAfter)

    def _getContainerHeader(
        self, containerId: uuid.UUID, headerType: builtins.type[Any] | None = None
    ) -> Work[Header[Any] | None]:
        async def use(_: Session, opened: opening.Opened) -> Header[Any] | None:
            return _header(opening.read_part(opened, Role.Header), headerType)

        return self._read(containerId, use, header=True)

    def _getContainerContent(
        self, containerId: uuid.UUID, progress: Progress = no_progress
    ) -> Work[bytes | None]:
        return self._read(containerId, partial(contents.read, progress=progress), content=True)

    def _saveContainerContent(
        self, containerId: uuid.UUID, path: os.PathLike[str], progress: Progress = no_progress
    ) -> Work[int | None]:
        use = partial(contents.save, target=downloads.checked_target(path), progress=progress)
        return self._read(containerId, use, content=True)

    def _openContainerContent(self, containerId: uuid.UUID) -> Work[ContentReader | None]:
        return self._read(containerId, contents.reader, content=True)

    def _getContainerMetadata(self, containerId: uuid.UUID) -> Work[Container[Any]]:
        async def use(session: Session, opened: opening.Opened) -> Container[Any]:
            return opening.container(session, opened, None, None, asked=())

        return self._read(containerId, use)

    def _read(
        self,
        containerId: uuid.UUID,
        use: Callable[[Session, opening.Opened], Work[T]],
        *,
        header: bool = False,
        content: bool = False,
    ) -> Work[T]:
        """Fetch and open a container with these parts, and return what `use` makes of it."""
        session = self._session()

        async def work() -> T:
            fetched = await fetching.fetch(session, containerId, header=header, content=content)
            return await use(session, opening.open_fetched(session, fetched))

        return session.hold(work())


async def _ready(value: T) -> T:
    return value


def _header(data: bytes | None, header_type: builtins.type[Any] | None) -> Header[Any] | None:
    if data is None:
        return None
    return Header(decode_header(data, Any if header_type is None else header_type))


def _wanted(
    type: str | None, limit: int, headers: bool, header_type: builtins.type[Any] | None
) -> listing.Wanted:
    """Return the checked parameters of a list."""
    if not 1 <= limit <= MAX_BATCH:
        raise errors.InvalidArgumentError(f"limit must be 1 to {MAX_BATCH}, not {limit}")
    open_header = partial(_header, header_type=header_type) if headers else None
    return listing.Wanted(arguments.checked_type(type), limit, open_header)


def _change(
    new: NewContainer, progress: Progress = no_progress, creator: uuid.UUID | None = None
) -> Change:
    """Return a change of all fields. Without access levels, the creator of a new container is the owner."""
    grants = arguments.checked_grants(new.accessLevels)
    type = arguments.checked_type(new.type)
    if creator is not None:
        grants = grants or {creator: OWNER}
        check_own_type(creator, type, grants)
    return Change(
        header=encode_header(new.customHeaderObject),
        content=checked_content(new.content),
        type=type,
        grants=grants,
        progress=progress,
    )


def _warn_of_closed(creator: uuid.UUID, change: Change, what: str) -> None:
    """Warn if the creator of a new container will not be able to open it, which may be a mistake."""
    grant = change.recipients.get(creator)
    if grant is None or not grant.permissions & ContainerAccessLevel.Decrypt:
        _log.warning(
            "%s will not open for its creator: accessLevels gives user %s no Decrypt. Include "
            "AccessLevel(userId, ContainerAccessLevel.DefaultOwnerPermissions) for yourself.",
            what,
            creator,
        )


def _new(creator: uuid.UUID, number: int, item: NewContainer) -> Change:
    """Return the change that creates one item of a batch; its position is in every error."""
    try:
        return _change(arguments.checked_fields(NewContainer, item), creator=creator)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"containers[{number}]: {error}") from None


def _access_change(number: int, item: AccessChange) -> tuple[uuid.UUID, Grants | Merge]:
    """Return the container and the change of one item of a batch; every error names the item's position."""
    try:
        checked = arguments.checked_fields(AccessChange, item)
        return uuid_of("containerId", checked.containerId), _grants(checked)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"changes[{number}]: {error}") from None


def _grants(item: AccessChange) -> Grants | Merge:
    add, remove = list(item.add), frozenset(holder_of("remove", each) for each in item.remove)
    if item.replace is not None:
        if add or remove:
            raise errors.InvalidArgumentError(
                "replace names the whole access list: pass it without add and remove"
            )
        return arguments.checked_grants(item.replace, "replace")
    grants = arguments.checked_grants(add, "add")
    if both := remove & grants.keys():
        raise errors.InvalidArgumentError(
            f"add and remove both name {min(both)}: name each user or group in one of them"
        )
    return Merge(grants, remove)
