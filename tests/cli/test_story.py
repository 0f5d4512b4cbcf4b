"""What two people do by commands alone, from an empty home folder to a log-in on another day."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pexpect
import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.nursery import command
from tests.kit.people import Person, ended, interrupted

PASSWORD: Final = "A password 1"
PASSPHRASE: Final = "A passphrase 1"
COLOUR: Final = "\x1b["
NewPerson = Callable[[str], Person]


def register(who: Person, name: str) -> str:
    """Register by prompts; return all that the terminal showed."""
    who.environment |= {
        "SCBROKER_SERVER_URL": who.broker.url, "SCBROKER_API_KEY": str(who.broker.api_key),
    }  # fmt: skip
    folder = str(who.home / "sessions")  # a test machine has no keychain
    child = who.at_terminal("register", "--name", name, "--session-folder", folder)
    shown = ""
    for prompt, secret in (
        (r"New password: ", PASSWORD), (r"New password again: ", PASSWORD),
        (r"New passphrase: ", PASSPHRASE), (r"New passphrase again: ", PASSPHRASE),
    ):  # fmt: skip
        child.expect(prompt)
        shown += str(child.before)
        child.sendline(secret)
    return shown + ended(child)


@pytest.mark.long
def test_two_people_store_share_read_revoke_and_leave_by_commands_alone(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    alice, bob = (Person(tmp_path / name, broker) for name in ("alice", "bob"))
    for who, name in ((alice, "Alice"), (bob, "Bob")):
        shown = register(who, name)
        assert PASSWORD not in shown
        assert PASSPHRASE not in shown
    cards = {who: who.json("whoami") for who in (alice, bob)}

    alice.run("contacts", "add", cards[bob]["card"])
    alice.run("contacts", "verify", "Bob", "--fingerprint", cards[bob]["fingerprint"])
    assert [each["name"] for each in alice.json("contacts", "ls")] == ["Bob"]
    bob.run("contacts", "add", "-", stdin=cards[alice]["card"].encode())

    # A file, a folder and standard input.
    (alice.home / "letter.txt").write_text("Dear Bob\n")
    (alice.home / "photos" / "2026").mkdir(parents=True)
    (alice.home / "photos" / "2026" / "lake.jpg").write_bytes(bytes(300_000))
    (alice.home / "photos" / "tent.jpg").write_bytes(b"tent")
    alice.run("put", "letter.txt")
    alice.run("put", "-r", "photos")
    alice.run("put", "-", "--name", "notes/today.txt", stdin=b"rain")
    names = {"letter.txt", "photos/2026/lake.jpg", "photos/tent.jpg", "notes/today.txt"}
    assert {each["name"] for each in alice.json("ls")} == names

    # Shared: the other one lists, reads and gets.
    alice.run("share", "letter.txt", "Bob", "--until", "7d")
    alice.run("share", "-r", "photos/", "--with", "Bob")
    assert {each["name"] for each in bob.json("ls")} == names - {"notes/today.txt"}
    assert bob.run("cat", "letter.txt").output == "Dear Bob\n"
    bob.run("get", "-r", "photos/", "-o", "copies")
    found = list((bob.home / "copies").rglob("lake.jpg"))
    assert [each.read_bytes() for each in found] == [bytes(300_000)]
    assert (
        "lacks Upload" in bob.run("put", "--into", "letter.txt", found[0], "--yes", status=4).error
    )

    alice.run("mv", "letter.txt", "letters/bob.txt")
    assert bob.run("cat", "letters/bob.txt").output == "Dear Bob\n"
    kinds = [each["eventType"] for each in alice.json("events", "--container", "letters/bob.txt")]
    assert {"Added", "Updated", "Accessed"} <= set(kinds)

    # A link, which a stranger opens without a profile.
    link = alice.run("link", "notes/today.txt", "--until", "7d", "--name", "Dave").lines[0]
    dave = Person(tmp_path / "dave", broker)
    assert "notes/today.txt" in dave.run("open", "-", stdin=f"{link}\n".encode()).output
    alice.run("link", "--revoke", "Dave", "--yes")
    assert dave.run("open", "-", stdin=f"{link}\n".encode(), status=3).output == ""

    # The end of access: taken away, given up, deleted.
    alice.run("revoke", "letters/bob.txt", "Bob")
    bob.run("cat", "letters/bob.txt", status=3)
    bob.run("leave", "photos/tent.jpg", "--yes")
    assert {each["name"] for each in bob.json("ls")} == {"photos/2026/lake.jpg"}
    alice.run("rm", "letters/bob.txt", status=2)  # nobody can be asked, and no --yes
    alice.run("rm", "letters/bob.txt", "--yes")
    assert "letters/bob.txt" not in {each["name"] for each in alice.json("ls")}

    # New keys; log out; a wrong passphrase, and the right one.
    alice.run(
        "rotate", SCBROKER_NEW_PASSWORD="B password 2", SCBROKER_NEW_PASSPHRASE="B passphrase 2"
    )
    assert len({each["index"] for each in alice.json("keys")}) > 1
    alice.run("logout")
    assert "scbroker login" in alice.run("ls", status=4).error
    alice.run("login", status=4, SCBROKER_PASSPHRASE=PASSPHRASE)
    alice.run("login", SCBROKER_PASSPHRASE="B passphrase 2")
    assert {each["name"] for each in alice.json("ls")} == names - {"letter.txt"}


@pytest.mark.long
def test_a_put_that_ctrl_c_interrupts_goes_on_by_the_same_command(person: NewPerson) -> None:
    alice = person("Alice")
    folder = alice.home / "many"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.bin").write_bytes(bytes([number]) * 2_000_000)
    child = alice.at_terminal("put", "-r", "many")
    child.expect(r"MiB")  # the bar shows what is done
    shown = interrupted(child)
    assert "Traceback" not in shown
    done = alice.json("put", "-r", "many")
    assert {each["status"] for each in done} <= {"stored", "unchanged"}
    assert len(done) == 40
    assert len(alice.json("ls")) == 40  # none twice
    assert {each["status"] for each in alice.json("put", "-r", "many")} == {"unchanged"}


@pytest.mark.long
def test_bars_are_for_terminals_alone_and_results_stay_whole(person: NewPerson) -> None:
    alice = person("Alice")
    (alice.home / "big").write_bytes(bytes(30_000_000))
    shown = ended(alice.at_terminal("put", "big"))
    assert "━" in shown
    # The bar is erased before the table is written into its line.
    assert re.search(r"\x1b\[2K(?:\x1b\[[0-9;]*m)*NAME", shown)
    done = alice.run("put", "big")
    assert "━" not in done.output + done.error
    assert COLOUR not in done.output + done.error


def test_a_terminal_that_cannot_move_its_cursor_gets_no_bar(person: NewPerson) -> None:
    alice = person("Alice")
    (alice.home / "big").write_bytes(bytes(3_000_000))
    shown = ended(alice.at_terminal("put", "big", TERM="dumb", NO_COLOR="1"))
    assert "━" not in shown
    assert "NAME" in shown


@pytest.mark.long
def test_a_result_goes_to_the_file_that_standard_output_is_while_a_bar_is_shown(
    person: NewPerson,
) -> None:
    alice = person("Alice")
    (alice.home / "big").write_bytes(bytes(30_000_000))
    words = shlex.join(command("put", "big"))
    shell = pexpect.spawn(
        "sh", ["-c", f"{words} > out"], env={**alice.environment, "TERM": "xterm"},
        cwd=str(alice.home), encoding="utf-8",
    )  # fmt: skip
    shown = ended(shell)
    assert "━" in shown
    assert "stored" not in shown
    assert (alice.home / "out").read_text().split("\t")[:2] == ["big", "stored"]


@pytest.mark.long
def test_followed_events_are_lines_of_json_until_ctrl_c(person: NewPerson) -> None:
    alice = person("Alice")
    (alice.home / "letter.txt").write_text("Dear Bob")
    alice.run("put", "letter.txt")
    alice.run("put", "letter.txt", "--name", "another")
    child = alice.at_terminal("events", "--follow", "--since", "1", "--json")
    child.expect(r"\{[^\r\n]*\}")
    assert isinstance(child.match, re.Match)
    assert json.loads(child.match[0])["eventType"] == "Added"
    assert "Traceback" not in interrupted(child)
