"""A change that a caller asks for, and the parts of it that are sealed already.

Headers are JSON: msgspec handles dicts, dataclasses, attrs classes, Structs and TypedDicts. pydantic models
are recognized by their own methods, so that pydantic is not a dependency.

Sealing needs no container key. New parts are sealed, and large ones uploaded, before the record is drafted:
the record's time is then recent when it is sent, and a second attempt uploads nothing again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import itertools
import json
import math
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from scbroker.client.arguments import Content, Progress, Segment, no_progress
from scbroker.client.calls.tasks import io_thread
from scbroker.client.core.sealing import NewPart
from scbroker.client.http.requests import Query
from scbroker.client.parts import RUN, Upload, begin_upload, send
from scbroker.client.users.session import Session
from scbroker.crypto.seal import Octets
from scbroker.crypto.verify import sha256
from scbroker.errors import ConflictError, InvalidArgumentError
from scbroker.records.canonical import json_decoder
from scbroker.records.container_record import MAX_HEADER, OWN_TYPES, Part, Role
from scbroker.records.judge import Grant
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE

_PLAIN: Final = (dict, list, set, frozenset, str, int, float, bytes, bytearray, memoryview)
_KEPT_TYPES: Final = (
    bytes, bytearray, dt.date, dt.time, dt.datetime, dt.timedelta, decimal.Decimal, uuid.UUID,
)  # fmt: skip
Keep = msgspec.UnsetType
KEEP: Final = msgspec.UNSET
"""In place of a field's new value: leave the field as it is."""
OWNER: Final = Grant(int(ContainerAccessLevel.DefaultOwnerPermissions), None)
Grants = Mapping[uuid.UUID, Grant]


def check_own_type(user: uuid.UUID, type: str | None, access: Collection[uuid.UUID]) -> None:
    """Raise `InvalidArgumentError` if others get access to a container of a type for own documents."""
    if (type or "").startswith(OWN_TYPES) and {*access} - {user}:
        raise InvalidArgumentError(
            f"Type {type} is for your contacts and your links, like every type that begins with "
            f"{OWN_TYPES}: nobody else can have access to such a container. Choose another type, or leave it "
            "out."
        )


@dataclass(frozen=True, slots=True)
class Merge:
    """A change of some entries of an access list; it applies to whatever list is in force."""

    add: Grants
    """The entries that these users get, in place of any that they have."""
    remove: frozenset[uuid.UUID]

    def into(self, present: Grants) -> Grants:
        kept = {user: grant for user, grant in present.items() if user not in self.remove}
        return {**kept, **self.add}


@dataclass(frozen=True, slots=True)
class Swap(Merge):
    """A change that gives another group the access of the one that is removed."""

    new: uuid.UUID
    name: bytes

    def into(self, present: Grants) -> Grants:
        kept = {user: grant for user, grant in present.items() if user not in self.remove}
        for old in self.remove & present.keys():
            grant = replace(present[old], fingerprint=self.name, is_group=True)
            kept[self.new] = _both(grant, present.get(self.new))
        return kept


def _both(grant: Grant, other: Grant | None) -> Grant:
    """Return a grant with both permissions and the later expiry."""
    if other is None:
        return grant
    ends = (grant.expiresAt, other.expiresAt)
    expires = None if None in ends else max(end for end in ends if end is not None)
    return replace(grant, permissions=grant.permissions | other.permissions, expiresAt=expires)


NO_QUERY: Final[Query] = MappingProxyType({})
_MAX_DEPTH: Final = 100
_DIGITS: Final = bytes(ord("0" if chr(each) in "0123456789" else " ") for each in range(256))
_MANY_DIGITS: Final = b"0" * 309
"""The shortest run of digits (each mapped to "0") that can overflow a double: the largest has 309 digits."""
_UNQUOTED: Final = ("Expected ", "Object missing required field ")
"""Beginnings of those of msgspec's messages that name types and fields alone. Others may quote the header."""
Verify = Callable[[], Awaitable[object]]
"""Verify the recipients' keys. Awaited before any of a large content is uploaded."""


@dataclass(slots=True)
class Change:
    """The new values of a container's fields, with parts that were sealed by an earlier attempt."""

    header: bytes | Keep | None = KEEP
    content: Content | Keep | None = KEEP
    type: str | Keep | None = KEEP
    grants: Grants | Merge | Keep = KEEP
    """With an empty list, only the container's creator gets access, with owner permissions."""
    delete: bool = False
    nonce: bytes | None = None
    """The nonce of a new container whose id is known beforehand; else one is drawn."""
    renews: bool = False
    """Whether the container gets a new key if rule 5 allows one, although nothing new is sealed."""
    progress: Progress = no_progress
    upload: Upload | None = None
    sealed: dict[Role, SealedPart] = field(default_factory=dict)

    @property
    def recipients(self) -> Grants:
        """Return the access of a new container's members."""
        return self.grants if isinstance(self.grants, Mapping) else {}

    @property
    def names_whole_list(self) -> bool:
        """Return whether this replaces the whole list: it cannot be repeated after others changed access."""
        return isinstance(self.grants, Mapping)

    def keeps(self, role: Role) -> bool:
        """Return whether the container's part of this role stays as it is."""
        return (self.header if role is Role.Header else self.content) is KEEP

    def carries(self, role: Role) -> bool:
        """Return whether this part stays while the other one is replaced: the result holds both."""
        return self.keeps(role) and not all(self.keeps(each) for each in Role)

    @property
    def may_renew(self) -> bool:
        """Return whether this record may have to renew the container key, though access stays (rule 5)."""
        seals = self.renews or not all(self.keeps(role) for role in Role)
        return not self.delete and self.grants is KEEP and seals

    async def begin_upload(
        self, session: Session, container_id: bytes | None, query: Query = NO_QUERY
    ) -> None:
        """Prepare the upload of a large file, or resume one of the same file that was interrupted.

        A file of one chunk is sent without a journal: there would be nothing to skip, and a folder of photos
        would write and sync a journal for each.
        """
        content = self.content
        if isinstance(content, Content) and content.identity and (content.total or 0) > RUN:
            self.upload = await begin_upload(session, content, container_id, query)

    def end_upload(self) -> None:
        """Drop the resume journal: from here on this part must not be reused.

        Called before a record that names the part is sent (docs/spec/container.md, section 9).
        """
        if self.upload is not None:
            self.upload.journal.end()
            self.upload = None

    def close(self) -> None:
        """Close the resume journal if it was not dropped, so that the upload can resume later."""
        if self.upload is not None:
            self.upload.journal.close()

    def needed(self) -> ContainerAccessLevel:
        """Return the permissions that the author of this change needs."""
        if self.delete:
            return ContainerAccessLevel.Delete
        needed = ContainerAccessLevel.Upload
        if self.type is not KEEP:
            needed |= ContainerAccessLevel.ModifyType
        if self.grants is not KEEP:
            needed |= ContainerAccessLevel.ModifyAccess
        return needed


