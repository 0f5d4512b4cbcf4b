"""Names: docs/spec/ids.md, 1.5 and 3."""

import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker.errors import InvalidArgumentError
from scbroker.records.canonical import (
    container_id_of,
    parse_fingerprint,
    parse_uuid,
    show_fingerprint,
    user_id_of,
    uuid8,
)

hashes = st.binary(min_size=32, max_size=32)


@given(hashes)
def test_a_uuid8_holds_the_first_122_bits_around_version_and_variant(digest: bytes) -> None:
    """RFC 9562, 5.8, bit by bit."""
    bits = f"{int.from_bytes(digest, 'big'):0256b}"
    expected = bits[:48] + "1000" + bits[48:60] + "10" + bits[60:122]
    found = uuid8(digest)
    assert f"{found.int:0128b}" == expected
    assert (found.version, found.variant) == (8, uuid.RFC_4122)


@given(hashes, hashes)
def test_ids_are_labelled_hashes_of_what_they_name(creator: bytes, nonce: bytes) -> None:
    digest = hashlib.sha256(b"scbroker/1/container-id\0" + creator + nonce).digest()
    assert container_id_of(creator, nonce) == uuid8(digest)
    assert user_id_of(creator) == uuid8(creator)


@given(st.uuids())
def test_the_canonical_spelling_is_read_and_every_other_is_refused(value: uuid.UUID) -> None:
    text = str(value)
    assert parse_uuid(text) == value
    others = {
        text.upper(), "{" + text + "}", "urn:uuid:" + text, value.hex, text + "\n", " " + text,
        text + " ", "\n" + text, text[:-1], text + "0", text.replace("-", ":"),
        text.replace("-", "\u2010"), "0x" + text[2:], text[:8] + text[9:] + "-",
    } - {text}  # fmt: skip
    for other in others:
        with pytest.raises(InvalidArgumentError):
            parse_uuid(other)


@given(st.text(max_size=40) | st.text(alphabet="0123456789abcdefABCDEF-", min_size=36, max_size=36))
def test_any_text_is_refused_unless_it_is_canonical(text: str) -> None:
    try:
        found = parse_uuid(text)
    except InvalidArgumentError:
        return
    assert str(found) == text


@given(st.uuids(), st.integers(0, 35), st.characters())
def test_a_changed_character_is_refused_or_gives_what_it_spells(
    value: uuid.UUID, position: int, character: str
) -> None:
    text = str(value)[:position] + character + str(value)[position + 1 :]
    try:
        assert str(parse_uuid(text)) == text
    except InvalidArgumentError:
        assert character not in "0123456789abcdef" or str(value)[position] == "-"


@given(hashes)
def test_a_fingerprint_is_shown_as_16_groups_of_4(fingerprint: bytes) -> None:
    groups = show_fingerprint(fingerprint).split(" ")
    assert [len(group) for group in groups] == [4] * 16
    assert bytes.fromhex("".join(groups)) == fingerprint


@given(hashes, st.sampled_from([" ", "", "-", ":", "  ", ".", "\n"]), st.booleans())
def test_a_fingerprint_is_read_however_it_is_grouped(
    fingerprint: bytes, between: str, capitals: bool
) -> None:
    shown = between.join(show_fingerprint(fingerprint).split())
    assert parse_fingerprint(shown.upper() if capitals else shown) == fingerprint


@pytest.mark.parametrize(
    "text", ["", "ab" * 31, "ab" * 33, "g" * 64, "ab" * 31 + "a", None, b"ab" * 32]
)
def test_less_than_a_whole_fingerprint_is_refused(text: object) -> None:
    with pytest.raises(InvalidArgumentError, match="64"):
        parse_fingerprint(text)
