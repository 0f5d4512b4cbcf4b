"""Every container vector is judged as it says (docs/spec/container.md, sections 2 to 8)."""

from dataclasses import replace
from typing import Any

import pytest

from scbroker.client.core.sealing import OpenPart
from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerError
from scbroker.records.container_record import (
    AccessList,
    Role,
    SaltedEntry,
    check_segment_hashes,
    key_commitment,
    parse_bare,
    type_hash,
    wrap_hash,
    wrap_info,
)
from scbroker.records.group import GroupChain
from scbroker.records.judge import Acting, InForce, Known, judge_first, judge_next, verify_author
from scbroker.records.key_record import KeyChain
from tests.kit.cases import in_one_case
from tests.vectors.cast import decryption_key
from tests.vectors.files import Vector, load, signature_of, vectors
from tests.vectors.keys_of_people import chains
from tests.vectors.test_groups import chain_of, proof_of

FILE = load("container_records")
RECORDS: dict[str, dict[str, Any]] = FILE["given"]["records"]
SECRETS = FILE["given"]["secrets"]
STORY = vectors("container_records")[:6]


def known_of(name: str, authors: dict[bytes, KeyChain], *, deleted: bool = False) -> Known:
    """A record with its signature verified, where it has one."""
    body = bytes.fromhex(RECORDS[name]["body"])
    is_bare = deleted and parse_bare(body).governing is not None
    known = Known.parse_bare(body) if is_bare else Known.parse(body)
    if "signature" in RECORDS[name]:
        verify_author(known, signature_of(RECORDS[name]), authors[known.record.author])
    return known


def list_of(name: str, disclosed: list[int] | None) -> AccessList | None:
    if "accessList" not in RECORDS[name]:
        return None
    salted = [
        SaltedEntry(bytes.fromhex(item["salt"]), bytes.fromhex(item["entry"]))
        for item in RECORDS[name]["accessList"]
    ]
    if disclosed is None:
        return AccessList.whole(salted)
    hashes = b"".join(item.hash for item in salted)
    return AccessList.disclosed(hashes, [(n, salted[n]) for n in disclosed])


def groups_of(vector: Vector, authors: dict[bytes, KeyChain]) -> dict[bytes, GroupChain]:
    """The groups of a vector by name, each as far as the reader has it."""
    found = dict[bytes, GroupChain]()
    for name, count in vector.get("groups", {}).items():
        pool = {str(n): stored for n, stored in enumerate(FILE["given"]["groups"][name][:count])}
        chain = chain_of(pool, list(pool), vector["now"], authors)
        found[chain.name] = chain
    return found


def acting_of(name: str, known: Known, groups: dict[bytes, GroupChain]) -> Acting | None:
    """The group for which the author of a record acts."""
    via = known.record.via
    if via is None:
        return None
    proof = proof_of(RECORDS[name]["membership"])
    return groups[via.group].acting(via, known.record.author, proof)


def judge(vector: Vector, count: int, authors: dict[bytes, KeyChain]) -> InForce:
    """Judges the first `count` records of a vector."""
    in_force: InForce | None = None
    groups = groups_of(vector, authors)
    parent: Known | None = None
    for name in vector["records"][:count]:
        deleted = vector.get("deleted", False)
        known = known_of(name, authors, deleted=deleted)
        access = list_of(name, vector.get("disclosed", {}).get(name))
        at_hand = parent if vector.get("parent", True) else None
        if deleted and parent is not None and known.record.version > parent.record.version + 1:
            at_hand = None
        if in_force is None:
            assert access is not None
            in_force = judge_first(known, access, vector["now"])
        else:
            acting = acting_of(name, known, groups)
            in_force = judge_next(known, in_force, access, at_hand, vector["now"], acting)
        if name in vector.get("left", {}):
            left = frozenset(chains()[user].fingerprint for user in vector["left"][name])
            in_force = replace(in_force, left=left)
        parent = known
    assert in_force is not None
    return in_force


@in_one_case("vector", vectors("container_records", "valid"))
def test_a_valid_chain_is_accepted_to_its_end(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    in_force = judge(vector, len(vector["records"]), authors)
    last = known_of(vector["records"][-1], authors, deleted=vector.get("deleted", False))
    if last.record.governing is not None:
        assert in_force.known == last
    else:
        assert last.record.link is not None
        assert in_force.known.hash == last.record.link.hash


@in_one_case("vector", vectors("container_records", "invalid"))
def test_an_invalid_last_record_is_refused_and_nothing_before_it(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    count = len(vector["records"])
    if count > 1:
        judge(vector, count - 1, authors)
    with pytest.raises(BrokerError) as caught:
        judge(vector, count, authors)
    assert caught.value.code == vector["error"]
    assert caught.type is not BrokerError


@in_one_case("version", SECRETS["wraps"])
def test_every_wrap_of_the_story_opens_to_the_committed_key(version: str) -> None:
    name = STORY[int(version) - 1]["id"]
    record = Known.parse(bytes.fromhex(RECORDS[name]["body"])).record
    assert record.governing is not None
    listed = list_of(name, None)
    assert listed is not None
    for who, wrap in SECRETS["wraps"][version].items():
        fingerprint = chains()[who].fingerprint
        entry = listed.entries[fingerprint]
        assert entry.wrapHash == wrap_hash(bytes.fromhex(wrap))
        info = wrap_info(record.containerId, record.governing, fingerprint, entry.keyIndex)
        key = decryption_key(who, entry.keyIndex).unwrap(bytes.fromhex(wrap), info)
        assert key.hex() == SECRETS["containerKeys"][version]
        assert key_commitment(record.containerId, key) == record.governing.keyCommitment


@in_one_case("version", ["1", "2", "3", "4", "5"])
def test_every_part_of_the_story_opens_under_the_container_key_in_force(version: str) -> None:
    record = Known.parse(bytes.fromhex(RECORDS[STORY[int(version) - 1]["id"]]["body"])).record
    in_force = {"1": "1", "2": "1", "3": "1"}.get(version, version)
    container_key = bytes.fromhex(SECRETS["containerKeys"][in_force])
    sealed_in = {"header": "1", "content": "1" if version == "1" else "2"}
    for role in Role:
        name = role.name.lower()
        part = record.part(role)
        assert part is not None
        sealed = bytes.fromhex(SECRETS["sealed"][sealed_in[name]][name])
        check_segment_hashes(part, sha256(sealed))
        opened = OpenPart.open(record.containerId, role, part, container_key)
        plaintext = opened.open_segment(0, sealed, sha256(sealed))
        assert plaintext.hex() == SECRETS["plaintexts"][sealed_in[name]][name]


def test_the_types_of_the_story_have_the_signed_hashes() -> None:
    for name, text in (("create", "note"), ("change type", "story"), ("renew", "story")):
        record = Known.parse(bytes.fromhex(RECORDS[name]["body"])).record
        assert record.governing is not None
        salt = bytes.fromhex(SECRETS["types"][text])
        assert type_hash(record.containerId, salt, text) == record.governing.type
