"""Send a valid request of every operation with each kind of fault, and at last without one.

To add an operation, add its valid request to `every_operation`; every fault then applies to it.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from scbroker.conformance.by_hand import Box, Request
from scbroker.conformance.probe import Probe
from scbroker.conformance.teams import SHARER, WRITER, Team
from scbroker.records.judge import ALL
from scbroker.wire import codec, containers, groups, parts, users

_SOMEBODY: Final = "00000000-0000-8000-8000-000000000000"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
# The limits of protocol.md, sections 1 and 4, as numbers, to detect a change of our own constants.
_LARGE: Final = 4_194_304
_SMALL: Final = 131_072
_APPLICATION: Final = 256


class Spoiled(NamedTuple):
    """A request with one fault."""

    request: Request
    body: bytes | None = None
    headers: Mapping[str, str | None] = MappingProxyType({})


class Fault(NamedTuple):
    """A fault, and the ways in which it spoils a request; none if the request cannot have it."""

    section: str
    name: str
    expected: str
    spoil: Callable[[Request], Iterable[Spoiled]]


def _header(name: str, value: str | None) -> Callable[[Request], Iterable[Spoiled]]:
    return lambda request: [Spoiled(request, None, {name: value})]


def _in_session(change: Callable[[str], str | None]) -> Callable[[Request], Iterable[Spoiled]]:
    """Return a fault that changes the session's token, for operations that need a session."""
    return lambda request: (
        [Spoiled(request, None, {"Authorization": change(request.token)})] if request.token else []
    )


def _path(change: Callable[[str], str]) -> Callable[[Request], Iterable[Spoiled]]:
    """Return a fault that changes the path of a request."""

    def spoil(request: Request) -> Iterable[Spoiled]:
        path = change(request.path)
        if path != request.path:
            yield Spoiled(Request(request.method, path, request.message, request.token))

    return spoil


def _bytes(change: Callable[[bytes], Iterable[bytes]]) -> Callable[[Request], Iterable[Spoiled]]:
    """Return a fault that changes the encoded message."""

    def spoil(request: Request) -> Iterable[Spoiled]:
        if isinstance(request.message, codec.Message):
            for body in change(codec.encode(request.message)):
                yield Spoiled(request, body)

    return spoil


def _fields(
    change: Callable[[dict[str, Any], str], dict[str, Any]], *, required: bool = False
) -> Callable[[Request], Iterable[Spoiled]]:
    """Return a fault that applies to each field of the message in turn, or to each required field."""

    def spoil(request: Request) -> Iterable[Spoiled]:
        if isinstance(request.message, codec.Message):
            plain = msgspec.to_builtins(request.message, builtin_types=(bytes,))
            for each in msgspec.structs.fields(request.message):
                if each.required or not required:
                    changed = change(dict(plain), each.encode_name)
                    yield Spoiled(request, msgspec.msgpack.encode(changed))

    return spoil


def _doubled(body: bytes) -> Iterator[bytes]:
    if count := body[0] & 15:
        name = next(iter(msgspec.msgpack.decode(body)))
        pair = msgspec.msgpack.encode({name: msgspec.msgpack.decode(body)[name]})[1:]
        yield bytes([0x80 + count + 1]) + pair + body[1:]


def _doubled_parameter(path: str) -> str:
    _, _, query = path.partition("?")
    return f"{path}&{query.partition('&')[0]}" if query else path


def _too_large(request: Request) -> Iterator[Spoiled]:
    if isinstance(request.message, codec.Message):
        large = isinstance(request.message, containers.RecordRequest | containers.RecordsRequest)
        yield Spoiled(request, bytes((_LARGE if large else _SMALL) + 1))


