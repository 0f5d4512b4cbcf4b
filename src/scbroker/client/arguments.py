"""Check and copy the arguments of public operations, once and before anything is sent.

The bodies of operations annotate their parameters with the types below. Each type states what callers may
pass, and holds the check that converts it to what the body receives. The other functions check what a type
cannot express. Every error names the argument. Callers pass times as datetimes; records and messages hold
them as microseconds since 1970, UTC.
"""

import dataclasses
import datetime as dt
import logging
import os
import re
import time
import types
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from scbroker import errors
from scbroker.cards import ContactCard
from scbroker.keys import KeyRing, checked_secret
from scbroker.records.canonical import check_printable, json_decoder, parse_fingerprint
from scbroker.records.container_record import MAX_ENTRIES, MAX_TYPE
from scbroker.records.judge import Grant
from scbroker.types import AccessChange, Head, Link, NewContainer
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
from scbroker.wire.users import MAX_REMINDER

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_log = logging.getLogger("scbroker")
Check = Callable[[str, Any], Any]
Item = TypeVar("Item", NewContainer, AccessChange)
Listed = TypeVar("Listed", MemberRole, GroupManager)
Validator = Callable[[str], str | None]


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


def _list_of(kind: str, check_item: Check) -> Check:
    def check(name: str, value: Any) -> list[Any]:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise errors.InvalidArgumentError(
                f"{name} must be a list of {kind}, not {type(value).__name__}"
            )
        return [check_item(f"{name}[{number}]", item) for number, item in enumerate(value)]

    return check


def _one_or_list_of(kind: str, one: type | tuple[type, ...], check_item: Check) -> Check:
    several = _list_of(kind, check_item)

    def check(name: str, value: Any) -> Any:
        # A single Container is one item: its error then says to pass its id, not that a list is needed.
        is_one = isinstance(value, one) or isinstance(getattr(value, "id", None), uuid.UUID)
        return several(name, [value] if is_one else value)

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


Card = Annotated[
    ContactCard,
    Given("ContactCard", _instance("a ContactCard, as ContactCard.parse returns it", ContactCard)),
]
Changes = Annotated[
    list[AccessChange],
    Given(
        "Iterable[AccessChange]",
        _list_of("AccessChange", _instance("an AccessChange", AccessChange)),
    ),
]
EventTypes = Annotated[
    list[ContainerEventType],
    Given("ContainerEventType | str | Iterable[ContainerEventType | str]", _event_types),
]
Expiry = Annotated[dt.datetime, Given("dt.datetime", aware_date)]
GroupId = Annotated[uuid.UUID, Given("GroupRef", group_of)]
Holders = Annotated[
    list[uuid.UUID],
    Given(
        "HolderRef | Iterable[HolderRef]",
        _one_or_list_of("UUID", (uuid.UUID, str, Person, NamedGroup), holder_of),
    ),
]
Id = Annotated[uuid.UUID, Given("uuid.UUID | str", uuid_of)]
IdList = Annotated[list[uuid.UUID], Given("Iterable[uuid.UUID | str]", _list_of("UUID", uuid_of))]
Ids = Annotated[
    list[uuid.UUID],
    Given(
        "uuid.UUID | str | Iterable[uuid.UUID | str]",
        _one_or_list_of("UUID", (uuid.UUID, str), uuid_of),
    ),
]
Kind = Annotated[
    KeyType, Given("KeyType | int | str", lambda name, value: member_of(KeyType, value, name))
]
LevelList = Annotated[
    list[AccessLevel],
    Given(
        "Iterable[AccessLevel]", _list_of("AccessLevel", _instance("an AccessLevel", AccessLevel))
    ),
]
Levels = Annotated[
    list[AccessLevel],
    Given(
        "AccessLevel | Iterable[AccessLevel]",
        _one_or_list_of("AccessLevel", AccessLevel, _instance("an AccessLevel", AccessLevel)),
    ),
]
LinkId = Annotated[uuid.UUID, Given("Link | uuid.UUID | str", _link_user)]
LinkText = Annotated[str, Given("Link | str", _link_url)]
LocalPath = Annotated[
    os.PathLike[str], Given("os.PathLike[str]", _instance("a pathlib.Path", os.PathLike))
]
Managers = Annotated[
    list[GroupManager],
    Given("Iterable[GroupManager | UserRef]", _list_of("GroupManager", _group_manager)),
]
Members = Annotated[
    list[MemberRole],
    Given(
        "MemberRole | UserRef | Iterable[MemberRole | UserRef]",
        _one_or_list_of("MemberRole", (MemberRole, uuid.UUID, str, Person), _member_role),
    ),
]
NewContainers = Annotated[
    list[NewContainer],
    Given(
        "Iterable[NewContainer]",
        _list_of("NewContainer", _instance("a NewContainer", NewContainer)),
    ),
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
    Given(
        "MemberRole | Iterable[MemberRole]",
        _one_or_list_of("MemberRole", MemberRole, _instance("a MemberRole", MemberRole)),
    ),
]
Starts = Annotated[dict[uuid.UUID, int], Given("Mapping[uuid.UUID, int]", _ids_by_uuid)]
UserId = Annotated[uuid.UUID, Given("UserRef", user_of)]
Users = Annotated[
    list[uuid.UUID],
    Given(
        "UserRef | Iterable[UserRef]", _one_or_list_of("UUID", (uuid.UUID, str, Person), user_of)
    ),
]
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


