"""Containers as a broker serves them, from a document that programs edit.

The story is that of the vectors: six records by four authors, with a change of type, a change of access, a
renewal and a tombstone. The fixups make right again what depends on an edited record.
"""

import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import write
from assurance.fuzz.stage import PEOPLE, author_of, mark_of, public_key_of, stage
from assurance.fuzz.target import feed
from scbroker.client.http.requests import Requests
from scbroker.client.http.transport import Endpoint
from scbroker.crypto.seal import Octets
from scbroker.crypto.verify import labelled_hash
from scbroker.records.canonical import container_id_of
from scbroker.records.container_record import LABEL, SaltedEntry, list_hash
from scbroker.records.departure import LABEL as DEPARTURE
from scbroker.records.key_record import Signed
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.codec import encode
from tests.vectors.cast import DAY, START, cast
from tests.vectors.story import Made, leave, signed_form

HASHES, LINKS, SIGNATURES, NAMES = 1, 2, 4, 8
NOW: Final = START + 40 * DAY
_VIEW: Final = (
    "governing", "lastGoverning", "head", "skipped", "wrap", "type", "header", "content", "keyChains",
)  # fmt: skip
_ENDPOINT: Final = Endpoint("https://broker.example", uuid.UUID(int=1), "fuzz", None, None, 1.0)
# The reader, the number of records, the version of the reader's mark, and whether they saw all lists.
SCENES: Final[tuple[tuple[str, int, int, bool], ...]] = (
    ("alice", 5, 0, True), ("alice", 2, 0, True), ("alice", 1, 0, True), ("alice", 6, 0, True),
    ("alice", 5, 2, True), ("alice", 6, 3, True), ("alice", 2, 2, True), ("bob", 5, 4, True),
    ("carol", 2, 0, False), ("carol", 4, 3, False), ("dora", 4, 0, False), ("erin", 5, 3, True),
    ("carol", 2, 2, False), ("alice", 3, 1, True), ("alice", 3, 0, True),
)  # fmt: skip
_WITH_DEPARTURES: Final = 3
"""In scenes of so many records Bob and Carol have left the first list."""


def row_of(body: bytes) -> Any:
    """Return the array of a stored record."""
    return msgspec.msgpack.decode(body[1:])


def _positions(reader: str, records: Sequence[Made], index: int) -> list[int] | None:
    """Return which entries of a governing record's list the reader is shown; None for all of them."""
    access = next(made.access for made in reversed(records[: index + 1]) if made.access)
    names = [msgspec.msgpack.decode(salted.entry)[0] for salted in access.salted]
    if reader != "carol" and reader != "dora" and not records[-1].record.tombstone:
        return None
    shown = {cast()[reader].fingerprint, *(made.record.author for made in records)}
    return [position for position, name in enumerate(names) if name in shown]


@cache
def scene(base: int) -> v.Document:
    """Return what a reader is served at one point of the story."""
    reader, count, marked, complete = SCENES[base % len(SCENES)]
    story = stage().story[:count]
    governing = [n for n, made in enumerate(story) if made.record.governing is not None]
    last, head = governing[-1], story[-1].record
    seen = [n for n in governing if n < marked]
    first = seen[-1] if seen and complete else 0
    lists = [made for made in story if made.access is not None]
    access = lists[-1].access
    assert access is not None
    sealed = {name: found for made in story for name, found in made.sealed.items()}
    views: list[Any] = []
    for n in (n for n in governing if n >= first):
        number = max(
            m for m, made in enumerate(lists) if made.record.version <= story[n].record.version
        )
        served = number in [view[1] for view in views]
        views.append([n, None if served else number, _positions(reader, story, n)])
    rows = [msgspec.msgpack.decode(salted.entry) for salted in access.salted]
    permissions = next((row[2] for row in rows if row[0] == cast()[reader].fingerprint), 0)
    text = "story" if count > 2 else "note"
    sees_type = not head.tombstone and Level.ViewType & permissions
    return {
        "records": [[row_of(made.signed.body), made.signed.signature] for made in story],
        "lists": [
            [[salted.salt, msgspec.msgpack.decode(salted.entry)] for salted in made.access.salted]
            for made in lists
            if made.access is not None
        ],
        "governing": views[:3],
        "page": views[3:],
        "lastGoverning": story[last].record.version,
        "head": None if last == count - 1 else count - 1,
        "skipped": [n for n in range(marked - 1, count) if n not in governing] if marked else [],
        "bodies": list(range(count)),
        "wrap": None if head.tombstone else access.wraps.get(reader),
        "type": [stage().box.type_salt(text), text] if sees_type else None,
        "header": sealed.get("header") if head.header and not head.tombstone else None,
        "content": sealed.get("content") if head.content and not head.tombstone else None,
        "keyChains": [[str(cast()[name].chain().userId), len(cast()[name].records) - 1] for name in PEOPLE],
        "chains": [
            [str(cast()[name].chain().userId), False, [[r.body, r.signature] for r in cast()[name].records]]
            for name in PEOPLE
        ],
        "now": NOW if count > 4 else START + 15 * DAY,
        "mark": _mark(story, marked, complete=complete) if marked else None,
        "departures": [_departures(story[0])] if count == _WITH_DEPARTURES else [],
    }  # fmt: skip


