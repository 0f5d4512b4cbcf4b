"""Every vector is judged by scbroker as its file says; `test_views` reads those of views."""

import urllib.parse
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import msgspec
import pytest

from scbroker.cards import ContactCard
from scbroker.client.containers.change import decode_header
from scbroker.client.core.sealing import OpenPart
from scbroker.client.events import _check_details
from scbroker.client.people.links import LinkUrl
from scbroker.client.users import directory
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.crypto.seal import unseal
from scbroker.crypto.verify import VerifyingKey, check_encryption_key, labelled_hash, sha256
from scbroker.errors import BrokerError, ChallengeError
from scbroker.keys import KeyRing, PassphraseKeys, open_key_file
from scbroker.records.canonical import (
    UserId,
    container_id_of,
    fingerprint_of,
    parse_uuid,
    show_fingerprint,
    user_id_of,
    uuid8,
)
from scbroker.records.container_record import (
    SEGMENT,
    AccessList,
    Governing,
    Part,
    Role,
    SaltedEntry,
    check_segment_hashes,
    check_type,
    key_commitment,
    list_hash,
    sealed_size,
    segment_context,
    segment_count,
    segments_hash,
    type_hash,
    wrap_hash,
    wrap_info,
)
from scbroker.records.judge import Known
from scbroker.records.key_record import KeyChain, Signed
from scbroker.records.roster import check_group_type
from scbroker.server.broker import refusing
from scbroker.server.keys import BrokerKeys
from scbroker.server.operations import OPERATIONS
from scbroker.server.settings import Settings
from scbroker.server.users.key_files import verifier_of
from scbroker.server.users.sessions import (
    REFUSED,
    Signer,
    check_fresh,
    check_purpose,
    check_signed,
    parse_authorization,
)
from scbroker.server.users.throttle import is_pass_of
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject, decode, encode, parse_query
from scbroker.wire.containers import DepartureRequest
from scbroker.wire.events import NO_EVENTS, Event, digest_with
from scbroker.wire.groups import GroupViewsRequest
from scbroker.wire.rosters import RosterRequest
from scbroker.wire.users import (
    NO_DIGEST,
    ORDER_LABEL,
    Authorization,
    ChallengeRequest,
    KeyFileState,
    KeyFileStoring,
    KeyRecordsRequest,
    SessionRequest,
    UserDeletion,
    parse_statement,
)
from tests.kit.cases import in_one_case
from tests.vectors import record_readers as records
from tests.vectors.cast import decryption_key, signing_key
from tests.vectors.files import FOLDER, Vector, load, raw, signature_of, vectors
from tests.vectors.keys_of_people import chains
from tests.vectors.record_readers import list_of


def _person(vector: Vector) -> None:
    chain = chains()[vector["id"]]
    assert chain.fingerprint.hex() == vector["fingerprint"]
    assert str(chain.userId) == vector["userId"]
    own = {(0, n): signing_key(vector["id"], n) for n in range(len(vector["signing"]))}
    for n, seeds in enumerate(vector["signing"]):
        assert tuple(map(bytes, own[0, n].seeds)) == (raw(seeds, "ed25519"), raw(seeds, "mlDsa"))
        assert chain.keys[0, n].public == own[0, n].public
    for n, seeds in enumerate(vector["encryption"]):
        key = decryption_key(vector["id"], n)
        assert tuple(map(bytes, key.seeds)) == (raw(seeds, "mlKem"), raw(seeds, "x25519"))
        assert chain.keys[1, n].public == key.public
    assert len(chain.keys) == len(vector["signing"]) + len(vector["encryption"])


def _contact_card(vector: Vector) -> None:
    found = ContactCard.parse(vector["card"])
    fingerprint = show_fingerprint(raw(vector, "fingerprint"))
    assert found == ContactCard(fingerprint, vector["serverUrl"], vector["name"])
    assert found.text == "".join(vector["card"].split()).lower()


