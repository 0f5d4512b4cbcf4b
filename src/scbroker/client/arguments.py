"""Check and copy the arguments of public operations, before anything is sent.

The bodies of operations annotate their parameters with the types below. Each type states what callers may
pass, and holds the check that converts it to what the body receives. The other functions check what a type
cannot express. Every error names the argument. Callers pass times as datetimes; records and messages hold
them as microseconds since 1970, UTC.

A content is bytes, a path, a binary file, or an iterator of bytes. Bytes are copied before the call returns.
Anything else is read while it is sent, one segment at a time, so that a content of any size needs little
memory.

Headers are JSON: msgspec handles dicts, dataclasses, attrs classes, Structs and TypedDicts. pydantic models
are recognized by their own methods, so that pydantic is not a dependency.
"""

import dataclasses
import datetime as dt
import decimal
import itertools
import json
import logging
import math
import os
import re
import stat
import time
import types
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeVar, Union, cast, get_args, get_origin

import msgspec

from scbroker import errors
from scbroker.cards import ContactCard
from scbroker.crypto.seal import Octets as Bytes
from scbroker.folders import regular
from scbroker.keys import KeyRing
from scbroker.records.canonical import check_printable, json_decoder, parse_fingerprint
from scbroker.records.container_record import MAX_ENTRIES, MAX_HEADER, MAX_TYPE, SEGMENT
from scbroker.records.judge import Grant
from scbroker.types import AccessChange, ContentSource, Head, Link, NewContainer
from scbroker.vocabulary import (
    AccessLevel,
    ContainerAccessLevel,
    ContainerEventType,
    GroupManager,
    KeyType,
    MemberRole,
    NamedGroup,
    Person,
    aware_date,
    group_of,
    holder_of,
    instance_of,
    member_of,
    user_of,
    uuid_of,
)
from scbroker.wire.containers import MAX_INLINE

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_log = logging.getLogger("scbroker")
Check = Callable[[str, Any], Any]
Item = TypeVar("Item", NewContainer, AccessChange)
Listed = TypeVar("Listed", MemberRole, GroupManager)


Progress = Callable[[int, int | None], object]
Segment = tuple[Bytes, bool]
"""A piece of a content, valid until the next one is read, and whether it is the last."""
_READ: Final = 1_048_576


def no_progress(done: int, total: int | None) -> None:
    """Ignore the progress: the caller did not ask for it."""


def now() -> int:
    """Return the client's time in microseconds since 1970."""
    return time.time_ns() // 1000


def moment(microseconds: int) -> dt.datetime:
    """Return a time in microseconds since 1970 as an aware datetime."""
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def _instance(phrase: str, *kinds: type) -> Check:
    return lambda name, value: instance_of(name, value, phrase, *kinds)


def _octets(name: str, value: Any) -> bytes:
    return bytes(instance_of(name, value, "bytes", bytes, bytearray, memoryview))


def _list_of(kind: str, check_item: Check, *one: type) -> Check:
    """Return the check of a list; a single item of the types `one` may stand for a list of it."""

    def check(name: str, value: Any) -> list[Any]:
        # A single Container is one item: its error then says to pass its id, not that a list is needed.
        if one and (isinstance(value, one) or isinstance(getattr(value, "id", None), uuid.UUID)):
            return [check_item(f"{name}[0]", value)]
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise errors.InvalidArgumentError(
                f"{name} must be a list of {kind}, not {type(value).__name__}"
            )
        return [check_item(f"{name}[{number}]", item) for number, item in enumerate(value)]

    return check


def _event_types(name: str, value: Any) -> list[ContainerEventType]:
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    kinds = [member_of(ContainerEventType, kind, name) for kind in ([value] if is_one else value)]
    if not kinds:
        raise errors.InvalidArgumentError(
            f"{name} must name at least one ContainerEventType: None asks for all"
        )
    return kinds


def _header_type(name: str, value: Any) -> Any:
    """Check that headers can be decoded into a type: one that msgspec knows, or a pydantic model."""
    try:
        if not hasattr(value, "model_validate_json"):
            json_decoder(value)
    except Exception as error:  # msgspec resolves the type's annotations, which can raise anything
        raise errors.InvalidArgumentError(
            f"{name} must be a type that a header's JSON can be decoded into: {type(error).__name__}: {error}"
        ) from None
    return value


