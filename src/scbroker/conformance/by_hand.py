"""Send requests to a broker by hand, and sign users and containers, without the client's checks.

`Connection` sends any bytes. `User` and `Box` make the messages of a valid story; a caller then makes one
field wrong and compares the broker's answer.
"""

import http.client
import ssl
import time
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from scbroker.client.core.sealing import (
    NewPart,
    OpenPart,
    Recipient,
    make_access,
    make_type,
    recipient_of,
)
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import BrokerError
from scbroker.keys import KeyRing
from scbroker.records import batch
from scbroker.records import container_record as grammar
from scbroker.records.canonical import container_id_of, encode_object
from scbroker.records.container_record import ContainerRecord, Governing, Link, Part, Role
from scbroker.records.departure import LABEL as DEPARTURE_LABEL
from scbroker.records.departure import Departure
from scbroker.records.judge import ALL, Grant
from scbroker.records.key_record import KeyChain
from scbroker.wire import codec, containers, users
from scbroker.wire.codec import Message, SignedObject
from scbroker.wire.problems import STATUS, Problem

T = TypeVar("T")
KEEP: Final[Any] = object()
"""Leaves a field of a container as it is."""
_TIMEOUT: Final = 30.0
_STATUS_OF: Final = {kind.code: status for kind, status in STATUS.items()}


class StoryError(Exception):
    """A valid request was refused, so that the story cannot go on."""


