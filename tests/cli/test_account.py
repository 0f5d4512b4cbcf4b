"""The commands that register, log in and out, show and delete an account."""

import json
import os
import signal
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scbroker import ContactCard, errors
from scbroker.cli import files, profiles
from scbroker.cli.command import Run
from scbroker.cli.commands import account
from scbroker.cli.output import Output
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.keychains import run_beside_gnome_keyring
from tests.kit.people import Person, ended, interrupted
from tests.kit.waiting import PATIENCE

PASSWORD, PASSPHRASE = "correct Horse 7", "battery Staple 8"
SECRETS: dict[str, Any] = {"SCBROKER_PASSWORD": PASSWORD, "SCBROKER_PASSPHRASE": PASSPHRASE}


@pytest.fixture
def lone(start_broker: StartBroker, tmp_path: Path) -> Person:
    """Somebody with an empty home folder and a broker of the test's own, which the test may stop."""
    return Person(tmp_path / "home", start_broker())


def broker_of(person: Person) -> dict[str, Any]:
    return {
        "SCBROKER_SERVER_URL": person.broker.url,
        "SCBROKER_API_KEY": str(person.broker.api_key),
    }


def register(person: Person, *options: str | Path, status: int = 0, **env: Any) -> Any:
    """Register without a terminal; return what is printed as JSON, or the error."""
    everything = {**broker_of(person), **SECRETS, **env}
    command = ["register", "--session-folder", person.home / "sessions", "--json", *options]
    done = person.run(*command, status=status, **everything)
    return done.error if status else json.loads(done.output)


def log_in(person: Person, *options: str | Path, status: int = 0, **env: Any) -> Any:
    done = person.run("login", *options, "--json", status=status, **{**SECRETS, **env})
    return done.error if status else json.loads(done.output)


def another_device(person: Person) -> Person:
    """The same person with another, empty home folder."""
    return Person(person.home.with_name(f"{person.home.name}, second device"), person.broker)


def test_without_a_terminal_variables_and_files_have_what_would_be_asked(stranger: Person) -> None:
    for name, text in (("key", str(stranger.broker.api_key)), ("secret", PASSWORD)):
        (stranger.home / name).write_text(f"{text}\r\n")
        (stranger.home / name).chmod(0o600)
    done = stranger.run(
        "register", "--server", stranger.broker.url + "/", "--api-key-file", "key",
        "--password-file", "secret", "--passphrase-file", "-", "--session-folder", "sessions",
        "--trust-folder", "trust", "--name", "Åsa", "--reminder", "the horse", "--profile", "work",
        stdin=PASSPHRASE.encode(),
    )  # fmt: skip
    fields = dict(line.split("\t") for line in done.lines)
    assert fields["profile"] == "work"
    assert fields["serverUrl"] == stranger.broker.url
    assert ContactCard(fields["fingerprint"], fields["serverUrl"], "Åsa").userId == uuid.UUID(
        fields["userId"]
    )
    assert stranger.run("reminder").output == "the horse\n"
    assert (stranger.home / "trust").is_dir()
    again = log_in(stranger)
    assert again["userId"] == fields["userId"]


@pytest.mark.parametrize(
    "options,changes,message",
    [
        ([], {"SCBROKER_SERVER_URL": "http://broker.example"}, "must be https"),
        ([], {"SCBROKER_API_KEY": "letmein"}, "apiKey must be a UUID"),
        ([], {"SCBROKER_PASSWORD": "weak"}, "The password is too weak"),
        ([], {"SCBROKER_PASSPHRASE": PASSWORD}, "passphrase must differ"),
        (["--name", "\u202eevil"], {}, "name must be printable"),
        (["--reminder", f"it is {PASSPHRASE}"], {}, "The reminder contains a secret"),
        (["--profile", "a b"], {}, "cannot be the name of a profile"),
        (["--trust-folder", "/dev/null"], {}, "--trust-folder"),
    ],
)
def test_a_wrong_value_is_refused_before_a_user_is_made(
    stranger: Person, options: list[str], changes: dict[str, Any], message: str
) -> None:
    before = users_at(stranger.broker)
    assert message in register(stranger, *options, status=2, **changes)
    assert not stranger.config.exists()
    assert users_at(stranger.broker) == before


def users_at(broker: BrokerProcess) -> int:
    path = broker.database_url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as database:
        [count] = database.execute("SELECT count(*) FROM users").fetchone()
    return int(count)


