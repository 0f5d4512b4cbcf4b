"""Attacks on an operator: on the page, the audit log and backups, and by users who were shut out.

Attacks 107, 108, 110 and 161 of attacks.toml.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scbroker.server.storage.audit import BEFORE_ALL, KEY_CHECK, _mac
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.crypto import random_bytes, seal_stored, sha256
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.operators import admin, triggers
from tests.kit.pages import OperatorsPage
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story, User, delete_user

VIEW = "/overview"


@pytest.fixture
def engine() -> str:
    """SQLite: commands and pages know nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def page(broker: BrokerProcess) -> Iterator[OperatorsPage]:
    """A page that the operator's browser has entered."""
    with OperatorsPage(broker) as opened:
        opened.enter().expect(200)
        yield opened


@pytest.mark.long
@pytest.mark.parametrize("host", ["evil.example:{}", "localhost:{}", "127.0.0.1", "[::1]:{}", None])
def test_a_site_whose_name_leads_to_the_loopback_address_reads_nothing(
    page: OperatorsPage, host: str | None
) -> None:
    """DNS rebinding: the browser takes the page for the attacker's own, and sends the attacker's name."""
    headers = {"Host": host and host.format(page.port)}
    for path in ("/", "/static/page.js", page.root + VIEW):
        refused = page.request("GET", path, headers=headers)
        assert refused.status in (400, 421)  # 400 without any Host, which HTTP/1.1 requires
        assert page.root not in refused.text


@pytest.mark.long
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_or_port_neither_reads_a_view_nor_shuts_the_operator_out(
    page: OperatorsPage, site: str
) -> None:
    """Cookies of a host belong to all of its ports: the browser also sends one that another port planted."""
    page.get(VIEW, {"Sec-Fetch-Site": site}).expect(403)
    page.get(VIEW, {"Cookie": f"{page.cookie}; scbroker-page=planted"}).expect(200)


def test_no_site_frames_the_page_and_the_page_loads_nothing_from_elsewhere(
    page: OperatorsPage,
) -> None:
    for path in ("/", "/static/page.css", "/nothing", page.root + VIEW):
        headers = page.request("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
    text = page.get(VIEW).text
    assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", text)
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text)


@pytest.mark.long
def test_a_guessed_code_opens_nothing_and_leaves_the_right_one_valid(broker: BrokerProcess) -> None:
    with OperatorsPage(broker) as page:
        for code in ("", "guessed", "é", page.code[:-1], page.code.swapcase()):
            refused = page.request("POST", "/enter", {"code": code}).expect(403)
            assert "set-cookie" not in refused.headers
        page.enter().expect(200)


@pytest.mark.long
def test_a_stolen_url_opens_nothing_after_the_operator_has_used_it(page: OperatorsPage) -> None:
    page.cookie = None
    refused = page.request("POST", "/enter", {"code": page.code}).expect(403)
    assert "set-cookie" not in refused.headers


@pytest.mark.long
def test_the_cookie_is_sent_to_no_server_on_another_port(broker: BrokerProcess) -> None:
    """Browsers send cookies of an address to all its ports: this one only below a path that is secret."""
    with OperatorsPage(broker) as page:
        answer = page.request("POST", "/enter", {"code": page.code}).expect(303)
        attributes = [each.strip() for each in answer.headers["set-cookie"].split(";")[1:]]
        assert attributes == [
            f"Path={answer.headers['location'].rpartition('/')[0]}",
            "HttpOnly",
            "SameSite=Strict",
        ]
        assert len(attributes[0]) > len("Path=/") + 40


# Programs and users who were shut out, and the audit log.


