"""The session of `scbroker ui`: how it begins, is kept, locks itself, and ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.fixtures import NewProvider
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
def test_a_person_registers_and_the_commands_use_the_same_profile(
    registered: UsersPage, stranger: Person
) -> None:
    assert "Carol" in registered.get("/containers").expect(200).words
    registered.upload("letter.txt", b"Dear Bob")
    assert [each["name"] for each in stranger.json("ls")] == ["letter.txt"]


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


@pytest.mark.long
def test_a_change_of_keys_on_another_device_locks_the_open_page(
    page: UsersPage, alice: Person, new_provider: NewProvider
) -> None:
    other = new_provider(alice.ring, at=alice.broker)
    other.changeCredentials("new Horse 77", "new Staple 88", compromised=True).result(PATIENCE)
    page.get("/containers")
    assert page.get("/state", STATE).text == "locked"


def _lock(page: UsersPage) -> None:
    [secret] = set(_secrets(page.get("/containers").text))
    page.request("POST", page.root + "/lock", {"form": secret}).expect(303)


def _secrets(text: str) -> list[str]:
    return [each.split('"')[0] for each in text.split('name="form" value="')[1:]]
