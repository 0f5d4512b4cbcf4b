"""List the broker's operations: method, path, messages and handler of each. Spec: docs/spec/protocol.md, 5.

The routes, the OpenAPI document and the tests of the wire are made from `OPERATIONS`.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from scbroker.server.containers import appending, group_views, leaving, views
from scbroker.server.events import following
from scbroker.server.parts import chunks, presigned
from scbroker.server.users import accounts, deletion, key_files, sessions
from scbroker.wire import codec
from scbroker.wire import containers as c
from scbroker.wire import events as e
from scbroker.wire import groups as g
from scbroker.wire import parts as p
from scbroker.wire import users as u
from scbroker.wire.codec import NoQuery
from scbroker.wire.problems import STATUS, Problem

_USER: Final = "/v1/users/{userId}"
_BLOCK: Final = "/v1/blocks/{userId}"
_CONTAINER: Final = "/v1/containers/{containerId}"
_GROUP: Final = "/v1/groups/{groupId}"
_PART: Final = _CONTAINER + "/parts/{partId}"
_REF: Final = "#/components/schemas/{name}"
_STATUSES: Final = sorted(set(STATUS.values()))
Handler = Callable[..., Awaitable[Any]]
"""Takes broker, call, and the message or the query, if there is one; returns the message to answer with."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    handler: Handler
    summary: str
    message: type[codec.Message] | type[bytes] | None = None
    answer: type[codec.Message] | type[bytes] | None = None
    query: type[codec.Message] = NoQuery
    session: bool = True
    status: int = 200
    limit: int = codec.MAX_SMALL_MESSAGE
    """The size of the largest message, in bytes."""
    large: bool = False
    """Whether a small request may cause an answer, or work, of megabytes."""

    @property
    def takes_query(self) -> bool:
        """True if the handler takes the query: that of a `ViaQuery` is in the call."""
        return self.message is None and self.query not in (NoQuery, p.ViaQuery)


