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

Pool = Mapping[str, Vector]
"""The records of a file by name."""


def raw(vector: Vector, *names: str) -> list[bytes]:
    """The byte strings of these names."""
    return [octets(vector[name]) for name in names]


def is_invalid(vector: Vector) -> bool:
    """Then nothing is said of what comes out: a reader without one of its checks may get so far."""
    return bool(vector["result"] == "invalid")


def pool_of(file: str) -> Pool:
    found: Pool = load(file)["given"]["records"]
    return found


# ids.json and people.json: docs/spec/ids.md, 1 to 3


def read_ids(vector: Vector) -> None:
    match vector["kind"]:
        case "hash":
            message, expected = raw(vector, "message", "hash")
            assert labelled_hash(vector["name"], message) == expected
        case "uuid8":
            assert uuid_text(uuid8(octets(vector["hash"]))) == vector["uuid"]
        case "user":
            fingerprint = ids.fingerprint_of(octets(vector["signingKey"]))
            assert fingerprint == octets(vector["fingerprint"])
            assert uuid_text(ids.user_id_of(fingerprint)) == vector["userId"]
            assert ids.shown(fingerprint) == vector["shown"]
        case "container":
            found = ids.container_id_of(*raw(vector, "creator", "nonce"))
            assert uuid_text(found) == vector["containerId"]
        case "uuid text":
            found = uuid_of_text(vector["text"])
            assert is_invalid(vector) or uuid_text(found) == vector["text"]
        case "signing key":
            ml_dsa = people()[vector["mlDsaOf"]].signing[0].public[32:]
            check_signing_key(octets(vector["ed25519"]) + ml_dsa)
        case kind:
            assert kind == "encryption key"
            ml_kem = octets(vector.get("mlKem", ""))
            if "mlKemOf" in vector:
                ml_kem = people()[vector["mlKemOf"]].encryption[0].public[:1184]
            check_encryption_key(ml_kem + octets(vector["x25519"]))


# key_records.json: docs/spec/ids.md, 4


def read_key_chain(vector: Vector) -> KeyChain:
    records = [signed(pool_of("key_records")[name]) for name in vector["records"]]
    chain = key_records.judge(records, vector["now"])
    if "userId" in vector:
        chain.check_user(uuid_of_text(vector["userId"]))
    if "pin" in vector:
        chain.check_pin(octets(vector["pin"]))
    if "mark" in vector:
        mark = vector["mark"]
        chain.check_mark(key_records.Mark(mark["sequence"], octets(mark["hash"])))
    return chain


# key_rings.json and key_files.json: docs/spec/keyfile.md


def check_key_ring(vector: Vector) -> None:
    person = people()[vector["ring"]]
    more = load("key_rings")["given"]["seeds"].get(vector["ring"], [])
    signing = [*person.signing, *(SigningKey(*raw(one, "ed25519", "mlDsa")) for one in more)]
    encryption = [
        *person.encryption,
        *(DecryptionKey(*raw(one, "mlKem", "x25519")) for one in more),
    ]
    ring = KeyRing(
        1, tuple(signing[: vector["signing"]]), tuple(encryption[: vector["encryption"]])
    )
    records = [signed(record) for record in vector["keyRecords"]]
    key_files.check_chain(ring, key_records.judge(records, vector["now"]))


def open_key_file(vector: Vector) -> None:
    file, user_id = octets(vector["keyFile"]), uuid_of_text(vector["userId"])
    ring = key_files.open_with_passphrase(file, user_id, vector["passphrase"], vector["password"])
    found = ring.stored().hex(), ring.generation
    assert is_invalid(vector) or found == (vector["keyRing"], vector["generation"])


# signatures.json and batches.json: docs/spec/ids.md, 2.2 and 2.7


def check_by_library(vector: Vector) -> None:
    public = octets(vector["ed25519"]) + people()[vector["mlDsaOf"]].signing[0].public[32:]
    check_signing_key(public)
    signature = base64.b64decode(vector["signature"])
    check_signature(public, vector["name"], octets(vector["object"]), signature)


def holds_by_formulas(vector: Vector, **way: bool) -> bool:
    message = label(vector["name"]) + octets(vector["object"])
    half = base64.b64decode(vector["signature"])[:64]
    return edwards.verifies(octets(vector["ed25519"]), message, half, **way)


