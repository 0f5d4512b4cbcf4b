"""What the vectors of container_records.json do not show of the judge."""

import dataclasses
from typing import Any

import pytest

from scbroker.errors import BrokerError, ClockError, IntegrityError
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    Link,
    parse_record,
    record_hash,
)
from scbroker.records.judge import (
    Acting,
    InForce,
    Known,
    check_skipped,
    governing_of,
    judge_first,
    judge_next,
    needed_permissions,
    verify_author,
)
from scbroker.vocabulary import ContainerAccessLevel, GroupRole, KeyType
from tests.vectors.cast import DAY, MINUTE, START, person, signing_key
from tests.vectors.container_records import Stage, access_of
from tests.vectors.files import load, signature_of
from tests.vectors.keys_of_people import chains
from tests.vectors.story import Container, Made, altered, follow, sign
from tests.vectors.test_container_records import STORY, judge, list_of
from tests.vectors.through_groups import Through

NOW = START + 100 * DAY
RECORDS = load("container_records")["given"]["records"]


def known(name: str) -> Known:
    return Known.parse(bytes.fromhex(RECORDS[name]["body"]))


def changed(record: ContainerRecord, **changes: Any) -> Known:
    spoiled = altered(record, **changes)
    return Known(spoiled, record_hash(encode_object(spoiled)))


CREATE, EDIT, TYPED, SHARE = (known(item["id"]) for item in STORY[:4])
RENEW, DELETE = known("renew"), known("delete")


def whole(name: str) -> AccessList:
    found = list_of(name, None)
    assert found is not None
    return found


def refused(kind: type[BrokerError], act: Any, *arguments: Any) -> None:
    with pytest.raises(BrokerError) as caught:
        act(*arguments)
    assert caught.type is kind


def test_the_hash_of_a_record_is_of_its_stored_bytes() -> None:
    body = bytes.fromhex(RECORDS["edit"]["body"])
    assert Known(parse_record(body), record_hash(body)) == EDIT
    assert TYPED.record.parent == EDIT.hash


def test_every_body_of_the_story_may_be_skipped_in_its_place() -> None:
    check_skipped(EDIT, CREATE, CREATE, NOW)
    check_skipped(TYPED, CREATE, EDIT, NOW)
    check_skipped(SHARE, TYPED, TYPED, NOW)
    check_skipped(RENEW, SHARE, SHARE, NOW)
    check_skipped(DELETE, RENEW, RENEW, NOW)


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


def test_a_skipped_tombstone_ends_the_chain() -> None:
    after = changed(DELETE.record, version=7, parent=DELETE.hash)
    refused(IntegrityError, check_skipped, after, RENEW, DELETE, NOW)


def test_a_parent_that_is_not_governing_links_to_what_is_in_force() -> None:
    later = changed(EDIT.record, link=Link(1, bytes(32)))
    record = changed(TYPED.record, parent=later.hash)
    refused(IntegrityError, check_skipped, record, CREATE, later, NOW)


def test_a_record_without_governing_field_governs_nothing() -> None:
    refused(IntegrityError, governing_of, EDIT.record)
    assert governing_of(CREATE.record) is CREATE.record.governing


def test_a_container_begins_with_its_first_record() -> None:
    for later in (EDIT, TYPED, SHARE):
        refused(IntegrityError, judge_first, later, whole("create"), NOW)
    without = changed(CREATE.record, nonce=None)
    refused(IntegrityError, judge_first, without, whole("create"), NOW)


def test_a_change_of_access_is_not_judged_without_its_list() -> None:
    in_force = InForce(TYPED, whole("create"), CREATE.record.time)
    judge_next(SHARE, in_force, whole("share"), TYPED, NOW)
    refused(IntegrityError, judge_next, SHARE, in_force, None, TYPED, NOW)
    refused(IntegrityError, judge_next, SHARE, in_force, whole("create"), TYPED, NOW)


def test_what_is_in_force_after_each_record_of_the_story() -> None:
    authors = {chain.fingerprint: chain for chain in chains().values()}
    expected = [CREATE, CREATE, TYPED, SHARE, RENEW, RENEW]
    for item, governing in zip(STORY, expected, strict=True):
        found = judge(item, len(item["records"]), authors)
        assert found.known == governing


def test_a_change_of_type_keeps_the_list_in_force() -> None:
    in_force = InForce(CREATE, whole("create"), CREATE.record.time)
    after = judge_next(TYPED, in_force, None, EDIT, NOW)
    assert after.access is in_force.access
    assert after.since == in_force.since
    assert after.governing.accessVersion == 1


