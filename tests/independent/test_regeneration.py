"""Every valid vector made anew, byte for byte, from what it is made of.

Random by construction are the ML-DSA half of a signature and an encapsulation. All else follows: a
Cobblestone message from its salt, a wrap from its encapsulation, an Ed25519 signature from its key.
The hashes of ids.json, types.json and access_lists.json are made in the tests of those files.
"""

from dataclasses import replace

from tests.independent import (
    access_lists,
    container_records,
    group_chains,
    group_secrets,
    key_files,
    segments,
    wraps,
)
from tests.independent.access_lists import Salted
from tests.independent.container_records import ContainerRecord, Governing
from tests.independent.encodings import sha256, u64, uuid_of_text
from tests.independent.ids import container_id_of, fingerprint_of
from tests.independent.key_files import KeyFile
from tests.independent.key_records import SIGNING, KeyRecord, Signed, record_hash
from tests.independent.key_records import parse as parse_key_record
from tests.independent.keys import SigningKey, cobblestone_seal, sealed_under
from tests.independent.orders import Order
from tests.independent.segments import CONTENT, HEADER, Part, Place
from tests.independent.sessions import Statement
from tests.independent.vectors import (
    Person,
    Vector,
    cases,
    digest,
    load,
    octets,
    people,
    salted,
    signed,
)


def again(key: bytes, context: bytes, plaintext: bytes, sealed: bytes) -> bytes:
    """A Cobblestone message from the salt that it begins with."""
    return cobblestone_seal(key, context, plaintext, sealed[:24])


def check_made(made: Signed, given: Signed) -> None:
    """The same object, and as its signature an Ed25519 half that is the same."""
    assert made.body == given.body
    assert made.signature is not None
    assert given.signature is not None
    assert made.signature[:64] == given.signature[:64]
    assert len(made.signature) == len(given.signature)


# Key records


def chain_again(person: Person, given: list[Signed]) -> None:
    bodies: list[bytes] = []
    for stored in given:
        told = parse_key_record(stored.body)
        keys = person.signing if told.key_type == SIGNING else person.encryption
        known = told.index < len(keys)  # some of key_records.json are in no file of seeds
        record = KeyRecord(
            fingerprint_of(person.signing[0].public),
            len(bodies),
            told.key_type,
            told.index,
            keys[told.index].public if known else told.public_key,
            told.state,
            told.time,
            record_hash(bodies[-1]) if bodies else None,
        )
        check_made(record.signed_by(person.signing[0]), stored)
        bodies.append(record.stored())


@cases("people")
def test_the_key_records_of_people(vector: Vector) -> None:
    """From seeds, order and times."""
    person = Person(vector)
    chain_again(person, person.records)


@cases("key_records", "valid")
def test_chains_of_key_records(vector: Vector) -> None:
    """All of them are Alice's."""
    stored = load("key_records")["given"]["records"]
    chain_again(people()["alice"], [signed(stored[name]) for name in vector["records"]])


# KeyFiles


@cases("key_files", "valid")
def test_key_files(vector: Vector) -> None:
    """From the KeyRing, both secrets and three salts."""
    given, ring = octets(vector["keyFile"]), key_files.parse_key_ring(octets(vector["keyRing"]))
    file = key_files.parse(given, uuid_of_text(vector["userId"]))
    fingerprint, salt = ring.fingerprint, file.password_salt
    password = key_files.secret_octets(vector["password"] or "correct horse")
    password_part = again(
        key_files.password_key(password, salt, fingerprint),
        key_files.password_context(fingerprint, salt),
        ring.stored(),
        file.password_part,
    )
    passphrase_part = again(
        key_files.passphrase_keys(vector["passphrase"], uuid_of_text(vector["userId"])).wrap,
        key_files.passphrase_context(fingerprint, salt, password_part),
        key_files.pad(password),
        file.passphrase_part,
    )
    assert KeyFile(fingerprint, salt, passphrase_part, password_part).stored() == given


# Wraps, segments


@cases("wraps", "valid")
def test_wraps(vector: Vector) -> None:
    """From the encapsulation."""
    info = wraps.WrapInfo(
        octets(vector["containerId"]),
        vector["accessVersion"],
        octets(vector["accessAuthor"]),
        octets(vector["recipient"]),
        vector["keyIndex"],
    )
    person = people()[vector["private"]]
    given = octets(vector["wrap"])
    assert wrap_again(person, vector["privateIndex"], info, octets(vector["key"]), given) == given