@dataclass(slots=True)
class SealedPart:
    """A new part, sealed; a large one is uploaded before its record.

    `sent_under` is the commitment of the container key under which a record that names the part was sent.
    From then on the part belongs to that key: a removed member may hold it (docs/spec/container.md, 9).
    """

    part: NewPart
    length: int
    hashes: bytes
    inline: bytes | None
    """The sealed bytes if they go with the record, else None."""
    sent_under: bytes | None = None

    def finish(self, container_key: bytes, commitment: bytes) -> Part:
        """Return the part as a record names it, its key sealed under the container key."""
        if self.sent_under not in (None, commitment):
            raise ConflictError("Access was changed meanwhile: read the container again.")
        return self.part.finish(container_key, self.length, self.hashes)


async def seal_parts(
    session: Session,
    change: Change,
    container_id: bytes,
    commitment: bytes | None,
    verify_recipients: Verify,
    query: Query = NO_QUERY,
) -> None:
    """Seal the change's new parts, and again those sent under a container key that was replaced since.

    `commitment` is that of the key in use, None if the record brings a new key. Nothing is uploaded before
    the recipients' keys were verified. `query` names the group through which the user writes, if any.
    """
    for role, old in list(change.sealed.items()):
        if old.sent_under not in (None, commitment):
            content = change.content
            if role is Role.Content and isinstance(content, Content) and not content.repeatable:
                raise ConflictError(
                    "Access was changed meanwhile, and this content can be read only once: pass it again."
                )
            del change.sealed[role]
    if isinstance(change.header, bytes) and Role.Header not in change.sealed:
        new = NewPart.begin(container_id, Role.Header, session.fingerprint)
        change.sealed[Role.Header] = _seal_small(new, change.header)
    if isinstance(change.content, Content) and Role.Content not in change.sealed:
        change.sealed[Role.Content] = await _seal_content(
            session, change, change.content, container_id, verify_recipients, query
        )


def _seal_small(part: NewPart, plaintext: Octets) -> SealedPart:
    segment = part.seal_segment(0, True, plaintext)
    return SealedPart(part, len(plaintext), sha256(segment), segment)


async def _seal_content(
    session: Session,
    change: Change,
    content: Content,
    container_id: bytes,
    verify_recipients: Verify,
    query: Query,
) -> SealedPart:
    """Seal a small content to go with the record; seal and upload a large one in chunks."""
    begun = change.upload
    part = begun.part if begun else NewPart.begin(container_id, Role.Content, session.fingerprint)
    if content.small is not None:
        change.progress(len(content.small), content.total)
        return _seal_small(part, content.small)
    segments = content.segments()
    run = io_thread.in_own_thread if content.waits else io_thread.in_pool
    try:
        first: Segment = await run(next, segments)
        if len(first[0]) <= MAX_INLINE:
            change.progress(len(first[0]), content.total)
            return _seal_small(part, first[0])
        await verify_recipients()
        whole: Iterator[Segment] = itertools.chain([first], segments)
        upload = begun or Upload(part, query)
        length, hashes = await send(session, upload, content, whole, change.progress)
        return SealedPart(part, length, hashes, None)
    finally:
        # After a cancellation a thread may still be running the generator, which then cannot be closed.
        with contextlib.suppress(ValueError):
            segments.close()


def encode_header(header: object) -> bytes | None:
    """Return the header's JSON; None for None.

    Raises `InvalidArgumentError` for a header that would not come back equal: dicts, lists, text, numbers,
    booleans and None are read as JSON, anything else as an object of its own type.
    """
    if header is None:
        return None
    levels = header if isinstance(header, (list, tuple)) else [header]
    if any(isinstance(level, AccessLevel) for level in levels):
        raise InvalidArgumentError(
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
        raise InvalidArgumentError(f"The header cannot be written as JSON: {error}") from None
    if len(data) > MAX_HEADER:
        raise InvalidArgumentError(f"The header has {len(data)} bytes: use at most {MAX_HEADER}.")
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
    raise InvalidArgumentError(f"The header is not {kind}: {why}")


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
    kind = Any if is_plain else type(header)
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
