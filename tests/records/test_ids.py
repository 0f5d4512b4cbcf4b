"""Names: docs/spec/ids.md, 1.5 and 3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker.errors import InvalidArgumentError
from scbroker.records.canonical import parse_fingerprint, parse_uuid, show_fingerprint

hashes = st.binary(min_size=32, max_size=32)


@given(st.text(max_size=40) | st.text(alphabet="0123456789abcdefABCDEF-", min_size=36, max_size=36))
def test_any_text_is_refused_unless_it_is_canonical(text: str) -> None:
    try:
        found = parse_uuid(text)
    except InvalidArgumentError:
        return
    assert str(found) == text


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
