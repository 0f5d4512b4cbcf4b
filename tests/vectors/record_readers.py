"""Read the vectors of records by scbroker: containers, departures, batches, and groups."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from msgspec.structs import replace as with_fields

from scbroker.client.core import group_records
from scbroker.client.core.group_records import Basis
from scbroker.client.users import directory
from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerError, IntegrityError
from scbroker.records import group, roster
from scbroker.records.batch import MAX_SIGNATURE, BatchSignature
from scbroker.records.canonical import (
    decode_object,
    encode_object,
    encode_value,
    group_name_of,
    show_fingerprint,
    uuid8,
)
from scbroker.records.container_record import AccessList, SaltedEntry, parse_either
from scbroker.records.departure import parse_departure
from scbroker.records.group import EpochKey, GroupChain, Served
from scbroker.records.judge import (
    Acting,
    InForce,
    Known,
    judge_first,
    judge_next,
    verify_author,
    verify_departure,
)
from scbroker.records.roster import Member, MembershipProof, Roster, SaltedMember
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import SignedRecord, TypeText
from scbroker.wire.groups import GroupRecord
from tests.vectors.cast import DAY, START, decryption_key
from tests.vectors.files import Vector, load, raw, raws, signature_of, signed_of
from tests.vectors.keys_of_people import authors, chains
from tests.vectors.served import list_view

Pool = Mapping[str, dict[str, Any]]
"""The records of a file by name."""


def _pool(file: str) -> Pool:
    found: Pool = load(file)["given"]["records"]
    return found


# Lists, and container records


def salted_of(stored: Mapping[str, Any]) -> list[SaltedEntry]:
    return [SaltedEntry(*raws(item, "salt", "entry")) for item in stored["accessList"]]


def list_of(stored: Mapping[str, Any], disclosed: Sequence[int] | None = None) -> AccessList | None:
    """The list of a record, of which the reader sees these entries, or all."""
    if "accessList" not in stored:
        return None
    salted = salted_of(stored)
    if disclosed is None:
        return AccessList.whole(salted)
    return AccessList.disclosed(
        b"".join(item.hash for item in salted), [(n, salted[n]) for n in disclosed]
    )


def known_of(stored: Mapping[str, Any], *, deleted: bool = False) -> Known:
    """A record with its signature verified, where it has one."""
    body = raw(stored, "body")
    is_bare = deleted and parse_either(body).record.governing is not None
    known = Known.parse_bare(body) if is_bare else Known.parse(body)
    if "signature" in stored:
        verify_author(known, signature_of(stored), authors()[known.record.author])
    return known


def _groups_of(vector: Vector) -> dict[bytes, GroupChain]:
    """The groups of a vector by name, each as far as the reader has it."""
    found, given = dict[bytes, GroupChain](), load("container_records")["given"]["groups"]
    for name, count in vector.get("groups", {}).items():
        pool = {str(n): stored for n, stored in enumerate(given[name][:count])}
        chain = chain_of(pool, list(pool), vector["now"])
        found[chain.name] = chain
    return found


def _acting(
    stored: Mapping[str, Any], known: Known, groups: Mapping[bytes, GroupChain]
) -> Acting | None:
    """The group for which the author of a record acts."""
    via = known.record.via
    if via is None:
        return None
    return groups[via.group].acting(via, known.record.author, proof_of(stored["membership"]))


def _judged(vector: Vector, names: Sequence[str]) -> InForce:
    in_force: InForce | None = None
    parent: Known | None = None
    groups, deleted, records = (
        _groups_of(vector),
        vector.get("deleted", False),
        _pool("container_records"),
    )
    for name in names:
        known = known_of(records[name], deleted=deleted)
        access = list_of(records[name], vector.get("disclosed", {}).get(name))
        at_hand = parent if vector.get("parent", True) else None
        if deleted and parent is not None and known.record.version > parent.record.version + 1:
            at_hand = None
        if in_force is None:
            assert access is not None
            in_force = judge_first(known, access, vector["now"])
        else:
            acting = _acting(records[name], known, groups)
            in_force = judge_next(known, in_force, access, at_hand, vector["now"], acting)
        if name in vector.get("left", {}):
            left = frozenset(chains()[user].fingerprint for user in vector["left"][name])
            in_force = replace(in_force, left=left)
        parent = known
    assert in_force is not None
    return in_force


def _before_the_last(judge: Callable[[], object]) -> None:
    """All records but the last are valid."""
    try:
        judge()
    except BrokerError as error:
        raise AssertionError("a record before the last is refused") from error


def container_record(vector: Vector) -> None:
    names = vector["records"]
    if len(names) > 1:
        _before_the_last(lambda: _judged(vector, names[:-1]))
    in_force = _judged(vector, names)
    last = known_of(_pool("container_records")[names[-1]], deleted=vector.get("deleted", False))
    if last.record.governing is not None:
        assert in_force.known == last
    else:
        assert last.record.link is not None
        assert in_force.known.hash == last.record.link.hash


def departure(vector: Vector) -> None:
    """From the list of G, after the governing records before it."""
    in_force: InForce | None = None
    for name in vector["governing"]:
        stored = _pool("departures")[name]
        is_last = name == vector["governing"][-1]
        access = list_of(stored, vector.get("disclosed") if is_last else None)
        if in_force is None:
            assert access is not None
            in_force = judge_first(known_of(stored), access, vector["now"])
        else:
            in_force = judge_next(known_of(stored), in_force, access, None, vector["now"])
    assert in_force is not None
    signed = signed_of(vector)
    said = parse_departure(signed.body)
    verify_departure(signed, in_force, authors()[said.fingerprint], vector["now"])
    assert encode_object(said) == signed.body


def batch(vector: Vector) -> None:
    known = Known.parse(raw(load("batches")["given"]["records"], vector["record"]))
    stored = raw(vector, "batchSignature")
    verify_author(known, stored, authors()[known.record.author])
    assert encode_object(decode_object(BatchSignature, stored, MAX_SIGNATURE)) == stored


# Groups


def leaf_of(shown: Mapping[str, Any]) -> SaltedMember:
    return SaltedMember(*raws(shown, "salt", "member"))


def proof_of(shown: Mapping[str, Any]) -> MembershipProof:
    return MembershipProof(leaf_of(shown), shown["index"], raw(shown, "path"))


def read_roster(vector: Vector) -> None:
    stored = raw(vector, "roster")
    crowd = load("rosters")["given"]["leaves"]
    leaves = crowd[: vector["first"]] if "first" in vector else vector["leaves"]
    found = roster.parse_roster(stored)
    roster.check_group_type(vector["type"], stored)
    members = roster.parse_leaves(found, [leaf_of(leaf) for leaf in leaves])
    assert encode_object(found) == stored
    assert [encode_value(member).hex() for member in members.values()] == [
        leaf["member"] for leaf in leaves
    ]


def membership_proof(vector: Vector) -> None:
    found = roster.proven(raw(vector, "members"), vector["count"], proof_of(vector["proof"]))
    fields = raw(vector, "fingerprint"), vector["keyIndex"], vector["role"], vector["version"]
    assert found == Member(*fields)


def group_name(vector: Vector) -> None:
    kind = vector["kind"]
    if kind == "name":
        name = group_name_of(*raws(vector, "creator", "nonce"))
        assert (name.hex(), str(uuid8(name))) == (vector["name"], vector["groupId"])
        assert show_fingerprint(name) == vector["shown"]
        return
    asked = uuid.UUID(vector["asked"])
    if kind == "user":
        records = list(chains()[vector["user"]].records)
        with mock.patch.object(directory, "now", return_value=START + 1000 * DAY):
            chain = directory._verified_chain(asked, None, records)
        assert chain.fingerprint == raw(vector, "name")
        return
    stored, now = _pool("group_names")[vector["record"]], load("group_names")["given"]["now"]
    pin = None if vector["pin"] is None else raw(vector, "pin")
    basis = Basis(asked.bytes, None, None, pin)
    found = basis.judge(basis.following([_record_of(stored)]), authors(), now)
    assert found.name == raw(vector, "name")


def _record_of(stored: dict[str, Any]) -> GroupRecord:
    """A record of a group as the broker serves it."""
    access = text = None
    if "accessList" in stored:
        access = list_view(salted_of(stored))
    if "type" in stored:
        text = TypeText(salt=raw(stored["type"], "salt"), type=stored["type"]["type"])
    return GroupRecord(
        record=SignedRecord(body=raw(stored, "body"), signature=signature_of(stored)),
        accessList=access,
        type=text,
        roster=raw(stored, "roster") if "roster" in stored else None,
    )


def group_secret(vector: Vector) -> None:
    name, commitment, secret, public = raws(
        vector, "groupName", "commitment", "secret", "publicKey"
    )
    signed = EpochKey(commitment, sha256(public))
    key = group_records.checked_key(name, vector["epoch"], secret, signed)
    assert key.public == public
    first, second, third = vector["seeds"]
    assert [bytes(seed).hex() for seed in key.seeds] == [first + second, third]


def group_wrap(vector: Vector) -> None:
    name, commitment, member = raws(vector, "groupName", "commitment", "fingerprint")
    info = roster.wrap_info(name, vector["epoch"], commitment, member, vector["keyIndex"])
    private = decryption_key(vector["private"], vector["privateIndex"])
    assert private.unwrap(raw(vector, "wrap"), info) == raw(vector, "secret")


def group_info(vector: Vector) -> None:
    name, digest, secret, sealed = raws(vector, "groupName", "info", "secret", "sealed")
    found = group_records.open_info(name, vector["epoch"], digest, secret, sealed)
    pairs = zip(found.secrets, vector["commitments"], strict=True)
    for earlier, (older, commitment) in enumerate(pairs):
        signed = EpochKey(bytes.fromhex(commitment), b"")
        if older is not None and not group_records.is_committed(name, earlier, older, signed):
            raise IntegrityError("An older secret is not the one that was signed.")
    assert (found.name, found.description) == (vector["name"], vector["description"])
    assert [None if one is None else one.hex() for one in found.secrets] == vector["secrets"]


def _served(stored: dict[str, Any], seen: Sequence[int] | None = None) -> Served:
    """A record of a group with what comes with it."""
    text = (raw(stored["type"], "salt"), stored["type"]["type"]) if "type" in stored else None
    octets = raw(stored, "roster") if "roster" in stored else None
    departures = len(stored.get("departures", []))
    return Served(known_of(stored), list_of(stored, seen), text, octets, departures)


def chain_of(
    pool: Pool, names: Sequence[str], now: int, disclosed: Mapping[str, list[int]] | None = None
) -> GroupChain:
    """The chain of the records with these names, after C1 to C6."""
    first, *others = (_served(pool[name], (disclosed or {}).get(name)) for name in names)
    chain = group.begin(first, now)
    for one in others:
        chain = group.extend(chain, one, now)
    return chain


def _members(
    pool: Pool, names: Sequence[str], chain: GroupChain
) -> tuple[Roster, Mapping[bytes, Member]]:
    """The roster that the last of the records introduces or keeps, with its members."""
    shown = [pool[name]["leaves"] for name in names if "leaves" in pool[name]][-1]
    return chain.roster, roster.parse_leaves(chain.roster, [leaf_of(leaf) for leaf in shown])


def group_departure(vector: Vector) -> None:
    pool, names, now = _pool("group_departures"), vector["records"], vector["now"]
    chain = chain_of(pool, names, now)
    signed = [
        SignedObject(body=raw(one, "body"), signature=signature_of(one))
        for one in vector["departures"]
    ]
    members = _members(pool, names, chain)[1]
    left = group_records.judge_departures(signed, chain, members, authors(), now)
    assert left == {chains()[name].fingerprint for name in vector["left"]}


def group_chain(vector: Vector) -> None:
    pool, names, now = _pool("group_chains"), vector["records"], vector["now"]
    if len(names) > 1:
        _before_the_last(lambda: chain_of(pool, names[:-1], now))
    chain = chain_of(pool, names, now, vector.get("disclosed"))
    if "mark" in vector:
        _check_mark(chain, vector["mark"])
    if vector.get("members"):
        known = _members(pool, names, chain)
        group.check_roster(chain, known[1])
        group.check_keys(known[1], authors())
        if "since" in vector:
            older = names[: names.index(vector["since"]) + 1]
            group.check_since(_members(pool, older, chain_of(pool, older, now)), known)
    assert chain.version == len(names)
    assert chain.name.hex() == load("group_chains")["given"]["groupName"]
    assert chain.roster.epoch == vector["epoch"]


def _check_mark(chain: GroupChain, mark: dict[str, Any]) -> None:
    """As a device with this mark of the group judges the end of the chain."""
    kept = with_fields(
        group_records.mark_of(chain), version=mark["version"], hash=raw(mark, "hash")
    )
    basis = Basis(chain.head.record.containerId, None, kept, chain.name)
    basis.check_end(chain, chain.version)
    group_records.check_follows(chain, kept)
