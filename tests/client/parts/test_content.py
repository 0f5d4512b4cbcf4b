"""What may be given as content, how it is cut, and what is refused before anything is sent."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker import BrokerError
from scbroker.client.parts.content import Content, checked_content
from scbroker.records.container_record import SEGMENT


def segments(source: Any) -> list[bytes]:
    content = checked_content(source)
    assert content is not None
    return pieces_of(content)


def pieces_of(content: Content, first: int = 0) -> list[bytes]:
    """All segments; the last alone says that it is the last."""
    found = [(bytes(segment), last) for segment, last in content.segments(first)]
    assert [last for _, last in found] == [False] * (len(found) - 1) + [True]
    return [segment for segment, _ in found]


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


def test_a_repeatable_content_yields_the_same_segments_twice(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"12345")
    for source in (b"12345", path):
        content = checked_content(source)
        assert content is not None
        assert pieces_of(content) == pieces_of(content) == [b"12345"]


def test_bytes_like_content_is_copied_at_once() -> None:
    source = bytearray(b"before")
    for given_source in (source, memoryview(source)):
        content = checked_content(given_source)
        source[:] = b"after!"
        assert content is not None
        assert pieces_of(content) == [b"before"]
        source[:] = b"before"


@pytest.mark.parametrize(
    "wrong", ["text", "", 7, 7.0, {"a": 1}, [b"a"], (b"a",), {b"a"}, True, object()], ids=range(10)
)
def test_an_argument_that_is_not_a_content_is_refused(wrong: object) -> None:
    """Text above all: whether it is a path or to be encoded, nobody can tell."""
    with pytest.raises(BrokerError.invalidArgumentError, match="content must be"):
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
    with pytest.raises(BrokerError.invalidArgumentError, match="binary and blocking"):
        segments(io.StringIO("text"))
    with pytest.raises(BrokerError.invalidArgumentError, match="must yield bytes"):
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


def test_a_file_is_read_from_any_segment_on(tmp_path: Path) -> None:
    path = tmp_path / "content"
    data = b"0123456789abcdef" * (SEGMENT // 8) + b"rest"
    path.write_bytes(data)
    content = checked_content(path)
    assert content is not None
    for first in range(3):
        assert b"".join(pieces_of(content, first)) == data[first * SEGMENT :]


@pytest.mark.parametrize("change", ["longer", "shorter", "rewritten", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_refused(change: str, tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(bytes(2 * SEGMENT))
    content = checked_content(path)
    assert content is not None
    segments = content.segments()
    next(segments)
    if change == "longer":
        path.write_bytes(bytes(3 * SEGMENT))
    elif change == "shorter":
        path.write_bytes(bytes(SEGMENT))
    elif change == "rewritten":
        os.utime(path, ns=(0, 0))
    else:
        (tmp_path / "other").write_bytes(bytes(2 * SEGMENT))
        (tmp_path / "other").replace(path)
        content = checked_content(path)
        path.unlink()
        path.write_bytes(bytes(2 * SEGMENT + 1))
        assert content is not None
        segments = content.segments()
    with pytest.raises(BrokerError.invalidArgumentError, match="changed while it was read"):
        list(segments)


def test_the_identity_of_a_file_changes_with_it_and_only_files_have_one(tmp_path: Path) -> None:
    path, other = tmp_path / "content", tmp_path / "other"
    path.write_bytes(b"12345")
    other.write_bytes(b"12345")

    def identity(source: Any) -> bytes | None:
        content = checked_content(source)
        assert content is not None
        return content.identity

    before = identity(path)
    assert before is not None
    assert identity(path) == before
    assert identity(other) not in (None, before)
    os.utime(path, ns=(0, 0))
    assert identity(path) not in (None, before)
    for source in (b"12345", io.BytesIO(b"12345"), iter([b"12345"])):
        assert identity(source) is None


def test_a_file_of_the_systems_own_that_says_it_is_empty_is_read_to_its_end() -> None:
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("this system has no /proc")
    assert b"Pid:" in b"".join(segments(path))
