"""Settings with their sources, `serve --check`, and what a start says and leaves behind."""

import json
import os
import re
import signal
import socket
import subprocess
import tomllib
import urllib.parse
import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.server.settings import Settings, explain_settings, load_settings, meanings
from scbroker.wire.codec import MESSAGE
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire, environment, serve_command
from tests.kit.operators import admin
from tests.kit.processes import run
from tests.kit.scripts import loaded
from tests.kit.waiting import PATIENCE, wait_until

DOCS: Final = Path(__file__).parents[2] / "docs"
REFERENCE: Final = DOCS / "reference"


# Settings


def test_the_reference_of_settings_is_the_one_that_the_code_makes(tmp_path: Path) -> None:
    """If this fails, run `make pages`."""
    loaded(DOCS.parent / "tools" / "make_settings.py").write(tmp_path)
    made = (tmp_path / "broker.toml").read_text("utf-8")
    assert made == (REFERENCE / "broker.toml").read_text("utf-8")


def test_the_example_file_has_every_setting_with_its_default() -> None:
    path = REFERENCE / "broker.toml"
    assert set(tomllib.loads(path.read_text("utf-8"))) == set(meanings())
    loaded = load_settings({"SCBROKER_CONFIG": str(path)})
    assert loaded == Settings()


def test_each_setting_is_shown_with_the_source_that_counts(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("guesses = 3\nport = 1\nhost = 'a'\nworkers = 2\n")
    variables = {
        "SCBROKER_CONFIG": str(config), "SCBROKER_PORT": "2", "SCBROKER_HOST": "b",
        "SCBROKER_APPLICATION_NAME": "of a client", "OTHER": "x",
        "SCBROKER_ORIGINS": "https://a.example,https://b.example",
    }  # fmt: skip
    found = {each.name: (each.value, each.source) for each in explain_settings(variables, host="c")}
    assert found["guesses"] == ("3", "file")
    assert found["port"] == ("2", "variable")
    assert found["host"] == ("c", "option")
    assert found["workers"] == ("2", "file")
    assert found["origins"] == ("https://a.example,https://b.example", "variable")
    assert found["direct_transfer"] == ("true", "default")
    loaded = load_settings(variables, host="c")
    assert (loaded.host, loaded.port, loaded.workers) == ("c", 2, 2)


def test_a_secret_is_shown_as_set_and_a_password_of_an_address_not_at_all(tmp_path: Path) -> None:
    secrets: dict[str, Any] = {
        "broker_key": "ab" * 32, "broker_key_next": "cd" * 32, "api_key": str(uuid.uuid4()),
    }  # fmt: skip
    broker = BrokerProcess(
        tmp_path, "postgresql://me:hunt%er2@127.0.0.1/x",
        object_store_url="s3://me:hunt%er2@bucket", **secrets,
    )  # fmt: skip
    shown = [admin(broker, "config", "show", *each).expect(0) for each in ([], ["--json"])]
    for secret in (*secrets.values(), "hunt"):
        assert secret not in str(shown)
    rows = {row["name"]: row for row in json.loads("\n".join(shown[1].lines))}
    assert set(rows) == set(meanings())
    assert rows["broker_key"] | {"meaning": ""} == {
        "name": "broker_key", "value": "set", "source": "variable", "meaning": "",
    }  # fmt: skip
    assert rows["database_url"]["value"] == "postgresql://…@127.0.0.1/x"
    assert rows["data_dir"]["source"] == "option"


def test_a_wrong_value_is_reported_with_the_place_where_it_was_given(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("port = 'many'")
    for options, where in (
        ({"SCBROKER_CONFIG": str(config)}, f"port in {config}: Expected `int`"),
        ({"SCBROKER_PORT": "many"}, "SCBROKER_PORT: Expected `int`"),
        ({"SCBROKER_TRUSTED_PROXIES": "many"}, "A setting is wrong: `trusted_proxies` must be"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            load_settings(options)
        assert where in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="--port: Expected"):
        load_settings({}, port="many")


# serve --check


def _checked(
    tmp_path: Path, *options: str, data: str = "data", **settings: Any
) -> dict[str, tuple[str, str]]:
    variables = environment({"data_dir": tmp_path / data, **settings})
    status, output, error = run(["serve", "--check", "--json", *options], variables, PATIENCE)
    assert "Traceback" not in error
    rows = json.loads(output)
    assert (status != 0) == any(row["state"] == "failed" for row in rows)
    return {row["check"]: (row["state"], row["detail"]) for row in rows}


def test_a_check_of_a_new_broker_finds_nothing_wrong_and_makes_nothing(tmp_path: Path) -> None:
    found = _checked(tmp_path, "--port", "0")
    assert {name: state for name, (state, _) in found.items()} == {
        "data folder": "ok", "address": "ok", "origins": "warning", "database": "ok",
        "broker's key": "ok", "object store": "ok",
    }  # fmt: skip
    assert "first start" in found["database"][1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_check_beside_a_broker_as_before_an_upgrade_warns_of_the_port_and_finds_the_rest_right(
    fresh_broker: BrokerProcess,
) -> None:
    before = {path: path.stat().st_mtime for path in fresh_broker.directory.rglob("*.key")}
    settings: dict[str, Any] = {
        "database_url": fresh_broker.database_url, "port": fresh_broker.port,
    }  # fmt: skip
    found = _checked(fresh_broker.directory.parent, data=fresh_broker.directory.name, **settings)
    assert found["address"][0] == "warning"
    assert "A broker serves" in found["address"][1]
    for name in ("data folder", "database", "broker's key", "object store"):
        assert found[name][0] == "ok", found
    with Wire(fresh_broker) as wire:
        wire.call("GET", "/health/ready").expect(200)
    assert before == {path: path.stat().st_mtime for path in before}


@on_sqlite
def test_a_check_finds_a_wrong_key_and_a_database_of_another_version(
    fresh_broker: BrokerProcess,
) -> None:
    from tests.kit.tables import query

    fresh_broker.stop()
    (fresh_broker.directory / "broker.key").write_bytes(bytes(32))
    query(fresh_broker.database_url, "UPDATE alembic_version SET version_num = '9999'")
    settings = {"database_url": fresh_broker.database_url}
    found = _checked(fresh_broker.directory.parent, data=fresh_broker.directory.name, **settings)
    assert found["broker's key"][0] == found["database"][0] == "failed"
    assert "does not know" in found["database"][1]


@pytest.mark.parametrize(
    "name, settings",
    [
        ("origins", {"origins": "http://broker.example"}),
        ("broker's key", {"broker_key": "00"}),
        ("database", {"workers": 2}),
        ("database", {"database_url": "postgresql://x@127.0.0.1:1/x"}),
        ("database", {"database_url": "sqlite:////nonexistent/broker.sqlite"}),
        ("database", {"database_url": "postgresql://x@127.0.0.1:54a/x"}),
        ("database", {"database_url": "postgresql://x@127.0.0.1:1/x?sslmode=require"}),
    ],
)
def test_a_check_names_what_keeps_a_broker_from_starting(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    assert _checked(tmp_path, "--port", "0", **settings)[name][0] == "failed"
    assert not (tmp_path / "data" / "broker.sqlite").exists()


def test_a_check_fails_for_a_port_of_another_program_and_for_a_folder_of_other_users(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "foreign").touch()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # does not listen
        found = _checked(tmp_path, "--port", str(other.getsockname()[1]))
    assert found["address"][0] == found["data folder"][0] == "failed"
    assert "name a new folder in it" in found["data folder"][1]


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_database_that_does_not_admit_the_broker_is_named_with_its_reason(
    tmp_path: Path, database_url: str
) -> None:
    wrong = urllib.parse.urlsplit(database_url)._replace(path="/nowhere").geturl()
    found = _checked(tmp_path, "--port", "0", database_url=wrong)
    assert found["database"][0] == found["broker's key"][0] == "failed"
    assert 'database "nowhere" does not exist' in found["database"][1]
    listed = admin(BrokerProcess(tmp_path, wrong), "users", "ls").expect(5)
    assert 'database "nowhere" does not exist' in listed.error


def test_a_check_names_a_restore_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "data" / "restoring").mkdir(parents=True)
    assert "restore again" in _checked(tmp_path, "--port", "0")["data folder"][1]


# Starting and ending


def test_an_address_that_other_machines_reach_needs_an_origin_and_the_error_says_what_else(
    tmp_path: Path,
) -> None:
    variables = environment({"data_dir": tmp_path / "data"})
    status, output, error = run(["serve", "--host", "0.0.0.0", "--port", "0"], variables, PATIENCE)
    assert (status, output) == (2, "")
    for needed in ("TLS", "SCBROKER_ORIGINS", "SCBROKER_TRUSTED_PROXIES", "running-a-broker.md"):
        assert needed in error
    assert not (tmp_path / "data").exists()


@pytest.mark.long
def test_the_first_start_says_how_to_make_a_user_and_the_second_how_to_get_a_key(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path)
    del broker.settings["api_key"]
    with broker:
        wait_until(lambda: "register" in broker.output)
        lines = broker.output.splitlines()
        exported = dict(
            line.split("export ")[1].split("=") for line in lines if "  export " in line
        )
        assert exported["SCBROKER_SERVER_URL"] == broker.url
        assert any("broker.key: store a copy elsewhere" in line for line in lines)
        assert any(line.startswith("  data   new database in ") for line in lines)
        command = lines[-1].split()
    variables = environment() | exported | {"HOME": str(tmp_path)}
    assert run([*command[1:], "--help"], variables, PATIENCE)[0] == 0
    broker.api_key = uuid.UUID(exported["SCBROKER_API_KEY"])
    with broker:
        broker.new_user()
    with broker:
        wait_until(lambda: "api-keys" in broker.output)
        assert re.search("  data   existing database in .*, 1 user\n", broker.output)
        command = broker.output.splitlines()[-1].partition("scbroker ")[2].split()
    assert (
        run(["this" if each == "NAME" else each for each in command], variables, PATIENCE)[0] == 0
    )


@pytest.mark.long
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_a_broker_without_a_traceback_and_a_second_one_at_once(
    tmp_path: Path, presses: int
) -> None:
    """The second one must not wait for a request that takes long."""
    broker = BrokerProcess(tmp_path)
    process = subprocess.Popen(
        serve_command("--port", "0", "--data-dir", str(tmp_path / "data")),
        env=environment({"api_key": broker.api_key}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    sent = Wire(broker).headers({"Host": "x", "Content-Type": MESSAGE, "Content-Length": "100"})
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    assert process.stdout is not None
    port = int(process.stdout.readline().rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(f"POST /v1/users HTTP/1.1\r\n{head}\r\n".encode())
        wait_until(lambda: _is_live(port))
        for _ in range(presses):
            process.send_signal(signal.SIGINT)
            wait_until(lambda: not _accepts(port))
        if presses == 1:
            slow.close()
        _, error = process.communicate(timeout=PATIENCE)
    assert all(line.startswith("{") for line in error.splitlines())
    assert presses == 2 or "Traceback" not in error, "the second one cuts uvicorn's lifespan off"
    assert "graceful shutdown exceeded" not in error
    assert process.returncode in (0, 130, -signal.SIGINT)


def _is_live(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as asking:
        asking.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"200" in asking.recv(100)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_workers_whose_parent_was_killed_end_and_free_the_port(
    tmp_path: Path, database_url: str
) -> None:
    broker = BrokerProcess(tmp_path, database_url, workers=2)
    with broker, Wire(broker) as wire:
        wire.call("GET", "/health/ready").expect(200)
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not _accepts(broker.port))
        broker.kill()
        broker.start()
        wire.close()
        wire.call("GET", "/health/ready").expect(200)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