OPERATIONS: Final = (
    Operation("POST", "/v1/users", accounts.register, "Register a user",
              u.Registration, u.Registered, session=False, status=201),
    Operation("POST", "/v1/session-challenges", sessions.challenge, "Ask for a nonce",
              u.ChallengeRequest, u.Challenge, session=False),
    Operation("POST", "/v1/sessions", sessions.log_in, "Begin a session",
              u.SessionRequest, u.Session, session=False, status=201),
    Operation("DELETE", "/v1/sessions/current", sessions.log_out, "End the session", status=204),
    Operation("POST", _USER + "/deletion", deletion.delete_user, "Delete a user for ever",
              u.UserDeletion, session=False, status=204),
    Operation("POST", _USER + "/key-file/open", key_files.open_key_file, "Get a KeyFile",
              u.KeyFileOpening, u.KeyFileAnswer, session=False),
    Operation("GET", "/v1/key-file", key_files.state, "Ask which KeyFile is stored",
              None, u.KeyFileState),
    Operation("PUT", "/v1/key-file", key_files.store, "Store a KeyFile, and key records with it",
              u.KeyFileStoring, status=204),
    Operation("POST", "/v1/key-file/deletion", key_files.delete, "Remove the KeyFile",
              u.KeyFileDeletion, status=204),
    Operation("GET", _USER + "/reminder", accounts.reminder, "Get a user's reminder",
              None, u.ReminderAnswer, session=False),
    Operation("GET", "/v1/reminder", accounts.own_reminder, "Get the session's own reminder",
              None, u.ReminderAnswer),
    Operation("PUT", _BLOCK, accounts.block, "Block a user", status=204),
    Operation("DELETE", _BLOCK, accounts.unblock, "Unblock a user", status=204),
    Operation("GET", "/v1/blocks", accounts.list_blocked, "List blocked users",
              None, u.BlockedUsers),
    Operation("GET", "/v1/usage", accounts.own_usage, "Read the user's own usage and quotas", None, u.Usage),
    Operation("POST", "/v1/key-records", accounts.read_key_records, "Read users' key records",
              u.KeyRecordsRequest, u.KeyRecords),
    Operation("PUT", _CONTAINER + "/records/{version}", appending.append, "Append a record",
              c.RecordRequest, c.RecordReceipt, status=201, limit=codec.MAX_MESSAGE),
    Operation("POST", _CONTAINER + "/departure", leaving.leave, "Leave a container",
              c.DepartureRequest, status=204),
    Operation("GET", _CONTAINER, views.view, "Read a container", None, c.ContainerView, c.ViewQuery),
    Operation("GET", _CONTAINER + "/governing", views.governing_page, "Read governing records",
              None, c.GoverningPage, c.GoverningQuery),
    Operation("GET", _CONTAINER + "/records", views.bodies, "Read records' bodies",
              None, c.Bodies, c.BodiesQuery),
    Operation("PUT", _PART + "/chunks/{index}", chunks.receive, "Send a chunk of a content",
              bytes, query=p.ViaQuery, status=204, limit=p.MAX_CHUNK),
    Operation("DELETE", _PART, chunks.drop, "Drop an unfinished upload", query=p.ViaQuery, status=204),
    Operation("GET", _PART + "/chunks", chunks.list_chunks, "List the chunks that have arrived",
              None, p.Chunks, p.ChunksQuery),
    Operation("POST", _PART + "/transfers", presigned.to_send, "Get presigned URLs to put chunks to",
              p.TransfersRequest, p.Transfers, p.ViaQuery),
    Operation("GET", _PART + "/transfers", presigned.to_read, "Get presigned URLs to get chunks from",
              None, p.Transfers, p.TransfersQuery),
    Operation("POST", _PART + "/chunks", presigned.sent, "Say which chunks were put there",
              p.SentChunks, query=p.ViaQuery, status=204, large=True),
    Operation("GET", _PART + "/hashes", chunks.segment_hashes, "Read the segments' hashes",
              None, bytes, p.ViaQuery),
    Operation("GET", _PART + "/segments", chunks.segments, "Read sealed segments",
              None, bytes, p.SegmentsQuery),
    Operation("POST", "/v1/batches/records", appending.append_records, "Append several records",
              c.RecordsRequest, c.RecordsAnswer, limit=codec.MAX_MESSAGE),
    Operation("POST", "/v1/batches/views", views.read_views, "Read several containers",
              c.ViewsRequest, c.ViewsAnswer, large=True),
    Operation("POST", "/v1/containers/list", views.list_containers, "List own containers",
              c.ListRequest, c.ContainerList, large=True),
    Operation("POST", "/v1/groups/views", group_views.read_views, "Read several groups",
              g.GroupViewsRequest, g.GroupViews, large=True),
    Operation("GET", "/v1/groups", group_views.list_groups, "List own groups",
              None, g.GroupList, g.GroupsQuery),
    Operation("PUT", _GROUP + "/acceptance", group_views.accept, "Accept a group", status=204),
    Operation("POST", _GROUP + "/departure", leaving.leave_group, "Leave a group",
              g.GroupDepartureRequest, status=204),
    Operation("GET", "/v1/events", following.list_events, "List events, or wait for them",
              None, e.Events, e.EventQuery),
)  # fmt: skip


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document that the broker serves at /openapi.json."""
    kinds: list[Any] = [Problem]
    paths: dict[str, Any] = {}
    for operation in operations:
        kinds += [
            kind for kind in (operation.message, operation.answer) if kind not in (None, bytes)
        ]
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "scbroker",
            "version": codec.PROTOCOL,
            "description": "Messages are MessagePack; a field of format byte is a bin.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    answers = {str(status): _problem(status) for status in _STATUSES}
    answers[str(operation.status)] = _body(operation.answer, "Done")
    if operation.status == 201:
        answers["200"] = _body(operation.answer, "Done before")
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}{re.sub(r'[^A-Za-z]+', '-', operation.path)}",
        "parameters": list(_parameters(operation)),
        "responses": answers,
    }
    if operation.session:
        found["security"] = [{"session": []}]
    if operation.message is not None:
        found["requestBody"] = {"required": True, **_body(operation.message, "")}
    return found


def _body(kind: Any, description: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description} if description else {}
    if kind is bytes:
        answer["content"] = {codec.OCTETS: {"schema": {}}}
    elif kind is not None:
        reference = {"$ref": _REF.format(name=kind.__name__)}
        answer["content"] = {codec.MESSAGE: {"schema": reference}}
    return answer


def _problem(status: int) -> dict[str, Any]:
    codes = sorted(kind.code for kind, number in STATUS.items() if number == status)
    schema = {"$ref": _REF.format(name="Problem")}
    return {"description": ", ".join(codes), "content": {codec.PROBLEM: {"schema": schema}}}


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    headers: dict[str, dict[str, Any]] = {
        codec.PROTOCOL_HEADER: {"type": "string", "const": codec.PROTOCOL},
        codec.API_KEY_HEADER: {"type": "string", "format": "uuid"},
        codec.APPLICATION_HEADER: {"type": "string", "minLength": 1, "maxLength": 256},
    }
    for name, schema in headers.items():
        yield {"name": name, "in": "header", "required": True, "schema": schema}
    for name in re.findall(r"{(\w+)}", operation.path):
        schema = {"type": "integer", "minimum": 0}
        if name.endswith("Id"):
            schema = {"type": "string", "format": "uuid"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for field in msgspec.structs.fields(operation.query):
        name, schema = field.encode_name, msgspec.json.schema(field.type)
        yield {"name": name, "in": "query", "required": field.required, "schema": schema}
