"""Read each file of vectors by the second implementation: a reader returns a value, or refuses."""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tests.independent import (
    access_lists,
    batches,
    contact_cards,
    container_records,
    edwards,
    events,
    group_chains,
    group_secrets,
    headers,
    ids,
    key_files,
    key_records,
    links,
    messages,
    orders,
    rosters,
    segments,
    sessions,
    views,
    wraps,
)
from tests.independent.access_lists import AccessList
from tests.independent.container_records import Acting, InForce, Judge, Judged
from tests.independent.encodings import label, labelled_hash, uuid8, uuid_of_text, uuid_text
from tests.independent.group_chains import GroupChain, Served
from tests.independent.group_secrets import WrapInfo
from tests.independent.ids import group_name_of, shown
from tests.independent.key_files import KeyRing
from tests.independent.key_records import KeyChain
from tests.independent.keys import (
    DecryptionKey,
    SigningKey,
    check_encryption_key,
    check_signature,
    check_signing_key,
    cobblestone_open,
    cobblestone_size,
)
from tests.independent.orders import Order
from tests.independent.rosters import Leaf, Member, Proof, Roster
from tests.independent.segments import Part, Place
from tests.independent.sessions import Broker, Statement
from tests.independent.vectors import (
    AFTER_ALL_OF_THEM,
    Vector,
    chains,
    digest,
    load,
    octets,
    people,
    salted,
    signed,
)
from tests.independent.views import Mark, Reader

# ids.json and people.json: docs/spec/ids.md, 1 to 3


def _hash(vector: Vector) -> None:
    assert labelled_hash(vector["name"], octets(vector["message"])) == octets(vector["hash"])


def _uuid8(vector: Vector) -> None:
    assert uuid_text(uuid8(octets(vector["hash"]))) == vector["uuid"]


def _user(vector: Vector) -> None:
    fingerprint = ids.fingerprint_of(octets(vector["signingKey"]))
    assert fingerprint == octets(vector["fingerprint"])
    assert uuid_text(ids.user_id_of(fingerprint)) == vector["userId"]
    assert ids.shown(fingerprint) == vector["shown"]


def _container(vector: Vector) -> None:
    container_id = ids.container_id_of(octets(vector["creator"]), octets(vector["nonce"]))
    assert uuid_text(container_id) == vector["containerId"]


def _uuid_text(vector: Vector) -> None:
    found = uuid_of_text(vector["text"])
    if vector["result"] == "valid":
        assert uuid_text(found) == vector["text"]


def _signing_key(vector: Vector) -> None:
    ml_dsa = people()[vector["mlDsaOf"]].signing[0].public[32:]
    check_signing_key(octets(vector["ed25519"]) + ml_dsa)


def _encryption_key(vector: Vector) -> None:
    if "mlKem" in vector:
        ml_kem = octets(vector["mlKem"])
    else:
        ml_kem = people()[vector["mlKemOf"]].encryption[0].public[:1184]
    check_encryption_key(ml_kem + octets(vector["x25519"]))


IDS: dict[str, Callable[[Vector], None]] = {
    "hash": _hash,
    "uuid8": _uuid8,
    "user": _user,
    "container": _container,
    "uuid text": _uuid_text,
    "signing key": _signing_key,
    "encryption key": _encryption_key,
}


# key_records.json: docs/spec/ids.md, 4


def read_key_chain(vector: Vector) -> KeyChain:
    stored = load("key_records")["given"]["records"]
    records = [signed(stored[name]) for name in vector["records"]]
    chain = key_records.judge(records, vector["now"])
    if "userId" in vector:
        chain.check_user(uuid_of_text(vector["userId"]))
    if "pin" in vector:
        chain.check_pin(octets(vector["pin"]))
    if "mark" in vector:
        chain.check_mark(
            key_records.Mark(vector["mark"]["sequence"], octets(vector["mark"]["hash"]))
        )
    return chain


# key_rings.json: docs/spec/keyfile.md, 4


