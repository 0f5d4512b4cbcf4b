"""Find a user's containers by name, and list them, with the device's index of names.

The index is only a hint: each container that it finds is read and verified. Without an index, as
for a link, and if the client refuses the broker's event log, all containers are listed instead.
"""

from __future__ import annotations

import logging
import mimetypes
import threading
import unicodedata
import uuid
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors

if TYPE_CHECKING:
    from scbroker.client.cache.index import Index
    from scbroker.client.users.session import Session

T = TypeVar("T")
Container: TypeAlias = "scbroker.Container[Any]"
Entry: TypeAlias = "Container | errors.BrokerError"
LONGEST_NAME: Final = 1024
"""Characters. Names of files are shorter; the time to normalize grows with the square of the length."""
_LONGEST: Final = LONGEST_NAME + 1
"""The index cuts names after so many characters, so that a name that is too long stays too long."""
_ROUNDS: Final = 3
_SHOWN: Final = 120
"""Characters of a name that lists and pages show."""
_GONE: Final = (errors.NotFoundError, errors.DeletedError)
_REFUSED: Final = (errors.UntrustedError, errors.BrokerFaultError)
_log = logging.getLogger("scbroker")


def name_of(container: Container) -> str | None:
    """Return a container's name in Unicode's NFC; None if its header has none or is hidden.

    A name that is too long for any file stays as it is.
    """
    name = (header_of(container) or {}).get("name")
    if not isinstance(name, str) or not name:
        return None
    return name if len(name) > LONGEST_NAME else unicodedata.normalize("NFC", name)