def check_batch(vector: Vector) -> None:
    body = octets(load("batches")["given"]["records"][vector["record"]])
    record = container_records.parse(body)
    public = chains()[record.author].signing_key(record.key_index, record.time)
    signature = octets(vector["batchSignature"])
    batches.check(public, container_records.record_hash(body), signature)


# contact_cards.json and links.json: docs/spec/ids.md, 5.1, and docs/spec/links.md


def check_card(vector: Vector) -> None:
    found = contact_cards.parse(vector["card"])
    assert is_invalid(vector) or found == (
        octets(vector["fingerprint"]), vector["serverUrl"], vector["name"],
    )  # fmt: skip


def read_link(vector: Vector) -> None:
    if vector["kind"] == "passphrase":
        secret, fingerprint = raw(vector, "secret", "fingerprint")
        found = links.passphrase(secret, fingerprint, vector["password"])
        assert found == vector["passphrase"]
        return
    link = links.parse(vector["url"])
    if is_invalid(vector):
        return
    secret, fingerprint = raw(vector, "secret", "fingerprint")
    api_key = uuid_of_text(vector["apiKey"])
    expected = links.Link(vector["serverUrl"], secret, fingerprint, api_key, vector["hasPassword"])
    assert link == expected
    assert uuid_text(ids.user_id_of(fingerprint)) == vector["userId"]
    assert links.url_of(link) == vector["url"]


# sessions.json and orders.json: docs/spec/protocol.md, 3


BROKER = "https://broker.example:443"


def check_statement(vector: Vector) -> None:
    given = load("sessions")["given"]
    broker = Broker(octets(given["brokerKey"]))
    if vector["kind"] != "statement":
        _check_computed(broker, vector)
        return
    body, signature = octets(vector["statement"]), base64.b64decode(vector["signature"])
    person, origin = people()[vector["user"]], vector.get("brokerOrigin", BROKER)
    chain = person.chain
    if vector.get("closed"):
        closing = signed(given["closingRecord"])
        chain = key_records.judge([*person.records, closing], AFTER_ALL_OF_THEM)
    statement = sessions.judge(
        body, signature, chain, origin, lambda nonce: broker.check_nonce(nonce, vector["now"])
    )
    if not is_invalid(vector):
        fingerprint, nonce = raw(vector, "fingerprint", "nonce")
        assert statement == Statement(vector["origin"], fingerprint, vector["keyIndex"], nonce)
        assert statement.stored() == body


def _check_computed(broker: Broker, vector: Vector) -> None:
    """Nonces, verifiers and device passes are of the broker's key."""
    if vector["kind"] == "nonce":
        random, nonce = raw(vector, "random", "nonce")
        assert broker.nonce(random, vector["expiry"]) == nonce
        return
    user_id = uuid_of_text(vector["userId"])
    if vector["kind"] == "verifier":
        auth, verifier = raw(vector, "auth", "verifier")
        assert broker.verifier(user_id, auth) == verifier
    else:
        device_id, device_pass = raw(vector, "deviceId", "devicePass")
        assert broker.device_pass(user_id, device_id) == device_pass


def check_order(vector: Vector) -> None:
    body, signature = octets(vector["order"]), base64.b64decode(vector["signature"])
    action, chain = vector["action"], people()[vector["user"]].chain
    origin = vector.get("brokerOrigin", BROKER)
    order = orders.judge(body, signature, chain, origin, action, digest(vector))
    if not is_invalid(vector):
        fingerprint, nonce, named = raw(vector, "fingerprint", "nonce", "digest")
        index = vector["keyIndex"]
        assert order == Order(vector["origin"], fingerprint, index, nonce, action, named)
        assert order.stored() == body


# events.json and messages.json: docs/spec/protocol.md, 1 and 5


def check_events(vector: Vector) -> None:
    names = ("salt", "detailsHash")
    log = [
        {**event, **{name: octets(event[name]) for name in names if event.get(name)}}
        for event in vector["events"]
    ]
    found = events.digest(log)
    assert is_invalid(vector) or found == octets(vector["digest"])


def read_message(vector: Vector) -> object:
    more = octets(vector["repeated"]) * vector["count"] if "repeated" in vector else b""
    return messages.read(vector["kind"], octets(vector["message"]) + more)


# access_lists.json: docs/spec/container.md, 4