def check_key_ring(vector: Vector) -> None:
    records = [signed(record) for record in vector["keyRecords"]]
    key_files.check_chain(_ring(vector), key_records.judge(records, vector["now"]))


def _ring(vector: Vector) -> KeyRing:
    person = people()[vector["ring"]]
    more = load("key_rings")["given"]["seeds"].get(vector["ring"], [])
    signing = [
        *person.signing,
        *(SigningKey(octets(one["ed25519"]), octets(one["mlDsa"])) for one in more),
    ]
    encryption = [
        *person.encryption,
        *(DecryptionKey(octets(one["mlKem"]), octets(one["x25519"])) for one in more),
    ]
    return KeyRing(
        1, tuple(signing[: vector["signing"]]), tuple(encryption[: vector["encryption"]])
    )


# key_files.json: docs/spec/keyfile.md, 1 and 2


def open_key_file(vector: Vector) -> None:
    ring = key_files.open_with_passphrase(
        octets(vector["keyFile"]),
        uuid_of_text(vector["userId"]),
        vector["passphrase"],
        vector["password"],
    )
    if vector["result"] == "invalid":
        return
    assert ring.stored() == octets(vector["keyRing"])
    assert ring.generation == vector["generation"]


# signatures.json: docs/spec/ids.md, 2.2


def check_by_library(vector: Vector) -> None:
    public = octets(vector["ed25519"]) + people()[vector["mlDsaOf"]].signing[0].public[32:]
    check_signing_key(public)
    signature = base64.b64decode(vector["signature"])
    check_signature(public, vector["name"], octets(vector["object"]), signature)


def holds_by_formulas(vector: Vector, **way: bool) -> bool:
    message = label(vector["name"]) + octets(vector["object"])
    half = base64.b64decode(vector["signature"])[:64]
    return edwards.verifies(octets(vector["ed25519"]), message, half, **way)


# batches.json: docs/spec/ids.md, 2.7


def check_batch(vector: Vector) -> None:
    body = octets(load("batches")["given"]["records"][vector["record"]])
    record = container_records.parse(body)
    public = chains()[record.author].signing_key(record.key_index, record.time)
    signature = octets(vector["batchSignature"])
    batches.check(public, container_records.record_hash(body), signature)


# contact_cards.json: docs/spec/ids.md, 5.1


def check_card(vector: Vector) -> None:
    found = contact_cards.parse(vector["card"])
    if vector["result"] == "valid":
        assert found == (octets(vector["fingerprint"]), vector["serverUrl"], vector["name"])


# links.json: docs/spec/links.md


def _url(vector: Vector) -> None:
    link = links.parse(vector["url"])
    if vector["result"] == "valid":
        assert link == links.Link(
            vector["serverUrl"],
            octets(vector["secret"]),
            octets(vector["fingerprint"]),
            uuid_of_text(vector["apiKey"]),
            vector["hasPassword"],
        )
        assert uuid_text(ids.user_id_of(link.fingerprint)) == vector["userId"]
        assert links.url_of(link) == vector["url"]


def _passphrase(vector: Vector) -> None:
    secret, fingerprint = octets(vector["secret"]), octets(vector["fingerprint"])
    assert links.passphrase(secret, fingerprint, vector["password"]) == vector["passphrase"]


LINKS: dict[str, Callable[[Vector], None]] = {"url": _url, "passphrase": _passphrase}


# sessions.json and orders.json: docs/spec/protocol.md, 3


BROKER = "https://broker.example:443"


def _broker() -> Broker:
    return Broker(octets(load("sessions")["given"]["brokerKey"]))


def check_statement(vector: Vector) -> None:
    if vector["kind"] != "statement":
        _check_computed(vector)
        return
    body, signature = octets(vector["statement"]), base64.b64decode(vector["signature"])
    chain = people()[vector["user"]].chain
    if vector.get("closed"):
        closing = signed(load("sessions")["given"]["closingRecord"])
        chain = key_records.judge([*people()[vector["user"]].records, closing], AFTER_ALL_OF_THEM)
    origin = vector.get("brokerOrigin", BROKER)
    statement = sessions.judge(
        body, signature, chain, origin, lambda nonce: _broker().check_nonce(nonce, vector["now"])
    )
    if vector["result"] == "valid":
        assert statement == Statement(
            vector["origin"],
            octets(vector["fingerprint"]),
            vector["keyIndex"],
            octets(vector["nonce"]),
        )
        assert statement.stored() == body


