"""Records as writers send them, judged by the broker's own `parse_incoming`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from assurance.fuzz import programs
from assurance.fuzz.engine import Target, canonical, feed, kept
from assurance.fuzz.messagepack import read, write
from assurance.fuzz.programs import Document, Program, list_of, path_to, program, tree
from assurance.fuzz.served import HASHES, salted
from assurance.fuzz.stage import PEOPLE, stage
from scbroker.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    RejectedError,
    TooLargeError,
)
from scbroker.records.access_list import AccessList, list_hash, wrap_hash
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import record_hash
from scbroker.records.ids import Fingerprint, UserId
from scbroker.server.broker import Call, SessionUser
from scbroker.server.containers.incoming import Incoming, parse_incoming
from scbroker.server.settings import Settings
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.codec import decode
from scbroker.wire.containers import ListView, RecordRequest
from tests.vectors.cast import cast


@cache
def sent(base: int) -> Document:
    made = stage().story[base % 6]
    text = {1: "note", 3: "story"}.get(made.record.version)
    people = {cast()[name].fingerprint: name for name in PEOPLE}
    access = made.access
    return {
        "row": read(made.signed.body[1:]),
        "entries": None if access is None else [
            [item.salt, read(item.entry), access.wraps.get(people[read(item.entry)[0]])]
            for item in access.salted
        ],
        "type": None if text is None else [stage().box.type_salt(text), text],
        "header": made.sealed.get("header"),
        "content": made.sealed.get("content"),
        "container": stage().box.id,
        "version": made.record.version,
        "session": made.record.author,
        "members": 1024,
        "largest": 2**40,
    }  # fmt: skip


def _incoming(data: bytes) -> None:
    found = Program.parse(data)
    document = found.applied(sent(found.base))
    row, entries = document["row"], document["entries"]
    items = [item for item in list_of(entries) if isinstance(item, list) and len(item) == 3]
    if found.fixups & HASHES:
        for item in items:
            if isinstance(item[1], list) and len(item[1]) == 5 and isinstance(item[2], bytes):
                item[1][4] = wrap_hash(item[2])
        hashes = b"".join(entry.hash for entry in salted([item[:2] for item in items]))
        match row:
            case [bytes() as ident, *_] if len(row) == 12:
                match row[8]:
                    case [int() as version, _, _, _, _]:
                        row[8][2] = list_hash(ident, version % 2**64, hashes)
    body = row if isinstance(row, bytes) else b"\x01" + write(tree(row))
    message: dict[str, Any] = {"record": {"body": body, "signature": bytes(3373)}}
    if entries is not None:
        message["accessList"] = [
            {"salt": salt, "entry": entry if isinstance(entry, bytes) else write(tree(entry)), "wrap": wrap}
            for salt, entry, wrap in items
        ] if isinstance(entries, list) else tree(entries)  # fmt: skip
    text = document["type"]
    if text is not None:
        message["type"] = (
            {"salt": text[0], "type": text[1]}
            if isinstance(text, list) and len(text) == 2
            else text
        )
    for name in ("header", "content"):
        if document[name] is not None:
            message[name] = document[name]
    sending = write(tree(message))
    feed(sending)
    request = decode(RecordRequest, sending)
    call = _call(document)
    if call is None:
        return
    most = document["members"], document["largest"]
    members, largest = (max(1, n) if isinstance(n, int) else 1024 for n in most)
    settings = Settings(max_members=min(members, 1024), max_content=largest)
    _check_incoming(parse_incoming(settings, call, request), body, call, settings)


def _call(document: Document) -> Call | None:
    container, version, author = (document[name] for name in ("container", "version", "session"))
    if not (isinstance(container, bytes) and len(container) == 16 and isinstance(version, int)):
        return None
    fingerprint = Fingerprint(author if isinstance(author, bytes) else b"")
    user = SessionUser(UserId(bytes(16)), fingerprint, 2, bytes(32))
    return Call("fuzz", "127.0.0.1", {"containerId": container, "version": version}, user)


def _check_incoming(found: Incoming, body: bytes, call: Call, settings: Settings) -> None:
    record = found.known.record
    kept(encode_object(record) == body == found.signed.body, "another record came out")
    canonical(body[1:])
    kept(
        found.receipt.hash == record_hash(body) and found.receipt.version == record.version,
        "another receipt",
    )
    kept(record.containerId == call.container_id == found.container_id, "another container")
    kept(record.version == call.version, "another version")
    kept(record.author == call.session.fingerprint, "another author than the session's")
    kept((found.access is not None) == record.changes_access, "a list without a change of access")
    if found.access is not None:
        _check_wraps(found.access, found.message, settings)
    text = found.message.type
    kept(
        text is None or text.type is None or len(text.type.encode()) <= 256,
        "a type that is too long",
    )
    kept(record.version > 1 or record.nonce is not None, "a first record without a nonce")


def _check_wraps(access: AccessList, message: RecordRequest, settings: Settings) -> None:
    items = message.accessList or []
    kept(len(access.entries) == len(items) <= settings.max_members, "entries went missing")
    view = ListView.of([item.salted for item in items], range(len(items)))
    kept(view.verified() == access, "the list reads otherwise when it is served")
    for entry, item in zip(access.entries.values(), items, strict=True):
        kept(
            entry.wrapHash == (None if item.wrap is None else wrap_hash(item.wrap)), "another wrap"
        )
        kept(item.wrap is None or bool(entry.permissions & Level.Decrypt), "a wrap for nobody")


def _incoming_programs() -> list[bytes]:
    first = sent(0)
    return [
        *(program(base) for base in range(6)),
        program(0, 0, (programs.ADD, path_to(first, "version"), 1)),
        program(0, 0, (programs.SET, path_to(first, "session"), bytes(32))),
        program(0, 0, (programs.SET, path_to(first, "members"), 2)),
        program(0, HASHES, (programs.FLIP, path_to(first, "entries", 0, 2), 1)),
        program(0, HASHES, (programs.SET, path_to(first, "type", 1), "é" * 200)),
    ]


def _incoming_bombs() -> Iterator[bytes]:
    first = sent(0)
    yield from programs.bombs(
        first, HASHES, ("row",), ("row", 8), ("entries",), ("entries", 0), ("entries", 0, 1),
        ("entries", 1), ("type",), ("header",),
    )  # fmt: skip
    many = [[bytes(32), b"", None]] * 1024
    yield program(0, HASHES, (programs.SET, path_to(first, "entries"), many))


TARGETS: Final = (
    Target(
        "incoming",
        _incoming,
        (RejectedError, InvalidArgumentError, PermissionDeniedError, TooLargeError),
        _incoming_programs,
        programs.mutator(sent, 6, 1),
        _incoming_bombs,
        seconds=2.0,
        spare=8 << 20,
    ),
)  # fmt: skip
