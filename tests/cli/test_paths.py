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
from scbroker.cli import paths
from scbroker.cli.paths import Folder
from scbroker.desk.paths import collision_key, container_name, relative_path
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
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("/etc/passwd", "absolute path"),
        ("a/" * 64 + "a", "more than 64 parts"),
        ("../x", "the part '..'"),
        ("a/../../x", "the part '..'"),
        ("./x", "the part '.'"),
        ("C:/x", "the character ':'"),
        ("file:stream", "the character ':'"),
        ("..\\x", "the character '\\\\'"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x1b[2Jb", "control character"),
        ("a\u2028b", "control character"),
        ("a\udc80b", "control character"),
        ("a\u202etxt.exe", "reverses text"),
        ("a\u2066b", "U+2066"),
        ("a\u034fb", "U+034F"),
        ("\u3164", "empty part"),
        ("a/\u2800", "empty part"),
        ("a\u2800b", "nobody sees"),
        (".\u200d.", "the part"),
        ("a/.\u200e/b", "the part"),
        ("nul\u200f", "a device on Windows"),
        ("a.\ufe0f", "ends with a dot"),
        ("a./b", "ends with a dot or a space"),
        ("a ", "ends with a dot or a space"),
        ("nul", "a device on Windows"),
        ("a/COM1.txt", "a device on Windows"),
        ("lpt\u00b2 .x", "a device on Windows"),
        (".scbroker-mirror/state", "the program's own"),
        ("a/.ScBroker-mirror", "the program's own"),
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


def test_two_compositions_of_a_name_are_one_path() -> None:
    assert relative_path("e\u0301") == relative_path("\u00e9") == P("\u00e9")


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


@given(_NAMES)
def test_the_name_of_an_accepted_path_is_accepted_again_and_the_same(name: str) -> None:
    try:
        found = relative_path(name)
    except errors.InvalidArgumentError:
        return
    assert relative_path(container_name(Path(found))) == found


def test_a_windows_path_becomes_a_name_with_slashes() -> None:
    assert container_name(PureWindowsPath("a\\b.txt")) == "a/b.txt"
    with pytest.raises(errors.InvalidArgumentError):
        container_name(PureWindowsPath("C:\\a"))


def test_names_that_macos_or_windows_take_for_the_same_have_one_key() -> None:
    assert collision_key("STRASSE") == collision_key("stra\u00dfe")
    assert collision_key("E\u0301") == collision_key("\u00e9")
    assert collision_key("a\u200bb") == collision_key("AB")
    assert collision_key("a") != collision_key("b")


@pytest.fixture(params=["by descriptors", "by paths"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Folder]:
    """A folder, by each way of opening those on the way; by paths as on Windows."""
    if request.param == "by paths":
        monkeypatch.setattr(paths, "_HAS_DIR_FD", False)
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


def test_an_existing_file_is_replaced_only_on_demand(
    folder: Folder, source: Callable[[str], Path]
) -> None:
    (folder.path / "f").write_text("old")
    with pytest.raises(errors.AlreadyExistsError):
        folder.place(source("new"), P("f"), replace=False)
    assert (folder.path / "f").read_text() == "old"
    folder.place(source("new"), P("f"), replace=True)
    assert (folder.path / "f").read_text() == "new"


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
        lambda: folder.make_folder(P("link/a")),
        lambda: folder.open(P("link/secret")),
        lambda: folder.remove(P("link/secret")),
        lambda: folder.move(P("own"), P("link/own")),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="link"):
            work()
    folder.remove_empty(P("link/a"))
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (folder.path / "own").exists()
    if paths._HAS_DIR_FD:
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


def test_a_removed_file_takes_the_folders_with_it_that_are_empty_then(folder: Folder) -> None:
    folder.make_folder(P("a/b/c"))
    (folder.path / "a/b/c/f").touch()
    (folder.path / "a/other").touch()
    folder.remove(P("a/b/c/f"))
    assert [each.name for each in (folder.path / "a").iterdir()] == ["other"]
    folder.remove(P("a/b/c/f"))
    folder.remove(P("a/none"))
    assert folder.path.exists()


def test_a_file_is_renamed_but_not_over_another(folder: Folder) -> None:
    (folder.path / "f").write_text("f")
    (folder.path / "g").write_text("g")
    with pytest.raises(errors.AlreadyExistsError):
        folder.move(P("f"), P("g"))
    folder.move(P("f"), P("a/f"))
    assert (folder.path / "a/f").read_text() == "f"
    assert folder.status(P("f")) is None
    assert folder.status(P("g/under a file")) is None
    with pytest.raises(errors.NotFoundError):
        folder.move(P("f"), P("h"))


@pytest.mark.parametrize(
    "number,kind",
    [(errno.ENOSPC, errors.TooLargeError), (errno.EACCES, errors.InvalidArgumentError)],
)
def test_a_failure_of_the_system_is_an_error_that_names_the_file(
    number: int,
    kind: type[errors.BrokerError],
    folder: Folder,
    source: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    made = source("x")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match="f'") as raised:
        folder.place(made, P("f"), replace=False)
    assert os.strerror(number) in raised.value.message
    assert not list(folder.path.iterdir())


def test_only_a_folder_is_opened_and_only_regular_files_are_read(
    folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(errors.InvalidArgumentError, match="not a folder"):
        Folder(tmp_path / "f")
    folder.make_folder(P("inner"))
    os.mkfifo(folder.path / "pipe")
    for name in ("inner", "pipe"):
        with pytest.raises(errors.InvalidArgumentError, match=name):
            folder.open(P(name))


def test_a_time_that_no_file_can_have_is_left_out(
    folder: Folder, source: Callable[[str], Path]
) -> None:
    for year in (1, 9999):
        moment = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
        folder.place(source("x"), P(f"f{year}"), replace=False, modified=moment)
        assert (folder.path / f"f{year}").exists()


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