def _check_computed(vector: Vector) -> None:
    """Nonces, verifiers and device passes are of the broker's key."""
    broker = _broker()
    if vector["kind"] == "nonce":
        found = broker.nonce(octets(vector["random"]), vector["expiry"])
        assert found == octets(vector["nonce"])
        return
    user_id = uuid_of_text(vector["userId"])
    if vector["kind"] == "verifier":
        assert broker.verifier(user_id, octets(vector["auth"])) == octets(vector["verifier"])
    else:
        found = broker.device_pass(user_id, octets(vector["deviceId"]))
        assert found == octets(vector["devicePass"])


def check_order(vector: Vector) -> None:
    body, signature = octets(vector["order"]), base64.b64decode(vector["signature"])
    action, chain = vector["action"], people()[vector["user"]].chain
    origin = vector.get("brokerOrigin", BROKER)
    order = orders.judge(body, signature, chain, origin, action, digest(vector))
    if vector["result"] == "invalid":
        return
    assert order == Order(
        vector["origin"],
        octets(vector["fingerprint"]),
        vector["keyIndex"],
        octets(vector["nonce"]),
        vector["action"],
        octets(vector["digest"]),
    )
    assert order.stored() == body


# events.json: docs/spec/protocol.md, 5


def check_events(vector: Vector) -> None:
    digest = events.digest([_event(event) for event in vector["events"]])
    if vector["result"] == "valid":
        assert digest == octets(vector["digest"])


def _event(event: dict[str, Any]) -> dict[str, Any]:
    names = ("salt", "detailsHash")
    return {**event, **{name: octets(event[name]) for name in names if event.get(name)}}


# messages.json: docs/spec/protocol.md, 1 and 5


def read_message(vector: Vector) -> object:
    more = octets(vector["repeated"]) * vector["count"] if "repeated" in vector else b""
    return messages.read(vector["kind"], octets(vector["message"]) + more)


# access_lists.json: docs/spec/container.md, 4


def check_access_list(vector: Vector) -> None:
    access = _read_access_list(vector)
    if vector["result"] == "invalid":
        return
    assert access.entry_hashes == _entry_hashes(vector)
    assert access.hash == octets(vector["hash"])
    assert access.complete == vector.get("complete", True)


def _read_access_list(vector: Vector) -> AccessList:
    given = load("access_lists")["given"]
    container_id, version = octets(given["containerId"]), given["accessVersion"]
    if "entries" in vector:
        return access_lists.whole(container_id, version, [salted(e) for e in vector["entries"]])
    seen = [(stored["position"], salted(stored)) for stored in vector["disclosed"]]
    return access_lists.disclosed(container_id, version, _entry_hashes(vector), seen)


def _entry_hashes(vector: Vector) -> bytes:
    if "repeated" in vector:
        return octets(vector["repeated"]) * int(vector["count"])
    return octets(vector["entryHashes"])


# wraps.json: docs/spec/container.md, 3


def open_wrap(vector: Vector) -> None:
    container_id = octets(vector["containerId"])
    info = wraps.WrapInfo(
        container_id,
        vector["accessVersion"],
        octets(vector["accessAuthor"]),
        octets(vector["recipient"]),
        vector["keyIndex"],
    )
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    key = wraps.unwrap_key(private, info, octets(vector["wrap"]))
    if vector["result"] == "invalid":
        return
    assert key == octets(vector["key"])
    committed = wraps.key_commitment(container_id, key) == octets(vector["keyCommitment"])
    assert committed == vector["commits"]


# segments.json: docs/spec/container.md, 3 and 6


