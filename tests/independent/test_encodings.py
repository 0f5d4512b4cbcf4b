"""The one encoding that each value has: docs/spec/ids.md, 1.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.independent.encodings import RefusedError, Value, decode, encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**64 - 1) | st.text() | st.binary(),
    lambda children: st.lists(children, max_size=20),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: Value) -> None:
    """Whatever nests no deeper than the format's structures comes back equal, and of its types."""
    data = encode(value)
    try:
        again = decode(data)
    except RefusedError as error:
        assert "nested" in str(error)  # noqa: PT017 - the only reason there can be
        return
    assert repr(again) == repr(value)


@given(st.binary(max_size=12))
def test_bytes_are_refused_or_the_one_encoding(data: bytes) -> None:
    """There are no two encodings of one value."""
    try:
        value = decode(data)
    except RefusedError:
        return
    assert encode(value) == data


@pytest.mark.parametrize(
    "data",
    ["d005", "d100ff", "d200010000", "d30000000100000000", "ff", "dfff", "ca3f800000", "80", "c1"],
)
def test_signed_integers_floats_and_maps_are_refused(data: str) -> None:
    """An integer has the unsigned form, also where the signed one would be as short."""
    with pytest.raises(RefusedError):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data", ["a1ff", "a3eda080", "a2c080", "d901", "c402aa", "91", "9191919190"]
)
def test_broken_text_short_lengths_and_deep_nesting_are_refused(data: str) -> None:
    """UTF-8 is strict, lengths are met, and nothing nests deeper than a structure does."""
    with pytest.raises(RefusedError):
        decode(bytes.fromhex(data))
