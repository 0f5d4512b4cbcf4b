"""Safe paths of hostile names, and writing below a folder in which somebody plants links."""

import datetime as dt
import errno
import os
import resource
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker import errors
from scbroker.cli import files
from scbroker.cli.files import Folder
from scbroker.desk.paths import relative_path
from tests.kit.cases import in_one_case

P = PurePosixPath
_PIECES = st.sampled_from(
    ["..", ".", "/", "\\", "a", "b ", "c.", "C:", "~", "\0", "\u202e", "NUL", "é", " "]
)
_NAMES = st.lists(_PIECES | st.characters(), max_size=8).map("".join) | st.text()


@in_one_case(
    "name,reason",
    [
        ("", "empty part"),
        ("/etc/passwd", "absolute path"),
        ("a/" * 64 + "a", "more than 64 parts"),
        ("../x", "the part '..'"),
        ("a/../../x", "the part '..'"),
        ("C:/x", "the character ':'"),
        ("..\\x", "the character '\\\\'"),
        ("a\0b", "control character"),
        ("a\x1b[2Jb", "control character"),
        ("a\u202etxt.exe", "reverses text"),
        ("a\u034fb", "U+034F"),
        ("a\u2800b", "nobody sees"),
        (".\u200d.", "the part"),
        ("a./b", "ends with a dot or a space"),
        ("a/COM1.txt", "a device on Windows"),
        ("lpt\u00b2 .x", "a device on Windows"),
        (".scbroker-mirror/state", "the program's own"),
        (".scb\u200droker-mirror", "the program's own"),
        ("SCBROK~1", "the program's own"),
        ("é" * 128, "more than 255 bytes"),
        ("a/" * 512 + "b", "longer than 1024 bytes"),
    ],
)
def test_a_name_that_no_file_may_get_is_an_error_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        relative_path(name)
    assert reason in raised.value.message
    assert len(raised.value.message) < 400


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a/b.txt",
        ".hidden",
        "...a",
        "Größe/Юникод 文.txt",
        "👩‍🚀",
        "\u200fשלח.png",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt",
        "\u061ca",
        "❤\ufe0f",
        "console/nullable",
        "COM10",
        "a'\"$(b)`",
    ],
)
def test_an_ordinary_name_is_its_path(name: str) -> None:
    assert str(relative_path(name)) == name


@given(_NAMES)
def test_no_accepted_name_leads_out_of_the_folder_on_any_system(name: str) -> None:
    try:
        found = relative_path(name)
    except errors.InvalidArgumentError:
        return
    assert str(found) == unicodedata.normalize("NFC", name)
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(str(found))
        assert not path.is_absolute()
        assert not path.drive
        assert path.parts == found.parts
        assert not set(path.parts) & {"..", "."}
    assert os.path.normpath(f"/folder/{found}") == f"/folder/{found}"
    str(found).encode()


@pytest.fixture(params=["by descriptors", "by paths"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Folder]:
    """A folder, by each way of opening those on the way; by paths as on Windows."""
    if request.param == "by paths":
        monkeypatch.setattr(files, "_HAS_DIR_FD", False)
    (tmp_path / "top").mkdir()
    with Folder(tmp_path / "top") as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], Path]:
    """Make a complete file beside the folder."""

    def make(text: str = "new") -> Path:
        path = tmp_path / "source"
        path.write_text(text)
        return path

    return make


def test_a_file_is_placed_with_its_folders_and_its_time(
    folder: Folder, source: Callable[[str], Path]
) -> None:
    moment = dt.datetime(2001, 2, 3, 4, 5, 6, 700000, tzinfo=dt.UTC)
    status = folder.place(source("x"), P("a/b/c"), replace=False, modified=moment)
    placed = folder.path / "a/b/c"
    assert placed.read_text() == "x"
    assert placed.stat().st_mtime == status.st_mtime == moment.timestamp()
    assert placed.stat().st_ino == status.st_ino
    assert (folder.path / "a").stat().st_mode & 0o077 == 0
    assert not (folder.path.parent / "source").exists()
    with folder.open(P("a/b/c")) as file:
        assert file.read() == b"x"


def test_a_file_system_without_hard_links_replaces_nothing_either(
    folder: Folder, source: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    folder.place(source("one"), P("f"), replace=False)
    with pytest.raises(errors.AlreadyExistsError):
        folder.place(source("two"), P("f"), replace=False)
    assert (folder.path / "f").read_text() == "one"


def test_no_link_below_the_folder_is_followed(
    folder: Folder, source: Callable[[str], Path], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (folder.path / "link").symlink_to(outside)
    (folder.path / "file").symlink_to(outside / "secret")
    (folder.path / "own").write_text("own")
    for work in (
        lambda: folder.place(source(""), P("link/new"), replace=True),
        lambda: folder.place(source(""), P("link/a/new"), replace=False),
        lambda: folder.open(P("link/secret")),
        lambda: folder.remove(P("link/secret")),
        lambda: folder.move(P("own"), P("link/own")),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="link"):
            work()
    folder.remove_empty(P("link/a"))
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (folder.path / "own").exists()
    if files._HAS_DIR_FD:
        with pytest.raises(errors.InvalidArgumentError, match="link"):
            folder.open(P("file"))
    folder.place(source("mine"), P("file"), replace=True)  # replaces the link, not what it names
    assert (outside / "secret").read_text() == "secret"


def test_a_link_that_is_planted_between_two_steps_leads_nowhere(
    source: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    (top / "a").mkdir(parents=True)
    outside.mkdir()
    replace = os.replace

    def plant_first(*arguments: object, **options: object) -> None:
        (top / "a").rename(tmp_path / "moved")
        (top / "a").symlink_to(outside)
        replace(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", plant_first)
    with Folder(top) as folder:
        folder.place(source("x"), P("a/f"), replace=True)
    assert not list(outside.iterdir())
    assert (tmp_path / "moved" / "f").read_text() == "x"


def test_only_a_folder_is_opened_and_only_regular_files_are_read(
    folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(errors.InvalidArgumentError, match="not a folder"):
        Folder(tmp_path / "f")
    (folder.path / "inner").mkdir()
    os.mkfifo(folder.path / "pipe")
    for name in ("inner", "pipe"):
        with pytest.raises(errors.InvalidArgumentError, match=name):
            folder.open(P(name))


def test_a_file_that_does_not_fit_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Folder(tmp_path) as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            with pytest.raises(errors.DiskFullError, match="No room is left"):
                folder.write(bytes(2000), PurePosixPath("a"), replace=False)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert list(tmp_path.iterdir()) == []
        folder.write(b"text", PurePosixPath("a"), replace=False)
        with pytest.raises(errors.AlreadyExistsError):
            folder.write(b"other", PurePosixPath("a"), replace=False)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"text"
