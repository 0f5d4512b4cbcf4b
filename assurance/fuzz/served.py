"""Containers as a broker serves them.

The story is that of the vectors: six records by four authors, with a change of type, a change of access, a
renewal and a tombstone. A program edits what is served of it; the fixups make right again what hangs on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, Final

from assurance.fuzz.engine import feed
from assurance.fuzz.messagepack import read, write
from assurance.fuzz.programs import Document, list_of, tree
from assurance.fuzz.stage import PEOPLE, author_of, mark_of, public_key_of, stage
from scbroker.client.http.transport import Endpoint, Transport
from scbroker.crypto.seal import Octets
from scbroker.crypto.verify import labelled_hash
from scbroker.records.access_list import SaltedEntry, list_hash
from scbroker.records.container_record import LABEL
from scbroker.records.ids import container_id_of
from scbroker.records.key_record import Signed
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.vectors.cast import DAY, START, cast
from tests.vectors.story import Made, signed_form

HASHES, LINKS, SIGNATURES, NAMES = 1, 2, 4, 8
NOW: Final = START + 40 * DAY
_VIEW: Final = (
    "governing", "lastGoverning", "head", "skipped", "wrap", "type", "header", "content", "keyChains",
)  # fmt: skip
_ENDPOINT: Final = Endpoint("https://broker.example", uuid.UUID(int=1), "fuzz", None, None, 1.0)
# Who reads, how many records there are, and the version of the reader's mark: with all lists seen, or not.
SCENES: Final[tuple[tuple[str, int, int, bool], ...]] = (
    ("alice", 5, 0, True), ("alice", 2, 0, True), ("alice", 1, 0, True), ("alice", 6, 0, True),
    ("alice", 5, 2, True), ("alice", 6, 3, True), ("alice", 2, 2, True), ("bob", 5, 4, True),
    ("carol", 2, 0, False), ("carol", 4, 3, False), ("dora", 4, 0, False), ("erin", 5, 3, True),
    ("carol", 2, 2, False), ("alice", 3, 1, True),
)  # fmt: skip


def _positions(reader: str, records: Sequence[Made], index: int) -> list[int] | None:
    """Which entries of a governing record's list the reader is shown; None for all of them."""
    access = next(made.access for made in reversed(records[: index + 1]) if made.access)
    names = [read(salted.entry)[0] for salted in access.salted]
    if reader != "carol" and reader != "dora" and not records[-1].record.tombstone:
        return None
    shown = {cast()[reader].fingerprint, *(made.record.author for made in records)}
    return [position for position, name in enumerate(names) if name in shown]


@cache
def scene(base: int) -> Document:
    reader, count, marked, _ = SCENES[base % len(SCENES)]
    story = stage().story[:count]
    governing = [n for n, made in enumerate(story) if made.record.governing is not None]
    last = governing[-1]
    seen = [n for n in governing if n < marked] or [0]
    first = seen[-1] if marked and SCENES[base % len(SCENES)][3] else 0
    lists = [made for made in story if made.access is not None]
    access = lists[-1].access
    head = story[-1].record
    text = "story" if count > 2 else "note"
    sealed = {name: found for made in story for name, found in made.sealed.items()}
    gone, given = head.tombstone, set()
    views: list[Any] = []
    for n in governing:
        if n < first:
            continue
        number = max(
            m for m, made in enumerate(lists) if made.record.version <= story[n].record.version
        )
        views.append([n, None if number in given else number, _positions(reader, story, n)])
        given.add(number)
    return {
        "records": [[read(made.signed.body[1:]), made.signed.signature] for made in story],
        "lists": [
            [[salted.salt, read(salted.entry)] for salted in made.access.salted]
            for made in lists
            if made.access is not None
        ],
        "governing": views[:3],
        "page": views[3:],
        "lastGoverning": story[last].record.version,
        "head": None if last == count - 1 else count - 1,
        "skipped": [n for n in range(marked - 1, count) if n not in governing] if marked else [],
        "bodies": list(range(count)),
        "wrap": None if gone or access is None else access.wraps.get(reader),
        "type": [stage().box.type_salt(text), text]
        if not gone and Level.ViewType & _permissions(reader, access)
        else None,
        "header": None if gone or not head.header else sealed.get("header"),
        "content": None if gone or not head.content else sealed.get("content"),
        "keyChains": [[str(cast()[name].chain().userId), len(cast()[name].records) - 1] for name in PEOPLE],
        "chains": [
            [str(cast()[name].chain().userId), False, [[r.body, r.signature] for r in cast()[name].records]]
            for name in PEOPLE
        ],
        "now": NOW if count > 4 else START + 15 * DAY,
        "mark": _mark(story, marked, complete=SCENES[base % len(SCENES)][3]) if marked else None,
    }  # fmt: skip


def _permissions(reader: str, access: Any) -> int:
    name = cast()[reader].fingerprint
    rows = [read(salted.entry) for salted in access.salted]
    return next((row[2] for row in rows if row[0] == name), 0)


def _mark(story: Sequence[Made], version: int, *, complete: bool) -> list[Any]:
    governing = [made for made in story[:version] if made.record.governing is not None][-1]
    made = story[version - 1]
    return [
        version, made.hash, governing.record.version, governing.hash, complete, story[0].record.author,
        story[0].record.time,
    ]  # fmt: skip


# From an edited document to the messages of a broker.


