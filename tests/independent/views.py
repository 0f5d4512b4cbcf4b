"""A reader of views, with a mark or without: docs/spec/container.md, 4, 5 and 8."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.independent import access_lists, container_records, messages, segments, wraps
from tests.independent.access_lists import DECRYPT, DOWNLOAD, VIEW_ACCESS, AccessList, Salted
from tests.independent.container_records import InForce, Judge, Judged
from tests.independent.encodings import UndecodableError, decodes, need, sha256
from tests.independent.key_records import KeyChain, Signed
from tests.independent.keys import DecryptionKey
from tests.independent.segments import CONTENT, HEADER, Part

VIEW_TYPE = 64


@dataclass(frozen=True)
class Mark:
    version: int
    hash: bytes
    governing_version: int
    governing_hash: bytes
    complete: bool
    access_time: int
    """Of the record that made the list in force."""


@dataclass(frozen=True)
class Reader:
    fingerprint: bytes
    encryption: Sequence[DecryptionKey]
    chains: Mapping[bytes, KeyChain]
    now: int
    mark: Mark | None


@dataclass(frozen=True)
class Found:
    version: int
    complete: bool
    deleted: bool
    header: bytes | None
    content: bytes | None
    type: str | None


def signed_of(served: dict[str, Any]) -> Signed:
    return Signed(served["body"], served["signature"])


def read(reader: Reader, container_id: bytes, octets: bytes) -> Found:
    """Section 8: the head decides what is judged; then what the reader may have is opened."""
    view = messages.decode(octets)
    last = view["governing"][-1]["record"] if view["head"] is None else view["head"]
    head = container_records.parse_bare(last["body"])
    mark, deleted = reader.mark, head.tombstone
    if mark is not None:
        need(head.version >= mark.version, "not before the mark", "rollback")
    state, complete = _judged(reader, container_id, view, deleted)
    if mark is not None:
        _check_mark(mark, state, view, deleted)
    governing = state if isinstance(state, InForce) else _last(reader, container_id, view, deleted)
    if deleted:
        return Found(head.version, complete, True, None, None, None)
    own = governing.access.entries.get(reader.fingerprint)
    if own is None:
        raise UndecodableError("integrity", "the reader's own entry is disclosed")
    need(complete or not own.permissions & VIEW_ACCESS, "all entries to a reader with ViewAccess")
    key = None
    if own.permissions & DECRYPT:
        key = _container_key(reader, governing, view["wrap"])
    parts = {
        role: _part(state, role, key, view[name], bool(own.permissions & DOWNLOAD))
        for role, name in ((HEADER, "header"), (CONTENT, "content"))
    }
    text = _type(governing, view["type"], bool(own.permissions & VIEW_TYPE))
    return Found(head.version, complete, False, parts[HEADER], parts[CONTENT], text)


Listed = tuple[Signed, AccessList | None, list[Signed]]


def _lists(view: dict[str, Any]) -> list[Listed]:
    """The governing records with their lists, each list hashed as the record that made it names it."""
    found = []
    for item in view["governing"]:
        signed, shown = signed_of(item["record"]), item["accessList"]
        access = None
        if shown is not None:
            record = container_records.parse_bare(signed.body)
            decodes(record.governing is not None, "governing records govern")
            assert record.governing is not None
            access = access_lists.disclosed(
                record.container_id,
                record.governing.access_version,
                shown["entryHashes"],
                [(e["position"], Salted(e["salt"], e["entry"])) for e in shown["disclosed"]],
            )
        left = [] if shown is None else shown.get("departures", [])
        found.append((signed, access, [signed_of(one) for one in left]))
    return found


def _judged(
    reader: Reader, container_id: bytes, view: dict[str, Any], deleted: bool
) -> tuple[Judged | InForce, bool]:
    """G1 to Gk, or those after the mark's, and the head; whether every entry was seen."""
    judge = Judge(reader.now, reader.chains, deleted)
    mark, listed = reader.mark, _lists(view)
    parse = container_records.parse_bare if deleted else container_records.parse
    first = parse(listed[0][0].body)
    need(first.container_id == container_id, "the container that was asked for")
    complete = all(access is None or access.complete for _, access, _ in listed)
    signed, access, left = listed[0]
    need(access is not None, "the first list is served")
    assert access is not None
    if mark is not None and mark.complete:
        digest = container_records.record_hash(signed.body)
        same = (first.version, digest) == (mark.governing_version, mark.governing_hash)
        need(same, "the governing record of the mark", "fork")
        assert first.governing is not None
        need(access.hash == first.governing.access_list, "the list of the mark's governing record")
        made = first.time if first.changes_access else mark.access_time
        g = InForce(first, digest, first.governing, access, made)
    else:
        g = judge.first(signed, access)
    g = judge.departed(g, left)
    at_hand = _bodies(view) if mark is not None and not deleted else {}
    for signed, access, left in listed[1:]:
        judged = judge.next(signed, g, access, _parent(at_hand, signed, g))
        if not isinstance(judged, InForce):
            raise UndecodableError("integrity", "governing records govern")
        g = judged if access is None else judge.departed(judged, left)
    if view["head"] is None:
        return g, complete
    signed = signed_of(view["head"])
    found = judge.next(signed, g, None, _parent(at_hand, signed, g))
    need(not isinstance(found, InForce), "no governing record is served as if it were none")
    return found, complete


