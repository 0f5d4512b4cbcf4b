"""Chains beyond their vectors: docs/spec/ids.md, section 4."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker.errors import ClockError, ForkError, IntegrityError, RollbackError
from scbroker.records.canonical import encode_object
from scbroker.records.key_record import (
    CLOSED,
    RETIRED,
    KeyChain,
    KeyRecord,
    KnownKey,
    closing_fingerprint,
)
from scbroker.vocabulary import KeyType
from tests.vectors.cast import DAY, MINUTE, START, Person, cast, person, signing_key

SIGNING, ENCRYPTION = KeyType.Signing, KeyType.Encryption
NOW = START + 1000 * DAY


def appended(someone: Person, record: KeyRecord) -> Person:
    longer = Person(someone.name, list(someone.records), list(someone.hashes))
    longer.append(record)
    return longer


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KeyType), st.integers(0, 3), st.booleans(),
                          st.integers(0, 3)), max_size=8))  # fmt: skip
def test_a_chain_takes_exactly_the_steps_that_the_spec_allows(
    steps: list[tuple[KeyType, int, bool, int]],
) -> None:
    """Against a model of K4 and K5: for each type, the introduction and retirement of each key."""
    someone = person("alice")
    chain = someone.chain()
    model: dict[KeyType, list[list[int | None]]] = {kind: [[START, None]] for kind in KeyType}
    for kind, index, retire, day in steps:
        time = START + day * DAY
        record = someone.next_record(kind, index, time, RETIRED if retire else 0)
        own, active = model[kind], [key for key in model[kind] if key[1] is None]
        if retire:
            known = index < len(own) and own[index] in active
            introduced = own[index][0] if known else None
            newest = index == len(own) - 1
            good = known and not newest and introduced is not None and introduced <= time
        else:
            good = index == len(own)
        longer = appended(someone, record)
        if not good:
            with pytest.raises(IntegrityError):
                chain.extend(longer.records[-1:], NOW)
            continue
        before, chain, someone = chain, chain.extend(longer.records[-1:], NOW), longer
        assert before.sequence == chain.sequence - 1
        if retire:
            own[index][1] = time
        else:
            own.append([time, None])
        for checked in (chain, someone.chain()):
            for each in KeyType:
                found = [[key.introduced, key.retired] for key in checked.of_type(each)]
                assert found == model[each]
                latest = max(n for n, key in enumerate(model[each]) if key[1] is None)
                assert checked.latest(each).index == latest


@given(st.integers(0, 9), st.none() | st.integers(0, 9), st.integers(0, 9))
def test_a_key_is_good_from_its_introduction_to_before_its_retirement(
    introduced: int, retired: int | None, time: int
) -> None:
    key = KnownKey(SIGNING, 0, b"", introduced, retired)
    later = range(introduced, 10 if retired is None else retired)
    assert key.is_good_at(time) == (time in later)


@pytest.mark.long
def test_a_user_has_at_most_256_keys_of_a_type() -> None:
    someone = person("alice")
    for n in range(1, 256):
        someone.introduce(ENCRYPTION, n, START)
    chain = someone.chain()
    assert len(chain.of_type(ENCRYPTION)) == 256
    assert chain.latest(ENCRYPTION).index == 255
    for index in (256, 255, 0):
        longer = appended(someone, someone.next_record(ENCRYPTION, index, START))
        with pytest.raises(IntegrityError):
            chain.extend(longer.records[-1:], NOW)


def test_a_signing_key_of_a_chain_verifies_at_times_when_it_is_good() -> None:
    chain = cast()["erin"].chain()
    for index, time, good in (
        (0, START - 1, False), (0, START, True), (0, START + 20 * DAY - 1, True),
        (0, START + 20 * DAY, False), (1, START + 10 * DAY - 1, False),
        (1, START + 10 * DAY, True), (1, START + 900 * DAY, True), (2, START, False),
    ):  # fmt: skip
        if good:
            key = chain.signing_key(index, time)
            key.verify("session", b"text", signing_key("erin", index).sign("session", b"text"))
            assert key.raw == signing_key("erin", index).public
        else:
            with pytest.raises(IntegrityError):
                chain.signing_key(index, time)


def test_a_retired_or_unknown_key_is_not_active_whatever_the_time() -> None:
    chain = cast()["erin"].chain()
    chain.check_active(1)
    for index in (0, 2):
        with pytest.raises(IntegrityError):
            chain.check_active(index)


def test_a_chain_is_extended_by_what_follows_it_alone() -> None:
    erin = cast()["erin"]
    short = KeyChain.verify(erin.records[:3], NOW)
    assert short.extend([], NOW) is short
    whole = short.extend(erin.records[3:], NOW)
    assert (whole.hashes, whole.records) == (erin.chain().hashes, erin.chain().records)
    for others in (erin.records[4:], erin.records[2:], cast()["bob"].records[:1]):
        with pytest.raises(IntegrityError):
            short.extend(others, NOW)


def test_a_chain_of_anothers_records_is_refused() -> None:
    alice, bob = cast()["alice"], cast()["bob"]
    for records in ([alice.records[0], bob.records[1]], [bob.records[1], alice.records[0]]):
        with pytest.raises(IntegrityError):
            KeyChain.verify(records, NOW)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_key_record_is_dated_at_most_20_minutes_ahead(ahead: int) -> None:
    records = cast()["alice"].records
    now = START - 20 * MINUTE - ahead
    if not ahead:
        KeyChain.verify(records, now)
        return
    with pytest.raises(ClockError):
        KeyChain.verify(records, now)


def test_a_mark_is_kept_by_the_chain_that_leads_through_it() -> None:
    erin = cast()["erin"]
    chain = erin.chain()
    for sequence, digest in enumerate(chain.hashes):
        chain.check_mark(sequence, digest)
        with pytest.raises(ForkError):
            chain.check_mark(sequence, bytes(32))
    short = KeyChain.verify(erin.records[:2], NOW)
    with pytest.raises(RollbackError):
        short.check_mark(2, chain.hashes[2])


def test_a_chain_is_never_changed_in_place() -> None:
    chain = cast()["alice"].chain()
    with pytest.raises(TypeError):
        chain.keys[SIGNING, 0] = chain.keys[ENCRYPTION, 0]  # type: ignore[index]
    assert encode_object(cast()["alice"].next_record(SIGNING, 1, START))[:1] == b"\x01"


def test_a_closed_chain_has_no_active_key_and_still_verifies_what_was_signed_before() -> None:
    erin = cast()["erin"]
    chain, end = erin.chain(), START + 30 * DAY
    closing = appended(erin, erin.next_record(SIGNING, 0, end, CLOSED)).records[-1:]
    closed = chain.extend(closing, NOW)
    assert (chain.closed, closed.closed) == (False, True)
    assert [key.retired for key in closed.of_type(SIGNING)] == [START + 20 * DAY, end]
    assert [key.retired for key in closed.of_type(ENCRYPTION)] == [START + 20 * DAY, end]
    assert closed.signing_key(1, end - 1).raw == signing_key("erin", 1).public
    for kind in KeyType:
        with pytest.raises(IntegrityError, match="deleted"):
            closed.latest(kind)
    for refused in (lambda: closed.signing_key(1, end), lambda: closed.check_active(1)):
        with pytest.raises(IntegrityError):
            refused()
    with pytest.raises(RollbackError):
        chain.check_mark(closed.sequence, closed.hashes[-1])


def test_a_closing_record_proves_whose_it_is_without_their_chain() -> None:
    erin, bob = cast()["erin"], cast()["bob"]
    [closing] = appended(erin, erin.next_record(SIGNING, 0, NOW, CLOSED)).records[-1:]
    assert closing_fingerprint(closing) == erin.fingerprint
    retiring = erin.records[4]
    for other in (retiring, closing._replace(signature=retiring.signature), bob.records[0]):
        with pytest.raises(IntegrityError):
            closing_fingerprint(other)
    foreign = erin.next_record(SIGNING, 0, NOW, CLOSED, signing_key("bob").public)
    with pytest.raises(IntegrityError):
        closing_fingerprint(bob.sign(encode_object(foreign)))
