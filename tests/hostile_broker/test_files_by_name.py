"""Attacks on programs that open containers as files, by people who share with their user.

Attacks 117 to 119 of attacks.toml. Other users choose the names of what they share.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, ContactCard, Contacts, NewContainer, ServerProvider
from scbroker.filesystem import ContainerFileSystem
from tests.kit.fixtures import NewProvider
from tests.kit.people import offer, put
from tests.kit.waiting import PATIENCE

OWNER, WRITER = 511, 79
NAMES = [
    "../../.bashrc", "/etc/passwd", "a/../b", "./a", "a//b", "a/", "", ".", "C:a", "a\\b", "*", "a[b]", "?",
    "a\x1b[2J", "a\u202egnp.exe", "a\x00", "id:", "a" * 1025, "/".join("a" * 65), 5, None, ["a"],
]  # fmt: skip


@pytest.fixture
def alice(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


@pytest.fixture
def mallory(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


@pytest.fixture
def files(alice: ServerProvider) -> ContainerFileSystem:
    """Alice's filesystem; it reads the names anew only when it is told to."""
    return ContainerFileSystem(provider=alice, listings_expiry_time=600)


@pytest.fixture
def befriended(alice: ServerProvider, mallory: ServerProvider) -> ContactCard:
    """Mallory's card in Alice's address book."""
    card = mallory.getContactCard("Mallory").result(PATIENCE)
    Contacts(alice).add(card).result(PATIENCE)
    return card


# Names that act as paths.


def test_a_name_that_leads_elsewhere_is_not_a_path(
    alice: ServerProvider, files: ContainerFileSystem
) -> None:
    files.pipe("b", b"")
    new = [NewContainer(b"x", {"name": name}) for name in NAMES]
    for made in alice.createContainers(new).result(PATIENCE):
        assert not isinstance(made, BrokerError)
        assert files.cat(f"id:{made.id}") == b"x"
    files.invalidate_cache()
    assert files.find("", withdirs=True) == ["b"]


def test_no_file_is_written_under_such_a_name(files: ContainerFileSystem) -> None:
    for name in NAMES:
        if isinstance(name, str) and name not in ("/etc/passwd", "a/"):
            with pytest.raises(BrokerError.invalidArgumentError):
                files.pipe_file(name, b"")
    assert files.find("") == []


@pytest.mark.usefixtures("befriended")
def test_a_hidden_file_of_another_user_is_not_saved_on_the_disk(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider, tmp_path: Path
) -> None:
    hers = offer(mallory, alice, "theirs/.bashrc")
    renamed = offer(alice, mallory, "mine", WRITER)
    mallory.updateContainerHeader(renamed, {"name": "theirs/.profile"}).result(PATIENCE)
    files.pipe(".own/a", b"a")
    for name, id in ((".bashrc", hers), (".profile", renamed)):
        with pytest.raises(PermissionError, match=f"id:{id}"):
            files.get(f"theirs/{name}", str(tmp_path / name))
    files.get(".own/a", str(tmp_path / "a"))
    files.get(f"id:{hers}", str(tmp_path / "chosen"))
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "chosen"]


