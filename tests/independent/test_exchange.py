"""exchange.json: two users and a broker, from registration to the deletion of a group, by the bytes."""

import functools
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.independent import (
    container_records,
    group_chains,
    group_views,
    key_files,
    key_records,
    messages,
    rosters,
    sessions,
    views,
    wraps,
)
from tests.independent.access_lists import Salted, parse_entry, whole
from tests.independent.container_records import InForce, Judge
from tests.independent.encodings import uuid8, uuid_of_text
from tests.independent.group_chains import GroupChain, Served
from tests.independent.key_records import KeyChain
from tests.independent.rosters import WRITER, Leaf
from tests.independent.vectors import Vector, load, octets, people
from tests.independent.views import Found, Mark, Reader, signed_of

NAMES = ("alice", "bob")
CONTAINER = "/v1/containers/{containerId}"
RECORDS = f"PUT {CONTAINER}/records/{{version}}"


@dataclass(frozen=True)
class Exchange:
    who: str
    act: str
    operation: str
    path: str
    headers: dict[str, str]
    request: Any
    answer: Any


def exchanges(operation: str, who: str) -> list[Exchange]:
    return [one for one in _all() if (one.operation, one.who) == (operation, who)]


def about(name: str, operation: str, who: str) -> list[Exchange]:
    """Those whose path has the id that `given` has under a name."""
    return [one for one in exchanges(operation, who) if given()[name] in one.path]


@functools.cache
def _all() -> list[Exchange]:
    return [
        Exchange(
            vector["who"], vector["act"], vector["operation"], vector["path"], vector["headers"],
            _message(vector["request"]), _message(vector["answer"]),
        )
        for vector in load("exchange")["vectors"]
    ]  # fmt: skip


def _message(text: str) -> Any:
    return messages.decode(octets(text)) if text else None


def given() -> dict[str, Any]:
    found: dict[str, Any] = load("exchange")["given"]
    return found


def container_id() -> bytes:
    return uuid_of_text(given()["containerId"])


def told() -> list[Exchange]:
    """The records of the first container, all of which Alice sent."""
    return about("containerId", RECORDS, "alice")


@functools.cache
def chains() -> dict[bytes, KeyChain]:
    """Of both users, from the requests that registered them."""
    found = {}
    for name in NAMES:
        [registration] = exchanges("POST /v1/users", name)
        records = [signed_of(one) for one in registration.request["keyRecords"]]
        chain = key_records.judge(records, given()["now"])
        chain.check_user(uuid_of_text(given()["users"][name]["userId"]))
        found[chain.fingerprint] = chain
    return found


@pytest.mark.parametrize("vector", load("exchange")["vectors"], ids=lambda v: v["id"])
def test_each_message_is_in_shortest_form_and_has_the_headers_of_the_protocol(
    vector: Vector,
) -> None:
    for name in ("request", "answer"):
        if vector[name]:
            assert messages.encode(_message(vector[name])) == octets(vector[name])
    assert vector["headers"]["scbroker-protocol"] == "1"
    assert vector["headers"]["scbroker-api-key"] == given()["apiKey"]
    assert vector["answerHeaders"]["scbroker-protocol"] == "1"


@pytest.mark.parametrize("name", NAMES)
def test_the_registered_key_file_opens_to_the_keys_of_the_chain(name: str) -> None:
    user, person = given()["users"][name], people()[name]
    [registration] = exchanges("POST /v1/users", name)
    assert registration.answer == {"userId": user["userId"]}
    assert registration.request["origin"] == given()["origin"]
    user_id, file = uuid_of_text(user["userId"]), registration.request["keyFile"]
    keys = key_files.passphrase_keys(user["passphrase"], user_id)
    assert registration.request["auth"] == keys.auth
    ring = key_files.open_with_passphrase(file, user_id, user["passphrase"], user["password"])
    assert [ring.signing, ring.encryption] == [tuple(person.signing), tuple(person.encryption)]
    key_files.check_chain(ring, chains()[ring.fingerprint])
    [opening] = exchanges("POST /v1/users/{userId}/key-file/open", name)
    assert (opening.request["auth"], opening.answer["keyFile"]) == (keys.auth, file)


@pytest.mark.parametrize("name", NAMES)
def test_each_session_is_signed_for_its_nonce_and_origin(name: str) -> None:
    chain, passes = chains()[people()[name].fingerprint], []
    challenges = exchanges("POST /v1/session-challenges", name)
    for challenge, begun in zip(challenges, exchanges("POST /v1/sessions", name), strict=True):
        request = begun.request
        statement = sessions.judge(
            request["statement"], request["signature"], chain, given()["origin"]
        )
        assert statement.nonce == challenge.answer["nonce"]
        token = f"Bearer {begun.answer['token']}"
        assert any(one.headers.get("authorization") == token for one in _all())
        passes.append(begun.answer["devicePass"])
    assert [len(one) for one in passes] == [48, 48]
    [opening] = exchanges("POST /v1/users/{userId}/key-file/open", name)
    assert opening.request["devicePass"] == passes[0]