def mend(document: Document, fixups: int) -> list[Signed]:
    """The records as bytes, with whatever the fixups have made right again."""
    items = list_of(document["records"])
    rows = [item[0] if isinstance(item, list) and item else item for item in items]
    signatures = [item[1] if isinstance(item, list) and len(item) > 1 else b"" for item in items]
    signed: list[Signed] = []
    link: Any = None
    lists = iter(list_of(document["lists"]))
    for number, (row, signature) in enumerate(zip(rows, signatures, strict=True)):
        governing = row[8] if isinstance(row, list) and len(row) == 12 else None
        match row:
            case [_, bytes() as nonce, _, _, bytes() as creator, *_] if (
                fixups & NAMES and number == 0
            ):
                row[0] = container_id_of(creator, nonce).bytes
        if isinstance(governing, list) and len(governing) == 5 and governing[0] == row[2]:
            entries = next(lists, None)
            if fixups & HASHES and isinstance(row[0], bytes) and isinstance(governing[0], int):
                hashes = b"".join(item.hash for item in salted(entries))
                governing[2] = list_hash(row[0], governing[0] % 2**64, hashes)
        if fixups & LINKS and isinstance(row, list) and len(row) == 12 and number:
            row[2], row[3], row[7] = number + 1, _hash_of(signed[-1].body), link
        body = row if isinstance(row, bytes) else b"\x01" + write(tree(row))
        if governing is not None and isinstance(row, list):
            link = [row[2], _hash_of(body)]
        author = author_of(row[4]) if isinstance(row, list) and len(row) == 12 else None
        if fixups & SIGNATURES and author is not None:
            signature = mark_of(public_key_of(author, row[5]), LABEL, signed_form(body))
        signed.append(Signed(body, signature if isinstance(signature, bytes) else b""))
    return signed


def _hash_of(body: bytes) -> bytes:
    return labelled_hash(LABEL, signed_form(body))


def salted(entries: Any) -> list[SaltedEntry]:
    """A list's entries as bytes, as far as they are any."""
    found = []
    for item in entries if isinstance(entries, list) else []:
        match item:
            case [bytes() as salt, row]:
                found.append(SaltedEntry(salt, row if isinstance(row, bytes) else write(tree(row))))
    return found


class Served(Transport):
    """What one broker answers, whatever the client asks for."""

    def __init__(self, document: Document, fixups: int) -> None:
        super().__init__(_ENDPOINT)
        self.document = document
        self.records = mend(document, fixups)
        self._lists = [salted(item) for item in list_of(document["lists"])]
        self._pages = [document["page"], document["page"]]

    async def _send(
        self, method: str, path: str, body: Octets | None, media_type: str, token: str | None,
        query: Any, limit: int, target: memoryview | None = None,
    ) -> Octets:  # fmt: skip
        del method, media_type, token, query
        answer = self._answer(path, None if body is None else bytes(body), limit)
        feed(answer)
        if target is None:
            return answer
        target[: len(answer)] = answer
        return target[: len(answer)]

    def _answer(self, path: str, body: bytes | None, limit: int) -> bytes:
        if path == "/v1/key-records":
            asked = [item["userId"] for item in _plain(body)["users"]]
            return write({"users": [self._chain(user) for user in asked]})
        if path.endswith("/governing"):
            page = self._pages.pop() if self._pages else []
            return write({"governing": self._views(page)})
        if path.endswith("/records"):
            return write({"bodies": self._bodies("bodies")})
        if path.endswith(("/hashes", "/segments")):
            return b"\0" * min(limit, 64)
        return write(self.view())

    def view(self) -> dict[str, Any]:
        given, head = self.document, self.document["head"]
        text = given["type"]
        answers = {
            "governing": self._views(given["governing"]),
            "head": None if head is None else self._record(head),
            "skipped": self._bodies("skipped"),
            "type": {"salt": text[0], "type": text[1]}
            if isinstance(text, list) and len(text) == 2
            else text,
            "keyChains": [
                {"userId": item[0], "sequence": item[1]}
                if isinstance(item, list) and len(item) == 2
                else item
                for item in list_of(given["keyChains"])
            ],
        }
        return {name: tree(answers.get(name, given[name])) for name in _VIEW}

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
            self.records[n % len(self.records)].body
            if isinstance(n, int) and self.records
            else tree(n)
            for n in numbers
        ]

    def _views(self, items: Any) -> Any:
        if not isinstance(items, list):
            return tree(items)
        return [self._governing(item) for item in items]

    def _governing(self, item: Any) -> Any:
        match item:
            case [record, None, _]:
                return {"record": self._record(record), "accessList": None}
            case [record, int() as number, positions] if self._lists:
                entries = self._lists[number % len(self._lists)]
                shown = range(len(entries)) if positions is None else positions
                disclosed = [
                    {"position": n, "salt": entries[n].salt, "entry": entries[n].entry}
                    for n in (shown if isinstance(shown, (list, range)) else [])
                    if isinstance(n, int) and 0 <= n < len(entries)
                ]
                hashes = b"".join(entry.hash for entry in entries)
                view = {"entryHashes": hashes, "disclosed": disclosed}
                return {"record": self._record(record), "accessList": view}
        return tree(item)

    def _chain(self, user: str) -> Any:
        chains = list_of(self.document["chains"])
        number = next(
            (n for n, item in enumerate(chains) if isinstance(item, list) and item[:1] == [user]), 0
        )
        match chains[number : number + 1]:
            case [[name, deleted, list() as records]]:
                found = [
                    {"body": record[0], "signature": record[1]}
                    if isinstance(record, list) and len(record) == 2
                    else tree(record)
                    for record in records
                ]
                # Asked for by its own user's id; an edit may have it answer for others.
                return {"userId": tree(name), "keyRecords": tree(found), "deleted": tree(deleted)}
        return None


def _plain(body: bytes | None) -> Any:
    found = read(body or b"\x80")
    return {key: [dict(item.items) for item in value] for key, value in found.items}


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AssertionError("it waits for something")
