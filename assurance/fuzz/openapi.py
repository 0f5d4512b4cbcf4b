"""Requests to a running broker, made from its own OpenAPI document.

In the document a bin is base64 text; here its size is mostly one that the protocol knows. On the wire it is
a bin again.
"""

import base64
import binascii
import copy
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
import schemathesis
from hypothesis import strategies as st

from assurance.fuzz.messagepack import write
from scbroker.keys import KeyRing
from scbroker.records.container_record import Role
from scbroker.server.operations import OPERATIONS, Operation, document
from scbroker.server.storage.blobs import new_blob_name
from scbroker.wire.codec import MESSAGE, SignedObject
from scbroker.wire.containers import RecordsRequest
from scbroker.wire.users import ChallengeRequest, KeyFileDeletion, KeyFileOpening, Registration
from tests.kit import writers
from tests.kit.brokers import clock
from tests.kit.groups import READER, SHARER, Group
from tests.kit.writers import Story, User

_SIZES: Final = (0, 1, 16, 32, 48, 112, 200, 1168, 3373)
AUTH: Final = bytes(32)
QUERY: Final = {"from": 1, "to": 1, "first": 0, "count": 1}
"""Required parameters of queries, with values that exist."""


def team_of(owner: User, member: User) -> Group:
    """Create a group that is offered to a user."""
    return Group(owner).created({owner: SHARER, member: READER})


@cache
def documented() -> Any:
    """Return the document as the broker serves it."""
    return msgspec.json.decode(msgspec.json.encode(document(OPERATIONS)))


def operation_of(label: str) -> Operation:
    method, path = label.split(" ", 1)
    return next(found for found in OPERATIONS if (found.method, found.path) == (method, path))


@cache
def schema() -> schemathesis.BaseSchema:
    """Return the document with a format for each size of a bin, so that base64 text is drawn for it."""
    found = copy.deepcopy(documented())
    for path in found["paths"].values():
        for operation in path.values():
            operation.pop("security", None)  # the test sends its own session
    _with_formats(found["components"])
    return schemathesis.openapi.from_dict(found)


def _with_formats(value: Any) -> None:
    if isinstance(value, dict) and value.get("contentEncoding") == "base64":
        low, high = value.get("minLength", 0), value.get("maxLength", 4096)
        value["format"] = f"bin-{low}-{high}"
        schemathesis.openapi.format(value["format"], _bins(low, high))
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            _with_formats(item)


def _bins(low: int, high: int) -> st.SearchStrategy[str]:
    sizes = [size for size in _SIZES if low <= len(_base64(bytes(size))) <= high]
    return st.builds(
        lambda size, seed: _base64((seed * size)[:size]),
        st.sampled_from(sizes),
        st.binary(min_size=1, max_size=8),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@schemathesis.serializer(MESSAGE)
def _serialized(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Return MessagePack, with a bin where the message has one and the text is base64."""
    operation = operation_of(context.case.operation.label)
    return write(on_the_wire(value, msgspec.inspect.type_info(operation.message)))


@schemathesis.deserializer(MESSAGE)
def _deserialized(
    context: schemathesis.DeserializationContext, answer: schemathesis.Response
) -> Any:
    """Return an answer as the document describes it."""
    del context
    return in_the_document(msgspec.msgpack.decode(answer.content))


def on_the_wire(value: Any, info: Any) -> Any:
    """Return a drawn value as it is sent; values of another type than the message's stay."""
    match info:
        case msgspec.inspect.Metadata():
            return on_the_wire(value, info.type)
        case msgspec.inspect.UnionType():
            kinds = [kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType)]
            return on_the_wire(value, kinds[0])
        case msgspec.inspect.BytesType() if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                return value
        case msgspec.inspect.ListType() if isinstance(value, list):
            return [on_the_wire(item, info.item_type) for item in value]
        case msgspec.inspect.StructType() if isinstance(value, dict):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(info.cls)}
            return {
                name: on_the_wire(item, msgspec.inspect.type_info(fields[name]))
                if name in fields
                else item
                for name, item in value.items()
            }
    return value


