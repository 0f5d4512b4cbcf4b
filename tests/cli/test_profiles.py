"""The file of profiles, and the commands that list, choose and remove them."""

import multiprocessing
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
import platformdirs
import pytest

from scbroker import KeyRing, errors
from scbroker.cli import profiles
from scbroker.cli.profiles import Profile
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

FINGERPRINT = KeyRing.generate().fingerprint


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration file will be."""
    monkeypatch.delenv("SCBROKER_SERVER_URL", raising=False)
    folder = tmp_path / "config" / "scbroker"
    monkeypatch.setattr(platformdirs, "user_config_path", lambda *_, **__: folder)
    return folder / "config.toml"


def profile(name: str = "default", **fields: object) -> Profile:
    given = {
        "name": name,
        "server_url": "https://broker.example",
        "api_key": str(uuid.UUID(int=7)),
        "fingerprint": FINGERPRINT,
        "card_name": "Alice",
    }
    return Profile(**{**given, **fields})  # type: ignore[arg-type]


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)


def refused(name: str | None = None) -> str:
    with pytest.raises(errors.InvalidArgumentError) as found:
        profiles.load(name)
    return str(found.value)


def test_a_saved_profile_is_loaded_and_the_first_one_is_the_default(file: Path) -> None:
    profiles.save(profile("work", session_folder="/s"))
    profiles.save(profile("home", card_name='Ål "x"\\'))
    assert profiles.load(None) == profile("work", session_folder="/s")
    assert profiles.load("home") == profile("home", card_name='Ål "x"\\')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_comments_and_order_of_the_file_stay(file: Path) -> None:
    profiles.save(profile("work"))
    remark = "# mine\n" + file.read_text().replace("card_name", "# theirs\ncard_name")
    write(file, remark)
    profiles.save(profile("home"))
    profiles.use("home")
    text = file.read_text()
    assert text.startswith("# mine\n")
    assert "# theirs\n" in text
    assert text.index("[profiles.work]") < text.index("[profiles.home]")
    assert profiles.load(None).name == "home"


@pytest.mark.parametrize(
    "text,fault",
    [
        ("default = ", "Invalid value"),
        ("nonsense = 1", "unknown field `nonsense`"),
        ('[profiles.x]\nserver_url = "https://a.example"', "api_key"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path_and_what_is_wrong_and_stays(
    file: Path, text: str, fault: str
) -> None:
    write(file, text)
    assert str(file) in refused()
    assert fault in refused()
    with pytest.raises(errors.InvalidArgumentError, match=r"config\.toml"):
        profiles.save(profile())
    assert file.read_text() == text


@pytest.mark.parametrize(
    "field,value,fault",
    [
        ("server_url", "http://broker.example", "must be https"),
        ("fingerprint", "0000", "fingerprint"),
        ("session_folder", "sessions", "'sessions' is not an absolute path"),
    ],
)
def test_a_wrong_value_is_refused_with_the_file(
    file: Path, field: str, value: str, fault: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        profile("work", **{field: value})
    profiles.save(profile("work", session_folder="/s"))
    good = msgspec.to_builtins(profiles.load("work"))[field]
    write(file, file.read_text().replace(str(good), value))
    message = refused()
    assert f"{file} is wrong: in profile work, " in message
    assert fault in message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_access_is_refused_with_the_command_that_closes_it(
    file: Path, mode: int
) -> None:
    profiles.save(profile())
    file.chmod(mode)
    assert f"run `chmod 600 {file}`" in refused()
    file.chmod(0o400)
    assert profiles.load(None).name == "default"


def test_a_link_stays_a_link_and_its_target_is_replaced(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "scbroker.toml"
    write(target, "# kept elsewhere\n")
    file.parent.mkdir(parents=True)
    file.symlink_to(target)
    profiles.save(profile())
    assert file.is_symlink()
    assert "# kept elsewhere" in target.read_text()
    assert profiles.load(None) == profile()


def test_nobody_is_registered_whose_profile_cannot_be_saved(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    file.symlink_to(tmp_path / "gone" / "scbroker.toml")
    with pytest.raises(errors.InvalidArgumentError, match="cannot be written"):
        profiles.new_name(None)


def test_a_disk_that_is_full_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.save(profile())
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.DiskFullError, match="No space left on device"):
        profiles.save(profile("other"))
    assert file.read_bytes() == before
    assert sorted(each.name for each in file.parent.iterdir()) == [".config.lock", "config.toml"]


def _save(folder: Path, number: int) -> None:
    platformdirs.user_config_path = lambda *_, **__: folder
    profiles.save(profile(f"p{number}"))


@pytest.mark.long
def test_profiles_that_are_saved_at_the_same_time_are_all_there(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_save, args=(file.parent, number)) for number in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(PATIENCE)
        assert each.exitcode == 0
    assert sorted(profiles.read().profiles) == ["p0", "p1", "p2", "p3"]


def test_another_broker_in_the_environment_is_refused_unless_the_profile_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.save(profile())
    monkeypatch.setenv("SCBROKER_SERVER_URL", "https://broker.example/")
    assert profiles.load(None).name == "default"
    monkeypatch.setenv("SCBROKER_SERVER_URL", "https://other.example")
    assert "names https://other.example" in refused()
    assert profiles.load("default").name == "default"
    assert file.exists()


def test_a_profile_shows_no_api_key_and_its_commands_name_it() -> None:
    assert str(uuid.UUID(int=7)) not in repr(profile())
    assert profile().command("login") == "scbroker login"
    assert profile("work").command("login") == "scbroker login --profile work"


@pytest.mark.long
def test_the_commands_list_choose_and_remove_profiles(person: Callable[[str], Person]) -> None:
    alice = person("Alice")
    text = alice.config.read_text()
    alice.config.write_text(text + text.replace("profiles.default", "profiles.work"))
    user = alice.json("whoami")["userId"]
    listed = alice.json("profiles")
    assert [(each["profile"], each["default"]) for each in listed] == [
        ("default", True), ("work", False),
    ]  # fmt: skip
    assert listed[0]["userId"] == user
    assert alice.run("profiles").lines[1].split("\t")[:2] == ["work", "no"]
    alice.run("profiles", "use", "work")
    assert alice.json("whoami")["profile"] == "work"
    assert "Profile play does not exist" in alice.run("profiles", "use", "play", status=2).error
    error = alice.run("profiles", "rm", "work", status=2).error
    assert "Pass --yes to confirm" in error
    assert f"User {user} stays at" in error
    done = alice.run("profiles", "rm", "work", "--yes")
    assert "Profile work is removed" in done.error
    assert [each["profile"] for each in alice.json("profiles")] == ["default"]
    assert alice.json("profiles")[0]["sessionKept"] is False
    alice.run("profiles", "rm", "default", "--yes")
    done = alice.run("profiles")
    assert done.output == ""
    assert "run `scbroker register`" in done.error