def _ids(vector: Vector) -> None:
    kind = vector["kind"]
    if kind == "hash":
        assert labelled_hash(vector["name"], raw(vector, "message")) == raw(vector, "hash")
    elif kind == "uuid8":
        assert str(uuid8(raw(vector, "hash"))) == vector["uuid"]
    elif kind == "user":
        fingerprint = fingerprint_of(raw(vector, "signingKey"))
        assert fingerprint == raw(vector, "fingerprint")
        assert str(user_id_of(fingerprint)) == vector["userId"]
        assert show_fingerprint(fingerprint) == vector["shown"]
    elif kind == "container":
        found = container_id_of(raw(vector, "creator"), raw(vector, "nonce"))
        assert str(found) == vector["containerId"]
    elif kind == "uuid text":
        assert str(parse_uuid(vector["text"])) == vector["text"]
    elif kind == "signing key":
        VerifyingKey(raw(vector, "ed25519") + signing_key(vector["mlDsaOf"]).public[32:])
    else:
        assert kind == "encryption key"
        own = decryption_key(vector["mlKemOf"]).public[:1184] if "mlKemOf" in vector else b""
        check_encryption_key((own or raw(vector, "mlKem")) + raw(vector, "x25519"))


def _key_records(vector: Vector) -> None:
    with mock.patch.object(directory, "now", return_value=vector["now"]):
        _key_chain(vector)


def _key_chain(vector: Vector) -> None:
    pool = load("key_records")["given"]["records"]
    records = [
        Signed(raw(pool[name], "body"), signature_of(pool[name])) for name in vector["records"]
    ]
    chain = KeyChain.verify(records, vector["now"])
    assert chain.sequence == len(records) - 1
    if "userId" in vector:
        directory._verified_chain(uuid.UUID(vector["userId"]), None, records)
    mark = None
    if "pin" in vector:
        mark = directory._KeysMark(raw(vector, "pin"), chain.sequence, chain.hashes[-1])
    if "mark" in vector:
        seen = vector["mark"]
        mark = directory._KeysMark(chain.fingerprint, seen["sequence"], raw(seen, "hash"))
    if mark is not None:
        marks = MemoryTrustStore().open(chain.userId, b"")
        assert marks.swap(directory._KIND, chain.userId.bytes, None, msgspec.msgpack.encode(mark))
        directory.check_mark(marks, chain)


_PASSPHRASES: dict[tuple[str, str], PassphraseKeys] = {}


def _key_files(vector: Vector) -> None:
    user_id = uuid.UUID(vector["userId"])
    secret = (vector["passphrase"], vector["userId"])
    if secret not in _PASSPHRASES:
        _PASSPHRASES[secret] = PassphraseKeys.derive(secret[0], user_id)
    keys, file = _PASSPHRASES[secret], raw(vector, "keyFile")
    ring = open_key_file(file, user_id, keys, vector["password"])
    assert (keys.auth, keys.wrap) == (raw(vector, "auth"), raw(vector, "wrap"))
    assert ring.generation == vector["generation"]
    assert ring.userId == user_id
    _, _, signing, encryption = msgspec.msgpack.decode(raw(vector, "keyRing")[1:])
    assert [list(key.seeds) for key in ring.signing] == signing
    assert [list(key.seeds) for key in ring.encryption] == encryption


def _access_lists(vector: Vector) -> None:
    given: dict[str, Any] = load("access_lists")["given"]
    if "entries" in vector:
        salted = [SaltedEntry(raw(e, "salt"), raw(e, "entry")) for e in vector["entries"]]
        found = AccessList.whole(salted)
        assert found.complete
    else:
        shown = [
            (e["position"], SaltedEntry(raw(e, "salt"), raw(e, "entry")))
            for e in vector["disclosed"]
        ]
        found = AccessList.disclosed(_entry_hashes(vector), shown)
        assert found.complete == vector["complete"]
        assert len(found.entries) == len(shown)
    assert found.entryHashes == _entry_hashes(vector)
    digest = list_hash(raw(given, "containerId"), given["accessVersion"], found.entryHashes)
    assert digest == raw(vector, "hash")


def _entry_hashes(vector: Vector) -> bytes:
    if "repeated" in vector:
        return raw(vector, "repeated") * int(vector["count"])
    return raw(vector, "entryHashes")


def _wraps(vector: Vector) -> None:
    box = raw(vector, "containerId")
    governing = Governing(vector["accessVersion"], raw(vector, "accessAuthor"), b"", b"", b"")
    info = wrap_info(box, governing, raw(vector, "recipient"), vector["keyIndex"])
    private = decryption_key(vector["private"], vector["privateIndex"])
    key = private.unwrap(raw(vector, "wrap"), info)
    assert key == raw(vector, "key")
    assert (key_commitment(box, key) == raw(vector, "keyCommitment")) == vector["commits"]


