"""The session of `scbroker ui`: how it begins, is kept, locks itself, and ends."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator

import pytest

from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Done, Site
from tests.kit.keychains import run_beside_gnome_keyring
from tests.kit.pages import UsersPage
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE, wait_until

PASSWORD, PASSPHRASE = "correct Horse 7", "battery Staple 8"
STATE = {"Sec-Fetch-Mode": "cors"}


def folders(person: Person) -> list[str]:
    home = person.home
    return ["--session-folder", f"{home}/sessions", "--trust-folder", f"{home}/trust"]


def filled(person: Person, **changed: str) -> dict[str, str]:
    """What a person types to register."""
    return {
        "server": person.broker.url,
        "api_key": str(person.broker.api_key),
        "name": "Carol",
        "password": PASSWORD,
        "password_again": PASSWORD,
        "passphrase": PASSPHRASE,
        "passphrase_again": PASSPHRASE,
        "reminder": "",
    } | changed


@pytest.fixture
def registered(stranger: Person) -> Iterator[UsersPage]:
    """The page of somebody who has registered on it."""
    with UsersPage(stranger, *folders(stranger)) as opened:
        assert "Register" in opened.enter().expect(200).words
        assert "registered" in opened.post("/register", filled(stranger)).expect(200).words
        yield opened


@pytest.mark.long
def test_a_kept_session_is_resumed_without_a_secret(page: UsersPage) -> None:
    assert "You have no containers yet" in page.get("/containers").expect(200).words


@pytest.mark.long
def test_a_person_registers_and_the_commands_use_the_same_profile(
    registered: UsersPage, stranger: Person
) -> None:
    assert "Carol" in registered.get("/containers").expect(200).words
    registered.upload("letter.txt", b"Dear Bob")
    assert [each["name"] for each in stranger.json("ls")] == ["letter.txt"]


@pytest.mark.long
def test_the_session_is_kept_in_the_folder_that_was_given(
    registered: UsersPage, stranger: Person
) -> None:
    registered.stop()
    assert list((stranger.home / "sessions").iterdir())
    with UsersPage(stranger) as page:  # the profile has the folders
        assert "You have no containers yet" in page.enter().expect(200).words
        page.post("/log-out").expect(200)
    with UsersPage(stranger) as page:
        assert "Log in as Carol" in page.enter().expect(200).words


@pytest.mark.long
def test_a_keychain_that_fails_while_the_page_is_open_registers_nobody(stranger: Person) -> None:
    """The command has checked it before it started the page."""
    folder = stranger.home / "sessions"
    with UsersPage(stranger, *folders(stranger)) as page:
        page.enter().expect(200)
        folder.rmdir()
        folder.write_bytes(b"")
        refused = page.post("/register", filled(stranger)).expect(200).words
        assert "session" in refused
        assert not stranger.config.exists()


BESIDE_A_KEYCHAIN = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from tests.kit.pages import UsersPage
who = SimpleNamespace(environment=dict(os.environ), home=Path(os.environ["HOME"]))
with UsersPage(who) as page:
    page.enter()
    print(page.post("/register", json.loads(sys.argv[1])).words)
with UsersPage(who) as page:
    print(page.enter().words)
"""


@pytest.mark.long
def test_the_real_keychain_keeps_the_session_for_the_next_page(
    stranger: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path := stranger.environment.get("PYTHONPATH"):
        monkeypatch.setenv("PYTHONPATH", path)
    fields = json.dumps(filled(stranger))
    done = run_beside_gnome_keyring(stranger.home / "desk", BESIDE_A_KEYCHAIN, fields)
    assert done.returncode == 0, done.stderr
    registered, opened = done.stdout.splitlines()
    assert "You are registered" in registered
    assert "You have no containers yet" in opened
    assert not list((stranger.home / "desk").rglob("*.key"))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "changed, why",
    [
        ({"password_again": "x"}, "The password and its repetition differ"),
        ({"api_key": "x"}, "apiKey must be a UUID"),
        ({"name": ""}, "Enter the broker's address"),
        ({"passphrase": "x", "passphrase_again": "x"}, "The passphrase is too weak"),
        ({"reminder": f"It is {PASSPHRASE}"}, "reminder"),
    ],
)
def test_a_registration_that_is_refused_says_why_and_makes_no_profile(
    stranger: Person, changed: dict[str, str], why: str
) -> None:
    with UsersPage(stranger, *folders(stranger)) as page:
        page.enter()
        given = filled(stranger, **changed)
        refused = page.post("/register", given).expect(200)
        assert why in refused.words
        assert not stranger.config.exists()
        # The next attempt has the fields that were typed, but for the secrets.
        assert f'value="{given["server"]}"' in refused.text
        assert PASSPHRASE not in refused.text.replace(why, "")
        assert PASSWORD not in refused.text


@pytest.mark.long
def test_a_locked_page_shows_nothing_until_the_passphrase_is_typed(registered: UsersPage) -> None:
    id = registered.upload("letter.txt", b"Dear Bob")
    assert registered.get("/state", STATE).text == "open"
    _lock(registered)
    assert registered.get("/state", STATE).text == "locked"
    for path in ("/containers", f"/containers/{id}", f"/containers/{id}/download"):
        answer = registered.get(path).expect(303)
        assert answer.headers["location"] == f"{registered.root}/start"
    by_script = {"X-Page-Form": "x"}
    registered.request("POST", registered.root + "/upload?name=x", b"1", by_script).expect(403)
    refused = registered.post("/start", {"passphrase": "wrong Staple 8"}).expect(200)
    assert "letter.txt" not in refused.text
    assert "Log in as Carol" in refused.words
    assert "letter.txt" in registered.post("/start", {"passphrase": PASSPHRASE}).expect(200).text


