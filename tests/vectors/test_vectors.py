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
from scbroker.client.arguments import decode_header
from scbroker.client.core.sealing import OpenPart
from scbroker.client.events import _check_details
from scbroker.client.people.links import LinkUrl
from scbroker.client.users import directory
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.crypto.seal import unseal
from scbroker.crypto.verify import VerifyingKey, check_encryption_key, labelled_hash, sha256
from scbroker.errors import BrokerError, ChallengeError
from scbroker.keys import PassphraseKeys, open_key_file
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
from tests.vectors.cast import Person, decryption_key, signing_key
from tests.vectors.files import FOLDER, Vector, load, raw, raws, signature_of, signed_of, vectors
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
    match vector["kind"]:
        case "hash":
            message, expected = raws(vector, "message", "hash")
            assert labelled_hash(vector["name"], message) == expected
        case "uuid8":
            assert str(uuid8(raw(vector, "hash"))) == vector["uuid"]
        case "user":
            found = fingerprint_of(raw(vector, "signingKey"))
            assert (found.hex(), str(user_id_of(found))) == (
                vector["fingerprint"],
                vector["userId"],
            )
            assert show_fingerprint(found) == vector["shown"]
        case "container":
            found_id = container_id_of(*raws(vector, "creator", "nonce"))
            assert str(found_id) == vector["containerId"]
        case "uuid text":
            assert str(parse_uuid(vector["text"])) == vector["text"]
        case "signing key":
            VerifyingKey(raw(vector, "ed25519") + signing_key(vector["mlDsaOf"]).public[32:])
        case kind:
            assert kind == "encryption key"
            ml_kem = raw(vector, "mlKem") if "mlKem" in vector else b""
            own = decryption_key(vector["mlKemOf"]).public[:1184] if "mlKemOf" in vector else ml_kem
            check_encryption_key(own + raw(vector, "x25519"))


def _key_records(vector: Vector) -> None:
    pool = load("key_records")["given"]["records"]
    records = [signed_of(pool[name]) for name in vector["records"]]
    chain = KeyChain.verify(records, vector["now"])
    assert chain.sequence == len(records) - 1
    with mock.patch.object(directory, "now", return_value=vector["now"]):
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
    assert [keys.auth, keys.wrap] == raws(vector, "auth", "wrap")
    assert (ring.generation, ring.userId) == (vector["generation"], user_id)
    _, _, *seeds = msgspec.msgpack.decode(raw(vector, "keyRing")[1:])
    kinds = (ring.signing, ring.encryption)
    assert [[list(key.seeds) for key in keys] for keys in kinds] == seeds


def _access_lists(vector: Vector) -> None:
    given: dict[str, Any] = load("access_lists")["given"]
    hashes = raw(vector, "repeated" if "repeated" in vector else "entryHashes")
    hashes *= vector.get("count", 1)
    if "entries" in vector:
        found = AccessList.whole(
            [SaltedEntry(*raws(e, "salt", "entry")) for e in vector["entries"]]
        )
        assert found.complete
    else:
        shown = [
            (e["position"], SaltedEntry(*raws(e, "salt", "entry"))) for e in vector["disclosed"]
        ]
        found = AccessList.disclosed(hashes, shown)
        assert (found.complete, len(found.entries)) == (vector["complete"], len(shown))
    assert found.entryHashes == hashes
    digest = list_hash(raw(given, "containerId"), given["accessVersion"], found.entryHashes)
    assert digest == raw(vector, "hash")


def _wraps(vector: Vector) -> None:
    box, author, recipient, wrap = raws(vector, "containerId", "accessAuthor", "recipient", "wrap")
    governing = Governing(vector["accessVersion"], author, b"", b"", b"")
    info = wrap_info(box, governing, recipient, vector["keyIndex"])
    key = decryption_key(vector["private"], vector["privateIndex"]).unwrap(wrap, info)
    assert key == raw(vector, "key")
    assert (key_commitment(box, key) == raw(vector, "keyCommitment")) == vector["commits"]


def _segments(vector: Vector) -> None:
    kind, padded = vector["kind"], vector.get("paddedLength", 0)
    if kind == "list":
        assert segments_hash(padded, raw(vector, "hashes")) == raw(vector, "segments")
        return
    if kind == "size":
        count = segment_count(padded)
        last = sealed_size(padded - (count - 1) * SEGMENT)
        assert (count, last) == (vector["count"], vector["lastSealed"])
        return
    box, part_id, author = raws(vector, "containerId", "partId", "author")
    role = Role(vector["role"])
    if kind == "segment":
        context = segment_context(box, part_id, role, author, vector["index"], vector["last"])
        plaintext = unseal(raw(vector, "partKey"), context, raw(vector, "sealed"))
        assert plaintext.hex() == vector.get("plaintext")
        return
    segments = raw(vector, "segments") if "segments" in vector else b""
    part = Part(part_id, author, padded, segments, raw(vector, "sealedKey"))
    opened = OpenPart.open(box, role, part, raw(vector, "containerKey"))
    if kind == "sealed key":
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
        chain = chain.extend([signed_of(given["closingRecord"])], vector["now"])
    with refusing(REFUSED, ChallengeError):
        signer = _signer(chain)
    check_signed(signer, statement, "session", Signed(sent.statement, sent.signature))
    found = [statement.origin, statement.keyIndex, statement.fingerprint, statement.nonce]
    expected = [vector["origin"], vector["keyIndex"], *raws(vector, "fingerprint", "nonce")]
    assert found == expected


def _broker(origin: str, keys: object) -> Any:
    """Return what the checks of a signed claim use of a broker."""
    return SimpleNamespace(origins={origin}, keys=keys, refused_nonces={})


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
    records = [signed_of(one) for one in vector["keyRecords"]]
    person = Person(vector["ring"])
    ring = person.ring(1, vector["signing"], vector["encryption"])
    ring.check_chain(KeyChain.verify(records, vector["now"]))


def _links(vector: Vector) -> None:
    if vector["kind"] == "passphrase":
        secret, fingerprint = raws(vector, "secret", "fingerprint")
        link = LinkUrl("https://broker.example", uuid.UUID(int=0), fingerprint, secret, False)
        assert link.passphrase(vector["password"]) == vector["passphrase"]
        return
    found = LinkUrl.parse(vector["url"])
    secret, fingerprint = raws(vector, "secret", "fingerprint")
    assert (found.serverUrl, found.secret) == (vector["serverUrl"], secret)
    assert found.fingerprint == fingerprint
    assert [str(found.apiKey), str(found.userId)] == [vector["apiKey"], vector["userId"]]
    assert (found.hasPassword, found.text) == (vector["hasPassword"], vector["url"])


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
    found = [order.fingerprint, order.nonce, order.digest]
    assert found == raws(vector, "fingerprint", "nonce", "digest")


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
    octets = {key: given[key] and raw(given, key) for key in ("keyFile", "auth", "replaces")}
    records = [
        SignedObject(body=bytes.fromhex(bodies[n]), signature=bytes(3373))
        for n in given["keyRecords"]
    ]
    unsigned = Authorization(order=b"", signature=bytes(3373))
    return KeyFileStoring(**given | octets | {"keyRecords": records}, authorization=unsigned)


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