def _progress(name: str, value: Any) -> Callable[[int, int | None], None]:
    """Wrap the caller's `progress` function: log its errors, which must not end a transfer."""
    if not callable(value):
        raise errors.InvalidArgumentError(
            f"{name} must be a function of two numbers, done and total, not {type(value).__name__}"
        )

    def report(done: int, total: int | None) -> None:
        try:
            value(done, total)
        except Exception:
            _log.exception("A progress function failed")

    return report


def _ids_by_uuid(name: str, value: Any) -> dict[uuid.UUID, int]:
    if not isinstance(value, Mapping):
        raise errors.InvalidArgumentError(
            f"{name} must be a dict of UUID to int, not {type(value).__name__}"
        )
    return {
        group_of(f"a key of {name}", key): instance_of(f"{name}[{key!r:.50}]", each, "an int", int)
        for key, each in value.items()
    }


def _link_user(name: str, value: Any) -> uuid.UUID:
    return value.userId if isinstance(value, Link) else uuid_of(name, value)


def _link_url(name: str, value: Any) -> str:
    return instance_of(
        name, value.url if isinstance(value, Link) else value, "a str or a Link", str
    )


def _member_role(name: str, value: Any) -> MemberRole:
    return value if isinstance(value, MemberRole) else _of_user(name, value, MemberRole)


def _group_manager(name: str, value: Any) -> GroupManager:
    return value if isinstance(value, GroupManager) else _of_user(name, value, GroupManager)


def _of_user(name: str, value: Any, kind: Callable[[Any], Listed]) -> Listed:
    user_of(name, value)  # before `kind`, whose error would not name the argument
    return kind(value)


@dataclasses.dataclass(frozen=True)
class Given:
    """The type that callers pass, for a parameter whose body gets another one."""

    accepts: str
    """The type that callers see."""
    check: Check
    """Return the value in the type of the body, or raise `InvalidArgumentError` with the parameter's name."""


def _each(accepts: str, kind: str, check: Check, *one: type) -> Given:
    """Return a list of `kind`, for whose items callers pass what `accepts` says, or one of them alone."""
    several = f"Iterable[{accepts}]"
    return Given(f"{accepts} | {several}" if one else several, _list_of(kind, check, *one))


_level: Final = _instance("an AccessLevel", AccessLevel)
Card = Annotated[
    ContactCard,
    Given("ContactCard", _instance("a ContactCard, as ContactCard.parse returns it", ContactCard)),
]
Changes = Annotated[
    list[AccessChange],
    _each("AccessChange", "AccessChange", _instance("an AccessChange", AccessChange)),
]
EventTypes = Annotated[
    list[ContainerEventType],
    Given("ContainerEventType | str | Iterable[ContainerEventType | str]", _event_types),
]
Expiry = Annotated[dt.datetime, Given("dt.datetime", aware_date)]
GroupId = Annotated[uuid.UUID, Given("GroupRef", group_of)]
Holders = Annotated[
    list[uuid.UUID], _each("HolderRef", "UUID", holder_of, uuid.UUID, str, Person, NamedGroup)
]
Id = Annotated[uuid.UUID, Given("uuid.UUID | str", uuid_of)]
IdList = Annotated[list[uuid.UUID], _each("uuid.UUID | str", "UUID", uuid_of)]
Ids = Annotated[list[uuid.UUID], _each("uuid.UUID | str", "UUID", uuid_of, uuid.UUID, str)]
Kind = Annotated[
    KeyType, Given("KeyType | int | str", lambda name, value: member_of(KeyType, value, name))
]
LevelList = Annotated[list[AccessLevel], _each("AccessLevel", "AccessLevel", _level)]
Levels = Annotated[list[AccessLevel], _each("AccessLevel", "AccessLevel", _level, AccessLevel)]
LinkId = Annotated[uuid.UUID, Given("Link | uuid.UUID | str", _link_user)]
LinkText = Annotated[str, Given("Link | str", _link_url)]
LocalPath = Annotated[
    os.PathLike[str], Given("os.PathLike[str]", _instance("a pathlib.Path", os.PathLike))
]
Managers = Annotated[
    list[GroupManager], _each("GroupManager | UserRef", "GroupManager", _group_manager)
]
Members = Annotated[
    list[MemberRole],
    _each("MemberRole | UserRef", "MemberRole", _member_role, MemberRole, uuid.UUID, str, Person),
]
NewContainers = Annotated[
    list[NewContainer],
    _each("NewContainer", "NewContainer", _instance("a NewContainer", NewContainer)),
]
Octets = Annotated[bytes, Given("bytes", _octets)]
Permissions = Annotated[
    ContainerAccessLevel,
    Given(
        "ContainerAccessLevel | int | str",
        lambda name, value: member_of(ContainerAccessLevel, value, name),
    ),
]
Reports = Annotated[Callable[[int, int | None], None], Given("Progress", _progress)]
Roles = Annotated[
    list[MemberRole],
    _each("MemberRole", "MemberRole", _instance("a MemberRole", MemberRole), MemberRole),
]
Starts = Annotated[dict[uuid.UUID, int], Given("Mapping[uuid.UUID, int]", _ids_by_uuid)]
UserId = Annotated[uuid.UUID, Given("UserRef", user_of)]
Users = Annotated[list[uuid.UUID], _each("UserRef", "UUID", user_of, uuid.UUID, str, Person)]
_GIVEN: Final[dict[str, Given]] = {
    name: each.__metadata__[0]
    for name, each in list(globals().items())
    if isinstance(getattr(each, "__metadata__", (None,))[0], Given)
}
_SIMPLE: Final[dict[object, Check]] = {
    str: _instance("a str", str),
    int: _instance("an int", int),
    bool: _instance("a bool", bool),
    KeyRing: _instance("a KeyRing", KeyRing),
    Head: _instance("a Head", Head),
}


