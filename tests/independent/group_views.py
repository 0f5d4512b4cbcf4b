"""What a broker serves of a group, and what a member opens of it: docs/spec/groups.md, 4 and 12."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.independent import access_lists, container_records, group_chains, group_secrets, messages
from tests.independent.access_lists import AccessList, Salted
from tests.independent.container_records import Judge
from tests.independent.encodings import UndecodableError
from tests.independent.group_chains import GroupChain, Served
from tests.independent.group_secrets import WrapInfo
from tests.independent.key_records import Signed
from tests.independent.keys import DecryptionKey
from tests.independent.rosters import Leaf, Member, Proof


@dataclass(frozen=True)
class ServedGroup:
    chain: GroupChain
    members: Mapping[bytes, Member] | None
    """Of the roster in force, by fingerprint; None to an outsider."""
    membership: dict[str, Any] | None


@dataclass(frozen=True)
class OwnGroup:
    """A group of the reader, opened."""

    name: bytes
    role: int
    keys: Mapping[int, DecryptionKey]
    """By epoch."""


def read(judge: Judge, octets: bytes) -> ServedGroup:
    """C1 to C8, C10 and the departures of a group that is served from version 1 on."""
    view = messages.decode(octets)
    chain = group_chains.judge(judge, [_served(item) for item in view["records"]])
    membership = view["membership"]
    if membership is None:
        return ServedGroup(chain, None, None)
    leaves = [Leaf(leaf["salt"], leaf["member"]) for leaf in membership["leaves"]]
    members = group_chains.check_members(chain, leaves, judge.chains)
    left = [Signed(one["body"], one["signature"]) for one in membership["departures"]]
    group_chains.departed(judge, chain, members, left)
    return ServedGroup(chain, members, membership)


def _served(item: dict[str, Any]) -> Served:
    record, listed, text = item["record"], item["accessList"], item["type"]
    departures = [] if listed is None else listed.get("departures", [])
    shown = None if text is None else (text["salt"], text["type"])
    signed = Signed(record["body"], record["signature"])
    return Served(signed, _access(record["body"], listed), shown, item["roster"], len(departures))


def _access(body: bytes, listed: dict[str, Any] | None) -> AccessList | None:
    record = container_records.parse(body)
    if listed is None or not record.changes_access:
        return None
    return access_lists.disclosed(
        record.container_id,
        record.version,
        listed["entryHashes"],
        [(one["position"], Salted(one["salt"], one["entry"])) for one in listed["disclosed"]],
    )


def open_group(
    served: ServedGroup, fingerprint: bytes, encryption: Sequence[DecryptionKey]
) -> OwnGroup:
    """4, opening: wrap, secret, info, and the older secrets."""
    if served.members is None or served.membership is None or fingerprint not in served.members:
        raise UndecodableError("integrity", "a reader through a group is served a membership")
    name, roster = served.chain.name, served.chain.roster
    own, epoch = served.members[fingerprint], roster.epoch
    info = WrapInfo(name, epoch, roster.commitment, fingerprint, own.key_index)
    wrap, sealed = served.membership["wrap"], served.membership["info"]
    secret = group_secrets.unwrap_secret(encryption[own.key_index], info, wrap)
    group_secrets.check_secret(name, epoch, secret, roster.commitment, roster.public_key)
    opened = group_secrets.open_info(name, epoch, secret, roster.info, sealed)
    older = {one.roster.epoch: one.roster.commitment for one in served.chain.rosters}
    group_secrets.check_secrets(name, opened, older)
    secrets = {**dict(enumerate(opened.secrets)), epoch: secret}
    keys = {n: group_secrets.key_of(name, one) for n, one in secrets.items() if one is not None}
    return OwnGroup(name, own.role, keys)


def proof_of(served: dict[str, Any]) -> Proof:
    return Proof(served["salt"], served["member"], served["index"], served["path"])