def check_access_list(vector: Vector) -> None:
    given = load("access_lists")["given"]
    container_id, version = octets(given["containerId"]), given["accessVersion"]
    hashes = octets(vector.get("entryHashes", ""))
    if "repeated" in vector:
        hashes = octets(vector["repeated"]) * vector["count"]
    if "entries" in vector:
        access = access_lists.whole(container_id, version, [salted(e) for e in vector["entries"]])
    else:
        seen = [(stored["position"], salted(stored)) for stored in vector["disclosed"]]
        access = access_lists.disclosed(container_id, version, hashes, seen)
    found = access.entry_hashes, access.hash.hex(), access.complete
    assert is_invalid(vector) or found == (hashes, vector["hash"], vector.get("complete", True))


# wraps.json and segments.json: docs/spec/container.md, 3 and 6


def open_wrap(vector: Vector) -> None:
    container_id, author, recipient = raw(vector, "containerId", "accessAuthor", "recipient")
    info = wraps.WrapInfo(
        container_id, vector["accessVersion"], author, recipient, vector["keyIndex"]
    )
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    key = wraps.unwrap_key(private, info, octets(vector["wrap"]))
    if not is_invalid(vector):
        expected, commitment = raw(vector, "key", "keyCommitment")
        committed = wraps.key_commitment(container_id, key) == commitment
        assert (key, committed) == (expected, vector["commits"])


def read_segments(vector: Vector) -> None:
    kind, padded = vector["kind"], vector.get("paddedLength", 0)
    if kind == "list":
        hashes, expected = raw(vector, "hashes", "segments")
        assert segments.segments_hash(padded, hashes) == expected
        return
    if kind == "size":
        count = segments.segment_count(padded)
        last = cobblestone_size(segments.segment_size(padded, count - 1))
        assert (count, last) == (vector["count"], vector["lastSealed"])
        return
    container_id, part_id, author = raw(vector, "containerId", "partId", "author")
    place = Place(container_id, part_id, vector["role"], author)
    if kind == "segment":
        context = place.segment_context(vector["index"], vector["last"])
        opened = cobblestone_open(octets(vector["partKey"]), context, octets(vector["sealed"]))
        assert is_invalid(vector) or opened == octets(vector["plaintext"])
        return
    container_key, sealed_key = raw(vector, "containerKey", "sealedKey")
    if kind == "sealed key":
        found = segments.open_part_key(container_key, place, padded, sealed_key)
        assert is_invalid(vector) or found == (octets(vector["partKey"]), vector["length"])
        return
    part = Part(part_id, author, padded, octets(vector["segments"]), sealed_key)
    sealed = [octets(segment) for segment in vector["sealed"]]
    hashes = octets(vector["hashes"])
    opened = segments.open_part(container_id, vector["role"], part, container_key, hashes, sealed)
    assert is_invalid(vector) or opened == octets(vector["plaintext"])


# rosters.json and membership_proofs.json: docs/spec/groups.md, 2 and 3


def check_roster(vector: Vector) -> None:
    stored = octets(vector["roster"])
    roster = rosters.parse(stored)
    rosters.check_type(vector["type"], stored)
    leaves = vector.get("leaves") or load("rosters")["given"]["leaves"][: vector["first"]]
    members = rosters.check_leaves(roster, [leaf_of(one) for one in leaves])
    assert is_invalid(vector) or len(members) == roster.count


def check_proof(vector: Vector) -> None:
    member = rosters.proven(octets(vector["members"]), vector["count"], proof_of(vector["proof"]))
    assert is_invalid(vector) or member == Member(
        octets(vector["fingerprint"]), vector["keyIndex"], vector["role"], vector["version"]
    )


def leaf_of(stored: dict[str, Any]) -> Leaf:
    return Leaf(*raw(stored, "salt", "member"))


def proof_of(stored: dict[str, Any]) -> Proof:
    salt, member, path = raw(stored, "salt", "member", "path")
    return Proof(salt, member, stored["index"], path)


# group_chains.json, group_departures.json and group_names.json: docs/spec/groups.md, 1, 4 and 9


def read_group(vector: Vector) -> GroupChain:
    names, pool = vector["records"], pool_of("group_chains")
    chain = chain_of(pool, names, vector["now"], vector.get("disclosed", {}))
    if "mark" in vector:
        mark = vector["mark"]
        group_chains.check_mark(chain, mark["version"], octets(mark["hash"]))
    if vector.get("members"):
        leaves = leaves_of(pool, names)
        members = group_chains.check_members(chain, leaves, chains())
        if "since" in vector:
            older = _verified(pool, names[: names.index(vector["since"]) + 1], vector["now"])
            group_chains.check_since(older, (chain.roster, members))
    if not is_invalid(vector):
        assert chain.name == octets(load("group_chains")["given"]["groupName"])
        assert chain.roster.epoch == vector["epoch"]
    return chain