FAULTS: Final = (
    Fault("1", "no API key", "401 api-key", _header(codec.API_KEY_HEADER, None)),
    Fault("1", "an unknown API key", "401 api-key", _header(codec.API_KEY_HEADER, _SOMEBODY)),
    Fault("1", "an API key that is not a UUID", "401 api-key", _header(codec.API_KEY_HEADER, "1")),
    Fault("1", "no protocol version", "400 version", _header(codec.PROTOCOL_HEADER, None)),
    Fault("1", "another protocol version", "400 version", _header(codec.PROTOCOL_HEADER, "2")),
    Fault("1", "no application name", "400 invalid", _header(codec.APPLICATION_HEADER, None)),
    Fault("1", "a blank application name", "400 invalid", _header(codec.APPLICATION_HEADER, "%20")),
    Fault("1", "an application name with a line feed", "400 invalid",
          _header(codec.APPLICATION_HEADER, "a%0Ab")),
    Fault("1", "an application name that is not UTF-8", "400 invalid",
          _header(codec.APPLICATION_HEADER, "%FF")),
    Fault("1", "an application name that is too long", "400 invalid",
          _header(codec.APPLICATION_HEADER, "a" * (_APPLICATION + 1))),
    Fault("1", "no session", "401 session", _in_session(lambda _: None)),
    Fault("1", "an unknown token", "401 session",
          _in_session(lambda token: f"Bearer {token[::-1]}")),
    Fault("1", "a token of another scheme", "401 session",
          _in_session(lambda token: f"Basic {token}")),
    Fault("5", "an id in capitals", "400 invalid",
          _path(lambda path: _UUID.sub(lambda found: found[0].upper(), path))),
    Fault("5", "a number with a leading zero", "400 invalid",
          _path(lambda path: re.sub(r"([/=])(\d+)$", r"\g<1>0\2", path))),
    Fault("1", "an unknown query parameter", "400 invalid",
          _path(lambda path: f"{path}{'&' if '?' in path else '?'}unknown=1")),
    Fault("5", "a query parameter given twice", "400 invalid", _path(_doubled_parameter)),
    Fault("1", "a body where none belongs", "400 invalid", lambda request: (
        [Spoiled(request, b"\x80", {"Content-Type": codec.MESSAGE})]
        if request.message is None else [])),
    Fault("1", "another content type", "400 invalid", lambda request: (
        [] if request.message is None
        else [Spoiled(request, None, {"Content-Type": "application/json"})])),
    Fault("1", "an empty message", "400 invalid", _bytes(lambda _: [b""])),
    Fault("1", "a message that is cut off", "400 invalid", _bytes(lambda body: [body[:-1]])),
    Fault("1", "a byte after the message", "400 invalid", _bytes(lambda body: [body + b"\x00"])),
    Fault("1", "a longer encoding of the same message", "400 invalid",
          _bytes(lambda body: [b"\xde\x00" + bytes([body[0] & 15]) + body[1:]])),
    Fault("1", "a field given twice", "400 invalid", _bytes(_doubled)),
    Fault("1", "an unknown field", "400 invalid", _bytes(
        lambda body: [bytes([body[0] + 1]) + body[1:] + msgspec.msgpack.encode({"unknown": 1})[1:]])),
    Fault("1", "a required field left out", "400 invalid",
          _fields(lambda plain, name: {k: v for k, v in plain.items() if k != name}, required=True)),
    Fault("1", "a field of another type", "400 invalid",
          _fields(lambda plain, name: {**plain, name: 1.5})),
    Fault("4", "a message above its limit", "413 too-large", _too_large),
)  # fmt: skip