def _departures(made: Made) -> list[Any]:
    """Return what Bob and Carol signed who left a list: rows with their signatures."""
    people = sorted((cast()["bob"], cast()["carol"]), key=lambda person: person.fingerprint)
    signed = [leave(made, person, START + 4 * DAY) for person in people]
    return [[row_of(each.body), each.signature] for each in signed]


def _mark(story: Sequence[Made], version: int, *, complete: bool) -> list[Any]:
    governing = [made for made in story[:version] if made.record.governing is not None][-1]
    made = story[version - 1]
    return [
        version, made.hash, governing.record.version, governing.hash, complete, story[0].record.author,
        story[0].record.time,
    ]  # fmt: skip


# From an edited document to the messages of a broker.


def mend(document: v.Document, fixups: int) -> list[Signed]:
    """Return the records as bytes, with what the fixups make right again."""
    items = v.list_of(document["records"])
    rows = [item[0] if isinstance(item, list) and item else item for item in items]
    signatures = [item[1] if isinstance(item, list) and len(item) > 1 else b"" for item in items]
    signed: list[Signed] = []
    link: Any = None
    lists = iter(v.list_of(document["lists"]))
    for number, (row, signature) in enumerate(zip(rows, signatures, strict=True)):
        governing = row[8] if isinstance(row, list) and len(row) == 13 else None
        match row:
            case [_, bytes() as nonce, _, _, bytes() as creator, *_] if (
                fixups & NAMES and number == 0
            ):
                row[0] = container_id_of(creator, nonce).bytes
        if isinstance(governing, list) and len(governing) == 6 and governing[0] == row[2]:
            entries = next(lists, None)
            if fixups & HASHES and isinstance(row[0], bytes) and isinstance(governing[0], int):
                hashes = b"".join(item.hash for item in salted(entries))
                governing[2] = list_hash(row[0], governing[0] % 2**64, hashes)
        if fixups & LINKS and isinstance(row, list) and len(row) == 13 and number:
            row[2], row[3], row[7] = number + 1, _hash_of(signed[-1].body), link
        body = stored(row)
        if governing is not None and isinstance(row, list):
            link = [row[2], _hash_of(body)]
        author = author_of(row[4]) if isinstance(row, list) and len(row) == 13 else None
        if fixups & SIGNATURES and author is not None:
            signature = mark_of(public_key_of(author, row[5]), LABEL, signed_form(body))
        signed.append(Signed(body, signature if isinstance(signature, bytes) else b""))
    return signed


def stored(row: Any) -> bytes:
    """Return the bytes of an object."""
    return row if isinstance(row, bytes) else b"\x01" + write(v.tree(row))


def left(document: v.Document, fixups: int) -> list[list[Signed]]:
    """Return the departures from each list as bytes, with what the fixups make right again.

    The records of the document were mended.
    """
    made = list[Any]()
    for item in v.list_of(document["records"]):
        match item:
            case [[_, _, version, _, _, _, _, _, [changed, *_] as governing, *_], *_] if (
                changed == version and len(governing) == 6
            ):
                made.append(governing)
    lists = v.list_of(document["departures"])
    for items, governing in zip(lists, made, strict=False):
        for item in v.list_of(items):
            match item:
                case [[_, _, _, _, _, _] as row, _] if fixups & HASHES:
                    row[1], row[2] = governing[0], governing[2]
    return [departures(items, fixups, DEPARTURE, 6) for items in lists]


def departures(items: Any, fixups: int, label: str, size: int) -> list[Signed]:
    """Return departures from a list or from a group, of so many fields: key index and time are the last."""
    found = []
    for item in v.list_of(items):
        row, signature = item if len(v.list_of(item)) == 2 else (item, b"")
        body = stored(row)
        leaver = author_of(row[size - 3]) if len(v.list_of(row)) == size else None
        if fixups & SIGNATURES and leaver is not None:
            signature = mark_of(public_key_of(leaver, row[size - 2]), label, body)
        found.append(Signed(body, signature if isinstance(signature, bytes) else b""))
    return found