@pytest.mark.long
def test_an_api_key_that_was_revoked_or_has_expired_opens_nothing_not_even_in_a_session(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    revoked, expired = (
        admin(broker, "api-keys", "create", name).expect(0).last for name in ("revoked", "expired")
    )
    with Wire(broker) as wire:
        wire.log_in(broker.new_user())
        for key in (revoked, expired):
            wire.call("GET", "/v1/key-file", Scbroker_Api_Key=key).expect(200)
        admin(broker, "api-keys", "revoke", "revoked").expect(0)
        statement = "UPDATE api_keys SET expires_at = ? WHERE name = 'expired'"
        query(broker.database_url, statement, clock())
        for key in (revoked, expired):
            wire.call("GET", "/v1/key-file", Scbroker_Api_Key=key).expect(401, "api-key")


@pytest.mark.long
def test_a_suspended_user_gets_in_by_no_session_no_key_and_no_passphrase(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    auth = random_bytes(32)
    ring = broker.new_user(auth=auth)
    with Wire(broker) as wire:
        alice = User(ring, wire.log_in(ring))
        story = Story(alice).created()
        admin(broker, "users", "suspend", alice.id).expect(0)
        wire.call("GET", story.path).expect(401, "session")
        wire.call("POST", "/v1/sessions", wire.log_in_request(ring)).expect(403, "suspended")
        wire.open_key_file(ring.userId, auth).expect(403, "suspended")
        delete_user(alice).expect(403, "suspended")


def _change_an_entry(url: str) -> None:
    query(url, "UPDATE audit SET subject = 'somebody else' WHERE action = 'user-suspended'")


def _remove_an_entry(url: str) -> None:
    query(url, "DELETE FROM audit WHERE action = 'user-suspended'")


def _write_another_log(url: str) -> None:
    """A chain under a key of the thief's own, which looks like that of the broker."""
    key, before = random_bytes(32), BEFORE_ALL
    query(url, "DELETE FROM audit WHERE action = 'user-suspended'")
    columns = "id, at, actor, action, subject, details"
    rows = query(url, f"SELECT {columns} FROM audit ORDER BY id")
    query(url, "DELETE FROM audit")
    for number, (_, *fields) in enumerate(rows, start=1):
        before = _mac(key, before, [number, *fields])
        query(url, "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?)", number, *fields, before)
    sealed = seal_stored(sha256(b"not the broker's key"), KEY_CHECK, b"", key)
    query(url, "UPDATE checks SET value = ? WHERE name = ?", sealed, KEY_CHECK)


@pytest.mark.long
@pytest.mark.parametrize("rewrite", [_change_an_entry, _remove_an_entry, _write_another_log])
def test_a_thief_of_the_database_alone_rewrites_no_entry_unnoticed(
    start_broker: StartBroker, rewrite: Callable[[str], None]
) -> None:
    broker = start_broker()
    user = broker.new_user()
    admin(broker, "users", "suspend", str(user.userId)).expect(0)
    admin(broker, "users", "resume", str(user.userId)).expect(0)
    admin(broker, "audit", "verify").expect(0)
    triggers(broker, drop=True)
    rewrite(broker.database_url)
    assert "Audit log: " in admin(broker, "audit", "verify").expect(1).error


@pytest.mark.long
def test_a_log_that_was_cut_off_lacks_the_hash_that_was_kept_elsewhere(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    admin(broker, "users", "suspend", str(broker.new_user().userId)).expect(0)
    [head] = [
        line.split("\t")[1]
        for line in admin(broker, "audit", "verify").expect(0).lines
        if line.startswith("head\t")
    ]
    triggers(broker, drop=True)
    _remove_an_entry(broker.database_url)
    admin(broker, "audit", "verify", "--head", head).expect(1)


# Backups that somebody has edited.


def renamed(copy: Path, name: str) -> None:
    """Give the object another name in the database, and the database its hash in the manifest."""
    with closing(sqlite3.connect(copy / "broker.sqlite")) as database:
        database.execute("UPDATE chunks SET blob = ?", (name,))
        database.commit()
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["database"] = hashlib.sha256((copy / "broker.sqlite").read_bytes()).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def leave(copy: Path, object: Path) -> None:
    """Name an object that is written four folders above those of the objects, through a link."""
    (folder := object.parents[2] / "a").symlink_to(copy)
    target = folder / "../planted"
    target.write_bytes(object.read_bytes())
    renamed(copy, "a/../../../../planted")


def link(copy: Path, object: Path) -> None:
    """Put a link to a file of the operator's in the place of an object."""
    secret = copy.parent / "secret"
    object.rename(secret)
    object.symlink_to(secret)


def pipe(_: Path, object: Path) -> None:
    object.unlink()
    os.mkfifo(object)


def folder(_: Path, object: Path) -> None:
    object.unlink()
    object.mkdir()


def enlarge(_: Path, object: Path) -> None:
    os.truncate(object, 2**40)


@pytest.mark.parametrize(
    "edit, said",
    [
        (leave, "a name that no broker gives"),
        (link, "behind a symbolic link"),
        (pipe, "not a regular file"),
        (folder, "cannot be read"),
        (enlarge, "too large"),
    ],
    ids=["name", "link", "pipe", "folder", "size"],
)
def test_a_restore_reads_and_writes_nothing_outside_of_backup_and_data_folder(
    broker: BrokerProcess,
    new_provider: NewProvider,
    tmp_path: Path,
    edit: Callable[[Path, Path], None],
    said: str,
) -> None:
    new_provider(True).createContainer(bytes(70_000)).result(PATIENCE)
    copy, there = tmp_path / "made" / "copy", tmp_path / "new" / "there"
    copy.parent.mkdir()
    there.parent.mkdir()
    admin(broker, "backup", copy).expect(0)
    object = min((copy / "objects").rglob("*-*"))
    edit(copy, object)
    before = {*tmp_path.rglob("*")}
    done = admin(broker, "restore", copy, at=there).expect(2)
    assert said in "".join(done.lines) + done.error
    assert {*tmp_path.rglob("*")} == before
    admin(broker, "restore", copy, "--damaged", at=there).expect(0)
    made = {*tmp_path.rglob("*")} - before
    assert all(each.is_relative_to(there) and each.name != object.name for each in made)
