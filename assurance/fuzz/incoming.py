"""Records as writers send them, judged by the broker's own `parse_incoming`. See docs/spec/container.md."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import canonical, write
from assurance.fuzz.served import HASHES, row_of, salted, stored
from assurance.fuzz.stage import PEOPLE, stage
from assurance.fuzz.target import feed, kept
from scbroker import errors
from scbroker.records.canonical import Fingerprint, UserId, encode_object
from scbroker.records.container_record import list_hash, record_hash, wrap_hash
from scbroker.server.broker import Call, SessionUser
from scbroker.server.containers.incoming import Incoming, parse_incoming
from scbroker.server.settings import Settings
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.codec import decode
from scbroker.wire.containers import ListView, RecordRequest
from tests.vectors.cast import cast


@cache
def sent(base: int) -> v.Document:
    """Return one record of the story as its author sends it, in parts that edits reach."""
    made = stage().story[base % 6]
    text = {1: "note", 3: "story"}.get(made.record.version)
    people = {cast()[name].fingerprint: name for name in PEOPLE}
    salted_entries = made.access.salted if made.access else []
    rows = [(item.salt, msgspec.msgpack.decode(item.entry)) for item in salted_entries]
    wraps = made.access.wraps if made.access else {}
    return {
        "row": row_of(made.signed.body),
        "entries": [[salt, row, wraps.get(people[row[0]])] for salt, row in rows] or None,
        "type": None if text is None else [stage().box.type_salt(text), text],
        "header": made.sealed.get("header"),
        "content": made.sealed.get("content"),
        "container": stage().box.id,
        "version": made.record.version,
        "session": made.record.author,
        "members": 1024,
        "largest": 2**40,
    }


def _incoming(data: bytes) -> None:
    """Fixups: 1 hashes the edited wraps and entries again."""
    found = v.Program.parse(data)
    document = found.applied(sent(found.base))
    if found.fixups & HASHES:
        _hash_again(document)
    sending = write(v.tree(_message(document)))
    feed(sending)
    request = decode(RecordRequest, sending)
    call = _call(document)
    if call is None:
        return
    limits = document["members"], document["largest"]
    members, largest = (max(1, n) if isinstance(n, int) else 1024 for n in limits)
    settings = Settings(max_members=min(members, 1024), max_content=largest)
    _check_incoming(
        parse_incoming(settings, call, request), stored(document["row"]), call, settings
    )


def _entries(document: v.Document) -> list[list[Any]]:
    items = v.list_of(document["entries"])
    return [item for item in items if isinstance(item, list) and len(item) == 3]


def _hash_again(document: v.Document) -> None:
    items = _entries(document)
    for item in items:
        if isinstance(item[1], list) and len(item[1]) == 5 and isinstance(item[2], bytes):
            item[1][4] = wrap_hash(item[2])
    hashes = b"".join(entry.hash for entry in salted([item[:2] for item in items]))
    match document["row"]:
        case [bytes() as ident, *_, [int() as version, _, _, _, _, _] as governing, _, _, _, _]:
            governing[2] = list_hash(ident, version % 2**64, hashes)


def _message(document: v.Document) -> dict[str, Any]:
    message: dict[str, Any] = {
        "record": {"body": stored(document["row"]), "signature": bytes(3373)}
    }
    entries, text = document["entries"], document["type"]
    if isinstance(entries, list):
        message["accessList"] = [
            {"salt": salt, "entry": row if isinstance(row, bytes) else write(v.tree(row)), "wrap": wrap}
            for salt, row, wrap in _entries(document)
        ]  # fmt: skip
    elif entries is not None:
        message["accessList"] = entries
    if text is not None:
        pair = isinstance(text, list) and len(text) == 2
        message["type"] = {"salt": text[0], "type": text[1]} if pair else text
    given = {name: document[name] for name in ("header", "content")}
    return message | {name: value for name, value in given.items() if value is not None}


def _call(document: v.Document) -> Call | None:
    container, version, author = (document[name] for name in ("container", "version", "session"))
    if not (isinstance(container, bytes) and len(container) == 16 and isinstance(version, int)):
        return None
    fingerprint = Fingerprint(author if isinstance(author, bytes) else b"")
    user = SessionUser(UserId(bytes(16)), fingerprint, 2, bytes(32))
    return Call("fuzz", "127.0.0.1", {"containerId": container, "version": version}, user)


def _check_incoming(found: Incoming, body: bytes, call: Call, settings: Settings) -> None:
    record, text = found.known.record, found.message.type
    kept(encode_object(record) == body == found.signed.body, "another record came out")
    canonical(body[1:])
    receipt = found.receipt.hash, found.receipt.version
    kept(receipt == (record_hash(body), record.version), "another receipt")
    container = call.container_id
    kept(record.containerId == container == found.container_id, "another container")
    kept(record.version == call.version, "another version")
    kept(record.author == call.session.fingerprint, "another author than the session's")
    kept((found.access is not None) == record.changes_access, "a list without a change of access")
    kept(not text or text.type is None or len(text.type.encode()) <= 256, "a type that is too long")
    kept(record.version > 1 or record.nonce is not None, "a first record without a nonce")
    if found.access is None:
        return
    items = found.message.accessList or []
    kept(len(found.access.entries) == len(items) <= settings.max_members, "entries went missing")
    view = ListView.of([item.salted for item in items], range(len(items)))
    kept(view.verified() == found.access, "the list reads otherwise when it is served")
    for entry, item in zip(found.access.entries.values(), items, strict=True):
        expected = None if item.wrap is None else wrap_hash(item.wrap)
        kept(entry.wrapHash == expected, "another wrap")
        kept(item.wrap is None or bool(entry.permissions & Level.Decrypt), "a wrap without Decrypt")


def _programs() -> list[bytes]:
    first = sent(0)
    return [
        *(v.program(base) for base in range(6)),
        v.program(0, 0, (v.ADD, v.path_to(first, "version"), 1)),
        v.program(0, 0, (v.SET, v.path_to(first, "session"), bytes(32))),
        v.program(0, 0, (v.SET, v.path_to(first, "members"), 2)),
        v.program(0, HASHES, (v.FLIP, v.path_to(first, "entries", 0, 2), 1)),
        v.program(0, HASHES, (v.SET, v.path_to(first, "type", 1), "é" * 200)),
    ]


def _bombs() -> Iterator[bytes]:
    many = [[bytes(32), b"", None]] * 1024
    yield v.program(0, HASHES, (v.SET, v.path_to(sent(0), "entries"), many))


_REFUSALS: Final = (
    errors.RejectedError, errors.InvalidArgumentError, errors.PermissionDeniedError,
    errors.TooLargeError,
)  # fmt: skip
TARGETS: Final = (
    v.program_target("incoming", _incoming, _REFUSALS, _programs, (sent, 6, 1), _bombs),
)
