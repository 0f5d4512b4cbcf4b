"""What is made here is read here: the writers of this package against its readers."""

from dataclasses import replace
from typing import cast

import pytest

from tests.independent import container_records, key_files, orders, segments, sessions, wraps
from tests.independent.container_records import InForce, Judge, Judged
from tests.independent.encodings import RefusedError
from tests.independent.ids import user_id_of
from tests.independent.key_records import ENCRYPTION, SIGNING, judge
from tests.independent.orders import Order, Storing
from tests.independent.segments import CONTENT, HEADER
from tests.independent.sessions import Statement
from tests.independent.story import HOUR, NOW, START, Story, key_ring

BROKER = "https://broker.example:443"


@pytest.fixture(scope="module")
def story() -> Story:
    return Story().tell()


def judged(story: Story) -> list[Judged | InForce]:
    """The whole chain, each record with its parent."""
    judge, found = Judge(NOW, story.chains), list[Judged | InForce]()
    for told in story.told:
        access = story.access(told)
        if not found:
            assert access is not None
            found.append(judge.first(told.signed, access))
            continue
        governing = [record for record in found if isinstance(record, InForce)][-1]
        found.append(judge.next(told.signed, governing, access, found[-1]))
    return found


def test_every_record_of_the_story_is_valid(story: Story) -> None:
    """By the whole chain, and by what a fresh reader has of it after each record."""
    found = judged(story)
    assert [isinstance(record, InForce) for record in found] == [True, False, True, True, False]
    for count in range(1, len(found) + 1):
        governing = [
            (told.signed, story.access(told))
            for told, record in zip(story.told[:count], found, strict=False)
            if isinstance(record, InForce)
        ]
        head = None if isinstance(found[count - 1], InForce) else story.told[count - 1].signed
        assert Judge(NOW, story.chains).fresh(governing, head) == found[count - 1]


def test_members_read_and_the_removed_do_not(story: Story) -> None:
    """Bob opens what he wrote, Alice opens it after his removal, and Bob has no wrap any more."""
    created, edited, _, removed, _ = story.told
    for told, reader, user in ((edited, created, story.bob), (removed, removed, story.alice)):
        record = container_records.parse(told.signed.body)
        version = 1 if reader is created else 4
        index = len(user.encryption) - 1
        author, fingerprint = story.alice.fingerprint, user.fingerprint
        info = wraps.WrapInfo(story.container_id, version, author, fingerprint, index)
        key = wraps.unwrap_key(user.encryption[index], info, reader.wraps[fingerprint])
        governing = container_records.parse(reader.signed.body).governing
        assert governing is not None
        wraps.check_commitment(story.container_id, key, governing.key_commitment)
        for role, part, sealed in (
            (HEADER, record.header, told.header),
            (CONTENT, record.content, told.content),
        ):
            assert part is not None
            assert sealed is not None
            opened = segments.open_part(
                story.container_id, role, part, key, sealed.hashes, sealed.sealed
            )
            assert opened == (
                b'{"name":"own"}' if role == HEADER else b"once upon a time " * 61_000
            )
    assert story.bob.fingerprint not in removed.wraps


def test_who_was_removed_does_not_write(story: Story) -> None:
    """Bob's edit, after the record that removed him, is refused."""
    *before, _ = judged(story)
    body = story.told[1].signed.body
    late = replace(
        container_records.parse(body),
        version=5,
        parent=before[-1].hash,
        link=(4, before[-1].hash),
        time=START + 7 * HOUR,
    )
    judge, governing = Judge(NOW, story.chains), cast(InForce, before[-1])
    with pytest.raises(RefusedError):
        judge.next(late.signed_by(story.bob.signing[0]), governing, None, before[-1])


def test_a_rotated_chain_is_valid_and_its_latest_keys_are_the_new_ones(story: Story) -> None:
    """Both types have two keys, and only the second of each is active."""
    chain = judge(story.alice.records, NOW)
    assert chain.latest_active(SIGNING) == chain.latest_active(ENCRYPTION) == 1
    assert chain.mark.sequence == 5


def test_a_key_file_opens_with_either_secret(story: Story) -> None:
    """With the passphrase, with both, and with the password alone."""
    ring = key_ring(story.alice, 2)
    file = key_files.seal(ring, "pass w\N{LATIN SMALL LETTER O WITH DIAERESIS}rd", "a passphrase")
    user_id = user_id_of(ring.fingerprint)
    decomposed = "pass wo\N{COMBINING DIAERESIS}rd"
    assert key_files.open_with_passphrase(file, user_id, "a passphrase", None) == ring
    assert key_files.open_with_passphrase(file, user_id, "a passphrase", decomposed) == ring
    assert key_files.open_with_password(file, user_id, decomposed) == ring


def test_statements_and_orders_hold(story: Story) -> None:
    """Signed with the latest active key, for this broker and this storing."""
    alice, chain = story.alice, judge(story.alice.records, NOW)
    nonce, key = bytes(range(48)), alice.signing[1]
    statement = Statement(BROKER, alice.fingerprint, 1, nonce)
    body, signature = statement.signed_by(key)
    assert signature is not None
    assert sessions.judge(body, signature, chain, BROKER) == statement
    storing = Storing(b"file", 2, bytes(32), None, None, False, [])
    order = Order(BROKER, alice.fingerprint, 1, nonce, orders.STORE, storing.digest)
    body, signature = order.signed_by(key)
    assert signature is not None
    assert orders.judge(body, signature, chain, BROKER, orders.STORE, storing.digest) == order