def _hash_of(body: bytes) -> bytes:
    return labelled_hash(LABEL, signed_form(body))


def salted(entries: Any) -> list[SaltedEntry]:
    """Return the well-formed entries of a list as bytes."""
    found = []
    for item in v.list_of(entries):
        match item:
            case [bytes() as salt, row]:
                found.append(
                    SaltedEntry(salt, row if isinstance(row, bytes) else write(v.tree(row)))
                )
    return found


class Served(Requests):
    """Requests whose answers come from a document, whatever the client asks for."""

    def __init__(self, document: v.Document, fixups: int) -> None:
        super().__init__(_ENDPOINT)
        self.document = document
        self.records = mend(document, fixups)
        self._lists = [salted(item) for item in v.list_of(document["lists"])]
        self._left = left(document, fixups)
        self._pages = [document["page"], document["page"]]

    async def send(self, method: str, path: str, **options: Any) -> Octets:
        del method
        message = options.get("message")
        target: memoryview | None = options.get("target")
        body = None if message is None else encode(message)
        answer = self._answer(path, body, len(target or b"") or options.get("limit", 0))
        feed(answer)
        if target is None:
            return answer
        target[: len(answer)] = answer
        return target[: len(answer)]

    def _answer(self, path: str, body: bytes | None, limit: int) -> bytes:
        if path.endswith(("/hashes", "/segments")):
            return b"\0" * min(limit, 64)
        if path == "/v1/key-records":
            asked = msgspec.msgpack.decode(body or b"")["users"]
            return write({"users": [self._chain(item["userId"]) for item in asked]})
        if path.endswith("/governing"):
            return write({"governing": self._views(self._pages.pop() if self._pages else [])})
        if path.endswith("/records"):
            return write({"bodies": self._bodies("bodies")})
        return write(self._view())

    def _view(self) -> dict[str, Any]:
        given = self.document
        answers = {
            "governing": self._views(given["governing"]),
            "head": None if given["head"] is None else self._record(given["head"]),
            "skipped": self._bodies("skipped"),
            "type": _pair(given["type"], "salt", "type"),
            "keyChains": [
                _pair(item, "userId", "sequence") for item in v.list_of(given["keyChains"])
            ],
        }
        return {name: v.tree(answers.get(name, given[name])) for name in _VIEW}

    def _record(self, number: Any) -> Any:
        if isinstance(number, int) and self.records:
            found = self.records[number % len(self.records)]
            return {"body": found.body, "signature": found.signature}
        return number

    def _bodies(self, name: str) -> Any:
        numbers = self.document[name]
        if not isinstance(numbers, list):
            return numbers
        return [
            self._record(n)["body"] if isinstance(n, int) and self.records else v.tree(n)
            for n in numbers
        ]

    def _views(self, items: Any) -> Any:
        return (
            [self._governing(item) for item in items] if isinstance(items, list) else v.tree(items)
        )

    def _governing(self, item: Any) -> Any:
        match item:
            case [record, None, _]:
                return {"record": self._record(record), "accessList": None}
            case [record, int() as number, positions] if self._lists:
                entries = self._lists[number % len(self._lists)]
                shown = range(len(entries)) if positions is None else v.list_of(positions)
                disclosed = [
                    {"position": n, "salt": entries[n].salt, "entry": entries[n].entry}
                    for n in shown
                    if isinstance(n, int) and 0 <= n < len(entries)
                ]
                hashes = b"".join(entry.hash for entry in entries)
                departures = self._left[number] if 0 <= number < len(self._left) else []
                view = {
                    "entryHashes": hashes,
                    "disclosed": disclosed,
                    "departures": [_pair(list(each), "body", "signature") for each in departures],
                }
                return {"record": self._record(record), "accessList": view}
        return v.tree(item)

    def _chain(self, user: str) -> Any:
        """Answer for a user; an edit may have the answer name another one."""
        chains = v.list_of(self.document["chains"])
        own = [item for item in chains if isinstance(item, list) and item[:1] == [user]]
        match [*own, *chains][:1]:
            case [[name, deleted, list() as records]]:
                found = [_pair(record, "body", "signature") for record in records]
                return {
                    "userId": v.tree(name),
                    "keyRecords": v.tree(found),
                    "deleted": v.tree(deleted),
                }
        return None


def _pair(value: Any, *names: str) -> Any:
    """Return a list of two as a message with these fields, and any other value as it is."""
    return dict(zip(names, value, strict=True)) if len(v.list_of(value)) == 2 else v.tree(value)
