"""What a group consists of is judged as its vectors say (docs/spec/groups.md, 1 to 4 and 9)."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker.client.core import group_judging, group_keys
from scbroker.client.core.group_judging import Basis
from scbroker.client.users import directory
from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerError, IntegrityError
from scbroker.records import group, roster
from scbroker.records.canonical import (
    encode_object,
    encode_value,
    group_name_of,
    show_fingerprint,
    uuid8,
)
from scbroker.records.container_record import AccessList, SaltedEntry
from scbroker.records.group import EpochKey, GroupChain, Served
from scbroker.records.judge import Known, verify_author
from scbroker.records.key_record import KeyChain
from scbroker.records.roster import Member, MembershipProof, Roster, SaltedMember
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import Disclosed, ListView, SignedRecord, TypeText
from scbroker.wire.groups import GroupRecord
from tests.kit.cases import in_one_case
from tests.vectors.cast import DAY, START, decryption_key
from tests.vectors.files import Vector, load, signature_of, vectors
from tests.vectors.keys_of_people import chains
from tests.vectors.test_vectors import check, each, raw

RECORDS: dict[str, dict[str, Any]] = load("group_chains")["given"]["records"]
CROWD: list[dict[str, str]] = load("rosters")["given"]["leaves"]


@each("rosters")
def test_a_roster_is_read_as_the_vectors_say(vector: Vector) -> None:
    check(vector, _roster)


def _roster(vector: Vector) -> None:
    stored = raw(vector, "roster")
    leaves = CROWD[: vector["first"]] if "first" in vector else vector["leaves"]
    found = roster.parse_roster(stored)
    roster.check_group_type(vector["type"], stored)
    members = roster.parse_leaves(found, [leaf_of(leaf) for leaf in leaves])
    assert encode_object(found) == stored
    assert [encode_value(member).hex() for member in members.values()] == [
        leaf["member"] for leaf in leaves
    ]


@each("membership_proofs")
def test_a_membership_proof_is_judged_as_the_vectors_say(vector: Vector) -> None:
    check(vector, _proof)


def _proof(vector: Vector) -> None:
    found = roster.proven(raw(vector, "members"), vector["count"], proof_of(vector["proof"]))
    fields = raw(vector, "fingerprint"), vector["keyIndex"], vector["role"], vector["version"]
    assert found == Member(*fields)


@each("group_names")
def test_the_name_of_a_group_is_proved_as_the_vectors_say(
    vector: Vector, authors: dict[bytes, KeyChain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "now", lambda: START + 1000 * DAY)
    check(vector, lambda vector: _named(vector, authors))


def _named(vector: Vector, authors: dict[bytes, KeyChain]) -> None:
    kind = vector["kind"]
    if kind == "name":
        name = group_name_of(raw(vector, "creator"), raw(vector, "nonce"))
        assert (name.hex(), str(uuid8(name))) == (vector["name"], vector["groupId"])
        assert show_fingerprint(name) == vector["shown"]
        return
    asked = uuid.UUID(vector["asked"])
    if kind == "user":
        records = list(chains()[vector["user"]].records)
        assert directory._verified_chain(asked, None, records).fingerprint == raw(vector, "name")
        return
    given = load("group_names")["given"]
    stored = given["records"][vector["record"]]
    pin = None if vector["pin"] is None else raw(vector, "pin")
    basis, page = Basis(asked.bytes, None, None, pin), [record_of(stored)]
    assert basis.judge(basis.following(page), authors, given["now"]).name == raw(vector, "name")


def record_of(stored: dict[str, Any]) -> GroupRecord:
    """A record of a group as the broker serves it."""
    body, signature = raw(stored, "body"), signature_of(stored)
    access = None
    if "accessList" in stored:
        salted = [SaltedEntry(raw(one, "salt"), raw(one, "entry")) for one in stored["accessList"]]
        shown = [
            Disclosed(position=n, salt=one.salt, entry=one.entry) for n, one in enumerate(salted)
        ]
        hashes = b"".join(one.hash for one in salted)
        access = ListView(entryHashes=hashes, disclosed=shown)
    text = None
    if "type" in stored:
        text = TypeText(salt=raw(stored["type"], "salt"), type=stored["type"]["type"])
    return GroupRecord(
        record=SignedRecord(body=body, signature=signature),
        accessList=access,
        type=text,
        roster=raw(stored, "roster") if "roster" in stored else None,
    )


@each("group_secrets")
def test_secrets_wraps_and_infos_are_opened_as_the_vectors_say(vector: Vector) -> None:
    check(vector, SECRETS[vector["kind"]])


def _secret(vector: Vector) -> None:
    group, epoch, secret = raw(vector, "groupName"), vector["epoch"], raw(vector, "secret")
    signed = EpochKey(raw(vector, "commitment"), sha256(raw(vector, "publicKey")))
    key = group_keys.checked_key(group, epoch, secret, signed)
    assert key.public == raw(vector, "publicKey")
    first, second, third = vector["seeds"]
    assert [bytes(seed).hex() for seed in key.seeds] == [first + second, third]


def _wrap(vector: Vector) -> None:
    group, commitment = raw(vector, "groupName"), raw(vector, "commitment")
    member, index = raw(vector, "fingerprint"), vector["keyIndex"]
    info = roster.wrap_info(group, vector["epoch"], commitment, member, index)
    private = decryption_key(vector["private"], vector["privateIndex"])
    assert private.unwrap(raw(vector, "wrap"), info) == raw(vector, "secret")


def _info(vector: Vector) -> None:
    group, epoch, secret = raw(vector, "groupName"), vector["epoch"], raw(vector, "secret")
    found = group_keys.open_info(group, epoch, raw(vector, "info"), secret, raw(vector, "sealed"))
    for earlier, (older, commitment) in enumerate(
        zip(found.secrets, vector["commitments"], strict=True)
    ):
        signed = EpochKey(bytes.fromhex(commitment), b"")
        if older is not None and not group_keys.is_committed(group, earlier, older, signed):
            raise IntegrityError("An older secret is not the one that was signed.")
    assert (found.name, found.description) == (vector["name"], vector["description"])
    assert [None if one is None else one.hex() for one in found.secrets] == vector["secrets"]


SECRETS = {"secret": _secret, "wrap": _wrap, "info": _info}


@each("group_departures")
def test_departures_from_groups_are_judged_as_the_vectors_say(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    check(vector, lambda vector: _departures(vector, authors))


def _departures(vector: Vector, authors: dict[bytes, KeyChain]) -> None:
    pool = load("group_departures")["given"]["records"]
    chain = chain_of(pool, vector["records"], vector["now"], authors)
    members = roster.parse_leaves(chain.roster, leaves_of(pool, vector["records"]))
    signed = [
        SignedObject(body=raw(one, "body"), signature=signature_of(one))
        for one in vector["departures"]
    ]
    left = group_judging.judge_departures(signed, chain, members, authors, vector["now"])
    assert left == {chains()[name].fingerprint for name in vector["left"]}


def leaf_of(shown: Mapping[str, str]) -> SaltedMember:
    return SaltedMember(bytes.fromhex(shown["salt"]), bytes.fromhex(shown["member"]))


def proof_of(shown: dict[str, Any]) -> MembershipProof:
    return MembershipProof(leaf_of(shown), shown["index"], raw(shown, "path"))


def served(
    stored: dict[str, Any], authors: dict[bytes, KeyChain], seen: Sequence[int] | None = None
) -> Served:
    """A record of a group with what comes with it; its signature is verified, where it has one."""
    known = Known.parse(raw(stored, "body"))
    if "signature" in stored:
        verify_author(known, signature_of(stored), authors[known.record.author])
    access = None
    if "accessList" in stored:
        salted = [SaltedEntry(raw(one, "salt"), raw(one, "entry")) for one in stored["accessList"]]
        hashes = b"".join(item.hash for item in salted)
        shown = range(len(salted)) if seen is None else seen
        access = AccessList.disclosed(hashes, [(n, salted[n]) for n in shown])
    text = (raw(stored["type"], "salt"), stored["type"]["type"]) if "type" in stored else None
    octets = raw(stored, "roster") if "roster" in stored else None
    return Served(known, access, text, octets, len(stored.get("departures", [])))


def chain_of(
    pool: dict[str, dict[str, Any]], names: Sequence[str], now: int, authors: dict[bytes, KeyChain],
    disclosed: Mapping[str, list[int]] | None = None,
) -> GroupChain:  # fmt: skip
    """The chain of the records with these names, after C1 to C6."""
    seen = disclosed or {}
    first, *others = (served(pool[name], authors, seen.get(name)) for name in names)
    chain = group.begin(first, now)
    for one in others:
        chain = group.extend(chain, one, now)
    return chain


def leaves_of(pool: dict[str, dict[str, Any]], names: Sequence[str]) -> list[SaltedMember]:
    """Those of the roster that the last of the records introduces or keeps."""
    shown = [pool[name]["leaves"] for name in names if "leaves" in pool[name]][-1]
    return [leaf_of(leaf) for leaf in shown]


def _chain(vector: Vector, authors: dict[bytes, KeyChain]) -> GroupChain:
    names = vector["records"]
    chain = chain_of(RECORDS, names, vector["now"], authors, vector.get("disclosed"))
    if "mark" in vector:
        _check_mark(chain, vector["mark"])
    if vector.get("members"):
        members = roster.parse_leaves(chain.roster, leaves_of(RECORDS, names))
        group.check_roster(chain, members)
        group.check_keys(members, authors)
        if "since" in vector:
            older = names[: names.index(vector["since"]) + 1]
            group.check_since(_verified(older, vector["now"], authors), (chain.roster, members))
    return chain


def _verified(
    names: Sequence[str], now: int, authors: dict[bytes, KeyChain]
) -> tuple[Roster, Mapping[bytes, Member]]:
    """The members that the device verified last."""
    before = chain_of(RECORDS, names, now, authors)
    return before.roster, roster.parse_leaves(before.roster, leaves_of(RECORDS, names))


@pytest.mark.sampled
@in_one_case("vector", vectors("group_chains", "valid"))
def test_a_valid_chain_of_a_group_is_accepted_to_its_end(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    chain = _chain(vector, authors)
    assert chain.version == len(vector["records"])
    assert chain.name.hex() == load("group_chains")["given"]["groupName"]
    assert chain.roster.epoch == vector["epoch"]


@in_one_case("vector", vectors("group_chains", "invalid"))
def test_an_invalid_last_record_of_a_group_is_refused_and_nothing_before_it(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    if len(vector["records"]) > 1:
        chain_of(RECORDS, vector["records"][:-1], vector["now"], authors)
    with pytest.raises(BrokerError) as caught:
        _chain(vector, authors)
    assert caught.value.code == vector["error"]
    assert caught.type is not BrokerError


def _check_mark(chain: GroupChain, mark: dict[str, Any]) -> None:
    """As a device with this mark of the group judges the end of the chain."""
    kept = replace(group_judging.mark_of(chain), version=mark["version"], hash=raw(mark, "hash"))
    basis = Basis(chain.head.record.containerId, None, kept, chain.name)
    basis.check_end(chain, chain.version)
    group_judging.check_follows(chain, kept)