def wrap_again(
    person: Person,
    index: int,
    info: wraps.WrapInfo | group_secrets.WrapInfo,
    key: bytes,
    given: bytes,
) -> bytes:
    encapsulation = given[:1120]
    shared = person.encryption[index].decapsulate(encapsulation)
    return sealed_under(shared, encapsulation, info.octets, key)


@cases("segments", "valid", "segment")
def test_segments(vector: Vector) -> None:
    """From part key, place and plaintext."""
    given, context = octets(vector["sealed"]), place_of(vector).segment_context
    sealed = again(
        octets(vector["partKey"]),
        context(vector["index"], vector["last"]),
        octets(vector["plaintext"]),
        given,
    )
    assert sealed == given


@cases("segments", "valid", "sealed key")
def test_sealed_keys(vector: Vector) -> None:
    """From part key and length."""
    given, plaintext = octets(vector["sealedKey"]), octets(vector["partKey"])
    plaintext += u64(vector["length"])
    context = place_of(vector).key_context()
    assert again(octets(vector["containerKey"]), context, plaintext, given) == given


@cases("segments", "valid", "part")
def test_parts(vector: Vector) -> None:
    """From part key and plaintext: segment, hashes, and the hash of those."""
    given, sealed_key = octets(vector["sealed"][0]), octets(vector["sealedKey"])
    place, padded = place_of(vector), vector["paddedLength"]
    container_key = octets(vector["containerKey"])
    part_key, length = segments.open_part_key(container_key, place, padded, sealed_key)
    plaintext = octets(vector["plaintext"])
    assert length == len(plaintext)
    sealed = again(
        part_key, place.segment_context(0, True), plaintext + bytes(padded - length), given
    )
    assert [sealed.hex()] == vector["sealed"]
    assert sha256(sealed) == octets(vector["hashes"])
    assert segments.segments_hash(padded, sha256(sealed)) == octets(vector["segments"])


def place_of(vector: Vector) -> Place:
    container_id, part_id = octets(vector["containerId"]), octets(vector["partId"])
    return Place(container_id, part_id, vector["role"], octets(vector["author"]))


# The story of container_records.json


STORY = ["create", "edit", "change type", "share", "renew", "delete"]


def test_the_containers_story() -> None:
    """Each record from its author's keys, the one before it, and what its author chose."""
    given = load("container_records")["given"]
    authors = {person.fingerprint: person for person in people().values()}
    made: list[ContainerRecord] = []
    for name in STORY:
        stored = signed(given["records"][name])
        told = container_records.parse(stored.body)
        record = _record_again(told, made, given["records"][name])
        key = authors[told.author].signing[told.key_index]
        check_made(record.signed_by(key), stored)
        made.append(record)


def _record_again(
    told: ContainerRecord, made: list[ContainerRecord], stored: Vector
) -> ContainerRecord:
    """What the author chose is told: who and when, with which permissions, salts and part ids."""
    first = told if not made else made[0]
    assert first.nonce is not None
    container_id = container_id_of(first.author, first.nonce)
    hashes = [container_records.record_hash(record.stored()) for record in made]
    governing = [n for n, record in enumerate(made) if record.governing is not None]
    in_force = [record.governing for record in made if record.governing is not None]
    new = None
    if told.governing is not None:
        new = _governing_again(container_id, told, told.governing, in_force, stored)
    access_version = (new or in_force[-1]).access_version
    return replace(
        told,
        container_id=container_id,
        version=len(made) + 1,
        parent=hashes[-1] if made else None,
        link=(governing[-1] + 1, hashes[governing[-1]]) if made else None,
        governing=new,
        header=_part_again(container_id, told.header, HEADER, access_version),
        content=_part_again(container_id, told.content, CONTENT, access_version),
    )


def _governing_again(
    container_id: bytes,
    told: ContainerRecord,
    governing: Governing,
    before: list[Governing],
    stored: Vector,
) -> Governing:
    secrets = load("container_records")["given"]["secrets"]
    types = {
        container_records.type_hash(container_id, octets(salt), text)
        for text, salt in secrets["types"].items()
    }
    assert governing.type in types
    if "accessList" not in stored:
        return replace(before[-1], type=governing.type)
    key = octets(secrets["containerKeys"][str(told.version)])
    entries = [_entry_again(container_id, told, key, salted(one)) for one in stored["accessList"]]
    return Governing(
        told.version,
        told.author,
        access_lists.whole(container_id, told.version, entries).hash,
        wraps.key_commitment(container_id, key),
        governing.type,
    )