def check_of(hint: Any) -> Check:
    """Return the check of a parameter's type; other types than these are checked by the body."""
    if get_origin(hint) in (Union, types.UnionType):
        required = [each for each in get_args(hint) if each is not type(None)]
        check = check_of(required[0]) if len(required) == 1 else _unchecked
        return lambda name, value: None if value is None else check(name, value)
    if get_origin(hint) is type:
        return _header_type
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, Given):
            return each.check
    return _SIMPLE.get(hint, _unchecked)


def _unchecked(name: str, value: Any) -> Any:
    del name
    return value


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


_FIELDS: Final[dict[type, dict[str, Check]]] = {
    NewContainer: {
        "content": _unchecked,
        "customHeaderObject": _unchecked,
        "accessLevels": check_of(LevelList | None),
        "type": check_of(str | None),
    },
    AccessChange: {
        "containerId": uuid_of,
        "add": check_of(LevelList),
        "remove": _list_of("UUID", holder_of),
        "replace": check_of(LevelList | None),
    },
}


def checked_fields(kind: type[Item], item: Item) -> Item:
    """Return a copy of an item of a batch with its fields checked."""
    fields = {name: check(name, getattr(item, name)) for name, check in _FIELDS[kind].items()}
    return kind(**fields)


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


def validate_secret(secret: str) -> str | None:
    """Return what the default policy finds wrong with a password or passphrase, or None.

    At least 8 characters from 3 of 4 classes: lower case, upper case, digits, everything else.
    """
    classes = {
        "lower" if char.islower() else "upper" if char.isupper() else "digit"
        if char.isdigit() else "other"
        for char in secret
    }  # fmt: skip
    if len(secret) < 8:
        return "it has fewer than 8 characters"
    if len(classes) < 3:
        return "it has fewer than 3 of: lower case, upper case, digits, other characters"
    return None


def check_credentials(
    password: str, passphrase: str, reminder: str | None, validator: Validator
) -> None:
    """Raise `InvalidArgumentError` that names the wrong one of new secrets and their reminder."""
    check_new("password", password, validator)
    check_new("passphrase", passphrase, validator)
    check_different(password, passphrase)
    check_reminder(reminder, (password, passphrase))


def check_new(name: str, secret: str, validator: Validator) -> None:
    """Raise `InvalidArgumentError` if the format cannot hold a new secret or the validator refuses it.

    Existing secrets are not held to the policy: one that an older policy accepted must still work.
    """
    checked_secret(secret, name)
    if (fault := validator(secret)) is not None:
        raise errors.InvalidArgumentError(f"The {name} is too weak: {fault}.")


def check_different(password: str, passphrase: str) -> None:
    """Raise `InvalidArgumentError` for new secrets that are the same text, in any Unicode spelling."""
    if checked_secret(password, "password") == checked_secret(passphrase, "passphrase"):
        raise errors.InvalidArgumentError(
            "passphrase must differ from password: an attacker who learns one would have both."
        )


def check_reminder(reminder: str | None, secrets: tuple[str, str]) -> None:
    """Raise `InvalidArgumentError` for a reminder that cannot be stored or contains one of `secrets`."""
    if reminder is None:
        return
    if not _can_be_kept(reminder):
        raise errors.InvalidArgumentError(
            f"reminder must have at most {MAX_REMINDER} bytes in UTF-8 and no NUL: shorten it."
        )
    if _contains(reminder, secrets):
        raise errors.InvalidArgumentError(
            "The reminder contains a secret, and the broker can read it."
        )


def check_kept_reminder(reminder: str, secrets: tuple[str, str]) -> None:
    """Raise `InvalidArgumentError` if the stored reminder, which is to stay, contains one of `secrets`."""
    if _contains(reminder, secrets):
        raise errors.InvalidArgumentError(
            "The reminder that is stored contains one of these secrets, and the broker can read it: give "
            'another reminder, or "" to remove it.'
        )


def _contains(reminder: str, secrets: tuple[str, str]) -> bool:
    return any(_folded(secret) in _folded(reminder) for secret in secrets)


def _folded(text: str) -> str:
    """Return a form that is the same for every Unicode spelling of a text, in either case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _can_be_kept(reminder: str) -> bool:
    try:
        return "\0" not in reminder and len(reminder.encode()) <= MAX_REMINDER
    except UnicodeEncodeError:
        return False
