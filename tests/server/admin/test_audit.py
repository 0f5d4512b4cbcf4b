"""The audit log has who did what, only grows, and shows every change behind the broker's back."""

import datetime as dt
import getpass
import json
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scbroker
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin, admin_json, audited, triggers, variables_of
from tests.kit.processes import command
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import authorized, delete_key_file, delete_user, ordered, store, storing
from tests.server.conftest import NewUser, at_once


@pytest.mark.long
def test_each_act_of_an_operator_and_of_users_on_their_accounts_is_one_entry(
    start_broker: StartBroker, new_user: NewUser, tmp_path: Path
) -> None:
    broker = start_broker()
    alice, bob = new_user(at=broker), new_user(at=broker)
    store(alice, authorized(alice, storing(alice))).expect(204)
    delete_key_file(alice, ordered(alice, "delete-key-file")).expect(204)
    delete_user(bob).expect(204)
    admin(broker, "users", "suspend", alice.id, "--reason", "spam").expect(0)
    admin(broker, "users", "resume", alice.id).expect(0)
    admin(broker, "users", "delete", alice.id, "--yes").expect(0)
    admin(broker, "api-keys", "create", "program").expect(0)
    admin(broker, "api-keys", "expire", "program", "30d").expect(0)
    admin(broker, "api-keys", "revoke", "program").expect(0)
    backups = broker.engine == "sqlite"  # those of PostgreSQL are its own
    if backups:
        admin(broker, "backup", tmp_path / "copy").expect(0)
    operator = f"{getpass.getuser()}@{socket.gethostname()}"
    found = [(each["action"], each["actor"], each["subject"]) for each in audited(broker)]
    keys = {each["name"]: each["id"] for each in admin_json(broker, "api-keys", "ls")}
    assert found == [
        ("broker-created", operator, "broker"),
        ("api-key-created", operator, keys["from the settings"]),
        ("user-registered", alice.id, alice.id),
        ("user-registered", bob.id, bob.id),
        ("key-file-stored", alice.id, alice.id),
        ("key-file-deleted", alice.id, alice.id),
        ("user-deleted", bob.id, bob.id),
        ("user-suspended", operator, alice.id),
        ("user-resumed", operator, alice.id),
        ("user-deleted", operator, alice.id),
        ("api-key-created", operator, keys["program"]),
        ("api-key-expiry-set", operator, keys["program"]),
        ("api-key-revoked", operator, keys["program"]),
        *([("backup-made", operator, "broker")] if backups else []),
    ]
    broker.restart()
    assert len(audited(broker)) == len(found), "a start of the same version is no act"
    assert audited(broker, "--action", "user-suspended")[0]["details"] == {"reason": "spam"}
    text = json.dumps(audited(broker))
    for secret in (str(broker.api_key), "127.0.0.1", str(tmp_path)):
        assert secret not in text


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_new_version_and_a_restored_backup_are_recorded_at_the_next_start(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    admin(broker, "backup", tmp_path / "copy", "--with-key").expect(0)
    there = tmp_path / "restored"
    admin(broker, "restore", tmp_path / "copy", at=there).expect(0)
    with BrokerProcess(there, api_key=broker.api_key) as restored:
        *_, last = audited(restored)
        assert last["action"] == "backup-restored"
        assert last["details"].keys() == {"takenAt", "restoredAt"}
        assert last["actor"] == f"{getpass.getuser()}@{socket.gethostname()}"
        restored.restart()
        assert len(audited(restored, "--action", "backup-restored")) == 1
        triggers(restored, drop=True)
        query(restored.database_url, "DELETE FROM audit")
        restored.restart()
        [entry] = audited(restored)
        assert entry["action"] == "version-started"
        assert entry["details"]["version"] == scbroker.__version__


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
def test_the_database_refuses_to_change_and_to_delete_entries(
    broker: BrokerProcess, statement: str
) -> None:
    before = audited(broker)
    with pytest.raises(Exception, match="append-only"):
        query(broker.database_url, statement)
    assert audited(broker) == before


def _edit(column: str, value: object) -> Callable[[BrokerProcess], None]:
    def edit(broker: BrokerProcess) -> None:
        query(broker.database_url, f"UPDATE audit SET {column} = ? WHERE id = 3", value)

    return edit


def _delete(broker: BrokerProcess) -> None:
    query(broker.database_url, "DELETE FROM audit WHERE id = 3")


def _delete_first(broker: BrokerProcess) -> None:
    query(broker.database_url, "DELETE FROM audit WHERE id = 1")


def _swap(broker: BrokerProcess) -> None:
    for old, new in ((3, 99), (4, 3), (99, 4)):
        query(broker.database_url, "UPDATE audit SET id = ? WHERE id = ?", new, old)


def _insert_before_all(broker: BrokerProcess) -> None:
    query(
        broker.database_url,
        "INSERT INTO audit SELECT -1, at, actor, action, subject, details, mac FROM audit WHERE id = 1",
    )


def _drop_key(broker: BrokerProcess) -> None:
    query(broker.database_url, "DELETE FROM checks WHERE name = 'audit-key'")


CHANGES: dict[str, tuple[Callable[[BrokerProcess], None], str]] = {
    "actor": (_edit("actor", "somebody"), "entry 3 was changed"),
    "no JSON": (_edit("details", "{"), "entry 3 was changed"),
    "time": (_edit("at", 1), "entry 3 was changed"),
    "one deleted": (_delete, "entries 3 to 3 are missing"),
    "the first deleted": (_delete_first, "entries 1 to 1 are missing"),
    "two swapped": (_swap, "entry 3 was changed"),
    "one inserted before all": (_insert_before_all, "entry -1 was inserted"),
    "key removed": (_drop_key, "key is missing"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_behind_the_brokers_back_is_found_by_the_verification_and_by_the_check(
    start_broker: StartBroker, name: str
) -> None:
    change, fault = CHANGES[name]
    broker = start_broker()
    for number in range(3):
        admin(broker, "api-keys", "create", f"key {number}").expect(0)
    assert admin_json(broker, "audit", "verify")["faults"] == []
    triggers(broker, drop=True)
    change(broker)
    done = admin(broker, "audit", "verify").expect(1)
    assert fault in done.error
    assert any(f"audit log: {fault}" in line.replace("its ", "") or fault in line
               for line in admin(broker, "check", "--quick").expect(1).lines)  # fmt: skip
    admin(broker, "audit").expect(0)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_entries_that_are_written_at_once_make_one_chain(broker: BrokerProcess) -> None:
    before = admin_json(broker, "audit", "verify")["entries"]
    rings = at_once(lambda _: [broker.new_user() for _ in range(5)], range(4))
    found = admin_json(broker, "audit", "verify")
    assert (found["entries"], found["faults"]) == (before + 20, [])
    named = {each["subject"] for each in audited(broker, "--action", "user-registered")}
    assert {str(ring.userId) for some in rings for ring in some} <= named


@pytest.mark.long
def test_entries_are_chosen_by_time_action_and_user(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    admin(broker, "users", "suspend", alice.id).expect(0)
    mine = audited(broker, "--user", alice.id[:18])
    assert [each["action"] for each in mine] == ["user-registered", "user-suspended"]
    assert all(bob.id not in each.values() for each in mine)
    at = dt.datetime.fromisoformat(mine[0]["time"])
    later = at + dt.timedelta(microseconds=1)
    assert audited(broker, "--user", alice.id, "--since", later.isoformat()) == mine[1:]
    assert audited(broker, "--user", alice.id, "--until", later.isoformat()) == mine[:1]
    assert audited(broker, "--user", alice.id, "--since", "1h") == mine
    assert audited(broker, "--until", "1h") == []
    done = admin(broker, "audit", "--action", "user-suspend").expect(3)
    assert "user-suspended" in done.error
    for wrong in (["--since", "x"], ["--until", "2026-01-01T00:00"], ["--follow", "--until", "1h"]):
        admin(broker, "audit", *wrong).expect(2)
    admin(broker, "audit", "--user", "ffffffff").expect(3)


@pytest.mark.long
def test_further_entries_are_followed_until_an_interrupt(broker: BrokerProcess) -> None:
    options = ("--follow", "--since", "1m", "--json", "--data-dir", str(broker.directory))
    process = subprocess.Popen(
        command("admin", "audit", *options),
        env=variables_of(broker),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    ring = broker.new_user()
    found: list[dict[str, Any]] = []
    while not found or found[-1]["subject"] != str(ring.userId):
        found.append(json.loads(process.stdout.readline()))
    later = broker.new_user()
    while found[-1]["subject"] != str(later.userId):
        found.append(json.loads(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    process.stdout.close()
