"""What an operator sees and sets of users' usage, beside a running broker."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from scbroker.server.admin import users
from tests.kit.beside import beside
from tests.kit.both_engines import both_engines, on_sqlite
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin, admin_json, settings_of
from tests.kit.quotas import amounts, check_usage, used
from tests.kit.tables import query
from tests.kit.writers import Story, User, delete_user
from tests.server.conftest import NewUser, Unchanged


@pytest.fixture
def people(start_broker: StartBroker, new_user: NewUser) -> tuple[BrokerProcess, User, User]:
    """A broker with two users, of whom the second stores more."""
    broker = start_broker()
    alice, bob = new_user(at=broker), new_user(at=broker)
    Story(alice).created()
    Story(bob).created(content=bytes(60_000))
    Story(bob).created()
    return broker, alice, bob


@pytest.mark.long
@both_engines
def test_usage_lists_users_by_bytes_with_their_share_quotas_and_totals(
    people: tuple[BrokerProcess, User, User],
) -> None:
    broker, alice, bob = people
    admin(broker, "quota", "set", "default", "--containers", "5").expect(0)
    admin(broker, "quota", "set", bob.id, "--bytes", "10MB").expect(0)
    found = admin_json(broker, "usage")
    assert [row["userId"] for row in found["users"]] == [bob.id, alice.id]
    first, second = found["users"]
    assert found["bytes"] == first["bytes"] + second["bytes"]
    assert found["containers"] == 3
    assert first["share"] + second["share"] == pytest.approx(1, abs=0.001)
    assert (first["quotaBytes"], first["quotaContainers"]) == (10_000_000, 5)
    assert (second["quotaBytes"], second["quotaContainers"]) == (None, 5)
    assert first["bytes"] == used(broker.database_url, bob).bytes
    assert admin_json(broker, "usage", "--limit", "1")["users"] == [first]
    assert admin_json(broker, "usage", alice.id)["users"] == [second]
    lines = admin(broker, "usage").expect(0)
    assert [line.split("\t")[0] for line in lines.lines] == [bob.id, alice.id]
    assert admin_json(broker, "usage", alice.id[:18])["users"] == [second]
    assert "All users: " in lines.error
    delete_user(alice).expect(204)
    assert admin_json(broker, "usage", alice.id)["users"][0]["deleted"]


@pytest.mark.long
@on_sqlite
def test_quotas_are_set_shown_and_removed_for_many_and_for_all(
    people: tuple[BrokerProcess, User, User],
) -> None:
    broker, alice, bob = people

    def shown() -> dict[str, Any]:
        rows = admin_json(broker, "quota")
        return {row["user"]: (row["bytes"], row["containers"]) for row in rows}

    assert shown() == {"default": (None, None)}
    admin(broker, "quota", "set", "default", "--bytes", "9000TB").expect(0)
    assert shown() == {"default": (9 * 10**15, None)}
    admin(broker, "quota", "set", "default", "--bytes", "1.5GiB").expect(0)
    admin(broker, "quota", "set", alice.id, bob.id, "--bytes", "7", "--containers", "3").expect(0)
    assert shown() == {"default": (1_610_612_736, None), alice.id: (7, 3), bob.id: (7, 3)}
    story = Story(alice)
    story.send(alice, story.begin()).expect(413, "quota")
    admin(broker, "quota", "set", alice.id, "--bytes", "unlimited").expect(0)
    assert shown()[alice.id] == ("unlimited", 3)
    assert used(broker.database_url, alice).quota_bytes is None
    story.send(alice, story.begin()).expect(201)
    # As in `admin users`, the first digits of an id suffice.
    admin(broker, "quota", "unset", alice.id[:13], alice.id, "--containers").expect(0)
    assert [row["userId"] for row in admin_json(broker, "usage", bob.id[:13])["users"]] == [bob.id]
    admin(broker, "quota", "unset", bob.id, "default").expect(0)
    assert shown() == {"default": (None, None), alice.id: ("unlimited", None)}


@pytest.mark.sampled
@on_sqlite
@pytest.mark.parametrize(
    "arguments,status,words",
    [
        (["quota", "set", "default"], 2, "Pass --bytes, --containers or both"),
        (["quota", "set", "default", "--bytes", "10XB"], 2, "10GB, 10GiB, or unlimited"),
        (["quota", "set", "default", "--bytes", "9999TiB"], 2, "must be 0 to"),
        (["quota", "set", "alice", "--bytes", "1"], 2, "is not a user id"),
        (["quota", "set", str(uuid.UUID(int=1)), "--bytes", "1"], 3, "knows no user"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do_and_nothing_is_changed(
    broker: BrokerProcess, arguments: list[str], status: int, words: str, unchanged: Unchanged
) -> None:
    with unchanged():
        done = admin(broker, *arguments).expect(status)
    assert words in done.error


@pytest.mark.long
@both_engines
def test_a_recount_corrects_each_row_that_differs_from_what_is_stored(
    people: tuple[BrokerProcess, User, User],
) -> None:
    broker, alice, bob = people
    url = broker.database_url
    before = {user.id: amounts(url, user) for user in (alice, bob)}
    query(url, "DELETE FROM usage WHERE user_id = ?", alice.ring.userId.bytes)
    query(url, "UPDATE usage SET bytes = bytes + 7, containers = 9")
    checked = admin(broker, "check", "--quick").expect(1)
    assert sum("admin usage --recount" in line for line in checked.lines) == 2
    rows = {row["userId"]: row for row in admin_json(broker, "usage", "--recount")}
    assert {name: (row["bytes"], row["containers"]) for name, row in rows.items()} == before
    assert rows[bob.id]["bytesBefore"] == before[bob.id][0] + 7
    assert rows[alice.id]["bytesBefore"] == 0
    check_usage(url)
    assert admin(broker, "usage", "--recount").expect(0).error.strip() == (
        "Corrected the usage of 0 users."
    )


@pytest.mark.long
@both_engines
def test_a_recount_beside_writers_keeps_what_they_write_meanwhile(
    people: tuple[BrokerProcess, User, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, alice, _ = people
    url = broker.database_url
    query(url, "UPDATE usage SET bytes = 0")
    found: Callable[..., Any] = users.differences

    def read_and_write(connection: Any) -> Any:
        result = found(connection)
        Story(alice).created()
        return result

    monkeypatch.setattr(users, "differences", read_and_write)
    beside(broker, lambda at: users.recount(settings_of(broker), at.database))
    monkeypatch.setattr(users, "differences", found)
    check_usage(url)
