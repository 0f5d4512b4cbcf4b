"""The trust store's file, as anybody with the disk in hand may leave it."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from assurance.fuzz import mutation
from assurance.fuzz.bombs import MANY
from assurance.fuzz.engine import Target, kept
from scbroker.client.sealed_log import HEAD
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
    """The folder that the files are put in, one at a time."""
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
    kept(
        marks.swap(kind, key, marks.get(kind, key), value),
        "a mark that nobody else moved did not move",
    )


@cache
def _stages() -> list[tuple[bytes, dict[tuple[str, bytes], bytes]]]:
    """The file after each entry of the log, and what it then says."""
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
    """What opens says what the log said after one of its entries, keeps what is added, and loses nothing."""
    _path().unlink(missing_ok=True)
    _path().write_bytes(data)
    try:
        marks = _open()
    except TrustStoreError:
        kept(_path().read_bytes() == data, "a damaged file was touched")
        raise
    names = {(kind, key) for kind, key, _ in _LOG}
    said = {name: value for name in names if (value := marks.get(*name)) is not None}
    kept(bool(data), "an empty file passed for a fresh one")
    stages = [
        size
        for size, (file, values) in enumerate(_stages())
        if data.startswith(file) and values == said
    ]
    kept(bool(stages), "it says what its log never said")
    latest = max(size for size, (file, _) in enumerate(_stages()) if data.startswith(file))
    kept(latest in stages, "an entry that is there whole was dropped")
    rest = data[len(_stages()[latest][0]) :]
    head = HEAD
    following = _stages()[latest + 1][0] if latest + 1 < len(_stages()) else b""
    torn = (
        len(rest) < head
        or not any(rest)
        or following.startswith(data[: len(data) - len(rest) + head])
    )
    kept(torn, "what no crash leaves behind passed for one")
    _write(marks, "new", b"k", b"v")
    again = _open()
    kept(again.get("new", b"k") == b"v", "what was written is gone")
    kept({name: again.get(*name) for name in said} == said, "what was there is gone")


def _in_frames(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Entries of the log taken out, put in, doubled, cut off or followed by zeros."""
    files = [file for file, _ in _stages()]
    ends = [len(file) for file in files]
    frames = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)] + [
        data[ends[-1] :]
    ]
    at = rng.randrange(len(frames))
    match rng.randrange(6):
        case 0:
            del frames[at]
        case 1:
            frames.insert(at, frames[rng.randrange(len(frames))])
        case 2:
            other = rng.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        case 3:
            return b"".join(frames) + bytes(rng.choice((1, 35, 36, 37, 100, 5000)))
        case 4:
            return b"".join(frames[: at + 1])[: -rng.randint(1, 40)]
        case 5:
            frames[at] = frames[at][: rng.randint(0, len(frames[at]))]
    del others
    return b"".join(frames)


def _seeds() -> list[bytes]:
    whole = [file for file, _ in _stages()]
    return [*whole, whole[3][:-1], whole[2] + bytes(100)]


def _bombs() -> Iterator[bytes]:
    file = _seeds()[-3]
    for tail in (
        bytes(MANY * 10),
        b"\xff" * MANY * 10,
        file * 500,
        b"\xff\xff\xff\xff" + bytes(32),
    ):
        yield file + tail
        yield tail
        yield file[:20] + tail
    end = len(_seeds()[0])
    yield file[:end] + b"\xff\xff\xff\xff" + file[end + 4 :]


TARGETS: Final = (
    Target(
        "trust-store",
        _trust_store,
        (TrustStoreError,),
        _seeds,
        mutation.mixed(_in_frames, mutation.in_bytes),
        _bombs,
        _in_a_folder,
        seconds=2.0,
    ),
)