def _segments(vector: Vector) -> None:
    kind = vector["kind"]
    if kind == "segment":
        context = segment_context(
            raw(vector, "containerId"), raw(vector, "partId"), Role(vector["role"]),
            raw(vector, "author"), vector["index"], vector["last"],
        )  # fmt: skip
        plaintext = unseal(raw(vector, "partKey"), context, raw(vector, "sealed"))
        assert plaintext.hex() == vector.get("plaintext")
    elif kind == "list":
        found = segments_hash(vector["paddedLength"], raw(vector, "hashes"))
        assert found == raw(vector, "segments")
    elif kind == "size":
        padded, count = vector["paddedLength"], vector["count"]
        assert segment_count(padded) == count
        assert sealed_size(padded - (count - 1) * SEGMENT) == vector["lastSealed"]
    else:
        _part(vector)


def _part(vector: Vector) -> None:
    segments = raw(vector, "segments") if "segments" in vector else b""
    part = Part(
        raw(vector, "partId"), raw(vector, "author"), vector["paddedLength"], segments,
        raw(vector, "sealedKey"),
    )  # fmt: skip
    role, box = Role(vector["role"]), raw(vector, "containerId")
    opened = OpenPart.open(box, role, part, raw(vector, "containerKey"))
    if vector["kind"] == "sealed key":
        assert (opened.key, opened.length) == (raw(vector, "partKey"), vector["length"])
        return
    hashes = raw(vector, "hashes")
    check_segment_hashes(part, hashes)
    plaintext = b"".join(
        opened.open_segment(n, bytes.fromhex(sealed), hashes[32 * n : 32 * n + 32])
        for n, sealed in enumerate(vector["sealed"])
    )
    assert plaintext.hex() == vector.get("plaintext")


def _signatures(vector: Vector) -> None:
    public = raw(vector, "ed25519") + signing_key(vector["mlDsaOf"]).public[32:]
    key = VerifyingKey(public)
    key.verify(vector["name"], raw(vector, "object"), signature_of(vector))


def _types(vector: Vector) -> None:
    if "roster" in vector:
        check_group_type(vector["type"], raw(vector, "roster"))
    else:
        check_type(vector["type"])
    found = type_hash(raw(vector, "containerId"), raw(vector, "salt"), vector["type"])
    assert found == raw(vector, "hash")


def _sessions(vector: Vector) -> None:
    """As a broker judges them."""
    given = load("sessions")["given"]
    key = raw(given, "brokerKey")
    origin = vector.get("brokerOrigin", given["origin"])
    broker = _broker(origin, BrokerKeys(Settings(), key))
    if vector["kind"] != "statement":
        _computed(broker, vector)
        return
    request = SessionRequest(statement=raw(vector, "statement"), signature=signature_of(vector))
    sent = decode(SessionRequest, encode(request))
    with refusing(REFUSED, ChallengeError):
        statement = parse_statement(sent.statement)
    check_fresh(broker, statement, vector["now"])
    chain = chains()[vector["user"]]
    if vector.get("closed"):
        closing = given["closingRecord"]
        chain = chain.extend([Signed(raw(closing, "body"), signature_of(closing))], vector["now"])
    signed = Signed(sent.statement, sent.signature)
    with refusing(REFUSED, ChallengeError):
        signer = _signer(chain)
    check_signed(signer, statement, "session", signed)
    fields = {name: getattr(statement, name) for name in statement.__struct_fields__}
    expected = {**vector, **{name: raw(vector, name) for name in ("fingerprint", "nonce")}}
    assert fields == {name: expected[name] for name in fields}


def _broker(origin: str, keys: object) -> Any:
    """Return what the checks of a signed claim use of a broker."""
    return SimpleNamespace(origins={origin}, keys=keys, refused_nonces=())


def _signer(chain: KeyChain) -> Signer:
    user: Any = SimpleNamespace(fingerprint=chain.fingerprint)
    return Signer(user, chain.latest(KeyType.Signing))