def in_the_document(value: Any) -> Any:
    """Return a request or an answer as JSON: each bin as base64."""
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, dict):
        return {name: in_the_document(item) for name, item in value.items()}
    return [in_the_document(item) for item in value] if isinstance(value, list) else value


@dataclass
class Scene:
    """A user with a session, a container with a content, a group, and valid requests about them."""

    user: User
    other: User
    story: Story
    part: bytes
    team: Group

    def begin_anew(self) -> None:
        """Take another container and another group."""
        grants = {self.user: 511, self.other: 11}
        self.story = Story(self.user).created(grants, header=b"{}", type="note")
        self.team = team_of(self.other, self.user)

    @property
    def path(self) -> Mapping[str, list[Any]]:
        """Values for paths that exist; the first of each is the one of a valid request."""
        version = self.story.head.version
        return {
            "userId": [self.user.id, self.other.id],
            "containerId": [self.story.path.rpartition("/")[2]],
            "groupId": [self.team.group_id],
            "partId": [str(uuid.UUID(bytes=self.part))],
            "version": [version + 1, version, 1],
            "index": [0],
        }

    def valid(
        self, operation: Operation, make_user: Callable[[], User]
    ) -> tuple[Any, dict[str, Any]]:
        """Return a valid message of the operation as JSON, and what else its path needs."""
        user, path = self.user, dict[str, Any]()
        message: Any = None
        if operation.message is bytes:
            part, sealed = self.story.seal(Role.Content, user, bytes(100), self.story.key)
            return sealed, {"partId": str(uuid.UUID(bytes=part.partId))}
        if operation.method == "DELETE" and "{partId}" in operation.path:
            path = {"partId": str(uuid.uuid4())}  # the story's own part has a record that names it
        if "/blocks/" in operation.path:
            path = {"userId": self.other.id}  # nobody blocks themselves
        match getattr(operation.message, "__name__", ""):
            case "Registration":
                ring = KeyRing.generate()
                signed = [SignedObject.of(item) for item in ring.first_records(clock())]
                message = Registration(keyRecords=signed, keyFile=b"file", auth=AUTH)
            case "ChallengeRequest":
                message = ChallengeRequest()
            case "SessionRequest":
                message = user.wire.log_in_request(user.ring)
            case "KeyFileOpening":
                message = KeyFileOpening(auth=AUTH)
            case "KeyFileStoring":
                message = writers.authorized(user, writers.storing(user, reminder="r"))
            case "KeyRecordsRequest":
                message = {"users": [{"userId": user.id}, {"userId": self.other.id, "from": 1}]}
            case "RecordRequest":
                message = self.story.follow(user, header=b"{}")
            case "RecordsRequest":
                batch = [self.story.follow(user, header=b"{}"), Story(user).begin()]
                message = RecordsRequest(records=batch)
            case "DepartureRequest":
                message = writers.departure(self.story, user)
            case "GroupViewsRequest":
                message = {"groups": [{"groupId": self.team.group_id, "membership": True}]}
            case "GroupDepartureRequest":
                message = self.team.departure(user)
            case "TransfersRequest":
                message, path = {"chunks": [0, 3]}, {"partId": str(uuid.uuid4())}
            case "SentChunks":
                one = {"index": 0, "name": new_blob_name(self.part), "hashes": self._hashes()}
                message = {"chunks": [one]}
            case "ViewsRequest":
                one = {"containerId": self.path["containerId"][0], "content": True}
                message = {"views": [one, {"containerId": str(uuid.uuid4())}]}
            case "ListRequest":
                known = {"containerId": self.path["containerId"][0], "since": 1}
                message = {"limit": 2, "header": True, "known": [known]}
            case "KeyFileDeletion":
                message = KeyFileDeletion(authorization=writers.ordered(user, "delete-key-file"))
            case "UserDeletion":
                gone = make_user()
                path = {"userId": gone.id}
                message = writers.deletion(gone)
        return in_the_document(msgspec.to_builtins(message, builtin_types=(bytes,))), path

    def _hashes(self) -> bytes:
        """Return the hashes of the segments of the stored part."""
        path = f"{self.story.path}/parts/{uuid.UUID(bytes=self.part)}/hashes"
        return self.user.wire.call("GET", path).expect(200).body