def _place(vector: Vector) -> Place:
    return Place(
        octets(vector["containerId"]),
        octets(vector["partId"]),
        vector["role"],
        octets(vector["author"]),
    )


def _segment(vector: Vector) -> None:
    context = _place(vector).segment_context(vector["index"], vector["last"])
    opened = cobblestone_open(octets(vector["partKey"]), context, octets(vector["sealed"]))
    assert vector["result"] == "invalid" or opened == octets(vector["plaintext"])


def _sealed_key(vector: Vector) -> None:
    opened = segments.open_part_key(
        octets(vector["containerKey"]),
        _place(vector),
        vector["paddedLength"],
        octets(vector["sealedKey"]),
    )
    assert vector["result"] == "invalid" or opened == (octets(vector["partKey"]), vector["length"])


def _part(vector: Vector) -> None:
    part = Part(
        octets(vector["partId"]),
        octets(vector["author"]),
        vector["paddedLength"],
        octets(vector["segments"]),
        octets(vector["sealedKey"]),
    )
    opened = segments.open_part(
        octets(vector["containerId"]),
        vector["role"],
        part,
        octets(vector["containerKey"]),
        octets(vector["hashes"]),
        [octets(segment) for segment in vector["sealed"]],
    )
    assert vector["result"] == "invalid" or opened == octets(vector["plaintext"])


def _list(vector: Vector) -> None:
    digest = segments.segments_hash(vector["paddedLength"], octets(vector["hashes"]))
    assert digest == octets(vector["segments"])


def _size(vector: Vector) -> None:
    count = segments.segment_count(vector["paddedLength"])
    assert count == vector["count"]
    last = segments.segment_size(vector["paddedLength"], count - 1)
    assert cobblestone_size(last) == vector["lastSealed"]


SEGMENTS: dict[str, Callable[[Vector], None]] = {
    "segment": _segment,
    "sealed key": _sealed_key,
    "part": _part,
    "list": _list,
    "size": _size,
}


# rosters.json and membership_proofs.json: docs/spec/groups.md, 2 and 3


def check_roster(vector: Vector) -> None:
    stored = octets(vector["roster"])
    roster = rosters.parse(stored)
    rosters.check_type(vector["type"], stored)
    members = rosters.check_leaves(roster, _leaves(vector))
    if vector["result"] == "valid":
        assert len(members) == roster.count


def check_proof(vector: Vector) -> None:
    member = rosters.proven(octets(vector["members"]), vector["count"], proof_of(vector["proof"]))
    if vector["result"] == "valid":
        assert member.fingerprint == octets(vector["fingerprint"])
        named = (member.key_index, member.role, member.version)
        assert named == (vector["keyIndex"], vector["role"], vector["version"])


def _leaves(vector: Vector) -> list[Leaf]:
    if "first" in vector:
        return [leaf_of(one) for one in load("rosters")["given"]["leaves"][: vector["first"]]]
    return [leaf_of(one) for one in vector["leaves"]]


def leaf_of(stored: dict[str, Any]) -> Leaf:
    return Leaf(octets(stored["salt"]), octets(stored["member"]))


def proof_of(stored: dict[str, Any]) -> Proof:
    salt, member = octets(stored["salt"]), octets(stored["member"])
    return Proof(salt, member, stored["index"], octets(stored["path"]))


# group_chains.json: docs/spec/groups.md, 4


def _group_records() -> dict[str, Vector]:
    stored: dict[str, Vector] = load("group_chains")["given"]["records"]
    return stored


def read_group(vector: Vector) -> GroupChain | None:
    names = vector["records"]
    chain = read_chain(_group_records(), names, vector["now"], vector)
    assert chain is not None
    if "mark" in vector:
        mark = vector["mark"]
        group_chains.check_mark(chain, mark["version"], octets(mark["hash"]))
    if vector.get("members"):
        members = group_chains.check_members(chain, leaves_of(_group_records(), names), chains())
        if "since" in vector:
            older = _verified(names[: names.index(vector["since"]) + 1], vector)
            group_chains.check_since(older, (chain.roster, members))
    if vector["result"] == "valid":
        assert chain.name == octets(load("group_chains")["given"]["groupName"])
        assert chain.roster.epoch == vector["epoch"]
    return chain


