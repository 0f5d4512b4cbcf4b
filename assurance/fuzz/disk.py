"""The trust store's file, as anybody who can write to the disk may leave it."""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

from assurance.fuzz.target import Target, kept
from assurance.fuzz.variations import MANY, in_bytes
from scbroker.client.own_files import HEAD
from scbroker.client.users.trust_store import FileTrustStore, Marks
from scbroker.errors import TrustStoreError

_USER: Final = uuid.UUID("aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa")
_SECRET: Final = b"s" * 32
_LOG: Final = (
    ("user", b"a", b"1"), ("container", b"b" * 16, b"value" * 20), ("user", b"a", b"2"), ("events", b"", b""),
)  # fmt: skip
_folder: list[Path] = []


@contextlib.contextmanager
def _in_a_folder() -> Iterator[None]:
    """Make the folder that holds the file."""
    _folder.append(Path(tempfile.mkdtemp(prefix="fuzz-")))
    try:
        yield
    finally:
        shutil.rmtree(_folder.pop())


def _path() -> Path:
    return _folder[-1] / f"{_USER}.trust"


def _open() -> Marks:
    return FileTrustStore(_folder[-1]).open(_USER, _SECRET)


def _write(marks: Marks, kind: str, key: bytes, value: bytes) -> None:
    kept(marks.swap(kind, key, marks.get(kind, key), value), "a mark did not move")


@cache
def _stages() -> list[tuple[bytes, dict[tuple[str, bytes], bytes]]]:
    """Return the file after each entry of the log, with the marks that it then holds."""
    found, values = [], dict[tuple[str, bytes], bytes]()
    with _in_a_folder():
        marks = _open()
        found.append((_path().read_bytes(), dict(values)))
        for kind, key, value in _LOG:
            _write(marks, kind, key, value)
            values[(kind, key)] = value
            found.append((_path().read_bytes(), dict(values)))
    return found


def _trust_store(data: bytes) -> None:
    """A file that opens has the marks of one of its stages, takes a new mark, and loses none."""
    _path().unlink(missing_ok=True)
    _path().write_bytes(data)
    _path().chmod(0o600)
    try:
        marks = _open()
    except TrustStoreError:
        kept(_path().read_bytes() == data, "a damaged file was touched")
        raise
    kept(bool(data), "an empty file passed for a fresh one")
    names = {(kind, key) for kind, key, _ in _LOG}
    held = {name: value for name in names if (value := marks.get(*name)) is not None}
    whole = [number for number, (file, _) in enumerate(_stages()) if data.startswith(file)]
    kept(any(_stages()[number][1] == held for number in whole), "marks that were never written")
    latest = max(whole)
    kept(_stages()[latest][1] == held, "an entry that is there whole was dropped")
    rest = data[len(_stages()[latest][0]) :]
    head = HEAD
    following = _stages()[latest + 1][0] if latest + 1 < len(_stages()) else b""
    whole_head = data[: len(data) - len(rest) + head]
    torn = len(rest) < head or not any(rest) or following.startswith(whole_head)
    kept(torn, "what no crash leaves behind passed for a torn entry")
    _write(marks, "new", b"k", b"v")
    again = _open()
    kept(again.get("new", b"k") == b"v", "what was written is gone")
    kept({name: again.get(*name) for name in held} == held, "what was there is gone")


def _seeds() -> list[bytes]:
    whole = [file for file, _ in _stages()]
    return [*whole, whole[3][:-1], whole[2] + bytes(100), b""]


def _inputs() -> st.SearchStrategy[bytes]:
    """Draw entries of the log in any order, some of them cut, or followed by zeros; or any faults."""
    ends = [len(file) for file, _ in _stages()]
    last = _stages()[-1][0]
    frames = [last[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    cut = st.builds(lambda frame, end: frame[:end], st.sampled_from(frames), st.integers(0, 200))
    order = st.permutations(frames) | st.lists(st.sampled_from(frames) | cut).map(
        lambda rest: [frames[0], *rest]
    )
    zeros = st.sampled_from((0, 0, 1, 35, 36, 37, 100, 5000)).map(bytes)
    return st.builds(lambda made, tail: b"".join(made) + tail, order, zeros) | in_bytes(_seeds())


def _bombs() -> Iterator[bytes]:
    file = _stages()[-1][0]
    for tail in (bytes(MANY * 10), b"\xff" * MANY * 10, file * 500, b"\xff" * 4 + bytes(32)):
        yield file + tail
        yield tail
        yield file[:20] + tail
    end = len(_stages()[0][0])
    yield file[:end] + b"\xff\xff\xff\xff" + file[end + 4 :]


TARGETS: Final = (
    Target("trust-store", _trust_store, (TrustStoreError,), _seeds, _inputs, _bombs, _in_a_folder),
)