def test_the_records_are_valid_and_their_receipts_are_theirs() -> None:
    """Record 1, Alice's update and her change of access, each by the rules from the one before it."""
    judge = Judge(given()["now"], chains())
    assert [one.act for one in told()] == ["create", "update", "change access"]
    first = told()[0]
    state = g = judge.first(signed_of(first.request["record"]), _sent_list(first, 1))
    found: list[Any] = [state]
    for version, one in enumerate(told()[1:], 2):
        access = _sent_list(one, version) if one.request.get("accessList") else None
        found.append(judge.next(signed_of(one.request["record"]), g, access, found[-1]))
        if isinstance(found[-1], InForce):
            g = found[-1]
    assert g is found[2]
    assert state.record.container_id == container_id()
    for one, state in zip(told(), found, strict=True):
        assert one.answer == {"version": state.record.version, "hash": state.hash}
    text = first.request["type"]
    digest = container_records.type_hash(container_id(), text["salt"], text["type"])
    assert (text["type"], digest) == ("text", g.governing.type)


def _sent_list(one: Exchange, version: int) -> Any:
    entries = [Salted(entry["salt"], entry["entry"]) for entry in one.request["accessList"]]
    record = container_records.parse(one.request["record"]["body"])
    return whole(record.container_id, version, entries)


def test_the_sealed_bytes_that_alice_sent_are_those_that_were_signed_and_that_bob_gets() -> None:
    create, update, change = (one.request for one in told())
    for entry in create["accessList"] + change["accessList"]:
        assert parse_entry(entry["entry"]).wrap_hash == wraps.wrap_hash(entry["wrap"])
    served = [one.answer for one in about("containerId", f"GET {CONTAINER}", "bob")]
    assert [view["header"] for view in served] == [create["header"]] * 3
    assert [view["content"] for view in served] == [create["content"]] + [update["content"]] * 2
    lists = [create["accessList"]] * 2 + [change["accessList"]]
    for view, entries in zip(served, lists, strict=True):
        assert view["wrap"] in [entry["wrap"] for entry in entries]


def test_bob_reads_first_without_a_mark_and_then_with_one() -> None:
    """His marks are those of the records that Alice sent."""
    first, second, third = _bodies()
    header = json.dumps({"title": "note"}, separators=(",", ":")).encode()
    found = Found(1, True, False, header, b"first", None)
    assert _read("read for the first time", None) == found
    found = Found(2, True, False, header, b"second", None)
    assert _read("read with a mark", _mark(1, first, 1, first)) == found
    found = Found(3, True, False, header, b"second", "text")
    assert _read("read under the new list", _mark(2, second, 1, first)) == found
    assert container_records.parse(third).version == 3


def _bodies() -> list[bytes]:
    return [one.request["record"]["body"] for one in told()]


def _mark(version: int, body: bytes, governing_version: int, governing: bytes) -> Mark:
    hashes = [container_records.record_hash(one) for one in (body, governing)]
    made = container_records.parse(governing).time
    return Mark(version, hashes[0], governing_version, hashes[1], complete=True, access_time=made)


def _read(act: str, mark: Mark | None) -> Found:
    bob = people()["bob"]
    [view] = [one for one in exchanges(f"GET {CONTAINER}", "bob") if one.act == act]
    reader = Reader(bob.fingerprint, bob.encryption, chains(), given()["now"], mark)
    return views.read(reader, container_id(), messages.encode(view.answer))


# Groups


def group_records() -> list[Exchange]:
    return about("groupId", RECORDS, "alice")


def _chain(count: int) -> GroupChain:
    """The group after so many of the records that Alice sent."""
    judge, served = Judge(given()["now"], chains()), list[Served]()
    for one in group_records()[:count]:
        sent, record = one.request, container_records.parse(one.request["record"]["body"])
        access = _sent_list(one, record.version) if sent.get("accessList") else None
        text = None if sent.get("type") is None else (sent["type"]["salt"], sent["type"]["type"])
        roster = None if sent.get("roster") is None else sent["roster"]["roster"]
        served.append(Served(signed_of(sent["record"]), access, text, roster))
    return group_chains.judge(judge, served)