def _verified(names: list[str], vector: Vector) -> tuple[Roster, Mapping[bytes, Member]]:
    """The members that the device verified last."""
    chain = read_chain(_group_records(), names, vector["now"], {})
    assert chain is not None
    return chain.roster, rosters.check_leaves(chain.roster, leaves_of(_group_records(), names))


def read_chain(
    pool: dict[str, Vector], names: list[str], now: int, vector: Vector
) -> GroupChain | None:
    """C1 to C6 of records by name; None for no records."""
    if not names:
        return None
    judge = Judge(now, chains())
    return group_chains.judge(
        judge, [served(pool[name], vector.get("disclosed", {}).get(name)) for name in names]
    )


def served(stored: dict[str, Any], seen: list[int] | None = None) -> Served:
    shown = stored.get("type")
    roster = stored.get("roster")
    return Served(
        signed(stored),
        list_of(stored, seen),
        None if shown is None else (octets(shown["salt"]), shown["type"]),
        None if roster is None else octets(roster),
        len(stored.get("departures", [])),
    )


def list_of(
    stored: Vector, positions: Iterable[int] | None = None, *, bare: bool = False
) -> AccessList | None:
    """The list of a record, of which the reader sees these entries, or all."""
    if "accessList" not in stored:
        return None
    parse = container_records.parse_bare if bare else container_records.parse
    record = parse(octets(stored["body"]))
    version = record.version if record.governing is None else record.governing.access_version
    entries = [salted(one) for one in stored["accessList"]]
    return access_lists.disclosed(
        record.container_id,
        version,
        b"".join(entry.hash for entry in entries),
        [(n, entries[n]) for n in (range(len(entries)) if positions is None else positions)],
    )


def leaves_of(pool: dict[str, Vector], names: list[str]) -> list[Leaf]:
    """Those of the roster in force."""
    introduced = [pool[name]["leaves"] for name in names if "leaves" in pool[name]]
    return [leaf_of(one) for one in introduced[-1]]


# group_departures.json: docs/spec/groups.md, 9


def check_group_departure(vector: Vector) -> None:
    pool = load("group_departures")["given"]["records"]
    chain = read_chain(pool, vector["records"], vector["now"], {})
    assert chain is not None
    members = rosters.check_leaves(chain.roster, leaves_of(pool, vector["records"]))
    judge = Judge(vector["now"], chains())
    served = [signed(one) for one in vector["departures"]]
    left = group_chains.departed(judge, chain, members, served)
    if vector["result"] == "valid":
        assert left == {people()[name].fingerprint for name in vector["left"]}


# group_names.json: docs/spec/groups.md, 1


def check_name(vector: Vector) -> None:
    name = group_name_of(octets(vector["creator"]), octets(vector["nonce"]))
    assert name == octets(vector["name"])
    assert uuid_text(uuid8(name)) == vector["groupId"]
    assert shown(name) == vector["shown"]


def check_group(vector: Vector) -> None:
    given = load("group_names")["given"]
    chain = read_chain(given["records"], [vector["record"]], given["now"], {})
    assert chain is not None
    group_chains.check_asked(chain, uuid_of_text(vector["asked"]))
    if vector["pin"] is not None:
        group_chains.check_pin(chain, octets(vector["pin"]))
    if vector["result"] == "valid":
        assert chain.name == octets(vector["name"])


def check_user(vector: Vector) -> None:
    chain = people()[vector["user"]].chain
    chain.check_user(uuid_of_text(vector["asked"]))
    if vector["result"] == "valid":
        assert chain.fingerprint == octets(vector["name"])


GROUP_NAMES: dict[str, Callable[[Vector], None]] = {
    "name": check_name,
    "group": check_group,
    "user": check_user,
}


# group_secrets.json: docs/spec/groups.md, 3.2 to 3.4