def test_a_name_that_takes_a_minute_to_normalize_delays_nothing(
    files: ContainerFileSystem, alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    normalize, longest = unicodedata.normalize, [0]

    def note(form: Any, text: str) -> str:
        longest.append(len(text))
        return normalize(form, text)

    put(alice, "a" + "\u0301" * 60_000 + "\u0327" * 60_000)
    monkeypatch.setattr(unicodedata, "normalize", note)
    assert files.ls("") == []
    assert max(longest) <= 1024


# The name of another container.


def test_what_a_stranger_shares_has_no_place_among_the_files(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    files.pipe("reports/1.csv", b"mine")
    hers = [offer(mallory, alice, name, WRITER) for name in ("reports/1.csv", "reports/2.csv")]
    files.invalidate_cache()
    assert files.find("reports") == ["reports/1.csv"]
    assert files.cat("reports/1.csv") == b"mine"
    with pytest.raises(
        FileNotFoundError, match="left out are 2 of users who are not your contacts"
    ):
        files.cat("reports/2.csv")
    assert files.cat(f"id:{hers[1]}") == b"shared"
    files.pipe("reports/2.csv", b"mine too")
    files.rm("reports", recursive=True)
    assert mallory.getContainerContent(hers[1]).result(PATIENCE) == b"shared"


def test_with_everyone_a_name_that_a_stranger_has_as_well_is_ambiguous(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    everyone = ContainerFileSystem(provider=alice, everyone=True)
    files.pipe("a", b"mine")
    offer(mallory, alice, "a")
    offer(mallory, alice, "b")
    assert everyone.ls("", detail=False) == ["a", "b"]
    with pytest.raises(BrokerError.invalidArgumentError, match="2 containers"):
        everyone.cat("a")
    assert everyone.cat("b") == b"shared"


@pytest.mark.long
@pytest.mark.usefixtures("befriended")
def test_a_file_of_a_contact_is_listed_and_is_only_read_by_its_name(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    """Also a file that the contact gave away, and cannot change any more."""
    hers = offer(mallory, alice, "reports/1.csv", WRITER)
    reader, owner = (each.getUserId().result(PATIENCE) for each in (mallory, alice))
    given = put(mallory, "given.csv", accessLevels=[AccessLevel(reader), AccessLevel(owner, OWNER)])
    files.pipe("reports/2.csv", b"mine")
    files.invalidate_cache()
    assert files.cat("reports/1.csv") == b"shared"
    with pytest.raises(PermissionError, match=f"id:{given}"):
        files.pipe("given.csv", b"secret")
    alice.updateContainerHeader(given, {"name": "renamed.csv"}).result(PATIENCE)
    files.invalidate_cache()
    with pytest.raises(PermissionError, match=f"id:{given}"):
        files.pipe("renamed.csv", b"secret")
    for act in (
        lambda: files.pipe("reports/1.csv", b""),
        lambda: files.rm("reports", recursive=True),
        lambda: files.mv("reports/1.csv", "a"),
    ):
        with pytest.raises(PermissionError, match=f"id:{hers}"):
            act()
    assert files.find("reports") == ["reports/1.csv", "reports/2.csv"]
    files.pipe(f"id:{hers}", b"changed")
    assert mallory.getContainerContent(hers).result(PATIENCE) == b"changed"


@pytest.mark.sampled
@pytest.mark.usefixtures("befriended")
@pytest.mark.parametrize(
    "own, hers",
    [("reports/1.csv", "reports"), ("reports", "reports/1.csv")],
    ids=["file", "folder"],
)
def test_a_contact_puts_no_file_in_place_of_a_folder_and_no_folder_in_place_of_a_file(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider, own: str, hers: str
) -> None:
    files.pipe(own, b"mine")
    offer(mallory, alice, hers, WRITER)
    files.invalidate_cache()
    assert [each.get("containerId") for each in files.ls("", detail=True)] == [None, None]
    assert files.info("reports")["size"] is None
    for act in (
        lambda: files.cat("reports"),
        lambda: files.pipe("reports", b"secret"),
        lambda: files.rm("reports", recursive=True),
    ):
        with pytest.raises(BrokerError.invalidArgumentError, match="a folder as well"):
            act()
    assert files.cat("reports/1.csv") in (b"mine", b"shared")


@pytest.mark.usefixtures("befriended")
def test_a_member_who_renames_a_shared_container_gets_nothing_that_is_written_to_its_name(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    own = offer(alice, mallory, "shared.txt", WRITER)
    with pytest.raises(PermissionError, match=f"id:{own}"):
        files.pipe("shared.txt", b"secret")
    mallory.updateContainerHeader(own, {"name": "diary.txt"}).result(PATIENCE)
    files.invalidate_cache()
    for act in (lambda: files.pipe("diary.txt", b"secret"), lambda: files.rm("diary.txt")):
        with pytest.raises(PermissionError, match=f"id:{own}"):
            act()
    assert mallory.getContainerContent(own).result(PATIENCE) == b"shared"


@pytest.mark.usefixtures("befriended")
def test_a_name_that_a_contact_takes_after_it_was_listed_gets_nothing_that_is_written(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    assert files.find("") == []
    hers = offer(mallory, alice, "diary.txt", WRITER)
    with files.open("diary.txt", "w") as file:
        file.write("secret")
    assert files.cat("diary.txt") == b"secret"
    assert mallory.getContainerContent(hers).result(PATIENCE) == b"shared"
    files.invalidate_cache()
    with pytest.raises(BrokerError.invalidArgumentError, match="2 containers"):
        files.cat("diary.txt")


@pytest.mark.long
@pytest.mark.usefixtures("befriended")
def test_a_name_that_a_contact_has_as_well_is_not_left_out_of_a_table(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    import pyarrow.dataset

    for name in ("rain/1.csv", "rain/2.csv"):
        files.pipe(name, b"day\n1\n")
    offer(mallory, alice, "rain/2.csv")
    files.invalidate_cache()
    with pytest.raises(BrokerError.invalidArgumentError, match="2 containers are named"):
        pyarrow.dataset.dataset("rain", filesystem=files, format="csv").to_table()


def test_a_container_that_was_renamed_since_it_was_listed_is_neither_written_nor_deleted(
    files: ContainerFileSystem, alice: ServerProvider
) -> None:
    for act in (files.rm, lambda path: files.pipe(path, b"new")):
        made = put(alice, "a", b"old")
        files.invalidate_cache()
        assert files.exists("a")
        alice.updateContainerHeader(made, {"name": f"b {made}"}).result(PATIENCE)
        with pytest.raises(FileNotFoundError):
            act("a")
        assert files.cat(f"b {made}") == b"old"


# After the end of access.


@pytest.mark.usefixtures("befriended")
def test_a_file_is_neither_read_nor_listed_once_access_has_ended(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    made = offer(mallory, alice, "a")
    assert files.cat("a") == b"shared"
    mallory.revokeAccess(made, alice.getUserId().result(PATIENCE)).result(PATIENCE)
    with pytest.raises(FileNotFoundError):
        files.cat("a")
    assert files.find("") == []


def test_another_user_of_the_same_provider_does_not_see_the_names_of_the_first(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    files.pipe("a", b"")
    ring = mallory.getKeyRing().result(PATIENCE)
    alice.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
    assert files.ls("") == []
    files.pipe("b", b"")
    alice.logout().result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        files.ls("")