def clock() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as received; if none came, status is 0 and `fault` says why."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names are in lower case."""
    fault: str = ""

    def __str__(self) -> str:
        """Return the status, the error code, and breaches of section 1 of the protocol."""
        return " ".join(filter(None, [str(self.status or ""), self.code, self._breach]))

    @property
    def code(self) -> str:
        return self._problem.code if self._problem else ""

    @property
    def _problem(self) -> Problem | None:
        try:
            return msgspec.json.decode(self.body, type=Problem) if self.status >= 400 else None
        except ValueError:
            return None

    @property
    def _breach(self) -> str:
        problem = self._problem
        if self.fault:
            return self.fault
        if self.headers.get(codec.PROTOCOL_HEADER.lower()) != codec.PROTOCOL:
            return f"without {codec.PROTOCOL_HEADER}: {codec.PROTOCOL}"
        if self.status < 400:
            return ""
        if problem is None or self.headers.get("content-type") != codec.PROBLEM:
            return "without a problem"
        if {self.status, problem.status} != {_STATUS_OF.get(problem.code)}:
            return "with a status that is not the code's"
        return ""

    def message(self, kind: type[T]) -> T:
        """Return the message of a good answer; raise `StoryError` for any other."""
        try:
            if self.status >= 300 or self.headers.get("content-type") != codec.MESSAGE:
                raise StoryError(f"{kind.__name__} was expected, and the answer was: {self}")
            return codec.decode(kind, self.body, 2**24)
        except BrokerError as error:
            raise StoryError(f"A {kind.__name__} is malformed: {error}") from None

    def done(self) -> "Answer":
        """Return this answer; raise `StoryError` unless the request succeeded."""
        if not 200 <= self.status < 300 or self._breach:
            raise StoryError(f"A valid request was answered: {self} {self.body[:300]!r}")
        return self


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the protocol, before anything in it is spoiled."""

    method: str
    path: str
    message: Message | bytes | None = None
    token: str | None = None

    @property
    def body(self) -> bytes | None:
        return codec.encode(self.message) if isinstance(self.message, Message) else self.message

    @property
    def media_type(self) -> str | None:
        if self.message is None:
            return None
        return codec.MESSAGE if isinstance(self.message, Message) else codec.OCTETS


class Connection:
    """A connection to one broker, which is opened again if the broker closed it."""

    def __init__(self, url: str, api_key: uuid.UUID) -> None:
        self.origin: str = users.canonical_origin(url)
        parts = urllib.parse.urlsplit(url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._api_key = api_key
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
        self._http = None

    def send(
        self,
        request: Request,
        body: bytes | None = None,
        headers: Mapping[str, str | None] = MappingProxyType({}),
    ) -> Answer:
        """Send a request, with another body or other headers if given; a header of None is left out."""
        sent = request.body if body is None else body
        found: dict[str, str | None] = {
            codec.PROTOCOL_HEADER: codec.PROTOCOL,
            codec.API_KEY_HEADER: str(self._api_key),
            codec.APPLICATION_HEADER: "conformance",
            "Authorization": None if request.token is None else f"Bearer {request.token}",
            "Content-Type": request.media_type,
            **headers,
        }
        given = {name: value for name, value in found.items() if value is not None}
        while True:
            fresh = self._http is None
            try:
                return self._exchange(request, sent, given)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # Retry once on a new connection: the broker may have closed the idle one.
                if fresh:
                    return Answer(0, fault=f"no answer: {error!r}")

    def _exchange(self, request: Request, body: bytes | None, headers: dict[str, str]) -> Answer:
        if self._http is None:
            self._http = (
                http.client.HTTPSConnection(
                    self._host or "",
                    self._port,
                    timeout=_TIMEOUT,
                    context=ssl.create_default_context(),
                )
                if self._secure
                else http.client.HTTPConnection(self._host or "", self._port, timeout=_TIMEOUT)
            )
        # A broker may answer a large body and close before it has read all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._http.request(request.method, request.path, body, headers)
        came = self._http.getresponse()
        answer = Answer(
            came.status, came.read(), {name.lower(): value for name, value in came.getheaders()}
        )
        if came.will_close:
            self.close()
        return answer

    def post(self, path: str, message: Message) -> Answer:
        """Send a request without a session."""
        return self.send(Request("POST", path, message))

    def nonce(self) -> bytes:
        answer = self.post("/v1/session-challenges", users.ChallengeRequest())
        return answer.message(users.Challenge).nonce


@dataclass(eq=False)
class User:
    """A user with their keys, and with a session after `log_in`."""

    at: Connection
    ring: KeyRing = field(default_factory=KeyRing.generate)
    auth: bytes = field(default_factory=lambda: random_bytes(32))
    key_file: bytes = field(default_factory=lambda: random_bytes(64))
    token: str | None = None
    device_pass: bytes | None = None

    @property
    def id(self) -> str:
        return str(self.ring.userId)

    @property
    def path(self) -> str:
        return f"/v1/users/{self.id}"

    @property
    def name(self) -> bytes:
        return self.ring.rawFingerprint

    @property
    def holder(self) -> uuid.UUID:
        return self.ring.userId

    def recipient(self) -> Recipient:
        """Return the user's fingerprint and key, for an entry of an access list."""
        return recipient_of(self.chain())

    def send(self, method: str, path: str, message: Message | bytes | None = None) -> Answer:
        """Send a request in the user's session."""
        return self.at.send(Request(method, path, message, self.token))

    def registration(self, moment: int | None = None) -> users.Registration:
        records = self.ring.first_records(clock() if moment is None else moment)
        signed = [SignedObject.of(record) for record in records]
        return users.Registration(keyRecords=signed, keyFile=self.key_file, auth=self.auth)

    def log_in_request(self, **changes: Any) -> users.SessionRequest:
        """Return a log-in; `changes` replace fields of its statement."""
        body = encode_object(users.Statement(**self._fields(changes)))
        signature = self.ring.signing[-1].sign(users.SESSION_LABEL, body)
        return users.SessionRequest(statement=body, signature=signature)

    def log_in(self) -> "User":
        session = self.at.post("/v1/sessions", self.log_in_request()).message(users.Session)
        self.token, self.device_pass = session.token, session.devicePass
        return self

    def order(
        self, action: str, digest: bytes = users.NO_DIGEST, **changes: Any
    ) -> users.Authorization:
        """Return a signed order with a fresh nonce; `changes` replace fields of it."""
        fields = self._fields({"action": action, "digest": digest, **changes})
        body = encode_object(users.Order(**fields))
        signature = self.ring.signing[-1].sign(users.ORDER_LABEL, body)
        return users.Authorization(order=body, signature=signature)

    def _fields(self, changes: dict[str, Any]) -> dict[str, Any]:
        return {
            "origin": self.at.origin,
            "fingerprint": self.name,
            "keyIndex": len(self.ring.signing) - 1,
            "nonce": changes["nonce"] if "nonce" in changes else self.at.nonce(),
            **changes,
        }

    def storing(self, **changes: Any) -> users.KeyFileStoring:
        """Return the message that stores a KeyFile of the next generation, with its signed order."""
        state = self.send("GET", "/v1/key-file").message(users.KeyFileState)
        empty = users.Authorization(order=b"", signature=bytes(3373))
        fields: dict[str, Any] = {
            "generation": state.generation + 1, "replaces": state.hash, "auth": self.auth,
            "keyFile": random_bytes(64), "authorization": empty, **changes,
        }  # fmt: skip
        message = users.KeyFileStoring(**fields)
        return replace(message, authorization=self.order("store-key-file", message.digest))

    def chain(self) -> KeyChain:
        """Return the user's keys as the broker publishes them."""
        asked = users.KeyRecordsRequest(users=[users.KeyRecordsFrom(userId=self.id)])
        [found] = self.send("POST", "/v1/key-records", asked).message(users.KeyRecords).users
        return KeyChain.verify([record.signed for record in found.keyRecords], clock())

    def own_chain(self) -> KeyChain:
        """Return the keys of a user who need not be registered."""
        return KeyChain.verify(self.ring.first_records(clock()), clock())

    def departure(self, box: "Box", seen: int = 0, **changes: Any) -> containers.DepartureRequest:
        """Return a departure from the container's list in force; `changes` replace fields of it."""
        governing = box.governing
        fields: dict[str, Any] = {
            "containerId": box.id.bytes, "accessVersion": governing.accessVersion,
            "accessList": governing.accessList, "fingerprint": self.name,
            "keyIndex": len(self.ring.signing) - 1, "time": clock(), **changes,
        }  # fmt: skip
        body = encode_object(Departure(**fields))
        signature = self.ring.signing[-1].sign(DEPARTURE_LABEL, body)
        signed = SignedObject(body=body, signature=signature)
        return containers.DepartureRequest(departure=signed, departures=seen)

    def deletion(self) -> users.UserDeletion:
        closing = SignedObject.of(self.ring.closing_record(self.chain(), clock()))
        empty = users.Authorization(order=b"", signature=bytes(3373))
        message = users.UserDeletion(keyRecord=closing, authorization=empty)
        return replace(message, authorization=self.order("delete-user", message.digest))

    def sign(self, record: ContainerRecord) -> containers.SignedRecord:
        body = encode_object(record)
        signature = self.ring.signing[-1].sign(grammar.LABEL, grammar.bare_body(body))
        return containers.SignedRecord(body=body, signature=signature)

    def sign_together(
        self, requests: Sequence[containers.RecordRequest]
    ) -> list[containers.RecordRequest]:
        """Return the same records under one signature (ids.md, 2.7)."""
        hashes = [grammar.record_hash(request.record.body) for request in requests]
        salts = [random_bytes(HASH_SIZE) for _ in requests]
        signatures = batch.sign_each(self.ring.signing[-1].sign, hashes, salts)
        return [
            replace(request, record=replace(request.record, signature=signature))
            for request, signature in zip(requests, signatures, strict=True)
        ]