def _verified(pool: Pool, names: list[str], now: int) -> tuple[Roster, Mapping[bytes, Member]]:
    """The members that the device verified last."""
    roster = chain_of(pool, names, now).roster
    return roster, rosters.check_leaves(roster, leaves_of(pool, names))


def chain_of(
    pool: Pool, names: Iterable[str], now: int, disclosed: Mapping[str, list[int]] | None = None
) -> GroupChain:
    """C1 to C6 of records by name."""
    records = [_served(pool[name], (disclosed or {}).get(name)) for name in names]
    return group_chains.judge(Judge(now, chains()), records)


def _served(stored: dict[str, Any], seen: list[int] | None = None) -> Served:
    text, roster = stored.get("type"), stored.get("roster")
    return Served(
        signed(stored),
        list_of(stored, seen),
        None if text is None else (octets(text["salt"]), text["type"]),
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


def leaves_of(pool: Pool, names: list[str]) -> list[Leaf]:
    """Those of the roster in force."""
    introduced = [pool[name]["leaves"] for name in names if "leaves" in pool[name]]
    return [leaf_of(one) for one in introduced[-1]]


def check_group_departure(vector: Vector) -> None:
    pool, names, now = pool_of("group_departures"), vector["records"], vector["now"]
    chain = chain_of(pool, names, now)
    members = rosters.check_leaves(chain.roster, leaves_of(pool, names))
    served = [signed(one) for one in vector["departures"]]
    left = group_chains.departed(Judge(now, chains()), chain, members, served)
    assert is_invalid(vector) or left == {people()[name].fingerprint for name in vector["left"]}


def read_group_name(vector: Vector) -> None:
    if vector["kind"] == "name":
        name = ids.group_name_of(*raw(vector, "creator", "nonce"))
        found = name.hex(), uuid_text(uuid8(name)), ids.shown(name)
        assert found == (vector["name"], vector["groupId"], vector["shown"])
        return
    asked = uuid_of_text(vector["asked"])
    if vector["kind"] == "user":
        keys = people()[vector["user"]].chain
        keys.check_user(asked)
        name = keys.fingerprint
    else:
        now = load("group_names")["given"]["now"]
        chain = chain_of(pool_of("group_names"), [vector["record"]], now)
        group_chains.check_asked(chain, asked)
        if vector["pin"] is not None:
            group_chains.check_pin(chain, octets(vector["pin"]))
        name = chain.name
    assert is_invalid(vector) or name == octets(vector["name"])


# group_secrets.json: docs/spec/groups.md, 3.2 to 3.4


def read_group_secret(vector: Vector) -> None:
    group, epoch = octets(vector["groupName"]), vector["epoch"]
    if vector["kind"] == "info":
        _open_info(group, epoch, vector)
        return
    commitment = octets(vector["commitment"])
    if vector["kind"] == "secret":
        secret, public = raw(vector, "secret", "publicKey")
        group_secrets.check_secret(group, epoch, secret, commitment, public)
        seeds = [seed.hex() for seed in group_secrets.seeds(group, secret)]
        assert is_invalid(vector) or seeds == vector["seeds"]
        return
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    fingerprint, wrap = raw(vector, "fingerprint", "wrap")
    info = WrapInfo(group, epoch, commitment, fingerprint, vector["keyIndex"])
    secret = group_secrets.unwrap_secret(private, info, wrap)
    assert is_invalid(vector) or secret == octets(vector["secret"])


def _open_info(group: bytes, epoch: int, vector: Vector) -> None:
    info = group_secrets.open_info(group, epoch, *raw(vector, "secret", "info", "sealed"))
    commitments = {n: octets(one) for n, one in enumerate(vector["commitments"])}
    group_secrets.check_secrets(group, info, commitments)
    if not is_invalid(vector):
        assert (info.name, info.description) == (vector["name"], vector["description"])
        secrets = [None if one is None else one.hex() for one in info.secrets]
        assert secrets == vector["secrets"]


# container_records.json and types.json: docs/spec/container.md, 2, 5, 7 and 8


def read_container(vector: Vector) -> Judged | InForce:
    """The last record, after those before it."""
    *before, last = vector["records"]
    judged: list[Judged | InForce] = []
    for name in before:
        judged.append(_next(name, {**vector, "parent": True}, judged))
    return _next(last, vector, judged)


def check_type(vector: Vector) -> None:
    container_id, salt, expected = raw(vector, "containerId", "salt", "hash")
    if "roster" in vector:
        rosters.check_type(vector["type"], octets(vector["roster"]))
    else:
        container_records.check_ordinary(vector["type"])
    assert container_records.type_hash(container_id, salt, vector["type"]) == expected


def _next(name: str, vector: Vector, before: list[Judged | InForce]) -> Judged | InForce:
    found = _judged(name, vector, before)
    left = vector.get("left", {}).get(name)
    if left is None or not isinstance(found, InForce):
        return found
    return replace(found, left=frozenset(people()[user].fingerprint for user in left))


def _judged(name: str, vector: Vector, before: list[Judged | InForce]) -> Judged | InForce:
    judge = Judge(vector["now"], chains(), vector.get("deleted", False))
    served = pool_of("container_records")[name]
    shown = vector.get("disclosed", {}).get(name)
    access, stored = list_of(served, shown, bare="deleted" in vector), signed(served)
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
    acting = _acting(record, served, vector)
    return judge.next(stored, (linked or governing)[-1], access, parent, acting)


def _acting(
    record: container_records.ContainerRecord, stored: Vector, vector: Vector
) -> Acting | None:
    """The group of a record's via, as far as the reader has it."""
    if record.via is None:
        return None
    given, judge = load("container_records")["given"]["groups"], Judge(vector["now"], chains())
    groups = [
        group_chains.judge(judge, [_served(one) for one in given[name][:count]])
        for name, count in vector["groups"].items()
    ]
    [chain] = [one for one in groups if one.name == record.via.group]
    return group_chains.acting(chain, record, proof_of(stored["membership"]))


# departures.json: docs/spec/container.md, 4.1


def check_departure(vector: Vector) -> None:
    """From the list of G, after the governing records before it."""
    judge, g = Judge(vector["now"], chains()), None
    for name in vector["governing"]:
        stored, newest = pool_of("departures")[name], name == vector["governing"][-1]
        access = list_of(stored, vector.get("disclosed") if newest else None)
        if g is None:
            assert access is not None
            g = judge.first(signed(stored), access)
        else:
            found = judge.next(signed(stored), g, access, None)
            assert isinstance(found, InForce)
            g = found
    assert g is not None
    judge.departed(g, [signed(vector)])


# views.json: docs/spec/container.md, 4, 5 and 8


def check_view(vector: Vector) -> None:
    person, served = people()[vector["reader"]], load("views")["given"]["groups"]
    groups = {
        uuid_of_text(group): octets(served[name])
        for group, name in vector.get("groups", {}).items()
    }
    mark = None if vector["mark"] is None else _mark(vector["mark"])
    reader = Reader(person.fingerprint, person.encryption, chains(), vector["now"], mark, groups)
    found = views.read(reader, *raw(vector, "containerId", "view"))
    if is_invalid(vector):
        return
    parts = [None if one is None else one.hex() for one in (found.header, found.content)]
    assert parts == [vector["header"], vector["content"]]
    said = found.version, found.complete, found.deleted, found.type, found.unsettled
    names = {"version": 0, "complete": 0, "deleted": False, "type": 0, "unsettled": None}
    assert said == tuple(vector.get(name, default) for name, default in names.items())


def _mark(mark: dict[str, Any]) -> Mark:
    digest, governing = raw(mark, "hash", "governingHash")
    return Mark(
        mark["version"], digest, mark["governingVersion"], governing, mark["complete"],
        mark["accessTime"],
    )  # fmt: skip


READERS: dict[str, Callable[[Vector], object]] = {
    "access_lists": check_access_list,
    "batches": check_batch,
    "contact_cards": check_card,
    "container_records": read_container,
    "departures": check_departure,
    "events": check_events,
    "group_chains": read_group,
    "group_departures": check_group_departure,
    "group_names": read_group_name,
    "group_secrets": read_group_secret,
    "headers": lambda vector: headers.parse(octets(vector["header"])),
    "ids": read_ids,
    "key_files": open_key_file,
    "key_records": read_key_chain,
    "key_rings": check_key_ring,
    "links": read_link,
    "membership_proofs": check_proof,
    "messages": read_message,
    "orders": check_order,
    "rosters": check_roster,
    "segments": read_segments,
    "sessions": check_statement,
    "signatures": check_by_library,
    "types": check_type,
    "views": check_view,
    "wraps": open_wrap,
}