def check_secret(vector: Vector) -> None:
    group, secret = octets(vector["groupName"]), octets(vector["secret"])
    committed, public = octets(vector["commitment"]), octets(vector["publicKey"])
    group_secrets.check_secret(group, vector["epoch"], secret, committed, public)
    if vector["result"] == "valid":
        expected = [octets(seed) for seed in vector["seeds"]]
        assert group_secrets.seeds(group, secret) == expected


def open_secret(vector: Vector) -> None:
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    secret = group_secrets.unwrap_secret(private, _secret_info(vector), octets(vector["wrap"]))
    if vector["result"] == "valid":
        assert secret == octets(vector["secret"])


def open_info(vector: Vector) -> None:
    group, epoch = octets(vector["groupName"]), vector["epoch"]
    info = group_secrets.open_info(
        group, epoch, octets(vector["secret"]), octets(vector["info"]), octets(vector["sealed"])
    )
    commitments = {n: octets(one) for n, one in enumerate(vector["commitments"])}
    group_secrets.check_secrets(group, info, commitments)
    if vector["result"] == "valid":
        assert (info.name, info.description) == (vector["name"], vector["description"])
        secrets = [None if one is None else one.hex() for one in info.secrets]
        assert secrets == vector["secrets"]


def _secret_info(vector: Vector) -> WrapInfo:
    return WrapInfo(
        octets(vector["groupName"]),
        vector["epoch"],
        octets(vector["commitment"]),
        octets(vector["fingerprint"]),
        vector["keyIndex"],
    )


GROUP_SECRETS: dict[str, Callable[[Vector], None]] = {
    "secret": check_secret,
    "wrap": open_secret,
    "info": open_info,
}


# container_records.json and types.json: docs/spec/container.md, 2, 5, 7 and 8


def _container_records() -> dict[str, Vector]:
    stored: dict[str, Vector] = load("container_records")["given"]["records"]
    return stored


def read_container(vector: Vector) -> Judged | InForce:
    """The last record, after those before it."""
    *before, last = vector["records"]
    return _next(last, vector, _chain(before, vector))


def check_type(vector: Vector) -> None:
    container_id, salt = octets(vector["containerId"]), octets(vector["salt"])
    if "roster" in vector:
        rosters.check_type(vector["type"], octets(vector["roster"]))
    else:
        container_records.check_ordinary(vector["type"])
    digest = container_records.type_hash(container_id, salt, vector["type"])
    assert digest == octets(vector["hash"])


def _judge(vector: Vector) -> Judge:
    return Judge(vector["now"], chains(), vector.get("deleted", False))


def _chain(names: list[str], vector: Vector) -> list[Judged | InForce]:
    judged: list[Judged | InForce] = []
    for name in names:
        judged.append(_next(name, {**vector, "parent": True}, judged))
    return judged


def _next(name: str, vector: Vector, before: list[Judged | InForce]) -> Judged | InForce:
    found = _judged(name, vector, before)
    left = vector.get("left", {}).get(name)
    if left is None or not isinstance(found, InForce):
        return found
    return replace(found, left=frozenset(people()[user].fingerprint for user in left))


def _judged(name: str, vector: Vector, before: list[Judged | InForce]) -> Judged | InForce:
    judge, served_record = _judge(vector), _container_records()[name]
    shown = vector.get("disclosed", {}).get(name)
    access, stored = list_of(served_record, shown, bare="deleted" in vector), signed(served_record)
    if not before:
        assert access is not None
        return judge.first(stored, access)
    parse = container_records.parse_bare if judge.deleted else container_records.parse
    record = parse(stored.body)
    governing = [record for record in before if isinstance(record, InForce)]
    linked = [g for g in governing if (g.record.version, g.hash) == record.link]
    parent = before[-1] if vector.get("parent", True) else None
    if judge.deleted and record.version > before[-1].record.version + 1:
        parent = None
    acting = _acting(record, served_record, vector)
    return judge.next(stored, (linked or governing)[-1], access, parent, acting)