@pytest.mark.long
def test_a_page_that_nobody_uses_locks_itself_though_its_script_reads_on(
    registered: UsersPage, stranger: Person
) -> None:
    registered.stop()
    with UsersPage(stranger, *folders(stranger), "--lock", "0.03") as page:
        page.enter().expect(200)
        wait_until(lambda: page.get("/state", STATE).text == "locked")
        assert page.get("/containers").expect(303).headers["location"].endswith("/start")


@pytest.mark.long
def test_somebody_logs_in_on_a_second_device_with_the_card(
    registered: UsersPage, stranger: Person
) -> None:
    card = stranger.json("whoami")["card"]
    second = Person(stranger.home.with_name("second device"), stranger.broker)
    registered.upload("letter.txt", b"Dear Bob")
    with UsersPage(second, *folders(second)) as page:
        page.enter().expect(200)
        given = {"user": card, "api_key": str(stranger.broker.api_key), "passphrase": PASSPHRASE}
        asked = page.post("/log-in", given).expect(200)
        assert f"The card names the broker {stranger.broker.url}." in asked.words
        given["server"] = stranger.broker.url
        assert "letter.txt" in page.post("/log-in", given).expect(200).text


@pytest.mark.long
def test_a_log_out_removes_the_keys_from_the_device(page: UsersPage, alice: Person) -> None:
    assert "logged out" in page.post("/log-out").expect(200).words
    alice.run("ls", status=4)


@pytest.mark.long
def test_a_session_that_another_device_has_ended_leads_to_the_log_in(
    page: UsersPage, alice: Person
) -> None:
    page.upload("letter.txt", b"Dear Bob")
    with alice.device() as device:
        device.deleteUser().result(PATIENCE)
    answer = page.get("/containers").expect(303)
    assert answer.headers["location"] == f"{page.root}/start"
    shown = page.get("/start").expect(200).words
    assert "the account was deleted" in shown
    assert "letter.txt" not in shown


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [["logout"], ["profiles", "rm", "default", "--yes"]], ids=" ".join
)
def test_a_command_that_removes_the_session_from_the_device_locks_the_open_page(
    page: UsersPage, alice: Person, command: list[str]
) -> None:
    page.upload("letter.txt", b"Dear Bob")
    alice.run(*command)
    assert page.get("/state", STATE).text == "locked"
    answer = page.get("/containers").expect(303)
    assert answer.headers["location"] == f"{page.root}/start"
    assert "letter.txt" not in page.get("/start").expect(200).text


def test_a_profile_that_is_removed_from_the_file_locks_the_open_page_and_a_damaged_file_does_not(
    page: UsersPage, alice: Person
) -> None:
    text = alice.config.read_text()
    alice.config.write_text("damaged")
    page.get("/containers").expect(200)
    alice.config.write_text(text.replace("profiles.default", "profiles.other"))
    page.get("/containers").expect(303)


@pytest.mark.long
def test_what_was_done_before_the_page_was_locked_is_not_shown_after_it(
    page: UsersPage, alice: Person
) -> None:
    id = page.upload("letter.txt", b"Dear Bob")
    [secret] = set(_secrets(page.get("/containers").text))
    fields = {"form": secret, "name": "renamed.txt"}
    # The browser does not follow to the view that would show it.
    page.request("POST", f"{page.root}/containers/{id}/rename", fields).expect(303)
    alice.run("logout")
    page.get("/containers").expect(303)
    assert "renamed.txt" not in page.get("/start").expect(200).text


def test_what_a_form_did_is_not_shown_in_a_session_that_began_meanwhile() -> None:
    site = Site(Access("127.0.0.1", 1), "scbroker.cli.ui", {}, dt.datetime.now(dt.UTC))
    before = site.sessions
    site.forget()  # as a lock does
    site.keep(Done("Bob has access.", is_fault=False), before)
    assert site._done is None
    site.keep(Done("You are logged in.", is_fault=False), site.sessions)
    assert site._done is not None


@pytest.mark.long
def test_the_exported_address_and_key_are_taken_and_the_key_is_in_no_form(stranger: Person) -> None:
    url, key = stranger.broker.url, str(stranger.broker.api_key)
    exported = {"SCBROKER_SERVER_URL": url, "SCBROKER_API_KEY": key}
    stranger.environment |= exported
    with UsersPage(stranger, *folders(stranger)) as page:
        page.enter().expect(200)
        for path in ("/register", "/log-in"):
            form = page.get(path).expect(200).text
            assert f'value="{url}"' in form
            assert key not in form
        given = filled(stranger, api_key="")
        assert "registered" in page.post("/register", given).expect(200).words


def test_contents_of_the_session_are_behind_the_log_in(stranger: Person) -> None:
    with UsersPage(stranger, *folders(stranger)) as page:
        page.enter().expect(200)
        assert page.get("/containers").expect(303).headers["location"].endswith("/start")


def _lock(page: UsersPage) -> None:
    [secret] = set(_secrets(page.get("/containers").text))
    page.request("POST", page.root + "/lock", {"form": secret}).expect(303)


def _secrets(text: str) -> list[str]:
    return [each.split('"')[0] for each in text.split('name="form" value="')[1:]]