Grants = Mapping[Any, int | Grant]
"""By `User`, or by a group (`teams.Team`)."""


@dataclass
class Box:
    """A container as its creator makes it: its secrets, and the records that a broker has accepted."""

    creator: User
    nonce: bytes = field(default_factory=lambda: random_bytes(32))
    key: bytes = field(default_factory=lambda: random_bytes(32))
    records: list[ContainerRecord] = field(default_factory=list)
    _keys: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def id(self) -> uuid.UUID:
        return container_id_of(self.creator.name, self.nonce)

    @property
    def path(self) -> str:
        return f"/v1/containers/{self.id}"

    @property
    def governing(self) -> Governing:
        """The governing field in force."""
        return next(each.governing for each in reversed(self.records) if each.governing)

    def draft(
        self,
        author: User | None = None,
        grants: Grants | None = None,
        *,
        content: bytes | Part | None = KEEP,
        type: str | None = KEEP,
        chains: Mapping[User, KeyChain] = MappingProxyType({}),
        **changes: Any,
    ) -> containers.RecordRequest:
        """Return the next record: nothing changes but what is named, and `changes` to its fields.

        The first record has a content, no type, and gives its creator all rights unless told otherwise.
        """
        author = author or self.creator
        head = self.records[-1] if self.records else None
        governs = next((each for each in reversed(self.records) if each.governing), None)
        version, key, text, entries = len(self.records) + 1, self.key, None, None
        governing, digest = None, b""
        if head is None:
            grants, content = grants or {author: ALL}, b"content" if content is KEEP else content
            type = None if type is KEEP else type
        if governs is not None and governs.governing is not None:
            digest = governs.governing.type
        if type is not KEEP:
            text, digest = make_type(self.id.bytes, type)
            if governs is not None and governs.governing is not None:
                governing = replace(governs.governing, type=digest)
        if grants is not None:
            key = random_bytes(32) if head is not None else key
            given = {
                each.holder: grant if isinstance(grant, Grant) else Grant(grant, None)
                for each, grant in grants.items()
            }
            known = {
                each.holder: recipient_of(chains[each]) if each in chains else each.recipient()
                for each in grants
            }
            access = make_access(self.id.bytes, version, author.name, digest, key, given, known, {})
            governing, entries = access.governing, list(access.entries)
        sealed = None
        if content is KEEP:
            part = head.content if head is not None else None
            if part is not None and grants is not None:
                part = OpenPart.open(self.id.bytes, Role.Content, part, self.key).reseal(key)
        elif isinstance(content, bytes):
            part, sealed = self.seal(author, content, key)
        else:
            part = content
        record = ContainerRecord(
            containerId=self.id.bytes, nonce=None if head else self.nonce, version=version,
            parent=hash_of(head) if head else None, author=author.name,
            keyIndex=len(author.ring.signing) - 1, time=clock(),
            link=Link(governs.version, hash_of(governs)) if governs else None, governing=governing,
            header=None, content=part, tombstone=False,
        )  # fmt: skip
        record = replace(record, **changes)
        signed = author.sign(record)
        self._keys[signed.body] = key
        return containers.RecordRequest(
            record=signed, accessList=entries, type=text, content=sealed
        )

    def seal(self, author: User, content: bytes, key: bytes | None = None) -> tuple[Part, bytes]:
        """Return a part of up to one segment, and the sealed segment."""
        new = NewPart.begin(self.id.bytes, Role.Content, author.name)
        sealed = new.seal_segment(0, True, content)
        return new.finish(key or self.key, len(content), sha256(sealed)), sealed

    def large(self, author: User) -> tuple[Part, bytes]:
        """Return a content that is too large to be sent with its record: one chunk of one segment."""
        return self.seal(author, bytes(containers.MAX_INLINE + 1))

    def put(self, author: User, request: containers.RecordRequest) -> Answer:
        """Send a record; if the broker stores it, later records follow it."""
        record = grammar.parse_record(request.record.body)
        answer = author.send("PUT", f"{self.path}/records/{record.version}", request)
        if answer.status == 201 and record.version == len(self.records) + 1:
            self.records.append(record)
            self.key = self._keys.get(request.record.body, self.key)
        return answer

    def created(self, grants: Grants | None = None, **options: Any) -> "Box":
        self.put(self.creator, self.draft(grants=grants, **options)).done()
        return self

    def view(self, reader: User, query: str = "") -> containers.ContainerView:
        answer = reader.send("GET", f"{self.path}?{query}")
        return answer.message(containers.ContainerView)


def hash_of(record: ContainerRecord) -> bytes:
    return grammar.record_hash(encode_object(record))