def _acting(
    record: container_records.ContainerRecord, stored: Vector, vector: Vector
) -> Acting | None:
    """The group of a record's via, as far as the reader knows it."""
    if record.via is None:
        return None
    [chain] = [one for one in _groups(vector) if one.name == record.via.group]
    return group_chains.acting(chain, record, proof_of(stored["membership"]))


def _groups(vector: Vector) -> list[GroupChain]:
    """The groups of a vector, each as far as the reader has it."""
    given, judge = load("container_records")["given"]["groups"], Judge(vector["now"], chains())
    return [
        group_chains.judge(judge, [served(one) for one in given[name][:count]])
        for name, count in vector["groups"].items()
    ]


# departures.json: docs/spec/container.md, 4.1


def check_departure(vector: Vector) -> None:
    Judge(vector["now"], chains()).departed(_in_force(vector), [signed(vector)])


def _in_force(vector: Vector) -> InForce:
    """G, after the governing records before it."""
    judge, g = Judge(vector["now"], chains()), None
    for name in vector["governing"]:
        stored = load("departures")["given"]["records"][name]
        newest = name == vector["governing"][-1]
        access = list_of(stored, vector.get("disclosed") if newest else None)
        if g is None:
            assert access is not None
            g = judge.first(signed(stored), access)
        else:
            found = judge.next(signed(stored), g, access, None)
            assert isinstance(found, InForce)
            g = found
    assert g is not None
    return g


# views.json: docs/spec/container.md, 4, 5 and 8


def check_view(vector: Vector) -> None:
    person = people()[vector["reader"]]
    reader = Reader(
        person.fingerprint,
        person.encryption,
        chains(),
        vector["now"],
        _mark(vector["mark"]),
        _groups_of_view(vector),
    )
    found = views.read(reader, octets(vector["containerId"]), octets(vector["view"]))
    if vector["result"] == "invalid":
        return
    assert found.version == vector["version"]
    assert found.complete == vector["complete"]
    assert found.deleted == vector.get("deleted", False)
    assert found.header == _or_none(vector["header"])
    assert found.content == _or_none(vector["content"])
    assert found.type == vector["type"]
    assert found.unsettled == vector.get("unsettled")


def _groups_of_view(vector: Vector) -> dict[bytes, bytes]:
    served = load("views")["given"]["groups"]
    groups = vector.get("groups", {})
    return {uuid_of_text(group): octets(served[name]) for group, name in groups.items()}


def _mark(mark: dict[str, Any] | None) -> Mark | None:
    if mark is None:
        return None
    hashes = octets(mark["hash"]), octets(mark["governingHash"])
    return Mark(
        mark["version"],
        hashes[0],
        mark["governingVersion"],
        hashes[1],
        mark["complete"],
        mark["accessTime"],
    )


def _or_none(text: str | None) -> bytes | None:
    return None if text is None else octets(text)


READERS: dict[str, Callable[[Vector], object]] = {
    "access_lists": check_access_list,
    "batches": check_batch,
    "contact_cards": check_card,
    "container_records": read_container,
    "departures": check_departure,
    "events": check_events,
    "group_chains": read_group,
    "group_departures": check_group_departure,
    "group_names": lambda vector: GROUP_NAMES[vector["kind"]](vector),
    "group_secrets": lambda vector: GROUP_SECRETS[vector["kind"]](vector),
    "headers": lambda vector: headers.parse(octets(vector["header"])),
    "ids": lambda vector: IDS[vector["kind"]](vector),
    "key_files": open_key_file,
    "key_records": read_key_chain,
    "key_rings": check_key_ring,
    "links": lambda vector: LINKS[vector["kind"]](vector),
    "membership_proofs": check_proof,
    "messages": read_message,
    "orders": check_order,
    "rosters": check_roster,
    "segments": lambda vector: SEGMENTS[vector["kind"]](vector),
    "sessions": check_statement,
    "signatures": check_by_library,
    "types": check_type,
    "views": check_view,
    "wraps": open_wrap,
}