def _computed(broker: Any, vector: Vector) -> None:
    if vector["kind"] == "nonce":
        fresh = raw(vector, "random") + vector["expiry"].to_bytes(8, "big")
        statement: Any = SimpleNamespace(
            nonce=raw(vector, "nonce"), origin=next(iter(broker.origins))
        )
        assert statement.nonce[:24] == fresh
        check_fresh(broker, statement, vector["expiry"] - 1)
        return
    user_id = UserId(uuid.UUID(vector["userId"]).bytes)
    if vector["kind"] == "verifier":
        assert verifier_of(broker.keys.now, user_id, raw(vector, "auth")) == raw(vector, "verifier")
    else:
        assert is_pass_of(broker, user_id, raw(vector, "devicePass"))


def _key_rings(vector: Vector) -> None:
    records = [Signed(raw(one, "body"), signature_of(one)) for one in vector["keyRecords"]]
    name = vector["ring"]
    ring = KeyRing(
        1,
        tuple(signing_key(name, n) for n in range(vector["signing"])),
        tuple(decryption_key(name, n) for n in range(vector["encryption"])),
    )
    ring.check_chain(KeyChain.verify(records, vector["now"]))


def _links(vector: Vector) -> None:
    if vector["kind"] == "url":
        found = LinkUrl.parse(vector["url"])
        assert (found.serverUrl, found.secret) == (vector["serverUrl"], raw(vector, "secret"))
        assert found.fingerprint == raw(vector, "fingerprint")
        assert [str(found.apiKey), str(found.userId)] == [vector["apiKey"], vector["userId"]]
        assert found.hasPassword == vector["hasPassword"]
        assert found.text == vector["url"]
        return
    secret, fingerprint = raw(vector, "secret"), raw(vector, "fingerprint")
    link = LinkUrl("https://broker.example", uuid.UUID(int=0), fingerprint, secret, False)
    assert link.passphrase(vector["password"]) == vector["passphrase"]


def _events(vector: Vector) -> None:
    found = []
    for one in vector["events"]:
        octets = {name: raw(one, name) for name in ("salt", "detailsHash") if one.get(name)}
        found.append(decode(Event, msgspec.msgpack.encode({**one, **octets})))
    _check_details(found)
    digest = NO_EVENTS
    for event in found:
        digest = digest_with(digest, event)
    assert digest == raw(vector, "digest")


MESSAGES: dict[str, Any] = {
    "key records": KeyRecordsRequest, "challenge": ChallengeRequest, "key file state": KeyFileState,
    "departure": DepartureRequest, "roster": RosterRequest, "group views": GroupViewsRequest,
}  # fmt: skip


def message_of(vector: Vector) -> bytes:
    more = raw(vector, "repeated") * int(vector["count"]) if "repeated" in vector else b""
    return raw(vector, "message") + more


def _orders(vector: Vector) -> None:
    """As a broker judges them, once it knows the nonce."""
    chain = chains()[vector["user"]]
    sent = Authorization(order=raw(vector, "order"), signature=signature_of(vector))
    given = decode(Authorization, encode(sent))
    digest = _digest(vector)
    order, signed = parse_authorization(given)
    origin = vector.get("brokerOrigin", "https://broker.example:443")
    broker = _broker(origin, SimpleNamespace(is_keyed=lambda *_, size: size == 24))
    check_fresh(broker, order, 0)
    check_purpose(order, vector["action"], digest)
    check_signed(_signer(chain), order, ORDER_LABEL, signed)
    assert (order.origin, order.keyIndex) == (vector["origin"], vector["keyIndex"])
    assert order.fingerprint == raw(vector, "fingerprint")
    assert order.nonce == raw(vector, "nonce")
    assert order.digest == digest == raw(vector, "digest")


def _digest(vector: Vector) -> bytes:
    """Of what goes along with the order."""
    if vector["storing"] is not None:
        return _storing(vector["storing"]).digest
    if vector["action"] != "delete-user":
        return NO_DIGEST
    body = raw(load("orders")["given"]["closingRecords"], vector["user"])
    unsigned = Authorization(order=b"", signature=bytes(3373))
    record = SignedObject(body=body, signature=bytes(3373))
    return UserDeletion(keyRecord=record, authorization=unsigned).digest