def _entry_again(container_id: bytes, told: ContainerRecord, key: bytes, given: Salted) -> Salted:
    secrets = load("container_records")["given"]["secrets"]["wraps"][str(told.version)]
    entry = access_lists.parse_entry(given.entry)
    person = next(one for one in people().values() if one.fingerprint == entry.fingerprint)
    info = wraps.WrapInfo(
        container_id, told.version, told.author, entry.fingerprint, entry.key_index
    )
    wrap = wrap_again(person, entry.key_index, info, key, octets(secrets[person.name]))
    return Salted(given.salt, replace(entry, wrap_hash=wraps.wrap_hash(wrap)).stored())


def _part_again(
    container_id: bytes, told: Part | None, role: int, access_version: int
) -> Part | None:
    if told is None:
        return None
    secrets = load("container_records")["given"]["secrets"]
    name = next(
        n for n, one in secrets["partKeys"].items() if octets(one["partId"]) == told.part_id
    )
    version, role_name = ("2" if name == "content 2" else "1"), name.split()[0]
    part_key, plaintext = (
        octets(secrets["partKeys"][name]["key"]),
        octets(secrets["plaintexts"][version][role_name]),
    )
    container_key = octets(secrets["containerKeys"][str(access_version)])
    place = Place(container_id, told.part_id, role, told.author)
    padded = plaintext + bytes(told.padded_length - len(plaintext))
    given = octets(secrets["sealed"][version][role_name])
    sealed = again(part_key, place.segment_context(0, True), padded, given)
    return replace(
        told,
        segments=segments.segments_hash(told.padded_length, sha256(sealed)),
        sealed_key=again(
            container_key, place.key_context(), part_key + u64(len(plaintext)), told.sealed_key
        ),
    )


# Groups


@cases("group_secrets", "valid", "wrap")
def test_wraps_of_secrets(vector: Vector) -> None:
    """From the encapsulation."""
    info = group_secrets.WrapInfo(
        octets(vector["groupName"]),
        vector["epoch"],
        octets(vector["commitment"]),
        octets(vector["fingerprint"]),
        vector["keyIndex"],
    )
    person, given = people()[vector["private"]], octets(vector["wrap"])
    again_sealed = wrap_again(person, vector["privateIndex"], info, octets(vector["secret"]), given)
    assert again_sealed == given


@cases("group_secrets", "valid", "info")
def test_infos(vector: Vector) -> None:
    """From name, description and secrets."""
    group, secret = octets(vector["groupName"]), octets(vector["secret"])
    secrets = [None if one is None else octets(one) for one in vector["secrets"]]
    info = group_secrets.Info(vector["name"], vector["description"], secrets)
    given = octets(vector["sealed"])
    key, context = (
        group_secrets.info_key(group, secret),
        group_secrets.context(group, vector["epoch"]),
    )
    assert again(key, context, info.stored(), given) == given


@cases("group_departures", "valid")
def test_departures_from_groups(vector: Vector) -> None:
    """From their fields."""
    for stored in vector["departures"]:
        given = signed(stored)
        departure = group_chains.parse_departure(given.body)
        [person] = [one for one in people().values() if one.fingerprint == departure.fingerprint]
        check_made(departure.signed_by(person.signing[departure.key_index]), given)


# Statements and orders


def signer(vector: Vector, name: str) -> SigningKey:
    return people()[name].signing[vector["keyIndex"]]


@cases("sessions", "valid", "statement")
def test_statements(vector: Vector) -> None:
    """From their fields."""
    statement = Statement(
        vector["origin"],
        fingerprint_of(people()[vector["user"]].signing[0].public),
        vector["keyIndex"],
        octets(vector["nonce"]),
    )
    given = signed({"body": vector["statement"], "signature": vector["signature"]})
    check_made(statement.signed_by(signer(vector, vector["user"])), given)


@cases("orders", "valid")
def test_orders(vector: Vector) -> None:
    """From their fields, and the digest from what goes along."""
    order = Order(
        vector["origin"],
        fingerprint_of(people()[vector["user"]].signing[0].public),
        vector["keyIndex"],
        octets(vector["nonce"]),
        vector["action"],
        digest(vector),
    )
    given = signed({"body": vector["order"], "signature": vector["signature"]})
    check_made(order.signed_by(signer(vector, vector["user"])), given)
