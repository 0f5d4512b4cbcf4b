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
from scbroker.client.arguments import Content, checked_content
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


@pytest.mark.parametrize(
    "wrong", ["text", "", 7, 7.0, {"a": 1}, [b"a"], (b"a",), {b"a"}, True, object()], ids=range(10)
)
def test_an_argument_that_is_not_a_content_is_refused(wrong: object) -> None:
    """Text above all: whether it is a path or to be encoded, nobody can tell."""
    with pytest.raises(BrokerError.invalidArgumentError, match="content must be"):
        checked_content(wrong)


def test_a_path_that_is_no_file_is_refused_at_the_call(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing", tmp_path / "missing" / "below"):
        with pytest.raises(BrokerError.invalidArgumentError, match=str(path)):
            checked_content(path)


def failing(error: Exception) -> Iterator[bytes]:
    yield b"a beginning"
    raise error


def test_a_relative_path_names_the_file_that_it_named_at_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"content")
    content = Content(Path("file"))
    monkeypatch.chdir("/")
    assert [bytes(piece) for piece, _ in content.segments()] == [b"content"]


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


def test_a_file_of_the_systems_own_that_says_it_is_empty_is_read_to_its_end() -> None:
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("this system has no /proc")
    assert b"Pid:" in b"".join(segments(path))
