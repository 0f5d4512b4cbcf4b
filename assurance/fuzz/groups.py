"""Groups: rosters, members, proofs, departures and infos as bytes, and groups as a broker serves them.

The second implementation in `tests/independent` has to accept what scbroker accepts, as the same value.
Spec: docs/spec/groups.md.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import write
from assurance.fuzz.records import parsed
from assurance.fuzz.served import (
    HASHES,
    LINKS,
    SIGNATURES,
    departures,
    mend,
    row_of,
    salted,
    stored,
)
from assurance.fuzz.stage import independent, marked_signatures
from assurance.fuzz.target import feed, kept
from scbroker import errors
from scbroker.client.core import group_records
from scbroker.client.core.group_records import Basis
from scbroker.errors import IntegrityError
from scbroker.records import group, roster
from scbroker.records.canonical import encode_object, encode_value
from scbroker.records.container_record import type_hash
from scbroker.records.key_record import Signed
from scbroker.records.roster import DEPARTURE_LABEL, MembershipProof, SaltedMember
from scbroker.wire.codec import decode
from scbroker.wire.groups import GroupView
from tests.independent import group_chains, group_secrets, group_views, rosters
from tests.independent.container_records import Judge
from tests.independent.vectors import chains as other_chains
from tests.vectors.cast import DAY, START
from tests.vectors.files import vectors
from tests.vectors.groups import Step, Team
from tests.vectors.keys_of_people import chains

NOW: Final = START + 40 * DAY
# The number of records, the version of the device's mark, and whether Carol has left.
SCENES: Final = (
    (9, 0, False), (2, 0, False), (1, 0, False), (10, 0, False), (5, 3, False), (4, 0, True), (7, 7, False),
)  # fmt: skip


@cache
def team() -> Team:
    """Return the story of the vectors: ten records by two managers."""
    return Team()


# Objects.


def _infos() -> list[bytes]:
    found = (
        bytes.fromhex(item["opened"])
        for item in vectors("group_secrets", "valid")
        if "opened" in item
    )
    return [write([len(row_of(body)[2]), body]) for body in found if len(body) < 1000]


_INFO: Final = msgspec.msgpack.Decoder(tuple[int, bytes])


def _info(data: bytes) -> None:
    """[epoch, Info]"""
    try:
        epoch, body = _INFO.decode(data)
    except (ValueError, RecursionError):
        return
    info = roster.parse_info(body, epoch)
    kept(encode_object(info) == body, "it encodes to other bytes")
    other = independent(group_secrets.parse_info, body)
    same = other.stored() == body and len(other.secrets) == epoch
    kept(same, "the second implementation differs")


_PROOF: Final = msgspec.msgpack.Decoder(tuple[bytes, int, bytes, bytes, int, bytes])


def _proof(data: bytes) -> None:
    """[members, count, salt, member, index, path]"""
    try:
        members, count, salt, member, index, path = _PROOF.decode(data)
    except (ValueError, RecursionError):
        return
    if not 1 <= count <= roster.MAX_MEMBERS or index < 0 or len(path) > roster.MAX_PATH:
        return  # the roster and the message have these limits
    found = roster.proven(members, count, MembershipProof(SaltedMember(salt, member), index, path))
    kept(encode_value(found) == member, "another member than was proved")
    other = independent(rosters.proven, members, count, rosters.Proof(salt, member, index, path))
    kept(other.stored() == member, "the second implementation reads another member")


def _proofs() -> list[bytes]:
    return [
        write([
            bytes.fromhex(item["members"]), item["count"],
            *(bytes.fromhex(item["proof"][name]) for name in ("salt", "member")),
            item["proof"]["index"], bytes.fromhex(item["proof"]["path"]),
        ])
        for item in [*vectors("membership_proofs", "valid"), *vectors("membership_proofs", "invalid")]
    ]  # fmt: skip


# Groups as they are served, from a document that programs edit.


@cache
def scene(base: int) -> v.Document:
    """Return what a member is served at one point of the story."""
    count, marked, is_left = SCENES[base % len(SCENES)]
    steps = team().upto(count)
    left = [team().group.leave(steps[-1], team().carol, START + 4 * DAY)] if is_left else []
    return {
        "records": [[row_of(step.made.signed.body), step.made.signed.signature] for step in steps],
        "lists": [
            None if step.made.access is None else [
                [item.salt, msgspec.msgpack.decode(item.entry)] for item in step.made.access.salted
            ]
            for step in steps
        ],
        "types": [[step.salt, step.text] if step.introduces else None for step in steps],
        "rosters": [row_of(step.stored) if step.introduces else None for step in steps],
        "leaves": [[leaf.salt, msgspec.msgpack.decode(leaf.member)] for leaf in steps[-1].leaves],
        "departures": [[row_of(one.body), one.signature] for one in left],
        "last": count,
        "now": NOW,
        "mark": [marked, steps[marked - 1].made.hash] if marked else None,
    }  # fmt: skip


def _row(value: Any, size: int) -> list[Any] | None:
    return value if isinstance(value, list) and len(value) == size else None


def _members(document: v.Document) -> list[SaltedMember]:
    return [SaltedMember(*item) for item in salted(document["leaves"])]


def _mend(document: v.Document, fixups: int) -> list[Signed]:
    """Return the records, with what the fixups make right again in them and in the newest roster."""
    leaves, listed = _members(document), v.list_of(document["rosters"])
    introduced = [row for row in listed if _row(row, 8)]
    if fixups & HASHES and introduced and leaves:
        introduced[-1][5:7] = roster.members_root(leaves), len(leaves)
    for number, item in enumerate(v.list_of(document["records"]) if fixups & HASHES else ()):
        shown, made = _row(_part(document, "types", number), 2), _part(document, "rosters", number)
        match item:
            case [[container, _, _, _, _, _, _, _, [_, _, _, _, _, _] as governing, *_], _] if (
                shown is not None and made is not None
            ):
                shown[1] = roster.group_type(stored(made))
                if isinstance(shown[0], bytes) and isinstance(container, bytes):
                    governing[4] = type_hash(container, shown[0], shown[1])
    lists = [entries for entries in v.list_of(document["lists"]) if entries is not None]
    return mend({**document, "lists": lists}, fixups)


def _part(document: v.Document, name: str, number: int) -> Any:
    items = v.list_of(document[name])
    return items[number] if number < len(items) else None


def _message(document: v.Document, fixups: int, *, signed: bool) -> bytes:
    """Return the GroupView; without signatures for a reader who takes them to hold."""
    records = _mend(document, fixups)
    left = departures(document["departures"], fixups, DEPARTURE_LABEL, 5)

    def shown(one: Signed) -> dict[str, Any]:
        return {"body": one.body, "signature": one.signature if signed else None}

    def served(number: int, record: Signed) -> dict[str, Any]:
        parts = [_part(document, name, number) for name in ("lists", "types", "rosters")]
        introduced = None if parts[2] is None else stored(parts[2])
        return {"record": shown(record), "accessList": _list(parts[0]), "type": _type(parts[1]),
                "roster": introduced}  # fmt: skip

    return write({
        "records": [served(number, record) for number, record in enumerate(records)],
        "last": v.tree(document["last"]),
        "keyChains": [],
        "membership": {
            "leaves": [{"salt": leaf.salt, "member": leaf.member} for leaf in _members(document)],
            "wrap": None, "info": b"", "owed": [], "accepted": True,
            "departures": [shown(one) for one in left],
        },
    })  # fmt: skip


def _list(entries: Any) -> Any:
    if entries is None:
        return None
    items = salted(entries)
    shown = [{"position": n, "salt": one.salt, "entry": one.entry} for n, one in enumerate(items)]
    return {"entryHashes": b"".join(one.hash for one in items), "disclosed": shown}


def _type(value: Any) -> Any:
    pair = _row(value, 2)
    return v.tree(value) if pair is None else {"salt": v.tree(pair[0]), "type": v.tree(pair[1])}


def _group(data: bytes) -> None:
    found = v.Program.parse(data)
    document = found.applied(scene(found.base))
    now = document["now"] if type(document["now"]) is int else NOW
    octets = _message(document, found.fixups, signed=True)
    feed(octets)
    view = decode(GroupView, octets)
    keys = {chain.fingerprint: chain for chain in chains().values()}
    basis = Basis(team().group.box.id, None, None, None)
    chain = basis.judge(basis.following(view.records), keys, now)
    match document["mark"]:
        case [int() as version, bytes() as digest] if type(version) is int and version > 0:
            mark = msgspec.structs.replace(
                group_records.mark_of(chain), version=version, hash=digest
            )
            Basis(team().group.box.id, None, mark, None).check_end(chain, view.last)
            group_records.check_follows(chain, mark)
    assert view.membership is not None
    members = group_records.judge_members(chain, view.membership.leaves)
    group.check_keys(members, keys)
    served = view.membership.departures
    left = group_records.judge_departures(served, chain, members, keys, now)
    # The second implementation makes the checks again, and finds the same.
    judge = Judge(now, other_chains())
    again = independent(group_views.read, judge, _message(document, found.fixups, signed=False))
    kept(again.chain.name == chain.name == team().group.fingerprint, "another group")
    kept(again.chain.head.hash == chain.head.hash, "another head")
    kept(again.chain.roster.stored() == chain.roster_bytes, "another roster")
    kept(list(again.members or ()) == list(members), "other members")
    kept(chain.managers.keys() <= members.keys(), "a manager without a leaf")
    kept(left <= members.keys(), "somebody left who is not a member")
    if not found.fixups & SIGNATURES:
        true = {step.made.signed.body for step in team().steps}
        kept({item.record.body for item in view.records} <= true, "a record that nobody signed")


def _programs() -> list[bytes]:
    """Return every scene as it is, and what leads to each refusal."""
    first, mark = scene(0), v.path_to(scene(4), "mark")
    signed = HASHES | LINKS | SIGNATURES
    return [
        *(v.program(base) for base in range(len(SCENES))),
        *(v.program(base, signed) for base in (0, 3, 5)),
        v.program(0, 0, (v.ADD, v.path_to(first, "now"), -40 * DAY)),
        v.program(4, 0, (v.SET, [*mark, 0], 6)),
        v.program(4, 0, (v.SET, [*mark, 1], bytes(32))),
        v.program(0, 0, (v.SET, v.path_to(first, "last"), None)),
        v.program(0, 0, (v.GROW, v.path_to(first, "leaves", 0, 0), 1 << 22)),
        v.program(1, signed, (v.ADD, v.path_to(scene(1), "leaves", 0, 1, 2), -1)),
        v.program(1, signed, (v.ADD, v.path_to(scene(1), "rosters", 1, 2), 1)),
        v.program(1, signed, (v.DROP, v.path_to(scene(1), "leaves", 4), None)),
        v.program(5, signed, (v.ADD, v.path_to(scene(5), "departures", 0, 0, 1), 1)),
    ]


def _bombs() -> Iterator[bytes]:
    yield v.program(0, 0, (v.SET, v.path_to(scene(0), "leaves"), [[bytes(32), b"x"]] * 5000))


_REFUSALS: Final = (
    errors.IntegrityError, errors.ClockError, errors.RollbackError, errors.ForkError,
    errors.InvalidArgumentError, errors.TooLargeError,
)  # fmt: skip


def _stored_rosters() -> list[bytes]:
    return [step.stored for step in team().steps if step.introduces]


def _bodies() -> list[bytes]:
    found = [item["departures"] for item in vectors("group_departures", "valid")]
    return [bytes.fromhex(one[0]["body"]) for one in found if one]


def _leaves_of(step: Step) -> list[bytes]:
    return [leaf.member for leaf in step.leaves]


TARGETS: Final = (
    parsed("roster", roster.parse_roster, encode_object, rosters.parse, _stored_rosters),
    parsed("member", roster.parse_member, encode_value, rosters.parse_member,
           lambda: [*_leaves_of(team().steps[1]), *_leaves_of(team().steps[7])]),
    parsed("group-departure", roster.parse_group_departure, encode_object, group_chains.parse_departure,
           _bodies),
    v.messagepack_target("group-info", _info, (IntegrityError,), _infos),
    v.messagepack_target("membership-proof", _proof, (IntegrityError,), _proofs),
    v.program_target("group", _group, _REFUSALS, _programs, (scene, len(SCENES), 3), _bombs,
                     around=marked_signatures),
)  # fmt: skip