@pytest.mark.sampled
@pytest.mark.parametrize("command", [["register"], ["login"], ["ui", "--no-open"]], ids=" ".join)
def test_a_machine_without_a_keychain_is_refused_before_the_first_question(
    stranger: Person, command: list[str]
) -> None:
    before = users_at(stranger.broker)
    terminal = stranger.at_terminal(
        *command, PYTHON_KEYRING_BACKEND="keyring.backends.fail.Keyring"
    )
    error = " ".join(ended(terminal, 1).split())
    assert "no usable keychain" in error
    assert "--session-folder FOLDER" in error
    assert "anybody who can read this folder has the account" in error
    assert "Address of the broker" not in error
    assert "contact card" not in error
    assert users_at(stranger.broker) == before


@pytest.fixture
def in_process(stranger: Person, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Run]:
    """Make a run of a command in this process, in the stranger's home, for failures that a test injects."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in {**stranger.environment, **broker_of(stranger), **SECRETS}.items():
        monkeypatch.setenv(name, value)
    return lambda: Run("work", Output(as_json=True, quiet=True))


def fail_with(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


FULL = OSError(28, "No space left on device")


def folders(person: Person) -> dict[str, Any]:
    return {f"{name}_folder": str(person.home / name) for name in ("session", "trust")}


def test_a_profile_that_cannot_be_saved_after_all_is_an_error_that_names_the_user_and_the_log_in(
    stranger: Person, in_process: Callable[[], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up between the check and the writing."""
    monkeypatch.setattr(files.Folder, "write", fail_with(FULL))
    with in_process() as run, pytest.raises(errors.BrokerError) as found:
        account.register(run, name="Alice", **folders(stranger))
    message = str(found.value)
    assert "No space left on device" in message
    card = ContactCard.parse(message.split("`scbroker login ")[1].split()[0])
    assert f"User {card.userId} is registered, but the profile could not be saved" in message
    assert "--profile work`" in message
    with in_process() as run:
        provider = run.provider(profile_of(stranger, card))
        provider.logIn(card.userId, passphrase=PASSPHRASE).result(PATIENCE)
        assert provider.getKeptSessions().result(PATIENCE) == [card.userId]


def profile_of(person: Person, card: ContactCard) -> profiles.Profile:
    return profiles.Profile(
        name="work", server_url=card.serverUrl, api_key=str(person.broker.api_key),
        fingerprint=card.fingerprint, card_name=card.name, **folders(person),
    )  # fmt: skip


@pytest.mark.long
def test_a_person_logs_in_on_another_device_with_the_card(stranger: Person) -> None:
    own = register(stranger, "--name", "Alice")
    phone, card = another_device(stranger), stranger.json("whoami")["card"]
    given = ("--session-folder", phone.home / "sessions")
    assert log_in(phone, card.upper(), *given, **broker_of(phone)) == own
    assert phone.json("keys") == stranger.json("keys")


def test_a_log_in_without_a_user_or_a_terminal_says_what_to_pass(stranger: Person) -> None:
    folder = ["--session-folder", "sessions"]
    assert "scbroker login USER" in stranger.run("login", *folder, status=2).error
    error = stranger.run("login", str(uuid.uuid4()), *folder, status=2).error
    assert "pass --server, set SCBROKER_SERVER_URL" in error
    error = stranger.run("login", "Alice", *folder, status=2).error
    assert "USER is neither a user id nor a contact card" in error


def test_a_wrong_passphrase_is_refused_with_the_reminder_and_changes_nothing(
    stranger: Person,
) -> None:
    register(stranger, "--reminder", "the \x1b[31mhorse")
    before = stranger.config.read_bytes()
    error = log_in(stranger, status=4, SCBROKER_PASSPHRASE="wrong Staple 8")
    assert "Wrong passphrase" in error
    assert "horse" in error
    assert "\x1b" not in error
    assert stranger.config.read_bytes() == before
    assert stranger.json("profiles")[0]["sessionKept"] is True


def test_a_log_in_to_a_profile_of_another_user_or_broker_is_refused(
    person: Callable[[str], Person], stranger: Person
) -> None:
    alice, bob = person("Alice"), register(stranger)
    error = log_in(alice, bob["userId"], status=2)
    assert "Profile default belongs to user" in error
    assert "--profile" in error
    error = log_in(alice, "--server", "https://other.example", status=2)
    assert "is for the broker" in error
    assert str(alice.config) in error
    moved = ContactCard(bob["fingerprint"], "https://other.example", "Bob")
    assert "is for the broker" in log_in(stranger, moved.text, status=2)
    error = log_in(stranger, status=2, SCBROKER_SERVER_URL="https://other.example")
    assert "unset SCBROKER_SERVER_URL" in error


