"""A reader of views, with a mark or without: docs/spec/container.md, 4, 5 and 8, and docs/spec/groups.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.independent import (
    access_lists,
    container_records,
    group_chains,
    group_views,
    messages,
    segments,
    wraps,
)
from tests.independent import encodings as e
from tests.independent.access_lists import (
    DECRYPT,
    DOWNLOAD,
    EVERYTHING,
    VIEW_ACCESS,
    AccessList,
    Entry,
    Salted,
)
from tests.independent.container_records import Acting, ContainerRecord, InForce, Judge, Judged, Via
from tests.independent.encodings import UndecodableError, decodes, need, sha256, uuid8
from tests.independent.group_chains import GroupChain
from tests.independent.group_views import OwnGroup
from tests.independent.key_records import ENCRYPTION, KeyChain, Signed
from tests.independent.keys import DecryptionKey
from tests.independent.rosters import MASKS
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
    groups: Mapping[bytes, bytes] = field(default_factory=dict)
    """The GroupView that the broker serves, by groupId."""


@dataclass(frozen=True)
class Found:
    version: int
    complete: bool
    deleted: bool
    header: bytes | None
    content: bytes | None
    type: str | None
    unsettled: int | None = None
    """The version of the newest unsettled access."""


@dataclass(frozen=True)
class Acted:
    """What a reader knows of the groups of a view: their chains by name, and who they read through."""

    chains: Mapping[bytes, GroupChain]
    own: OwnGroup | None


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
    acted = _acted(reader, view)
    state, complete, unsettled = _judged(reader, container_id, view, deleted, acted.chains)
    if mark is not None:
        _check_mark(mark, state, view, deleted)
    governing = state
    if not isinstance(governing, InForce):
        alone = {**view, "head": None}
        governing, _, _ = _judged(reader, container_id, alone, deleted, acted.chains)
    assert isinstance(governing, InForce)
    if deleted:
        return Found(head.version, complete, True, None, None, None)
    name, mask = reader.fingerprint, EVERYTHING
    if acted.own is not None:
        name, mask = acted.own.name, MASKS[acted.own.role]
    own = governing.access.entries.get(name)
    if own is None:
        raise UndecodableError("integrity", "the reader's own entry is disclosed")
    own = replace(own, permissions=own.permissions & mask)
    _known_keys(reader, governing.access, acted.chains)
    need(complete or not own.permissions & VIEW_ACCESS, "all entries to a reader with ViewAccess")
    key = None
    if own.permissions & DECRYPT:
        private = reader.encryption if acted.own is None else acted.own.keys
        key = _container_key(private, governing, own, view["wrap"])
    parts = {
        role: _part(state, role, key, view[name], bool(own.permissions & DOWNLOAD))
        for role, name in ((HEADER, "header"), (CONTENT, "content"))
    }
    text = _type(governing, view["type"], bool(own.permissions & VIEW_TYPE))
    return Found(head.version, complete, False, parts[HEADER], parts[CONTENT], text, unsettled)


def _acted(reader: Reader, view: dict[str, Any]) -> Acted:
    """The groups that the vias of a view name, and the one through which the reader reads, as served."""
    judge = Judge(reader.now, reader.chains)
    vias = [_via(item["record"]) for item in view["governing"]]
    vias += [] if view["head"] is None else [_via(view["head"])]
    named = {uuid8(via.group) for via in vias if via is not None}
    named |= {e.uuid_of_text(one) for one in view.get("groups", [])}
    chains, own = {}, None
    for group_id in named:
        if group_id not in reader.groups:
            raise UndecodableError("integrity", "a group of a view is served")
        served = group_views.read(judge, reader.groups[group_id])
        chains[served.chain.name] = served.chain
        if view.get("via") is not None and e.uuid_of_text(view["via"]) == group_id:
            own = group_views.open_group(served, reader.fingerprint, reader.encryption)
    return Acted(chains, own)


def _via(record: dict[str, Any]) -> Via | None:
    return container_records.parse_bare(record["body"]).via


def _acting(
    chains: Mapping[bytes, GroupChain], record: ContainerRecord, proof: dict[str, Any] | None
) -> Acting | None:
    if record.via is None:
        return None
    served = None if proof is None else group_views.proof_of(proof)
    return group_chains.acting(chains[record.via.group], record, served)


def _known_keys(reader: Reader, access: AccessList, groups: Mapping[bytes, GroupChain]) -> None:
    """7: keys of users, and epochs of groups, as far as the reader knows their chains."""
    for name, entry in access.entries.items():
        if name in reader.chains:
            known = reader.chains[name].keys[ENCRYPTION]
            need(entry.key_index < len(known), "a key that does not exist in the list in force")
        if name in groups:
            latest = groups[name].roster.epoch
            need(entry.key_index <= latest, "an epoch that does not exist in the list in force")


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
    reader: Reader,
    container_id: bytes,
    view: dict[str, Any],
    deleted: bool,
    groups: Mapping[bytes, GroupChain],
) -> tuple[Judged | InForce, bool, int | None]:
    """G1 to Gk, or those after the mark's, and the head.

    Returns also whether every entry was seen, and the version of the newest unsettled access.
    """
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
    unsettled: int | None = None
    for item, (signed, access, left) in zip(view["governing"][1:], listed[1:], strict=True):
        record = parse(signed.body)
        acting = _acting(groups, record, item.get("membership"))
        judged = judge.next(signed, g, access, _parent(at_hand, signed, g), acting)
        if acting is not None and mark is not None and record.version > mark.version:
            unsettled = _unsettled(groups, record, acting, item) or unsettled
        if not isinstance(judged, InForce):
            raise UndecodableError("integrity", "governing records govern")
        g = judged if access is None else judge.departed(judged, left)
    if view["head"] is None:
        return g, complete, unsettled
    signed = signed_of(view["head"])
    record = container_records.parse(signed.body)
    acting = _acting(groups, record, view.get("headMembership"))
    found = judge.next(signed, g, None, _parent(at_hand, signed, g), acting)
    need(not isinstance(found, InForce), "no governing record is served as if it were none")
    return found, complete, unsettled


def _unsettled(
    groups: Mapping[bytes, GroupChain],
    record: ContainerRecord,
    acting: Acting,
    served: dict[str, Any],
) -> int | None:
    """7: the version of a change of access by somebody who is not a member any more, or with less."""
    assert record.via is not None
    chain, proof = groups[record.via.group], served.get("standing")
    if not record.changes_access or acting.end is None:
        return None
    if proof is None:
        return record.version
    stands = group_chains.stands(chain, record.author, acting.role, group_views.proof_of(proof))
    return None if stands else record.version


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
    older: ContainerRecord | None = None
    for version in range(mark.version, state.record.version + 1):
        need(version in bodies, "every body after the mark is served", "fork")
        body = bodies[version]
        digest, record = container_records.record_hash(body), container_records.parse(body)
        if before is None:
            need(digest == mark.hash, "a chain through the mark", "fork")
        else:
            need(record.parent == before, "each body follows the one before it")
            falls = older is not None and container_records.falls(older, record)
            need(not falls, "V3: an epoch before the parent's")
            hidden = record.governing is not None and version not in governing
            need(not hidden, "no governing record among the skipped bodies")
        before, older = digest, record


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


def _container_key(
    private: Mapping[int, DecryptionKey] | Sequence[DecryptionKey],
    g: InForce,
    own: Entry,
    wrap: bytes | None,
) -> bytes:
    need(wrap is not None, "the wrap is served")
    assert wrap is not None
    need(wraps.wrap_hash(wrap) == own.wrap_hash, "the wrap that was signed")
    governing = g.governing
    info = wraps.WrapInfo(
        g.record.container_id, governing.access_version, governing.access_author,
        own.fingerprint, own.key_index,
    )  # fmt: skip
    key = wraps.unwrap_key(private[own.key_index], info, wrap)
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
    container_records.check_ordinary(text)
    digest = container_records.type_hash(g.record.container_id, served["salt"], text)
    need(digest == g.governing.type, "the type that was signed")
    return text