def _leaves(count: int) -> list[Leaf]:
    """The leaves after so many records, from those that were sent as new or dropped."""
    found: dict[bytes, Leaf] = {}
    for one in group_records()[:count]:
        sent = one.request.get("roster")
        for fingerprint in [] if sent is None else sent.get("removed", []):
            del found[fingerprint]
        for leaf in [] if sent is None else sent.get("leaves", []):
            member = rosters.parse_member(leaf["member"])
            found[member.fingerprint] = Leaf(leaf["salt"], leaf["member"])
    return [found[user] for user in sorted(found)]


def test_the_group_has_the_epochs_and_members_that_its_acts_ask_for() -> None:
    """Create, add, remove, add again, and the two records of a deletion."""
    alice, bob = (people()[name].fingerprint for name in NAMES)
    found = []
    for count in range(1, 7):
        chain = _chain(count)
        members = group_chains.check_members(chain, _leaves(count), chains())
        found.append((chain.roster.epoch, set(members), chain.head.record.tombstone))
    both = {alice, bob}
    assert found == [
        (0, {alice}, False), (0, both, False), (1, {alice}, False), (1, both, False), (2, {alice}, False),
        (2, {alice}, True),
    ]  # fmt: skip
    for one, state in zip(group_records(), _chain(6).records, strict=True):
        assert one.answer == {"version": state.record.version, "hash": state.hash}
    assert uuid8(_chain(1).name) == uuid_of_text(given()["groupId"])


def _served_to(name: str, act: str) -> bytes:
    [view] = [one for one in exchanges("POST /v1/groups/views", name) if one.act == act]
    [outcome] = view.answer["groups"]
    return messages.encode(outcome["view"])


def test_bob_opens_the_group_that_alice_made() -> None:
    """With the wrap and the info that Alice sent, after two records."""
    bob, judge = people()["bob"], Judge(given()["now"], chains())
    served = group_views.read(judge, _served_to("bob", "accept the group"))
    own = group_views.open_group(served, bob.fingerprint, bob.encryption)
    chain = _chain(2)
    assert (own.name, own.role) == (chain.name, WRITER)
    assert own.keys[0].public == chain.roster.public_key
    sent = [one.request["roster"] for one in group_records()[:2]]
    assert served.membership is not None
    assert served.membership["info"] == sent[0]["info"]
    assert served.membership["wrap"] in [one["wrap"] for one in sent[1]["wraps"]]


def test_bob_reads_through_the_group_without_asking_for_it() -> None:
    [view] = [
        one for one in exchanges(f"GET {CONTAINER}", "bob") if one.act == "read through the group"
    ]
    assert view.answer["via"] == given()["groupId"]
    assert "via=" not in view.path
    group = {uuid_of_text(given()["groupId"]): _served_to("bob", "accept the group")}
    bob = people()["bob"]
    reader = Reader(bob.fingerprint, bob.encryption, chains(), given()["now"], None, group)
    found = views.read(reader, uuid_of_text(given()["sharedId"]), messages.encode(view.answer))
    assert (found.version, found.content, found.type) == (1, b"for all", None)


def test_bobs_record_is_valid_through_the_group_until_its_epoch_ends() -> None:
    """V2 to V7 with the leaf that Alice sent; the renewal after his removal raises the index."""
    judge = Judge(given()["now"], chains())
    create, renewal = about("sharedId", RECORDS, "alice")
    [edit] = about("sharedId", RECORDS, "bob")
    g = judge.first(signed_of(create.request["record"]), _sent_list(create, 1))
    record, chain = container_records.parse(edit.request["record"]["body"]), _chain(6)
    leaves = _leaves(2)
    position = [rosters.parse_member(leaf.member).fingerprint for leaf in leaves].index(
        record.author
    )
    acting = group_chains.acting(chain, record, rosters.prove(leaves, position))
    assert acting.role == WRITER
    assert acting.end is not None
    found = judge.next(signed_of(edit.request["record"]), g, None, g, acting)
    access = _sent_list(renewal, 3)
    last = judge.next(signed_of(renewal.request["record"]), g, access, found)
    assert isinstance(last, InForce)
    assert (g.access.entries[chain.name].key_index, access.entries[chain.name].key_index) == (0, 1)


def test_bobs_departure_is_from_his_second_leaf() -> None:
    [sent] = exchanges("POST /v1/groups/{groupId}/departure", "bob")
    signed = signed_of(sent.request["departure"])
    chain, judge = _chain(4), Judge(given()["now"], chains())
    members = group_chains.check_members(chain, _leaves(4), chains())
    assert group_chains.departed(judge, chain, members, [signed]) == {people()["bob"].fingerprint}
    assert group_chains.parse_departure(signed.body).version == 4