def _last(reader: Reader, container_id: bytes, view: dict[str, Any], deleted: bool) -> InForce:
    state, _ = _judged(reader, container_id, {**view, "head": None}, deleted)
    assert isinstance(state, InForce)
    return state


def _bodies(view: dict[str, Any]) -> dict[int, bytes]:
    """Every body of the view by version."""
    served = [item["record"]["body"] for item in view["governing"]]
    served += view.get("skipped", []) + ([] if view["head"] is None else [view["head"]["body"]])
    return {container_records.parse_bare(body).version: body for body in served}


def _parent(bodies: dict[int, bytes], signed: Signed, g: InForce) -> Judged | None:
    version = container_records.parse_bare(signed.body).version
    if version - 1 not in bodies or version - 1 == g.record.version:
        return None
    body = bodies[version - 1]
    return Judged(container_records.parse(body), container_records.record_hash(body))


def _check_mark(mark: Mark, state: Judged | InForce, view: dict[str, Any], deleted: bool) -> None:
    if state.record.version == mark.version:
        need(state.hash == mark.hash, "the head at the mark", "fork")
        return
    governing = {
        container_records.parse_bare(item["record"]["body"]).version: item["record"]["body"]
        for item in view["governing"]
    }
    if deleted:
        _check_deletion(mark, state, governing)
        return
    bodies = _bodies(view)
    before: bytes | None = None
    for version in range(mark.version, state.record.version + 1):
        need(version in bodies, "every body after the mark is served", "fork")
        body = bodies[version]
        digest, record = container_records.record_hash(body), container_records.parse(body)
        if before is None:
            need(digest == mark.hash, "a chain through the mark", "fork")
        else:
            need(record.parent == before, "each body follows the one before it")
            hidden = record.governing is not None and version not in governing
            need(not hidden, "no governing record among the skipped bodies")
        before = digest


def _check_deletion(mark: Mark, state: Judged | InForce, governing: dict[int, bytes]) -> None:
    body = governing.get(mark.governing_version)
    same = body is not None and container_records.record_hash(body) == mark.governing_hash
    need(same, "a deletion serves the mark's governing record", "fork")
    hidden = any(mark.governing_version < version <= mark.version for version in governing)
    need(not hidden, "a deletion serves no governing record that the mark does not know", "fork")
    following = governing.get(mark.version + 1)
    parent = None
    if following is not None:
        parent = container_records.parse_bare(following).parent
    elif state.record.version == mark.version + 1:
        parent = state.record.parent
    need(parent in (None, mark.hash), "a deletion follows the mark", "fork")


def _container_key(reader: Reader, g: InForce, wrap: bytes | None) -> bytes:
    own = g.access.entries[reader.fingerprint]
    need(wrap is not None, "the wrap is served")
    assert wrap is not None
    need(wraps.wrap_hash(wrap) == own.wrap_hash, "the wrap that was signed")
    governing = g.governing
    info = wraps.WrapInfo(
        g.record.container_id, governing.access_version, governing.access_author,
        reader.fingerprint, own.key_index,
    )  # fmt: skip
    key = wraps.unwrap_key(reader.encryption[own.key_index], info, wrap)
    wraps.check_commitment(g.record.container_id, key, governing.key_commitment)
    return key


def _part(
    state: Judged | InForce, role: int, key: bytes | None, sealed: bytes | None, download: bool
) -> bytes | None:
    part: Part | None = state.record.header if role == HEADER else state.record.content
    if part is None:
        return None
    need(sealed is not None or not download, "a part to a reader with Download")
    if sealed is None or key is None:
        return None
    container_id = state.record.container_id
    return segments.open_part(container_id, role, part, key, sha256(sealed), [sealed])


def _type(g: InForce, served: dict[str, Any] | None, allowed: bool) -> str | None:
    need(served is not None or not allowed, "the type to a reader with ViewType")
    if served is None:
        return None
    text: str | None = served["type"]
    digest = container_records.type_hash(g.record.container_id, served["salt"], text)
    need(digest == g.governing.type, "the type that was signed")
    return text