def test_a_record_needs_the_permissions_of_all_that_it_changes() -> None:
    level = ContainerAccessLevel
    in_force = InForce(TYPED, whole("create"), CREATE.record.time)
    needs = {
        EDIT.record: level.Upload | level(0),
        CREATE.record: level.Upload | level.ModifyType | level.ModifyAccess,
        SHARE.record: level.Upload | level.ModifyAccess,
        DELETE.record: level.Delete,
    }
    for record, needed in needs.items():
        assert needed_permissions(record, in_force) == needed


@pytest.mark.parametrize("time, renewal", [(START + 30 * DAY - 1, False), (START + 30 * DAY, True)])
def test_a_list_needs_renewal_from_the_moment_an_entry_expires(time: int, renewal: bool) -> None:
    assert InForce(SHARE, whole("share"), SHARE.record.time).needs_renewal(time) == renewal


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


def test_two_containers_do_not_share_records(stage: Stage) -> None:
    """A record of one container is refused after those of another, whatever its author signs."""
    box = Container("another", stage.alice)
    access = box.access(1, stage.alice, stage.grants_1())
    other = sign(box.begin(START + DAY, access), stage.alice, access)
    edit = sign(follow([other], stage.bob, START + 2 * DAY), stage.bob)
    first = InForce(
        Known.parse(stage.first.signed.body), AccessList.whole(list_items(stage.first)), START
    )
    record = Known.parse(edit.signed.body)
    for parent in (None, first.known, Known.parse(other.signed.body)):
        refused(IntegrityError, judge_next, record, first, None, parent, NOW)


def list_items(made: Made) -> Any:
    assert made.access is not None
    return made.access.salted


def test_a_record_is_not_of_a_user_who_introduced_its_authors_key_as_their_own() -> None:
    """Nobody proves to hold a key that they introduce: the fingerprint decides, not the key alone."""
    signature = signature_of(RECORDS["share"])
    verify_author(SHARE, signature, chains()["erin"])
    thief = person("thief")
    erins = signing_key("erin", 1).public
    thief.append(thief.next_record(KeyType.Signing, 1, START, public=erins))
    refused(IntegrityError, verify_author, SHARE, signature, thief.chain())


def test_a_record_that_names_another_container_is_refused_without_its_parent() -> None:
    in_force = InForce(CREATE, whole("create"), CREATE.record.time)
    later = changed(EDIT.record, version=3)
    judge_next(later, in_force, None, None, NOW)
    elsewhere = changed(later.record, containerId=bytes(16))
    refused(IntegrityError, judge_next, elsewhere, in_force, None, None, NOW)


def test_a_record_is_judged_with_the_group_that_its_via_names_and_with_no_other() -> None:
    world = Through()
    access = AccessList.whole(access_of(world.first).salted)
    governing = judge_first(Known.parse(world.first.signed.body), access, NOW)
    via = world.group.via(world.step(2))
    edits = world.edit([world.first], world.bob, START + 3 * DAY, via)
    alone = world.edit([world.first], world.alice, START + 3 * DAY, None)
    team = Acting(world.group.fingerprint, GroupRole.Writer, START, None, None)
    found = Known.parse(edits.signed.body)
    assert judge_next(found, governing, None, None, NOW, team) is governing
    others = dataclasses.replace(team, group=world.others.fingerprint)
    for record, acting in ((edits, None), (edits, others), (alone, team)):
        known = Known.parse(record.signed.body)
        refused(IntegrityError, judge_next, known, governing, None, None, NOW, acting)


def test_the_end_of_an_epoch_and_of_a_group_bound_the_time_of_a_record_alike() -> None:
    """V4 and V7, from both sides of the 15 minutes."""
    world, time = Through(), START + 3 * DAY
    access = AccessList.whole(access_of(world.first).salted)
    governing = judge_first(Known.parse(world.first.signed.body), access, NOW)
    made = world.edit([world.first], world.bob, time, world.group.via(world.step(2)))
    known, team = Known.parse(made.signed.body), world.group.fingerprint
    for end, deleted, good in (
        (time - 15 * MINUTE + 1, None, True),
        (time - 15 * MINUTE, None, False),
        (None, time - 15 * MINUTE + 1, True),
        (None, time - 15 * MINUTE, False),
    ):
        acting = Acting(team, GroupRole.Writer, START, end, deleted)
        if good:
            assert judge_next(known, governing, None, None, NOW, acting) is governing
        else:
            refused(IntegrityError, judge_next, known, governing, None, None, NOW, acting)