def _storing(name: str) -> KeyFileStoring:
    bodies = load("orders")["given"]["keyRecords"]
    given = load("orders")["given"]["storings"][name]
    return KeyFileStoring(
        keyFile=raw(given, "keyFile"),
        generation=given["generation"],
        auth=raw(given, "auth"),
        reminder=given["reminder"],
        replaces=None if given["replaces"] is None else raw(given, "replaces"),
        endOtherSessions=given["endOtherSessions"],
        keyRecords=[
            SignedObject(body=bytes.fromhex(bodies[n]), signature=bytes(3373))
            for n in given["keyRecords"]
        ],
        authorization=Authorization(order=b"", signature=bytes(3373)),
    )


_OPERATIONS: Final = {f"{one.method} {one.path}": one for one in OPERATIONS}


def _exchange(vector: Vector) -> None:
    """Each message is decoded, and encoded to the same bytes."""
    operation = _OPERATIONS[vector["operation"]]
    assert vector["status"] == operation.status
    items = urllib.parse.parse_qsl(vector["query"], strict_parsing=bool(vector["query"]))
    parse_query(operation.query, items)
    assert operation.session == ("authorization" in vector["headers"])
    kinds: dict[str, Any] = {"request": operation.message, "answer": operation.answer}
    for body, kind in kinds.items():
        octets = raw(vector, body)
        assert encode(decode(kind, octets)) == octets if kind is not None else not octets


_GROUP_SECRETS: Final = {
    "secret": records.group_secret, "wrap": records.group_wrap, "info": records.group_info,
}  # fmt: skip
READERS: Final[dict[str, Callable[[Vector], None]]] = {
    "access_lists": _access_lists,
    "batches": records.batch,
    "contact_cards": _contact_card,
    "container_records": records.container_record,
    "departures": records.departure,
    "events": _events,
    "exchange": _exchange,
    "group_chains": records.group_chain,
    "group_departures": records.group_departure,
    "group_names": records.group_name,
    "group_secrets": lambda vector: _GROUP_SECRETS[vector["kind"]](vector),
    "headers": lambda vector: decode_header(raw(vector, "header"), Any),
    "ids": _ids,
    "key_records": _key_records,
    "key_rings": _key_rings,
    "links": _links,
    "membership_proofs": records.membership_proof,
    "messages": lambda vector: decode(MESSAGES[vector["kind"]], message_of(vector)),
    "orders": _orders,
    "people": _person,
    "rosters": records.read_roster,
    "segments": _segments,
    "sessions": _sessions,
    "signatures": _signatures,
    "types": _types,
    "wraps": _wraps,
}


def check(vector: Vector, read: Callable[[Vector], None]) -> None:
    """A valid vector holds in all it says; an invalid one is refused with exactly its error."""
    if vector["result"] == "valid":
        try:
            read(vector)
        except BrokerError as error:
            raise AssertionError("the vector is valid") from error
        return
    with pytest.raises(BrokerError) as caught:
        read(vector)
    assert caught.value.code == vector["error"]
    assert caught.type is not BrokerError


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=pytest.mark.long if file == "key_records" else ())
        for file in READERS
    ],
)
def test_vectors_are_judged_as_they_say(file: str, subtests: pytest.Subtests) -> None:
    for vector in vectors(file):
        with subtests.test(vector["id"]):
            check(vector, READERS[file])


@pytest.mark.usefixtures("real_argon2id")
@in_one_case("vector", vectors("key_files"))
def test_key_files(vector: Vector) -> None:
    check(vector, _key_files)


def test_every_file_of_vectors_is_read() -> None:
    """`test_views` reads views."""
    assert {*READERS, "key_files", "views"} == {path.stem for path in FOLDER.glob("*.json")}


def test_no_two_storings_have_one_digest() -> None:
    names = load("orders")["given"]["storings"]
    assert len({_storing(name).digest for name in names}) == len(names)


RECORDS: Final[dict[str, dict[str, Any]]] = load("container_records")["given"]["records"]
SECRETS: Final = load("container_records")["given"]["secrets"]
STORY: Final = vectors("container_records")[:6]


@in_one_case("version", SECRETS["wraps"])
def test_every_wrap_of_the_story_opens_to_the_committed_key(version: str) -> None:
    name = STORY[int(version) - 1]["id"]
    record = Known.parse(bytes.fromhex(RECORDS[name]["body"])).record
    assert record.governing is not None
    listed = list_of(RECORDS[name])
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
