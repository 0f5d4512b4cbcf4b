"""Chains beyond their vectors: docs/spec/ids.md, section 4."""

import pytest

from scbroker.errors import IntegrityError, RollbackError
from scbroker.records.canonical import encode_object
from scbroker.records.key_record import CLOSED, KeyChain, KeyRecord, closing_fingerprint
from scbroker.vocabulary import KeyType
from tests.vectors.cast import DAY, START, Person, cast, signing_key

SIGNING, ENCRYPTION = KeyType.Signing, KeyType.Encryption
NOW = START + 1000 * DAY


def appended(someone: Person, record: KeyRecord) -> Person:
    longer = Person(someone.name, list(someone.records), list(someone.hashes))
    longer.append(record)
    return longer


def test_a_chain_is_extended_by_what_follows_it_alone() -> None:
    erin = cast()["erin"]
    short = KeyChain.verify(erin.records[:3], NOW)
    assert short.extend([], NOW) is short
    whole = short.extend(erin.records[3:], NOW)
    assert (whole.hashes, whole.records) == (erin.chain().hashes, erin.chain().records)
    for others in (erin.records[4:], erin.records[2:], cast()["bob"].records[:1]):
        with pytest.raises(IntegrityError):
            short.extend(others, NOW)


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
