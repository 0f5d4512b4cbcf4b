"""What may be given as content, how it is cut, and what is refused before anything is sent."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker import BrokerError
from scbroker.client.content import checked_content
from scbroker.records.container_record import SEGMENT


def segments(source: Any) -> list[bytes]:
    content = checked_content(source)
    assert content is not None
    return list(content.segments())


@pytest.mark.parametrize("size", [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT])
def test_a_content_is_cut_into_full_segments_and_a_rest(size: int, tmp_path: Path) -> None:
    """Whatever it comes from; nothing at all is one empty segment."""
    data = b"0123456789abcdef" * (size // 16) + b"x" * (size % 16)
    path = tmp_path / "content"
    path.write_bytes(data)
    expected = [data[n : n + SEGMENT] for n in range(0, size, SEGMENT)] or [b""]
    with path.open("rb") as file:
        sources = [
            data,
            bytearray(data),
            memoryview(data),
            path,
            file,
            iter([data]),
            io.BytesIO(data),
        ]
        for source in sources:
            assert segments(source) == expected


@given(st.lists(st.binary(max_size=9)))
def test_an_iterators_pieces_may_have_any_size(pieces: list[bytes]) -> None:
    assert b"".join(segments(iter(pieces))) == b"".join(pieces)


def test_pieces_larger_than_a_segment_and_mixed_kinds_are_cut_alike() -> None:
    pieces = [b"a" * (2 * SEGMENT + 5), bytearray(b"b" * 7), memoryview(b"c" * SEGMENT)]
    found = segments(piece for piece in pieces)
    assert [len(each) for each in found] == [SEGMENT, SEGMENT, SEGMENT, 12]
    assert b"".join(found) == b"".join(map(bytes, pieces))


def test_a_files_size_is_known_before_it_is_read_and_a_streams_is_not(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"12345")
    for source, total, repeatable in (
        (path, 5, True),
        (b"12345", 5, True),
        (io.BytesIO(b"12345"), None, False),
        (iter([b"12345"]), None, False),
    ):
        content = checked_content(source)
        assert content is not None
        assert (content.total, content.repeatable) == (total, repeatable)


def test_what_is_repeatable_gives_the_same_segments_twice(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"12345")
    for source in (b"12345", path):
        content = checked_content(source)
        assert content is not None
        assert list(content.segments()) == list(content.segments()) == [b"12345"]


def test_bytes_like_content_is_copied_at_once() -> None:
    source = bytearray(b"before")
    for given_source in (source, memoryview(source)):
        content = checked_content(given_source)
        source[:] = b"after!"
        assert content is not None
        assert list(content.segments()) == [b"before"]
        source[:] = b"before"


@pytest.mark.parametrize(
    "wrong",
    ["text", "", 7, 7.0, {"a": 1}, [b"a"], (b"a",), {b"a"}, True, object()],
    ids=range(10),
)
def test_what_is_no_content_is_refused(wrong: object) -> None:
    """Text above all: whether it is a path or to be encoded, nobody can tell."""
    with pytest.raises(BrokerError.invalidArgumentError, match="content is"):
        checked_content(wrong)


def test_a_path_that_is_no_file_is_refused_at_the_call(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / "missing" / "below"):
        with pytest.raises(BrokerError.invalidArgumentError, match=str(path)):
            checked_content(path)


def failing(error: Exception) -> Iterator[bytes]:
    yield b"a beginning"
    raise error


def test_a_source_that_fails_or_gives_text_is_an_argument_error(tmp_path: Path) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="read to its end: OSError: gone"):
        segments(failing(OSError("gone")))
    with pytest.raises(BrokerError.invalidArgumentError, match="binary mode"):
        segments(io.StringIO("text"))
    with pytest.raises(BrokerError.invalidArgumentError, match="yields bytes"):
        segments(iter([7]))
    vanishing = tmp_path / "content"
    vanishing.write_bytes(b"1")
    content = checked_content(vanishing)
    assert content is not None
    vanishing.unlink()
    with pytest.raises(BrokerError.invalidArgumentError, match="FileNotFoundError"):
        list(content.segments())


def test_no_content_is_none() -> None:
    assert checked_content(None) is None