def every_operation(probe: Probe) -> None:
    """Ask about every operation, with each fault and without one."""
    owner, newcomer, leaving = probe.user(), probe.newcomer(), probe.user()
    member = probe.user()
    box, upload = Box(owner).created(content=None), Box(owner)
    shared = Box(member).created({member: ALL, owner: ALL})
    team = Team(member).founded({member: SHARER, owner: WRITER})
    part, sealed = upload.large(owner)
    path, part_path = box.path, f"{upload.path}/parts/{uuid.UUID(bytes=part.partId)}"
    dropped = f"{upload.path}/parts/{uuid.uuid4()}"
    put = f"{upload.path}/records/1"
    named = users.KeyRecordsRequest(users=[users.KeyRecordsFrom(userId=owner.id)])
    opening = users.KeyFileOpening(auth=owner.auth)
    report = parts.SentChunks(chunks=[parts.SentChunk(index=0, name="x", hashes=bytes(32))])
    batch = containers.RecordsRequest(records=[Box(owner).draft()])
    views = containers.ViewsRequest(views=[containers.ViewRequest(containerId=str(box.id))])
    group = f"/v1/groups/{team.id}"
    asked = groups.GroupViewsRequest(groups=[groups.GroupViewRequest(groupId=str(team.id))])
    order = users.KeyFileDeletion(authorization=owner.order("delete-key-file"))
    valid: list[tuple[int | None, str, str, codec.Message | bytes | None]] = [
        (201, "POST", "/v1/users", newcomer.registration()),
        (200, "POST", "/v1/session-challenges", users.ChallengeRequest()),
        (201, "POST", "/v1/sessions", owner.log_in_request()),
        (200, "POST", f"{owner.path}/key-file/open", opening),
        (200, "GET", f"{owner.path}/reminder", None),
        (200, "GET", "/v1/reminder", None),
        (200, "POST", "/v1/key-records", named),
        (204, "PUT", f"/v1/blocks/{leaving.id}", None),
        (200, "GET", "/v1/blocks", None),
        (200, "GET", "/v1/usage", None),
        (204, "DELETE", f"/v1/blocks/{leaving.id}", None),
        (200, "GET", "/v1/key-file", None),
        (204, "PUT", "/v1/key-file", owner.storing()),
        (204, "PUT", f"{part_path}/chunks/0", sealed),
        (200, "GET", f"{part_path}/chunks?first=0", None),
        (200, "POST", f"{part_path}/transfers", parts.TransfersRequest(chunks=[1])),
        (None, "POST", f"{part_path}/chunks", report),  # only a broker with an object store accepts it
        (201, "PUT", put, upload.draft(content=part)),
        (204, "DELETE", dropped, None),
        (200, "GET", f"{part_path}/hashes", None),
        (200, "GET", f"{part_path}/segments?first=0&count=1", None),
        (200, "GET", f"{part_path}/transfers?first=0&count=1", None),
        (200, "GET", f"{path}?since=1", None),
        (204, "POST", f"{shared.path}/departure", owner.departure(shared)),
        (200, "GET", f"{path}/governing?from=1&to=1", None),
        (200, "GET", f"{path}/records?from=1&count=1", None),
        (200, "POST", "/v1/batches/records", batch),
        (200, "POST", "/v1/batches/views", views),
        (200, "POST", "/v1/containers/list", containers.ListRequest()),
        (200, "GET", "/v1/events?startId=1", None),
        (200, "POST", "/v1/groups/views", asked),
        (200, "GET", "/v1/groups?limit=1", None),
        (204, "PUT", f"{group}/acceptance", None),
        (204, "POST", f"{group}/departure", team.departure(owner)),
        (204, "POST", "/v1/key-file/deletion", order),
        (204, "DELETE", "/v1/sessions/current", None),
        (204, "POST", f"{leaving.path}/deletion", leaving.deletion()),
    ]  # fmt: skip
    requests = [
        Request(method, path, message, owner.token if _takes_session(path) else None)
        for _, method, path, message in valid
    ]
    for fault in FAULTS:
        wrong = [
            f"{answer} at {_shown(request)}"
            for request in requests
            for spoiled in fault.spoil(request)
            if (answer := str(probe.at.send(*spoiled))) != fault.expected
        ]
        name = f"every operation refuses {fault.name}"
        probe.ask(fault.section, name, fault.expected, "; ".join(wrong) or fault.expected)
    for request, (status, *_) in zip(requests, valid, strict=True):
        if status is not None:
            probe.ask("5", _shown(request), str(status), probe.at.send(request))
    for path in ("/health/live", "/health/ready", "/openapi.json"):
        without = {codec.PROTOCOL_HEADER: None, codec.API_KEY_HEADER: None}
        came = probe.at.send(Request("GET", path), None, without)
        probe.ask("5, Broker", f"GET {path} without the headers of section 1", "200", came)


def _shown(request: Request) -> str:
    return f"{request.method} {_UUID.sub('{id}', request.path)}"


def _takes_session(path: str) -> bool:
    return not re.match(r"/v1/(users|session-challenges|sessions$)", path)