@pytest.mark.long
def test_a_log_out_removes_the_keys_from_the_device_and_the_profile_stays(stranger: Person) -> None:
    own = register(stranger)
    assert stranger.json("logout") == {
        "profile": "default", "userId": own["userId"], "brokerNotified": True,
    }  # fmt: skip
    assert not list((stranger.home / "sessions").glob("*.session"))
    assert stranger.json("profiles")[0]["sessionKept"] is False
    assert "no session on this device" in stranger.run("logout").error
    error = stranger.run("keys", status=4).error
    assert "`scbroker login`" in error
    assert log_in(stranger)["userId"] == own["userId"]
    assert stranger.json("keys")


@pytest.mark.long
def test_a_broker_that_never_answers_cannot_keep_the_keys_on_the_device(
    stranger: Person,
    in_process: Callable[[], Run],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with in_process() as run:
        account.register(run, name="Alice", **folders(stranger))
    monkeypatch.setattr(account, "_LOG_OUT_SECONDS", 0.5)
    os.kill(stranger.broker.pid, signal.SIGSTOP)
    try:
        with in_process() as run:
            run.out.quiet = False
            account.logout(run)
    finally:
        os.kill(stranger.broker.pid, signal.SIGCONT)
    assert "The broker was not notified: it does not answer" in capsys.readouterr().err
    assert not list((stranger.home / "session").glob("*.session"))


@pytest.mark.long
def test_a_deleted_account_is_gone_from_the_broker_and_the_device(stranger: Person) -> None:
    own = register(stranger)
    error = stranger.run("delete-account", status=2).error
    assert own["userId"] in error
    assert "Pass --yes" in error
    terminal = stranger.at_terminal("delete-account")
    terminal.expect_exact("Type the user id")
    terminal.sendline("yes")
    assert "Nothing was changed" in ended(terminal, 1)
    assert stranger.json("keys")
    terminal = stranger.at_terminal("delete-account")
    terminal.expect_exact("Type the user id")
    terminal.sendline(own["userId"])
    assert "is deleted" in ended(terminal)
    assert stranger.json("profiles") == []
    assert not list((stranger.home / "sessions").glob("*.session"))
    given = ["--session-folder", "sessions"]
    error = log_in(stranger, own["userId"], *given, status=4, **broker_of(stranger))
    assert "unknown user" in error


def test_ctrl_c_at_a_prompt_ends_with_130_and_changes_nothing(stranger: Person) -> None:
    for options in (["register"], ["login", str(uuid.uuid4())]):
        terminal = stranger.at_terminal(*options, "--session-folder", "sessions")
        terminal.expect_exact("Address of the broker")
        interrupted(terminal)
    terminal = stranger.at_terminal(
        "register", "--session-folder", "sessions", "--name", "A", **broker_of(stranger)
    )
    terminal.expect_exact("New password: ")
    assert "Traceback" not in interrupted(terminal)
    assert not stranger.config.exists()


@pytest.mark.long
def test_profiles_are_listed_without_the_broker_and_with_unusable_kept_sessions(
    lone: Person,
) -> None:
    lone.join("Alice")
    lone.broker.stop()
    assert lone.json("whoami")["profile"] == "default"
    assert lone.json("profiles")[0]["sessionKept"] is True
    (lone.home / "sessions").chmod(0o777)
    done = lone.run("profiles", "--json", status=1)
    assert json.loads(done.output)[0]["sessionKept"] is None
    assert "default: The kept sessions in" in done.error
    assert "--session-folder" in done.error


IN_A_KEYCHAIN = """
import json, subprocess, sys
for command in json.loads(sys.argv[1]):
    command = [sys.executable, "-m", "scbroker", *command, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(json.dumps([done.returncode, done.stdout, done.stderr]))
"""


@pytest.mark.long
def test_the_real_keychain_keeps_a_session_from_register_to_logout(
    stranger: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {**broker_of(stranger), **SECRETS}
    if path := stranger.environment.get("PYTHONPATH"):
        variables["PYTHONPATH"] = path
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    commands = [["register"], ["profiles"], ["keys"], ["logout"], ["keys"], ["login"], ["keys"]]
    done = run_beside_gnome_keyring(stranger.home / "desk", IN_A_KEYCHAIN, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for status, _, _ in outcomes] == [0, 0, 0, 0, 4, 0, 0], outcomes
    registered, listed, keys, logout = (json.loads(output) for _, output, _ in outcomes[:4])
    assert listed[0]["sessionKept"] is True
    assert logout["brokerNotified"] is True
    assert registered["userId"] == listed[0]["userId"] == keys[0]["userId"]
    assert "`scbroker login`" in outcomes[4][2]
    assert len(list((stranger.home / "desk").rglob("*.session"))) == 1
    assert not list((stranger.home / "desk").rglob("*.key"))
