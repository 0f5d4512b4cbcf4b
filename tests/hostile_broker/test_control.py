"""Attacks on an operator's control: by programs and users who were shut out, and on the audit log.

Numbers and names are those of `catalogue`.
"""

from collections.abc import Callable
from typing import Final

import pytest

from scbroker.crypto.at_rest import seal_stored
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import sha256
from scbroker.server.storage.audit import BEFORE_ALL, KEY_CHECK, _mac
from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin, triggers
from tests.kit.tables import query
from tests.kit.writers import Story, User, delete_user

ENDED: Final = "access that an operator ended"
REWRITTEN: Final = "audit log rewritten"


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.mark.long
@attack(107, ENDED)
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
@attack(107, ENDED)
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
@attack(108, REWRITTEN)
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
@attack(108, REWRITTEN)
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
