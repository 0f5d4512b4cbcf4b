"""`BaseProvider`: the container operations and what they need of a session.

Each `_name` checks and copies its arguments at once, takes the session that is current, and gives
the coroutine of the rest: `operation` runs it in either call style.
"""

from __future__ import annotations

import builtins
import datetime as dt
import logging
import os
import uuid
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from scbroker.client.containers import contents, fetching, reading_many, writing, writing_many
from scbroker.client.containers.change import OWNER, Change, no_progress
from scbroker.client.containers.content_reader import ContentReader
from scbroker.client.containers.header import decode_header, encode_header
from scbroker.client.core.sealing import Grant
from scbroker.client.parts import saving
from scbroker.client.parts.content import Progress, checked_content
from scbroker.client.provider import BrokerProvider
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, InvalidArgumentError, NotAuthenticatedError
from scbroker.keys import KeyRing
from scbroker.records.access_list import MAX_ENTRIES
from scbroker.records.container_record import MAX_TYPE
from scbroker.types import Container, ContentSource, Header, NewContainer, SecuredContainer
from scbroker.vocabulary import AccessLevel

T = TypeVar("T")
Work = Coroutine[Any, Any, T]
_log = logging.getLogger("scbroker")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class BaseProvider(BrokerProvider):
    """Container operations over a session that a subclass provides."""

    _current: Session | None = None

    def _session(self) -> Session:
        """The session as it is now; `NotAuthenticatedError` without one."""
        session = self._current
        if session is None or session.ring is None:
            raise NotAuthenticatedError()
        return session

    def _getKeyRing(self) -> Work[KeyRing]:
        return _ready(self._session().keys)

    def _getUserId(self) -> Work[uuid.UUID]:
        return _ready(self._session().userId)

    def _createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Work[SecuredContainer]:
        session = self._session()
        grants = _checked_access(accessLevels)
        change = Change(
            header=encode_header(customHeaderObject),
            content=checked_content(content),
            type=_checked_type(type),
            grants=grants or {session.userId: OWNER},
            progress=_checked_progress(progress),
        )
        return session.hold(writing.create(session, change))

    def _createContainers(
        self, containers: Iterable[NewContainer]
    ) -> Work[list[SecuredContainer | BrokerError]]:
        session = self._session()
        changes = [
            _checked_new(session, number, item)
            for number, item in enumerate(_checked_list("containers", containers))
        ]
        return session.hold(writing_many.create_each(session, changes))

    def _updateContainer(
        self,
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Work[SecuredContainer]:
        change = Change(
            header=encode_header(customHeaderObject),
            content=checked_content(content),
            type=_checked_type(type),
            grants=_checked_access(accessLevels),
            progress=_checked_progress(progress),
        )
        return self._update(containerId, change, ifVersion)

    def _updateContainerHeader(
        self,
        containerId: uuid.UUID,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
    ) -> Work[SecuredContainer]:
        return self._update(
            containerId, Change(header=encode_header(customHeaderObject)), ifVersion
        )

    def _updateContainerContent(
        self,
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Work[SecuredContainer]:
        change = Change(content=checked_content(content), progress=_checked_progress(progress))
        return self._update(containerId, change, ifVersion)

    def _updateContainerAccessLevels(
        self,
        containerId: uuid.UUID,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
    ) -> Work[None]:
        change = Change(grants=_checked_access(accessLevels))
        return _void(self._append(containerId, change, ifVersion))

    def _updateContainerType(
        self, containerId: uuid.UUID, type: str | None = None, *, ifVersion: int | None = None
    ) -> Work[None]:
        return _void(self._append(containerId, Change(type=_checked_type(type)), ifVersion))

    def _deleteContainer(self, containerId: uuid.UUID) -> Work[None]:
        return _void(self._append(containerId, Change(delete=True), None))

    def _update(
        self, containerId: uuid.UUID, change: Change, ifVersion: int | None
    ) -> Work[SecuredContainer]:
        session, container_id = self._session(), _checked_id(containerId)
        return session.hold(
            writing.update(session, container_id, change, _checked_version(ifVersion))
        )

    def _append(
        self, containerId: uuid.UUID, change: Change, ifVersion: int | None
    ) -> Work[object]:
        session, container_id = self._session(), _checked_id(containerId)
        return session.hold(
            writing.append(session, container_id, change, _checked_version(ifVersion))
        )

    def _getContainer(
        self,
        containerId: uuid.UUID,
        headerType: builtins.type[Any] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Work[Container[Any]]:
        session, container_id = self._session(), _checked_id(containerId)
        report = _checked_progress(progress)

        async def work() -> Container[Any]:
            fetched = await fetching.fetch(session, container_id, header=True, content=True)
            opened = fetching.open_fetched(session, fetched)
            header = _header(fetching.read_header(session, opened), headerType)
            content = await contents.read(session, opened, report)
            shown = fetching.metadata(session, opened)
            return fetching.container(opened.state, shown, content, header)

        return session.hold(work())

    def _getContainers(
        self,
        containerIds: Iterable[uuid.UUID],
        headerType: builtins.type[Any] | None = None,
    ) -> Work[list[Container[Any] | BrokerError]]:
        session, ids = self._session(), list(_checked_list("containerIds", containerIds))
        for number, item in enumerate(ids):
            if not isinstance(item, uuid.UUID):
                raise InvalidArgumentError(f"Number {number} of containerIds is no uuid.UUID.")

        def open_header(data: bytes | None) -> Header[Any] | None:
            return _header(data, headerType)

        return session.hold(reading_many.get_each(session, ids, open_header))

    def _getContainerHeader(
        self, containerId: uuid.UUID, headerType: builtins.type[Any] | None = None
    ) -> Work[Header[Any] | None]:
        session, container_id = self._session(), _checked_id(containerId)

        async def work() -> Header[Any] | None:
            fetched = await fetching.fetch(session, container_id, header=True)
            opened = fetching.open_fetched(session, fetched)
            return _header(fetching.read_header(session, opened), headerType)

        return session.hold(work())

    def _getContainerContent(
        self, containerId: uuid.UUID, *, progress: Progress | None = None
    ) -> Work[bytes | None]:
        session, container_id = self._session(), _checked_id(containerId)
        report = _checked_progress(progress)

        async def work() -> bytes | None:
            fetched = await fetching.fetch(session, container_id, content=True)
            opened = fetching.open_fetched(session, fetched)
            return await contents.read(session, opened, report)

        return session.hold(work())

    def _saveContainerContent(
        self,
        containerId: uuid.UUID,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> Work[int | None]:
        session, container_id = self._session(), _checked_id(containerId)
        target, report = saving.checked_target(path), _checked_progress(progress)

        async def work() -> int | None:
            fetched = await fetching.fetch(session, container_id, content=True)
            opened = fetching.open_fetched(session, fetched)
            return await contents.save(session, opened, target, report)

        return session.hold(work())

    def _openContainerContent(self, containerId: uuid.UUID) -> Work[ContentReader | None]:
        session, container_id = self._session(), _checked_id(containerId)

        async def work() -> ContentReader | None:
            fetched = await fetching.fetch(session, container_id, content=True)
            opened = fetching.open_fetched(session, fetched)
            return await contents.reader(session, opened)

        return session.hold(work())

    def _getContainerMetadata(self, containerId: uuid.UUID) -> Work[Container[Any]]:
        session, container_id = self._session(), _checked_id(containerId)

        async def work() -> Container[Any]:
            opened = fetching.open_fetched(session, await fetching.fetch(session, container_id))
            shown = fetching.metadata(session, opened)
            return fetching.container(opened.state, shown, None, None, asked=False)

        return session.hold(work())


async def _ready(value: T) -> T:
    return value


async def _void(work: Work[object]) -> None:
    await work


def _header(data: bytes | None, header_type: builtins.type[Any] | None) -> Header[Any] | None:
    if data is None:
        return None
    return Header(decode_header(data, Any if header_type is None else header_type))


def _checked_id(containerId: object) -> uuid.UUID:
    if not isinstance(containerId, uuid.UUID):
        raise InvalidArgumentError("containerId is a uuid.UUID.")
    return containerId


def _checked_version(ifVersion: object) -> int | None:
    if ifVersion is not None and (isinstance(ifVersion, bool) or not isinstance(ifVersion, int)):
        raise InvalidArgumentError(
            f"ifVersion must be an int or None, not {type(ifVersion).__name__}."
        )
    return ifVersion


def _checked_list(name: str, items: Any) -> Iterable[Any]:
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise InvalidArgumentError(f"{name} is a list.")
    return items


def _checked_new(session: Session, number: int, item: object) -> Change:
    """What is to be made of an item; `InvalidArgumentError` says which one is wrong."""
    if not isinstance(item, NewContainer):
        raise InvalidArgumentError(f"Number {number} of containers is no NewContainer.")
    try:
        return Change(
            header=encode_header(item.customHeaderObject),
            content=checked_content(item.content),
            type=_checked_type(item.type),
            grants=_checked_access(item.accessLevels) or {session.userId: OWNER},
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"Number {number} of containers: {error}") from None


def _checked_type(text: object) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str) or len(text.encode("utf-8", "replace")) > MAX_TYPE:
        raise InvalidArgumentError("type is text of at most 256 bytes, or None.")
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
        raise InvalidArgumentError("type holds a character that cannot be kept.")
    return text


def _checked_progress(progress: object) -> Progress:
    if progress is None:
        return no_progress
    if not callable(progress):
        raise InvalidArgumentError("progress is a function of two numbers: done and total.")

    def report(done: int, total: int | None) -> None:
        try:
            progress(done, total)
        except Exception:
            _log.exception("A progress function failed")

    return report


def _checked_access(levels: object) -> dict[uuid.UUID, Grant]:
    """The access list of an argument; empty for None. `InvalidArgumentError` for what is refused."""
    if levels is None:
        return {}
    if isinstance(levels, (str, bytes, AccessLevel)) or not isinstance(levels, Iterable):
        raise InvalidArgumentError("accessLevels is a list of AccessLevel.")
    grants: dict[uuid.UUID, Grant] = {}
    for number, level in enumerate(levels):
        if not isinstance(level, AccessLevel):
            raise InvalidArgumentError(
                f"accessLevels[{number}] must be an AccessLevel, not {type(level).__name__}"
            )
        if level.userId in grants:
            raise InvalidArgumentError(
                f"accessLevels names user {level.userId} twice: give each user one level."
            )
        grants[level.userId] = Grant(int(level.permissions), _checked_expiry(level))
    if len(grants) > MAX_ENTRIES:
        raise InvalidArgumentError(f"An access list has at most {MAX_ENTRIES} users.")
    return grants


def _checked_expiry(level: AccessLevel) -> int | None:
    if level.expiresAt is None:
        return None
    if level.expiresAt <= dt.datetime.now(dt.UTC):
        raise InvalidArgumentError(f"expiresAt of user {level.userId} is in the past.")
    return (level.expiresAt - _EPOCH) // dt.timedelta(microseconds=1)
