"""The commands of keys, secrets and the KeyFile."""

import json
import stat
import uuid
from typing import Any

import pytest

from scbroker import KeyFile
from tests.kit.people import Person

PASSWORD, PASSPHRASE = "correct Horse 7", "battery Staple 8"
SECRETS: dict[str, Any] = {"SCBROKER_PASSWORD": PASSWORD, "SCBROKER_PASSPHRASE": PASSPHRASE}
NEW: dict[str, Any] = {
    "SCBROKER_NEW_PASSWORD": "new Horse 77",
    "SCBROKER_NEW_PASSPHRASE": "new Staple 88",
}


@pytest.fixture
def carol(stranger: Person) -> Person:
    """A person who registered with PASSWORD and PASSPHRASE and the reminder "the horse"."""
    stranger.run(
        "register", "--server", stranger.broker.url, "--session-folder", "sessions",
        "--name", "Carol", "--reminder", "the horse",
        **SECRETS, SCBROKER_API_KEY=str(stranger.broker.api_key),
    )  # fmt: skip
    return stranger


def log_in(person: Person, passphrase: str, status: int = 0) -> str:
    return person.run("login", status=status, SCBROKER_PASSPHRASE=passphrase).error


@pytest.mark.long
def test_a_change_of_credentials_replaces_the_secrets_and_keeps_keys_and_reminder(
    carol: Person,
) -> None:
    changed = carol.run("change-credentials", "--json", **NEW)
    user = carol.json("whoami")["userId"]
    assert json.loads(changed.output) == {"userId": user, "keysReplaced": False}
    assert "Wrong passphrase" in log_in(carol, PASSPHRASE, status=4)
    log_in(carol, NEW["SCBROKER_NEW_PASSPHRASE"])
    assert len(carol.json("keys")) == 2
    assert carol.json("reminder") == {"userId": user, "reminder": "the horse"}


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["rotate", "change-credentials"])
@pytest.mark.parametrize(
    "changes,options,message",
    [
        ({"SCBROKER_NEW_PASSWORD": "weak"}, [], "The password is too weak"),
        ({"SCBROKER_NEW_PASSPHRASE": "new Horse 77"}, [], "passphrase must differ from password"),
        ({"SCBROKER_NEW_PASSPHRASE": "the horse Rides 1"}, ["--reminder", "The Horse rides 1"], "secret"),
        ({"SCBROKER_NEW_PASSPHRASE": ""}, [], "SCBROKER_NEW_PASSPHRASE is empty"),
    ],
)  # fmt: skip
def test_a_wrong_new_secret_is_refused_and_changes_nothing(
    alice: Person, command: str, changes: dict[str, Any], options: list[str], message: str
) -> None:
    before = alice.json("keys")
    error = alice.run(command, *options, status=2, **{**NEW, **changes}).error
    assert message in error
    assert alice.json("keys") == before


@pytest.mark.long
def test_a_rotation_replaces_keys_and_secrets_and_says_what_is_left_to_do(carol: Person) -> None:
    present = {**NEW, "SCBROKER_NEW_PASSPHRASE": PASSPHRASE}
    assert "is the present one" in carol.run("rotate", status=2, **present).error
    done = carol.run("rotate", **NEW)
    for words in ("other devices", "old keys still open", "key-file export"):
        assert words in done.error
    shown = [(each["index"], each["active"]) for each in carol.json("keys")]
    assert shown == [(0, False), (1, True)] * 2
    assert "Wrong passphrase" in log_in(carol, PASSPHRASE, status=4)
    log_in(carol, NEW["SCBROKER_NEW_PASSPHRASE"])


@pytest.mark.long
def test_a_reminder_is_shown_without_a_session_for_an_id_or_a_card(
    carol: Person, alice: Person
) -> None:
    shown = carol.json("whoami")
    carol.run("logout")
    assert carol.run("reminder").output == "the horse\n"
    for user in (shown["userId"], shown["card"]):
        assert alice.run("reminder", user).output == "the horse\n"
    assert "USER is neither a user id nor a contact card" in alice.run(
        "reminder", "Carol", status=2
    ).error  # fmt: skip
    assert alice.json("reminder")["reminder"] == ""
    done = alice.run("reminder")
    assert (done.output, "stores no reminder" in done.error) == ("", True)


