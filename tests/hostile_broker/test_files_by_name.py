"""Other users choose names of what they share: none of them steers a program that reads or writes files."""

import time

import pytest

from scbroker import BrokerError, Contacts, NewContainer, ServerProvider
from scbroker.filesystem import ContainerFileSystem
from tests.filesystem.conftest import Share
from tests.kit.brokers import BrokerProcess
from tests.kit.people import put
from tests.kit.tables import damage_parts

pytestmark = pytest.mark.mostly_on_sqlite
NAMES = [
    "../../.bashrc", "/etc/passwd", "a/../b", "./a", "a//b", "a/", "", ".", "C:a", "a\\b", "*", "a[b]", "?",
    "a\x1b[2J", "a\u202egnp.exe", "a\x00", "id:", "a" * 1025, "/".join("a" * 65), 5, None, ["a"],
]  # fmt: skip


def test_what_a_stranger_shares_has_no_place_among_the_files(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider, share: Share
) -> None:
    files.pipe("reports/1.csv", b"mine")
    hers = [share(mallory, alice, name) for name in ("reports/1.csv", "reports/2.csv")]
    files.invalidate_cache()
    assert files.find("reports") == ["reports/1.csv"]
    assert files.cat("reports/1.csv") == b"mine"
    assert files.cat(f"id:{hers[1]}") == b"shared"
    files.pipe("reports/2.csv", b"mine too")
    files.rm("reports", recursive=True)
    assert mallory.getContainerContent(hers[1]).result(30) == b"shared"


def test_with_everyone_a_name_that_a_stranger_has_as_well_is_ambiguous(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider, share: Share
) -> None:
    everyone = ContainerFileSystem(provider=alice, everyone=True)
    files.pipe("a", b"mine")
    share(mallory, alice, "a")
    share(mallory, alice, "b")
    assert everyone.ls("", detail=False) == ["a", "b"]
    with pytest.raises(BrokerError.invalidArgumentError, match="2 containers"):
        everyone.cat("a")
    assert everyone.cat("b") == b"shared"


def test_a_file_of_a_contact_is_listed_and_is_only_read_by_its_name(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider, share: Share
) -> None:
    card = mallory.getContactCard("Mallory").result(30)
    Contacts(alice).add(card).result(30)
    hers = share(mallory, alice, "reports/1.csv")
    files.pipe("reports/2.csv", b"mine")
    files.invalidate_cache()
    assert files.cat("reports/1.csv") == b"shared"
    for act in (
        lambda: files.pipe("reports/1.csv", b""),
        lambda: files.rm("reports", recursive=True),
        lambda: files.mv("reports/1.csv", "a"),
    ):
        with pytest.raises(PermissionError, match=f"id:{hers}"):
            act()
    assert files.find("") == ["reports/1.csv", "reports/2.csv"]
    files.pipe(f"id:{hers}", b"changed")
    assert mallory.getContainerContent(hers).result(30) == b"changed"


def test_a_member_who_renames_a_shared_container_gets_nothing_that_is_written_to_its_name(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider, share: Share
) -> None:
    own = share(alice, mallory, "shared.txt")
    mallory.updateContainerHeader(own, {"name": "diary.txt"}).result(30)
    for act in (lambda: files.pipe("diary.txt", b"secret"), lambda: files.rm("diary.txt")):
        with pytest.raises(PermissionError, match=f"id:{own}"):
            act()
    assert mallory.getContainerContent(own).result(30) == b"shared"


def test_a_name_that_leads_elsewhere_is_not_a_path(
    alice: ServerProvider, files: ContainerFileSystem
) -> None:
    files.pipe("b", b"")
    new = [NewContainer(b"x", {"name": name}) for name in NAMES]
    for made in alice.createContainers(new).result(30):
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


def test_names_are_the_same_in_every_composition(
    files: ContainerFileSystem, alice: ServerProvider
) -> None:
    put(alice, "e\u0301", b"x")
    assert files.ls("", detail=False) == ["\u00e9"]
    assert files.cat("e\u0301") == files.cat("\u00e9") == b"x"


def test_a_name_that_takes_a_minute_to_normalize_delays_nothing(
    files: ContainerFileSystem, alice: ServerProvider
) -> None:
    put(alice, "a" + "\u0301" * 60_000 + "\u0327" * 60_000)
    start = time.monotonic()
    assert files.ls("") == []
    assert time.monotonic() - start < 10


def test_a_damaged_container_is_left_out_and_named_in_the_log(
    files: ContainerFileSystem,
    alice: ServerProvider,
    broker: BrokerProcess,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(alice, "a")
    damaged = put(alice, "b")
    damage_parts(broker.database_url, damaged)
    assert files.find("") == ["a"]
    assert f"1 containers cannot be read, such as {damaged}" in caplog.text
