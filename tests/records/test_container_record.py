"""Contexts and lists of segments: docs/spec/container.md, 3 and 6."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker.crypto.seal import seal, unseal
from scbroker.crypto.verify import sha256
from scbroker.errors import DecryptionError, IntegrityError
from scbroker.records.container_record import (
    SEGMENT,
    AccessList,
    Entry,
    Governing,
    Part,
    Role,
    SaltedEntry,
    bare_body,
    check_segment_hashes,
    encode_entry,
    part_key_context,
    segment_context,
    segment_count,
    segments_hash,
    type_hash,
    wrap_info,
)
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.vectors.cast import chosen, decryption_key
from tests.vectors.files import load

RECORD: str = load("container_records")["given"]["records"]["create"]["body"]

ids = st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15)])
names = st.sampled_from([bytes(32), bytes(31) + b"\1", b"\1" + bytes(31)])
numbers = st.sampled_from([0, 1, 255, 256, 2**32, 2**53 - 1])
segment_places = st.tuples(ids, ids, st.sampled_from(Role), names, numbers, st.booleans())
part_places = st.tuples(ids, ids, st.sampled_from(Role), names)
wrap_places = st.tuples(ids, numbers, names, names, st.integers(0, 255))


def info_of(place: tuple[bytes, int, bytes, bytes, int]) -> bytes:
    box, version, author, recipient, index = place
    return wrap_info(box, Governing(version, author, b"", b"", b""), recipient, index)


@settings(max_examples=150, deadline=None)
@given(segment_places, segment_places)
def test_a_segment_opens_in_its_own_place_alone(one: Any, two: Any) -> None:
    key, sealed = chosen("key"), seal(chosen("key"), segment_context(*one), b"text")
    if one == two:
        assert unseal(key, segment_context(*two), sealed) == b"text"
        return
    with pytest.raises(DecryptionError):
        unseal(key, segment_context(*two), sealed)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(part_places, part_places)
def test_a_part_key_opens_in_its_own_place_alone(one: Any, two: Any) -> None:
    key, sealed = chosen("key"), seal(chosen("key"), part_key_context(*one), bytes(40))
    if one == two:
        assert unseal(key, part_key_context(*two), sealed) == bytes(40)
        return
    with pytest.raises(DecryptionError):
        unseal(key, part_key_context(*two), sealed)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(wrap_places, wrap_places)
def test_a_wrap_opens_in_its_own_place_alone(one: Any, two: Any) -> None:
    from scbroker.crypto.seal import wrap_key

    alice = decryption_key("alice")
    wrap = wrap_key(alice.public, info_of(one), bytes(32))
    if one == two:
        assert alice.unwrap(wrap, info_of(two)) == bytes(32)
        return
    with pytest.raises(DecryptionError):
        alice.unwrap(wrap, info_of(two))


@given(segment_places, part_places, wrap_places)
def test_no_context_serves_for_another_purpose(segment: Any, part: Any, wrap: Any) -> None:
    found = [segment_context(*segment), part_key_context(*part), info_of(wrap)]
    for one in found:
        for two in found:
            assert one is two or not two.startswith(one)


def part(padded: int, segments: bytes) -> Part:
    return Part(bytes(16), bytes(32), padded, segments, bytes(112))


@given(st.integers(0, 5 * SEGMENT), st.data())
def test_a_list_of_segments_has_one_hash_each_and_no_other_list_passes(
    padded: int, data: st.DataObject
) -> None:
    count = segment_count(padded)
    assert count == max(1, (padded + SEGMENT - 1) // SEGMENT)
    hashes = b"".join(sha256(bytes([n])) for n in range(count))
    signed = part(padded, segments_hash(padded, hashes))
    check_segment_hashes(signed, hashes)
    position = data.draw(st.integers(0, len(hashes) - 1))
    spoiled = bytearray(hashes)
    spoiled[position] ^= data.draw(st.integers(1, 255))
    others = [bytes(spoiled), hashes[:-1], hashes[:-32], hashes + bytes(32), hashes + b"\0", b""]
    if count > 1:
        others.append(hashes[32:] + hashes[:32])
    for other in others:
        with pytest.raises(IntegrityError):
            check_segment_hashes(signed, other)


def test_a_list_of_the_wrong_length_is_refused_even_if_it_was_signed() -> None:
    for padded, hashes in ((0, b""), (1, bytes(64)), (SEGMENT + 1, bytes(32)), (5, bytes(31))):
        with pytest.raises(IntegrityError):
            check_segment_hashes(part(padded, segments_hash(padded, hashes)), hashes)


def test_a_list_was_signed_for_one_length() -> None:
    for padded in (6, 4, 0, SEGMENT):
        with pytest.raises(IntegrityError):
            check_segment_hashes(part(padded, segments_hash(5, bytes(32))), bytes(32))


@given(st.binary(min_size=16, max_size=16), st.none() | st.text(max_size=10))
def test_a_type_hash_tells_apart_what_it_hashes(salt: bytes, text: str | None) -> None:
    box, long = bytes(16), salt + salt
    found = type_hash(box, long, text)
    assert found != type_hash(b"\1" * 16, long, text)
    assert found != type_hash(box, sha256(salt), text)
    assert found != type_hash(box, long, "" if text is None else text + "x")
    assert (found == type_hash(box, long, None)) == (text is None)


def test_no_bare_form_is_made_of_an_array_of_another_length() -> None:
    for body in (b"\x01\x90", b"\x02" + bare_body(bytes.fromhex(RECORD))[1:], b"\x01\x91\x01"):
        with pytest.raises(IntegrityError):
            bare_body(body)


def test_a_list_allows_each_combination_of_permissions_that_the_spec_allows_and_no_other() -> None:
    """Upload needs Decrypt and ViewAccess, and both changes of what governs need Upload."""
    needed = {
        Level.Upload: Level.Decrypt | Level.ViewAccess,
        Level.ModifyAccess: Level.Upload,
        Level.ModifyType: Level.Upload,
    }
    for bits in range(1, 512):
        items = [SaltedEntry(bytes(32), encode_entry(Entry(bytes(32), 0, bits, None, None)))]
        try:
            AccessList.whole(items)
            allowed = True
        except IntegrityError:
            allowed = False
        assert allowed == all(bits & more == more for one, more in needed.items() if bits & one)
