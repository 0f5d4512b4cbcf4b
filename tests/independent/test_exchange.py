"""exchange.json: two users and a broker from registration to a change of access, from the bytes alone."""

import functools
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.independent import (
    container_records,
    key_files,
    key_records,
    messages,
    sessions,
    views,
    wraps,
)
from tests.independent.access_lists import Salted, parse_entry, whole
from tests.independent.container_records import InForce, Judge
from tests.independent.encodings import RefusedError, uuid_of_text
from tests.independent.key_records import KeyChain
from tests.independent.vectors import Vector, cases, load, octets, people
from tests.independent.views import Found, Mark, Reader, signed_of

NAMES = ("alice", "bob")
CONTAINER = "/v1/containers/{containerId}"
RECORDS = f"PUT {CONTAINER}/records/{{version}}"


@dataclass(frozen=True)
class Exchange:
    who: str
    act: str
    operation: str
    headers: dict[str, str]
    request: Any
    answer: Any


def exchanges(operation: str, who: str) -> list[Exchange]:
    return [one for one in _all() if (one.operation, one.who) == (operation, who)]


@functools.cache
def _all() -> list[Exchange]:
    return [
        Exchange(
            vector["who"], vector["act"], vector["operation"], vector["headers"],
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


@cases("exchange")
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


def test_every_served_chain_is_the_registered_one() -> None:
    served = [
        user
        for name in NAMES
        for one in exchanges("POST /v1/key-records", name)
        for user in one.answer["users"]
        if user["keyRecords"]
    ]
    assert len(served) >= 4
    for user in served:
        records = [signed_of(one) for one in user["keyRecords"]]
        chain = key_records.judge(records, given()["now"])
        chain.check_user(uuid_of_text(user["userId"]))
        assert chain.hashes == chains()[chain.fingerprint].hashes


def test_the_records_are_valid_and_their_receipts_are_theirs() -> None:
    """Record 1, Alice's update and her change of access, each by the rules from the one before it."""
    judge, told = Judge(given()["now"], chains()), exchanges(RECORDS, "alice")
    assert [one.act for one in told] == ["create", "update", "change access"]
    state = g = judge.first(signed_of(told[0].request["record"]), _sent_list(told[0], 1))
    found: list[Any] = [state]
    for version, one in enumerate(told[1:], 2):
        access = _sent_list(one, version) if one.request.get("accessList") else None
        found.append(judge.next(signed_of(one.request["record"]), g, access, found[-1]))
        if isinstance(found[-1], InForce):
            g = found[-1]
    assert g is found[2]
    assert state.record.container_id == container_id()
    for one, state in zip(told, found, strict=True):
        assert one.answer == {"version": state.record.version, "hash": state.hash}
    text = told[0].request["type"]
    digest = container_records.type_hash(container_id(), text["salt"], text["type"])
    assert (text["type"], digest) == ("text", g.governing.type)


def _sent_list(one: Exchange, version: int) -> Any:
    entries = [Salted(entry["salt"], entry["entry"]) for entry in one.request["accessList"]]
    return whole(container_id(), version, entries)


def test_the_sealed_bytes_that_alice_sent_are_those_that_were_signed_and_that_bob_gets() -> None:
    create, update, change = (one.request for one in exchanges(RECORDS, "alice"))
    for entry in create["accessList"] + change["accessList"]:
        assert parse_entry(entry["entry"]).wrap_hash == wraps.wrap_hash(entry["wrap"])
    served = [one.answer for one in exchanges(f"GET {CONTAINER}", "bob")]
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


def test_a_mark_of_another_record_refuses_the_second_view() -> None:
    first, second, _ = _bodies()
    with pytest.raises(RefusedError) as refused:
        _read("read with a mark", _mark(1, second, 1, first))
    assert refused.value.kind == "fork"


def _bodies() -> list[bytes]:
    return [one.request["record"]["body"] for one in exchanges(RECORDS, "alice")]


def _mark(version: int, body: bytes, governing_version: int, governing: bytes) -> Mark:
    hashes = [container_records.record_hash(one) for one in (body, governing)]
    made = container_records.parse(governing).time
    return Mark(version, hashes[0], governing_version, hashes[1], complete=True, access_time=made)


def _read(act: str, mark: Mark | None) -> Found:
    bob = people()["bob"]
    [view] = [one for one in exchanges(f"GET {CONTAINER}", "bob") if one.act == act]
    reader = Reader(bob.fingerprint, bob.encryption, chains(), given()["now"], mark)
    return views.read(reader, container_id(), messages.encode(view.answer))
