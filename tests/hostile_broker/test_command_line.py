"""Attacks on people at the command line by names, contents and files of others.

Attacks 100 to 104, 153 and 162 of attacks.toml.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import stat
import sys
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final
from uuid import uuid4

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContactCard,
    Contacts,
    ContainerAccessLevel,
    KeyRing,
    ServerProvider,
    errors,
)
from scbroker.cli import main
from scbroker.cli.files import Folder, write_own
from scbroker.cli.mirror.plan import Stamp
from scbroker.cli.mirror.state import State
from scbroker.cli.names import _label, holder_of
from scbroker.cli.output import harmless, printable
from scbroker.desk.people import Somebody
from tests.cli.mirror.worlds import SELECTION
from tests.kit.fixtures import NewProvider
from tests.kit.people import Person, ended, put, screen
from tests.kit.waiting import PATIENCE

ESCAPES = "\x1b]0;stolen\x07\x1b[2J\u202etxt.exe"


@pytest.fixture
def engine() -> str:
    """SQLite: commands know nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def victim(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def share(person: Callable[[str], Person], victim: Person) -> Callable[[str, bytes], str]:
    """Share a container of a stranger with the victim, by name and content; return its id."""
    stranger = person("Mallory")

    def make(name: str, content: bytes) -> str:
        with stranger.session() as session:
            levels = [AccessLevel(stranger.ring.userId), AccessLevel(victim.ring.userId)]
            return str(put(session, name, content, accessLevels=levels))

    return make


def files_of(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("name", ["../outside", "in/../../outside", "in\\..\\outside", "absolute"])
def test_a_name_that_leads_out_of_the_folder_is_never_a_path(
    victim: Person, share: Callable[[str, bytes], str], name: str
) -> None:
    work = victim.home / "work"
    work.mkdir()
    if name == "absolute":
        name = str(victim.home / "outside")
    container = share(name, b"evil")
    before = files_of(victim.home.parent)
    assert "--output" in victim.run("get", container, status=2).error
    victim.run("get", "-r", name.partition("/")[0] or "/", "-o", "work", status=None)
    victim.run("mirror", "work", "--once", "--everyone", status=None)
    new = files_of(victim.home.parent) - before
    assert not [each for each in new if each.read_bytes() == b"evil" and work not in each.parents]


@pytest.mark.long
def test_no_name_and_no_content_steers_the_terminal(
    victim: Person, share: Callable[[str, bytes], str]
) -> None:
    container = share(f"a{ESCAPES}", f"b{ESCAPES}".encode())
    for command in (["ls"], ["info", container], ["ls", "--tree"], ["verify"]):
        shown = screen(victim, *command)
        assert "stolen\x07" not in shown
        assert "\u202e" not in shown
    refused = ended(victim.at_terminal("cat", container), 2)
    assert "stolen\x07" not in refused
    assert "\x1b]0" not in victim.run("ls").output
    share("x" * 100_000, b"")
    assert max(map(len, screen(victim, "ls").splitlines())) < 200


@pytest.mark.long
def test_a_renamed_shared_container_does_not_catch_a_private_file(
    victim: Person, person: Callable[[str], Person]
) -> None:
    mallory = person("Mallory")
    rights = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload
    with victim.session() as session:
        levels = [AccessLevel(victim.ring.userId, 511), AccessLevel(mallory.ring.userId, rights)]
        shared = put(session, "shared.txt", b"1234", accessLevels=levels)
    with mallory.session() as session:
        session.updateContainerHeader(shared, {"name": "diary.txt"}).result(PATIENCE)
        (victim.home / "diary.txt").write_text("private")
        victim.run("put", "diary.txt", status=1)
        victim.run("put", "diary.txt", "--update", status=2)
        assert session.getContainerContent(shared).result(PATIENCE) == b"1234"


@pytest.mark.long
def test_a_stranger_with_the_same_name_is_never_taken_in_place_of_ones_own(
    victim: Person, share: Callable[[str, bytes], str]
) -> None:
    with victim.session() as session:
        own = str(put(session, "plan.txt", b"mine"))
    other = share("plan.txt", b"evil")
    done = victim.run("cat", "plan.txt")
    assert (done.output, "1 more of your containers are named 'plan.txt'" in done.error) == (
        "mine",
        True,
    )
    (victim.home / "plan.txt").write_text("newer")
    [row] = victim.json("put", "plan.txt", "--update", "--yes")
    assert (row["id"], row["status"]) == (own, "updated")
    victim.run("rm", "plan.txt", "--yes")
    assert victim.run("cat", "plan.txt").output == "evil", "the only one of this name"
    [row] = victim.json("put", "plan.txt", "--update", "--yes")
    assert row["id"] not in (own, other), "a new one, and no version of the stranger's"
    victim.run("rm", "plan.txt", "--yes")
    share("plan.txt", b"evil too")
    assert other[:8] in victim.run("rm", "plan.txt", "--yes", status=2).error


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere such a folder is refused")
def test_a_mirror_uses_its_own_folder_whatever_is_put_in_its_place(tmp_path: Path) -> None:
    """Another user who can write the folder does it while the mirror runs."""
    (folder := tmp_path / "folder").mkdir()
    (precious := tmp_path / "precious").mkdir()
    own = folder / ".scbroker-mirror"
    with State(folder, SELECTION) as state:
        own.rename(folder / "moved")
        own.mkdir()
        (own / "incoming").symlink_to(precious)
        for name in ("files", "files.new"):
            (own / name).symlink_to(precious / "file")
        write_own(state.incoming / "a", b"of a sharer")
        state.put(PurePosixPath("a"), (Stamp(uuid.uuid4(), 1, 1, 1, bytes(32)),))
        state.sync()
        state._rewrite()
    assert list(precious.iterdir()) == []
    assert (folder / "moved" / "incoming" / "a").read_bytes() == b"of a sharer"


def test_a_mirror_follows_no_link_that_was_planted_in_its_folder(victim: Person) -> None:
    with victim.session() as session:
        container = put(session, "photos/lake.txt", b"lake")
        victim.run("mirror", "copy", "--once")
        elsewhere = victim.home / "kept by the victim"
        (victim.home / "copy" / "photos").rename(elsewhere)
        (victim.home / "copy" / "photos").symlink_to(elsewhere)
        session.updateContainerContent(container, b"changed").result(PATIENCE)
        victim.run("mirror", "copy", "--once", status=None)
        assert [each.read_text() for each in files_of(elsewhere)] == ["lake"]
        session.deleteContainer(container).result(PATIENCE)
        victim.run("mirror", "copy", "--once", status=None)
    assert [each.read_text() for each in files_of(elsewhere)] == ["lake"]


def test_a_link_in_place_of_the_own_folder_changes_nothing_that_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user who can write the mirrored folder puts it there after the mirror has looked."""
    site, own = tmp_path / "site", tmp_path / ".scbroker-mirror"
    site.mkdir(mode=0o755)
    for name in ("stat", "fstat"):
        look, moved = getattr(os, name), tmp_path / name

        def plant_after(
            *arguments: Any, look: Any = look, moved: Path = moved, **options: Any
        ) -> os.stat_result:
            found: os.stat_result = look(*arguments, **options)
            if not os.path.lexists(moved):
                with contextlib.suppress(FileNotFoundError):
                    own.rename(moved)
                    own.symlink_to(site)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(os, name, plant_after)
            with contextlib.suppress(errors.BrokerError):
                State(tmp_path, SELECTION).close()
        assert moved.is_dir()
        own.unlink()
        assert not list(site.iterdir())
        assert stat.S_IMODE(site.stat().st_mode) == 0o755


def test_a_file_that_somebody_puts_in_place_of_the_new_one_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that others can write, they can replace the temporary file at any moment."""
    top, secret = tmp_path / "top", tmp_path / "secret"
    top.mkdir()
    secret.write_text("secret")
    os.utime(secret, (1, 1))
    for name in ("utime", "fsync", "link"):
        at = getattr(os, name)

        def plant_first(*arguments: Any, at: Any = at, **options: Any) -> None:
            for each in top.glob(".scbroker-*"):
                each.unlink()
                each.symlink_to(secret)
            at(*arguments, **options)

        with monkeypatch.context() as patch, Folder(top) as folder:
            patch.setattr(os, name, plant_first)
            with pytest.raises(errors.InvalidArgumentError, match="another file in its place"):
                folder.write(
                    b"x", PurePosixPath("f"), replace=False, modified=dt.datetime.now(dt.UTC)
                )
        assert not list(top.iterdir())
    assert (secret.read_text(), secret.stat().st_mtime) == ("secret", 1)


WRONG_USES: Final = [
    "LINK",
    "links LINK",
    "contacts LINK",
    "groups LINK",
    "admin LINK",
    "admin users LINK",
    "ls --sort LINK",
    "ls --LINK",
    "ls -lLINK",
    "ls LINK LINK LINK",
    "events --since LINK",
    "serve --port LINK",
    "get LINK --output LINK",
    "put LINK",
    "share LINK LINK --until LINK",
    "link x --until LINK",
    "mirror LINK",
    "doctor --server LINK",
    "cat http://h/%23scbroker-link:opensesame",
    "cat scbroker-link:opensesame",
    "get http://h/%23scbroker-link%3Aopensesame",
    "links show http://h/%23Scbroker-Link%3aopensesame",
    "share x http://h/%23scbroker-link%3Aopensesame",
    "login --passphrase-file opensesame",
    "login b60c6eee-0e2a-8129-a649-0bf75db79f4a opensesame",
    "doctor --server http://user:open@opensesame@127.0.0.1:1",
    "doctor --server http://user:open/opensesame@127.0.0.1:1",
    "doctor --server http://user:opensesame@127.0.0.1:1",
    "--profile LINK ls",
    "whoami --svg LINK",
    "contacts verify x --fingerprint LINK",
]


def test_no_error_repeats_the_secret_of_a_link_or_the_password_of_an_address(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person may take a link for a container or a command; errors are kept in logs and tickets."""
    link = "https://broker.example/#scbroker-link:opensesame"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    log = logging.getLogger("scbroker")
    for logger, name in (
        (log, "handlers"),
        (log, "propagate"),
        (logging.getLogger("asyncio"), "level"),
    ):
        monkeypatch.setattr(logger, name, getattr(logger, name))  # a command changes it
    for words in WRONG_USES:
        monkeypatch.setattr("sys.argv", ["scbroker", *words.replace("LINK", link).split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code
        shown = capfd.readouterr()
        assert "opensesame" not in shown.out + shown.err, words


# Names that look like other names.


INVALID = BrokerError.invalidArgumentError
BLANKS = ["\u034f", "\ufe0f", "\u17b4", "\u3164", "\u115f", "\u2800", "\u200d", "\U000e0041"]


@pytest.fixture
def alice(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


def test_no_card_and_no_contact_has_a_name_that_looks_like_another_one(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    mallory = new_provider(True)
    book, digits = Contacts(alice), mallory.getKeyRing().result(PATIENCE).fingerprint
    book.add(new_provider(True).getContactCard("Bob Jones").result(PATIENCE)).result(PATIENCE)
    card = ContactCard(digits, alice.serverUrl, "Mallory")
    for name in [*(f"Bob{each} Jones" for each in BLANKS), "you", "YO\u200bU", "47c5156a"]:
        with pytest.raises(INVALID):
            ContactCard(digits, alice.serverUrl, name)
        with pytest.raises(INVALID):
            book.add(card, name).result(PATIENCE)
    with pytest.raises(BrokerError.keySubstitutionError):
        book.add(card, "\uff22ob  JONES").result(PATIENCE)
    book.add(card).result(PATIENCE)
    with pytest.raises(INVALID):
        book.rename("Mallory", "Bob\u2800Jones").result(PATIENCE)
    assert [each.name for each in book.list().result(PATIENCE)] == ["Bob Jones", "Mallory"]


def test_no_group_and_no_link_gets_a_name_that_looks_like_another_one(
    alice: ServerProvider,
) -> None:
    made = alice.createGroup("Team").result(PATIENCE)
    container = alice.createContainer(b"x").result(PATIENCE)
    for name in ("Te\u034fam", "you", "12345678", "\u3164"):
        for act in (
            lambda name=name: alice.createGroup(name),
            lambda name=name: alice.renameGroup(made, name),
            lambda name=name: alice.createLink(
                container.id, expiresAt=made.createdAt.replace(year=9000), name=name
            ),
        ):
            with pytest.raises(INVALID):
                act().result(PATIENCE)


def test_no_list_and_no_message_shows_a_contact_as_a_group_a_link_or_several_people() -> None:
    fingerprint = KeyRing.generate().fingerprint
    for name in ("group Family", "LINK photos", "the Group 'Family'", "Bob, Carol", 'a, "b'):
        card = ContactCard(fingerprint, "https://broker.example", name)
        assert _label(Somebody(card.userId, "verified", name)) == holder_of(card).name != name
    assert _label(Somebody(uuid4(), "contact", "group Family")) == 'the contact "group Family"'
    assert _label(Somebody(uuid4(), "group", "Family, group Team")) == 'group "Family, group Team"'


def test_tables_and_messages_show_what_nobody_sees() -> None:
    for blank in BLANKS:
        escape = blank.encode("unicode_escape").decode()
        assert printable(f"pl{blank}an") == f"pl{escape}an"


def test_no_name_draws_over_other_rows() -> None:
    assert printable("a" + "\u0308" * 4) == "a" + "\u0308" * 4
    assert printable("a" + "\u0308" * 30 + "b") == "a" + "\u0308" * 4 + "\\u0308" * 26 + "b"
    assert harmless("a" + "\u0308" * 30) == "a" + "\u0308" * 30