def accepted(annotation: str) -> str:
    """Return the annotation of a body's parameter as callers see it."""
    return re.sub(r"(?<![\w.])\w+", lambda found: _accepts(found[0]), annotation)


def _accepts(name: str) -> str:
    return _GIVEN[name].accepts if name in _GIVEN else name


def check_of(hint: Any) -> Check | None:
    """Return the check of a parameter's type; None for other types than these: the body checks them."""
    if get_origin(hint) in (Union, types.UnionType):
        required = [each for each in get_args(hint) if each is not type(None)]
        check = check_of(required[0]) if len(required) == 1 else None
        return check and (lambda name, value: None if value is None else check(name, value))
    if get_origin(hint) is type:
        return _header_type
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, Given):
            return each.check
    return _SIMPLE.get(hint)


def header_left_out(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arrange the arguments of `createContainer(content, accessLevels, type)`, which leaves out the header.

    A list in second place is the access list if it is empty or holds an AccessLevel; None there is one if a
    type follows it.
    """
    second, third = (*args, "", "", "")[1:3]
    if isinstance(second, (list, tuple, set, frozenset)):
        is_left_out = not second or any(isinstance(each, AccessLevel) for each in second)
    else:
        is_left_out = second is None and len(args) == 3 and isinstance(third, str)
    return ((args[0], None, *args[1:]) if is_left_out else args), kwargs


def key_ring_first(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arrange the arguments of `logIn(keyRing, userId)`."""
    if not args or not isinstance(args[0], KeyRing):
        return args, kwargs
    return args[1:], {"keyRing": args[0], **kwargs}


_FIELDS: Final[dict[type, dict[str, Check | None]]] = {
    NewContainer: {"accessLevels": check_of(LevelList | None), "type": check_of(str | None)},
    AccessChange: {
        "containerId": uuid_of,
        "add": check_of(LevelList),
        "remove": _list_of("UUID", holder_of),
        "replace": check_of(LevelList | None),
    },
}


def checked_fields(kind: type[Item], item: Item) -> Item:
    """Return a copy of an item of a batch with its fields checked."""
    checks = _FIELDS[kind].items()
    return dataclasses.replace(
        item, **{name: check(name, getattr(item, name)) for name, check in checks if check}
    )


def check_named_once(name: str, containers: Sequence[uuid.UUID]) -> None:
    """Raise `InvalidArgumentError` for a container that a batch of changes names twice."""
    first: dict[uuid.UUID, int] = {}
    for number, container in enumerate(containers):
        if first.setdefault(container, number) != number:
            raise errors.InvalidArgumentError(
                f"{name}[{number}] names the container of {name}[{first[container]}] again: name each "
                "container once"
            )


def checked_grants(
    levels: Iterable[AccessLevel] | None, name: str = "accessLevels"
) -> dict[uuid.UUID, Grant]:
    """Return the access list of an argument, empty for None; each id at most once, expiry in the future."""
    grants: dict[uuid.UUID, Grant] = {}
    for level in levels or ():
        if level.userId in grants:
            raise errors.InvalidArgumentError(
                f"{name} names {_kind(level)} {level.userId} twice: give each user or group one level."
            )
        given = None if level.fingerprint is None else parse_fingerprint(level.fingerprint)
        grants[level.userId] = Grant(
            int(level.permissions), _checked_expiry(level), given, level.isGroup
        )
    if len(grants) > MAX_ENTRIES:
        raise errors.InvalidArgumentError(
            f"{name} must name at most {MAX_ENTRIES} users and groups, not {len(grants)}"
        )
    return grants


def _kind(level: AccessLevel) -> str:
    return "group" if level.isGroup else "user"


def _checked_expiry(level: AccessLevel) -> int | None:
    if level.expiresAt is None:
        return None
    if level.expiresAt <= dt.datetime.now(dt.UTC):
        raise errors.InvalidArgumentError(
            f"expiresAt of {_kind(level)} {level.userId} is in the past."
        )
    return (level.expiresAt - _EPOCH) // dt.timedelta(microseconds=1)


def checked_type(text: str | None) -> str | None:
    """Return a container's type label if the format can hold it."""
    if text is None:
        return None
    if (size := len(text.encode("utf-8", "replace"))) > MAX_TYPE:
        raise errors.InvalidArgumentError(
            f"type must have at most {MAX_TYPE} bytes in UTF-8, not {size}"
        )
    check_printable("type", text)
    return text


class Content:
    """A content to be sealed, read in pieces; bytes and files can be read repeatedly."""

    def __init__(self, source: ContentSource) -> None:
        self._source: ContentSource = source
        self.total: int | None = None
        self.repeatable: bool = True
        self.identity: bytes | None = None
        """Changes whenever a file is written to; None if the content is not a file with a size."""
        self.waits: bool = False
        """True if reading may block for long: it runs the caller's code, or reads a file of the system."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._source = bytes(source)
            self.total = len(self._source)
        elif isinstance(source, os.PathLike):
            # Files of the system, as in /proc, have no size: they are read to their end.
            state = _state_of(Path(source))
            # Absolute: it is read later, and the program may change its working directory meanwhile.
            self._source = path = Path(source).absolute()
            self.total = state.st_size or None
            if state.st_size:
                self.identity = _identity(path, state)
            self.waits = not state.st_size
        else:
            self.repeatable = False
            self.waits = True

    @property
    def small(self) -> bytes | None:
        """Bytes that are small enough to be sent inside a record request; None otherwise."""
        source = self._source
        return source if isinstance(source, bytes) and len(source) <= MAX_INLINE else None

    def segments(self, first: int = 0) -> Generator[Segment, None, None]:
        """Yield pieces of one segment's size, the last one shorter; an empty content has one empty piece.

        Another `first` than 0 needs an `identity`.
        """
        try:
            if self.identity is not None:
                yield from self._segments_of_file(first)
            elif isinstance(self._source, bytes):
                yield from _views(self._source)
            else:
                yield from _cut(self._pieces())
        except errors.BrokerError:
            raise
        except Exception as error:
            raise errors.InvalidArgumentError(
                f"The content could not be read to its end: {type(error).__name__}: {error}"
            ) from None

    def _segments_of_file(self, first: int) -> Iterator[Segment]:
        path, total = cast(Path, self._source), self.total or 0
        view = memoryview(bytearray(min(SEGMENT, total)))
        with open(path, "rb", buffering=0, opener=regular) as file:
            file.seek(first * SEGMENT)
            for start in range(first * SEGMENT, total, SEGMENT):
                segment = view[: min(SEGMENT, total - start)]
                filled = 0
                while filled < len(segment) and (count := file.readinto(segment[filled:])):
                    filled += count
                identity = _identity(path, os.fstat(file.fileno()))
                if filled < len(segment) or identity != self.identity:
                    raise errors.InvalidArgumentError(
                        f"The file {path} changed while it was read: try again, or pass it opened to read "
                        "it to wherever it ends."
                    )
                yield segment, start + SEGMENT >= total

    def _pieces(self) -> Iterator[bytes]:
        source = self._source
        if isinstance(source, os.PathLike):
            with open(source, "rb", opener=regular) as file:
                yield from _read(file)
        elif hasattr(source, "read"):
            yield from _read(cast(BinaryIO, source))
        else:
            for piece in cast("Iterable[bytes]", source):
                yield _checked(piece)


def checked_content(content: Any) -> Content | None:
    """Return the argument `content` as a `Content`; raise `InvalidArgumentError` if it cannot be one."""
    if content is None:
        return None
    if isinstance(content, str):
        raise errors.InvalidArgumentError(
            "content must be bytes, not str: encode text, or pass a pathlib.Path."
        )
    kinds = (bytes, bytearray, memoryview, os.PathLike)
    streams = isinstance(content, Iterable) and not isinstance(content, (dict, list, tuple, set))
    if not (isinstance(content, kinds) or hasattr(content, "read") or streams):
        raise errors.InvalidArgumentError(
            "content must be bytes, a pathlib.Path, a binary file or an iterator of bytes, not "
            f"{type(content).__name__}."
        )
    return Content(content)


def _views(source: bytes) -> Iterator[Segment]:
    view = memoryview(source)
    for start in range(0, max(1, len(source)), SEGMENT):
        yield view[start : start + SEGMENT], start + SEGMENT >= len(source)


def _cut(pieces: Iterable[bytes]) -> Iterator[Segment]:
    """Cut pieces into segments; the last segment is kept back until the pieces have ended."""
    pending = bytearray()
    for piece in pieces:
        pending += piece
        while len(pending) > SEGMENT:
            yield bytes(pending[:SEGMENT]), False
            del pending[:SEGMENT]
    yield bytes(pending), True


def _state_of(path: Path) -> os.stat_result:
    try:
        state = path.stat()
    except FileNotFoundError:
        raise errors.InvalidArgumentError(f"The file {path} does not exist.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the name is not valid"
        raise errors.InvalidArgumentError(
            f"The file {str(path)!r} cannot be read: {why}."
        ) from None
    if stat.S_ISDIR(state.st_mode):
        raise errors.InvalidArgumentError(
            f"{path} is a folder: create a container for each of its files, or pass an archive of it."
        )
    if not stat.S_ISREG(state.st_mode):
        raise errors.InvalidArgumentError(f"{path} is not a file: open it, and pass the open file.")
    return state


def _identity(path: Path, state: os.stat_result) -> bytes:
    """Return a file's absolute path, and the numbers that the system changes with every write."""
    known = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return b"\0".join([os.fsencode(path), *(str(item).encode() for item in known)])


def _read(file: BinaryIO) -> Iterator[bytes]:
    """Yield pieces until `read` returns empty bytes. None, as from a non-blocking stream, is an error."""
    while piece := _checked(file.read(_READ)):
        yield piece


def _checked(piece: object) -> bytes:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise errors.InvalidArgumentError(
            f"content must yield bytes, not {type(piece).__name__}: open a file in binary and blocking mode."
        )
    return bytes(piece)


_PLAIN: Final = (dict, list, set, frozenset, str, int, float, bytes, bytearray, memoryview)
_KEPT_TYPES: Final = (
    bytes, bytearray, dt.date, dt.time, dt.datetime, dt.timedelta, decimal.Decimal, uuid.UUID,
)  # fmt: skip
_MAX_DEPTH: Final = 100
_DIGITS: Final = bytes(ord("0" if chr(each) in "0123456789" else " ") for each in range(256))
_MANY_DIGITS: Final = b"0" * 309
"""The shortest run of digits (each mapped to "0") that can overflow a double: the largest has 309 digits."""
_UNQUOTED: Final = ("Expected ", "Object missing required field ")
"""Beginnings of those of msgspec's messages that name types and fields alone. Others may quote the header."""


def encode_header(header: object) -> bytes | None:
    """Return the header's JSON; None for None.

    Raises `InvalidArgumentError` for a header that would not come back equal: dicts, lists, text, numbers,
    booleans and None are read as JSON, anything else as an object of its own type.
    """
    if header is None:
        return None
    levels = header if isinstance(header, (list, tuple)) else [header]
    if any(isinstance(level, AccessLevel) for level in levels):
        raise errors.InvalidArgumentError(
            "customHeaderObject must not be an access list: pass accessLevels=[...]."
        )
    try:
        if hasattr(header, "model_dump_json"):
            data = bytes(header.model_dump_json().encode())
        else:
            data = msgspec.json.encode(header)
        _check_strict(data)
        _check_comes_back(header, data)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidArgumentError(
            f"The header cannot be written as JSON: {error}"
        ) from None
    if len(data) > MAX_HEADER:
        raise errors.InvalidArgumentError(
            f"The header has {len(data)} bytes: use at most {MAX_HEADER}."
        )
    return data


def decode_header(data: bytes, header_type: Any) -> Any:
    """Return the header as an object of a type; `InvalidArgumentError` if it does not fit.

    The message names fields of the type and kinds of JSON values, never the header's own text.
    """
    try:
        _check_strict(data)
    except (ValueError, RecursionError) as error:
        why = f"it is not strict JSON ({type(error).__name__})"
    else:
        try:
            return _opened(data, header_type)
        except (TypeError, ValueError, RecursionError) as error:
            why = _misfit(error)
    name = getattr(header_type, "__name__", str(header_type)[:100])
    kind = "JSON" if header_type is Any else f"a {name}"
    raise errors.InvalidArgumentError(f"The header is not {kind}: {why}")


def _opened(data: bytes, header_type: Any) -> Any:
    if hasattr(header_type, "model_validate_json"):
        return header_type.model_validate_json(data)
    return json_decoder(header_type).decode(data)


def _check_comes_back(header: object, data: bytes) -> None:
    """Raise `ValueError` if the header's JSON does not give an equal header.

    An object of a class may have attributes that are not written, such as pydantic's private ones, so only
    its fields have to be equal. The message names types, never the header's own text.
    """
    is_plain = isinstance(header, _PLAIN) or type(header) is tuple
    kind: Any = Any if is_plain else type(header)
    try:
        found = _opened(data, kind)
    except (TypeError, ValueError, RecursionError, NameError) as error:
        raise ValueError(f"it would not come back: {_misfit(error)}") from None
    if found == header:
        return
    lost = _lost(header, found) if is_plain else _lost(_fields(header), _fields(found))
    if lost is not None:
        raise ValueError(lost)


def _fields(header: Any) -> object:
    """Return an object's fields as its JSON has them, but with dates and other types unconverted."""
    if hasattr(header, "model_dump"):
        return header.model_dump()
    return msgspec.to_builtins(header, builtin_types=_KEPT_TYPES)


def _lost(value: object, found: object) -> str | None:
    """Describe by its type the first value that does not come back equal from JSON; None if all do."""
    pairs: Iterable[tuple[object, object]]
    if isinstance(value, dict) and isinstance(found, dict):
        if lost := [key for key in value if key not in found]:
            return (
                f"a key of type {type(lost[0]).__name__} would come back as text: use text as keys"
            )
        pairs = ((item, found[key]) for key, item in value.items())
    elif isinstance(value, list) and isinstance(found, list):
        pairs = zip(value, found, strict=True)
    elif value == found:
        return None
    elif isinstance(value, float):
        return "nan and infinity are not numbers of JSON: use None, or text"
    else:
        return (
            f"a value of type {type(value).__name__} would come back as {type(found).__name__}: use text, "
            "numbers, booleans, None, lists and dicts, or a dataclass with a field of this type"
        )
    return next((why for pair in pairs if (why := _lost(*pair)) is not None), None)


def _check_strict(data: bytes) -> None:
    """Raise `ValueError` for JSON that programs read in different ways, or not at all (container.md, 6).

    That is NaN, numbers beyond a double, unpaired surrogates, doubled names in one object, and deep nesting;
    pydantic accepts most of them. If msgspec writes the decoded value as the same bytes, only huge integers
    and deep nesting remain to be checked; otherwise the JSON is parsed again.
    """
    value = msgspec.json.decode(data)
    if _MANY_DIGITS in data.translate(_DIGITS) or msgspec.json.encode(value) != data:
        json.loads(data, object_pairs_hook=_refuse_doubled, parse_int=_finite, parse_float=_finite)
    if data.count(b"[") + data.count(b"{") > _MAX_DEPTH:
        _check_depth(value)


def _finite(number: str) -> None:
    if math.isinf(float(number)):
        raise ValueError("a number is larger than a double can hold")


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in _nested(level))
        level = list(itertools.chain.from_iterable(inner))
    if _nested(level):
        raise ValueError(f"arrays and objects are nested more than {_MAX_DEPTH} levels deep")


def _nested(values: Iterable[object]) -> list[dict[str, object] | list[object]]:
    return [value for value in values if isinstance(value, (dict, list))]


def _refuse_doubled(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice in one object")


def _misfit(error: Exception) -> str:
    """Say what in a header does not fit its type, without quoting the header."""
    if not isinstance(error, msgspec.ValidationError):
        return type(error).__name__
    why, _, where = str(error).partition(" - at `$")
    return f"{why if why.startswith(_UNQUOTED) else 'Not allowed'} at header{where.rstrip('`')}"
