"""What the vectors of container_records.json do not show of the judge."""

from typing import Any

import pytest

from scbroker.errors import BrokerError, ClockError, IntegrityError
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import ContainerRecord, Link, record_hash
from scbroker.records.judge import (
    Acting,
    InForce,
    Known,
    check_skipped,
    judge_first,
    judge_next,
    verify_author,
    verify_departure,
)
from scbroker.records.key_record import Signed
from scbroker.vocabulary import GroupRole, KeyType
from tests.vectors.cast import DAY, MINUTE, START, person, signing_key
from tests.vectors.files import load, signature_of, vectors
from tests.vectors.keys_of_people import chains
from tests.vectors.record_readers import list_of
from tests.vectors.story import altered

NOW = START + 100 * DAY
RECORDS = load("container_records")["given"]["records"]


def known(name: str) -> Known:
    return Known.parse(bytes.fromhex(RECORDS[name]["body"]))


def changed(record: ContainerRecord, **changes: Any) -> Known:
    spoiled = altered(record, **changes)
    return Known(spoiled, record_hash(encode_object(spoiled)))


CREATE, EDIT, TYPED, SHARE = (known(item["id"]) for item in vectors("container_records")[:4])


def refused(kind: type[BrokerError], act: Any, *arguments: Any) -> None:
    with pytest.raises(BrokerError) as caught:
        act(*arguments)
    assert caught.type is kind


@pytest.mark.parametrize(
    "changes",
    [
        {"parent": bytes(32)}, {"version": 4}, {"containerId": bytes(16)},
        {"link": Link(1, bytes(32))}, {"link": Link(2, CREATE.hash)}, {"link": None},
        {"time": EDIT.record.time - 1}, {"content": {"segments": bytes(32)}},
        {"content": {"sealedKey": bytes(112)}}, {"header": {"author": bytes(32)}},
        {"header": {"partId": bytes(16)}},
    ],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_a_skipped_body_with_one_thing_changed_is_refused(changes: dict[str, Any]) -> None:
    check_skipped(changed(TYPED.record), CREATE, EDIT, NOW)
    refused(IntegrityError, check_skipped, changed(TYPED.record, **changes), CREATE, EDIT, NOW)


def test_a_skipped_body_of_the_future_is_a_matter_of_clocks() -> None:
    latest = EDIT.record.time - 15 * MINUTE
    check_skipped(EDIT, CREATE, CREATE, latest)
    refused(ClockError, check_skipped, EDIT, CREATE, CREATE, latest - 1)


def test_a_skipped_body_is_refused_beside_the_wrong_governing_record_or_parent() -> None:
    refused(IntegrityError, check_skipped, SHARE, CREATE, TYPED, NOW)
    refused(IntegrityError, check_skipped, SHARE, TYPED, EDIT, NOW)
    refused(IntegrityError, check_skipped, TYPED, CREATE, CREATE, NOW)
    # A governing parent has to be the one in force.
    other = changed(TYPED.record, time=TYPED.record.time + 1)
    record = changed(SHARE.record, parent=other.hash)
    refused(IntegrityError, check_skipped, record, TYPED, other, NOW)


def test_a_record_is_not_of_a_user_who_introduced_its_authors_key_as_their_own() -> None:
    """Nobody proves to hold a key that they introduce: the fingerprint decides, not the key alone."""
    signature = signature_of(RECORDS["share"])
    verify_author(SHARE, signature, chains()["erin"])
    thief = person("thief")
    erins = signing_key("erin", 1).public
    thief.append(thief.next_record(KeyType.Signing, 1, START, public=erins))
    refused(IntegrityError, verify_author, SHARE, signature, thief.chain())


def test_evidence_of_another_record_user_or_group_is_refused() -> None:
    """The judge checks the evidence that a caller has found against the record."""
    access = list_of(RECORDS["create"])
    assert access is not None
    created = InForce(CREATE, access, CREATE.record.time)
    in_force = InForce(TYPED, access, CREATE.record.time)
    link = changed(EDIT.record, link=Link(1, bytes(32)))
    via = Acting(bytes(32), GroupRole.Writer, START, None, None)
    departure = vectors("departures", "valid")[0]
    left = Signed(bytes.fromhex(departure["body"]), signature_of(departure))
    for act in (
        lambda: judge_first(EDIT, access, NOW),
        lambda: judge_next(SHARE, in_force, None, TYPED, NOW),
        lambda: check_skipped(changed(TYPED.record, parent=link.hash), CREATE, link, NOW),
        lambda: verify_departure(left, in_force, chains()["carol"], NOW),
    ):
        refused(IntegrityError, act)
    assert judge_next(EDIT, created, None, None, NOW) is created
    with pytest.raises(IntegrityError, match="V2"):
        judge_next(EDIT, created, None, None, NOW, via)
