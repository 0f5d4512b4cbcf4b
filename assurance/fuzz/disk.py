"""The state file, as anybody who can write to the disk may leave it."""

import contextlib
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

from assurance.fuzz.target import Target, kept
from assurance.fuzz.variations import MANY, in_bytes
from scbroker.client.local_state import LocalState
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
    return LocalState(_folder[-1]).path


def _open() -> Marks:
    return FileTrustStore(_folder[-1]).open(_USER, _SECRET)


def _write(marks: Marks, kind: str, key: bytes, value: bytes) -> None:
    kept(marks.swap(kind, key, marks.get(kind, key), value), "a mark did not move")


@cache
def _stages() -> list[tuple[bytes, dict[tuple[str, bytes], bytes]]]:
    """Return the file after each entry of the log, with the marks that it then holds."""
    found, values = [], dict[tuple[str, bytes], bytes]()
    with _in_a_folder():
        _path().touch(0o600)
        with contextlib.closing(sqlite3.connect(_path())) as small:
            small.execute("PRAGMA page_size=512")
            small.execute("VACUUM")
        for kind, key, value in _LOG:
            marks = _open()
            _write(marks, kind, key, value)
            values[(kind, key)] = value
            del marks  # closes the file, and moves all that is beside it into it
            found.append((_path().read_bytes(), dict(values)))
    return found


def _state_file(data: bytes) -> None:
    """A file that opens has the marks of one of its stages, and takes a new one or is found to be damaged."""
    for path in _folder[-1].iterdir():
        path.unlink()
    _path().touch(0o600)
    _path().write_bytes(data)
    marks = _open()
    names = {(kind, key) for kind, key, _ in _LOG}
    held = {name: value for name in names if (value := marks.get(*name)) is not None}
    kept(held in ({}, *(values for _, values in _stages())), "marks that were never written")
    _write(marks, "new", b"k", b"v")
    again = _open()
    kept(again.get("new", b"k") == b"v", "what was written is gone")
    kept({name: again.get(*name) for name in held} == held, "what was there is gone")


def _seeds() -> list[bytes]:
    whole = [file for file, _ in _stages()]
    return [*whole, whole[3][:-1], whole[2] + bytes(100), b""]


def _inputs() -> st.SearchStrategy[bytes]:
    """Draw files with another byte in place of one that is not zero, or any faults."""
    file = _stages()[-1][0]
    used = [position for position, byte in enumerate(file) if byte]

    def changed(position: int, byte: int) -> bytes:
        return file[:position] + bytes([byte]) + file[position + 1 :]

    return st.builds(changed, st.sampled_from(used), st.integers(0, 255)) | in_bytes(_seeds())


def _bombs() -> Iterator[bytes]:
    file = _stages()[-1][0]
    for tail in (bytes(MANY * 10), b"\xff" * MANY * 10, file * 50):
        yield file + tail
        yield tail
        yield file[:20] + tail


TARGETS: Final = (
    Target("trust-store", _state_file, (TrustStoreError,), _seeds, _inputs, _bombs, _in_a_folder),
)