def header_with(name: str, header: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a header with this name and its media type; the other fields stay."""
    new = {**(header or {}), "name": name}
    new.pop("mediaType", None)
    media_type, _ = mimetypes.guess_type(name)
    return new if media_type is None else {**new, "mediaType": media_type}


def shortened(text: str, longest: int = _SHOWN) -> str:
    """Return a text, cut if it is longer: other users choose the names of what they share."""
    return text if len(text) <= longest else f"{text[:longest]}…"


class Named(NamedTuple):
    """The containers of some names, with their whole headers, and the ids of those that cannot be read."""

    found: dict[str, list[Container]]
    damaged: list[uuid.UUID | None]


def containers_named(provider: scbroker.BrokerProvider, names: Collection[str]) -> Named:
    """Return the containers of each of these names, in the form in which `name_of` returns them."""
    if not names:
        return Named({}, [])
    again: list[uuid.UUID] = []
    asked = {each[:_LONGEST] for each in names}
    for _ in range(_ROUNDS):
        listed = _asked(provider, methodcaller("find", asked, again))
        if listed is None:
            break
        result = Named({name: [] for name in names}, list(listed[1]))
        ids = [each for some in listed[0].values() for each in some]
        again = []
        for id, each in zip(ids, _read(provider, ids), strict=True):
            if isinstance(each, scbroker.Container) and (name := name_of(each)) in result.found:
                result.found[name].append(each)
            elif isinstance(each, (scbroker.Container, *_GONE)):
                again.append(id)
            else:
                result.damaged.append(id)
        if not again:
            return result
    result = Named({name: [] for name in names}, [])
    for each in provider.iterContainers():
        if isinstance(each, errors.BrokerError):
            result.damaged.append(each.containerId)
        elif (name := name_of(each)) in result.found:
            result.found[name].append(each)
    return result


def header_of(container: Container) -> dict[str, Any] | None:
    """Return the header if it is a JSON object; None for any other, or without one."""
    header = container.header and container.header.customHeaderObject
    return header if isinstance(header, dict) else None


def check_free(
    provider: scbroker.BrokerProvider, name: str, own: uuid.UUID, besides: uuid.UUID | None = None
) -> None:
    """Raise `AlreadyExistsError` if a container that the user `own` created, but `besides`, has this name."""
    for each in containers_named(provider, [name]).found[name]:
        if each.createdBy == own and each.id != besides:
            raise errors.AlreadyExistsError(
                f"Your container {each.id} is named {name!r} already: choose another name."
            )


def containers_whose_name(
    provider: scbroker.BrokerProvider, is_wanted: Callable[[str], bool]
) -> Iterator[Entry]:
    """Yield the containers with a wanted name, with their whole headers, and errors of damaged ones."""
    listed = _asked(provider, lambda index: index.find())
    if listed is None:
        entries: Iterator[Entry] = iter(provider.iterContainers())
    else:
        ids = [each for name, some in listed[0].items() if is_wanted(name) for each in some]
        entries = iter(_read(provider, sorted({*ids, *listed[1]})))
    for each in entries:
        if isinstance(each, scbroker.Container):
            if is_wanted(name_of(each) or ""):
                yield each
        elif not isinstance(each, _GONE):
            yield each


def names_by_id(provider: scbroker.BrokerProvider) -> Iterator[tuple[uuid.UUID, str]]:
    """Yield the id and name of each container that has a name."""
    listed = _asked(provider, lambda index: index.find())
    if listed is None:
        for each in provider.iterContainers():
            if not isinstance(each, errors.BrokerError) and (name := name_of(each)):
                yield each.id, name
    else:
        yield from ((each, name) for name, some in listed[0].items() for each in some)


def all_containers(
    provider: scbroker.BrokerProvider,
    type: str | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> Iterator[Entry]:
    """Yield all containers, ascending by id, and errors of damaged ones; headers may have the name alone.

    With `is_wanted`, containers whose name is not wanted may be left out. Long names may be cut after 1,025
    characters.
    """
    listed = _asked(provider, lambda index: index.all(is_wanted))
    if listed is None:
        yield from provider.iterContainers(type)
    else:
        for each in listed:
            if isinstance(each, errors.BrokerError) or type in (None, each.type):
                yield each


def containers_of(provider: scbroker.BrokerProvider, ids: Sequence[uuid.UUID]) -> list[Entry]:
    """Return containers with their headers and without contents, by their ids, or errors.

    A container whose header cannot be read, or is not JSON, comes without it: its header is `NotIncluded`, as
    `is_damaged` tells. A member with Upload must not keep others from deleting or sharing it.
    """
    found = list(provider.getContainers(ids, content=False).result()) if ids else []
    at = [
        place
        for place, each in enumerate(found)
        if isinstance(each, errors.BrokerError) and not isinstance(each, _GONE)
    ]
    if at:
        again = provider.getContainers([ids[each] for each in at], content=False, headers=False)
        for place, each in zip(at, again.result(), strict=True):
            if isinstance(each, scbroker.Container):
                found[place] = each
    return found


def is_damaged(container: Container) -> bool:
    """Return whether a container of `containers_of` has a header that cannot be read."""
    return container.headerAvailability is scbroker.Availability.NotIncluded


def _read(provider: scbroker.BrokerProvider, ids: list[uuid.UUID]) -> list[Entry]:
    found = list(provider.getContainers(ids, content=False).result()) if ids else []
    for id, each in zip(ids, found, strict=True):
        if isinstance(each, errors.BrokerError):
            each.containerId = id
    return found


def _asked(
    provider: scbroker.BrokerProvider, ask: Callable[[Index], Coroutine[Any, Any, T]]
) -> T | None:
    """Query the provider's index. Return None if it has none, or, after a warning, if it cannot be used."""
    from scbroker.client.cache.index import index_of
    from scbroker.client.calls.tasks import io_thread

    if not isinstance(provider, scbroker.ServerProvider):
        return None
    session = provider._session()
    with _lock:
        if session not in _indexes:
            _indexes[session] = index_of(session)
        index = _indexes[session]
    if index is None:
        return None
    try:
        return scbroker.Promise(
            "names", io_thread.submit("names", session.hold(ask(index)))
        ).result()
    except _REFUSED as error:
        _log.warning("Names are looked up in a list of all containers, which is slower: %s", error)
        with _lock:
            _indexes[session] = None
        return None


_indexes: Final[weakref.WeakKeyDictionary[Session, Index | None]] = weakref.WeakKeyDictionary()
_lock: Final = threading.Lock()