def test_an_exported_key_file_opens_with_both_secrets_and_is_the_owners_alone(
    carol: Person,
) -> None:
    done = carol.run("key-file", "export", "copy", "--json", **SECRETS)
    user = carol.json("whoami")["userId"]
    assert json.loads(done.output) == {"userId": user, "path": "copy"}
    file = carol.home / "copy"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key_file = KeyFile(file.read_bytes())
    assert str(key_file.userId) == user


def test_an_export_overwrites_nothing_and_refuses_before_it_asks(carol: Person) -> None:
    (carol.home / "there").write_text("mine")
    (carol.home / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        assert f"'{name}' exists already" in carol.run("key-file", "export", name, status=1).error
    missing = carol.run("key-file", "export", "no/folder/file", status=3).error
    assert "'no/folder/file' does not exist" in missing
    assert (carol.home / "there").read_text() == "mine"
    wrong: dict[str, Any] = {"SCBROKER_PASSPHRASE": "wrong Staple 8"}
    assert "Wrong passphrase" in carol.run("key-file", "export", "new", status=4, **wrong).error
    assert not (carol.home / "new").exists()


@pytest.mark.long
def test_with_an_exported_key_file_a_person_who_forgot_the_passphrase_logs_in(
    carol: Person,
) -> None:
    carol.run("key-file", "export", "copy", **SECRETS)
    carol.run("logout")
    carol.run("login", "--key-file", "copy", SCBROKER_PASSWORD=PASSWORD)
    carol.run("change-credentials", **NEW)
    log_in(carol, NEW["SCBROKER_NEW_PASSPHRASE"])
    phone = Person(carol.home.with_name("home of a phone"), carol.broker)
    phone.environment["SCBROKER_API_KEY"] = str(carol.broker.api_key)
    own = carol.json("whoami")
    (phone.home / "secret").write_text(PASSPHRASE)
    (phone.home / "secret").chmod(0o600)
    shown = phone.json(
        "login", "--key-file", carol.home / "copy", "--passphrase-file", "secret",
        "--server", carol.broker.url, "--session-folder", "sessions", "--name", "Phone",
    )  # fmt: skip
    assert shown["userId"] == own["userId"]
    assert phone.json("keys") == carol.json("keys")


@pytest.mark.long
def test_a_key_file_that_does_not_open_or_is_another_users_is_refused(
    carol: Person, alice: Person
) -> None:
    carol.run("key-file", "export", "copy", **SECRETS)
    copy = carol.home / "copy"
    error = carol.run("login", "--key-file", copy, status=4, SCBROKER_PASSWORD="wrong").error
    assert "The password does not open the KeyFile" in error
    error = alice.run("login", "--key-file", copy, status=2, **SECRETS).error
    assert "Profile default belongs to user" in error
    error = alice.run("key-file", "import", copy, status=2, **SECRETS).error
    assert f"{copy} is the KeyFile of user" in error
    error = carol.run("login", str(uuid.uuid4()), "--key-file", copy, status=2, **SECRETS).error
    assert "The KeyFile is that of user" in error
    (carol.home / "text").write_text("hello")
    for reading in (["login", "--key-file"], ["key-file", "import"]):
        error = carol.run(*reading, "text", status=2, **SECRETS).error
        assert "text is not a KeyFile" in error
        for name in ("missing", "sessions"):
            assert f"{name} cannot be read" in carol.run(*reading, name, status=2).error


@pytest.mark.long
def test_a_deleted_key_file_is_stored_again_by_an_import(carol: Person) -> None:
    carol.run("key-file", "export", "copy", **SECRETS)
    assert "Pass --yes" in carol.run("key-file", "delete", status=2).error
    carol.run("key-file", "delete", "--yes")
    assert "no KeyFile on this broker" in log_in(carol, PASSPHRASE, status=4)
    carol.run("key-file", "import", "copy", **SECRETS)
    log_in(carol, PASSPHRASE)
