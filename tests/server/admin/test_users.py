"""`scbroker admin users` shows, suspends and deletes users beside a running broker.

`tests.server.users.test_sessions_suspension` tests what the broker refuses then.
"""

import datetime as dt
import uuid

import pytest

from scbroker import AccessLevel, BrokerError
from scbroker.server.admin import users
from scbroker.server.admin.stores import Stores
from scbroker.server.admin.users import Order, Page, page
from scbroker.server.settings import Settings
from tests.kit.beside import beside
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.objects import objects
from tests.kit.operators import admin, admin_json, audited
from tests.kit.quotas import read
from tests.kit.tables import count_rows, query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User
from tests.server.conftest import NewUser, Unchanged


def show(broker: BrokerProcess, user: User) -> dict[str, object]:
    found: dict[str, object] = admin_json(broker, "users", "show", user.id)
    return found


@pytest.mark.long
def test_a_list_shows_each_user_with_what_they_store_and_their_last_log_in(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    begun = clock()
    alice, bob = new_user(), new_user()
    Story(alice).created(content=bytes(1000))
    found = {each["userId"]: each for each in admin_json(broker, "users", "ls")}
    hers = found[alice.id]
    assert hers == show(broker, alice)
    assert hers["fingerprint"] == alice.ring.fingerprint
    assert (hers["containers"], hers["sessions"]) == (1, 1)
    assert hers["bytes"] > 1000
    assert (hers["suspended"], hers["reason"], hers["deleted"]) == (None, None, False)
    for name in ("registered", "lastLogIn"):
        at = dt.datetime.fromisoformat(hers[name]).timestamp()
        assert begun // 1_000_000 <= at <= clock() / 1e6
    assert (found[bob.id]["containers"], found[bob.id]["bytes"]) == (0, 0)


@pytest.mark.long
def test_an_id_may_be_shortened_while_it_is_unambiguous(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    for text in (alice.id[:18], alice.id.upper(), alice.ring.userId.hex[:20]):
        assert admin_json(broker, "users", "show", text)["userId"] == alice.id
    other = bytearray(alice.ring.userId.bytes)
    other[-1] ^= 1
    statement = "INSERT INTO users SELECT {} FROM users WHERE id = ?"
    columns = [
        row[0]
        for row in query(
            broker.database_url,
            "SELECT name FROM pragma_table_info('users')"
            if broker.engine == "sqlite"
            else "SELECT column_name FROM information_schema.columns WHERE table_name = 'users' "
            "ORDER BY ordinal_position",
        )
    ]
    given = "?" if broker.engine == "sqlite" else "?::bytea"
    texts = ", ".join(given if name == "id" else name for name in columns)
    values = bytes(other), alice.ring.userId.bytes
    query(broker.database_url, statement.format(texts), *values)
    try:
        done = admin(broker, "users", "suspend", alice.id[:30]).expect(2)
        assert "Several user ids" in done.error
        assert alice.id in done.error
        assert show(broker, alice)["suspended"] is None
    finally:
        query(broker.database_url, "DELETE FROM users WHERE id = ?", bytes(other))


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["show", "suspend", "resume", "delete"])
def test_no_user_id_and_an_unknown_one_are_refused_and_change_nothing(
    broker: BrokerProcess, command: str, unchanged: Unchanged
) -> None:
    with unchanged():
        no_id = admin(broker, "users", command, "me").expect(2)
        unknown = admin(broker, "users", command, str(uuid.uuid4())).expect(3)
    assert "is not a user id" in no_id.error
    assert "knows no user" in unknown.error


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_a_user_whom_the_operator_deletes_is_gone_with_what_nobody_else_needs(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    own, shared = Story(alice), Story(alice)
    part = own.upload(alice, bytes(70_000))
    own.tell(alice, own.begin(content=part))
    shared.created({alice: OWNER, bob: READER}, content=b"for Bob")
    assert any(part.partId.hex() in name for name in objects(broker))
    done = admin(broker, "users", "delete", alice.id)
    assert "--yes" in done.expect(2).error
    assert "1 containers" in done.error or "2 containers" in done.error
    done = admin(broker, "users", "delete", alice.id[:12], "--yes")
    assert "the whole id with --yes" in done.expect(2).error
    assert admin_json(broker, "users", "delete", alice.id, "--yes")["changed"]

    alice.wire.call("GET", "/v1/key-file").expect(401, "session")
    message = alice.wire.log_in_request(alice.ring)
    alice.wire.call("POST", "/v1/sessions", message).expect(401, "challenge")
    alice.wire.register(alice.ring).expect(409, "exists")
    assert not any(part.partId.hex() in name for name in objects(broker))
    mine = alice.ring.userId.bytes
    for table in ("key_files", "sessions", "events", "members", "pending_users"):
        assert count_rows(broker.database_url, table, "user_id = ?", mine) == 0
    assert bob.view(shared, "content=1").governing
    assert not admin_json(broker, "users", "delete", alice.id, "--yes")["changed"]
    found = show(broker, alice)
    assert (found["deleted"], found["registered"]) == (True, None)
    assert alice.id not in str(admin_json(broker, "users", "ls"))
    assert "was deleted" in admin(broker, "users", "suspend", alice.id).expect(3).error
    last = audited(broker, "--user", alice.id)[-1]
    assert (last["action"], last["subject"]) == ("user-deleted", alice.id)
    assert last["actor"] != alice.id


@pytest.mark.long
def test_other_users_programs_treat_a_user_whom_the_operator_deleted_as_deleted(
    broker: BrokerProcess, new_provider: NewProvider
) -> None:
    """They have the broker's word for it alone, and read what the user wrote."""
    rings = [broker.new_user() for _ in range(2)]
    hers, his = (ring.userId for ring in rings)
    alice, bob = (new_provider(ring) for ring in rings)
    levels = [AccessLevel(his, OWNER), AccessLevel(hers, OWNER)]
    made = alice.createContainer(b"hers", accessLevels=levels).result(PATIENCE)
    assert bob.getContainer(made.id).result(PATIENCE).content == b"hers"
    admin(broker, "users", "delete", str(hers), "--yes").expect(0)
    fresh = new_provider(rings[1])
    for each in (bob, fresh):
        assert each.getContainer(made.id).result(PATIENCE).content == b"hers"
        assert each.getPublicKeys(hers).result(PATIENCE) == []
        assert each.getLatestActiveSigningKey(hers).result(PATIENCE) is None
        with pytest.raises(BrokerError.notFoundError):
            each.createContainer(b"", accessLevels=[AccessLevel(hers)]).result(PATIENCE)
    fresh.updateContainerContent(made.id, b"his").result(PATIENCE)
    assert bob.getContainer(made.id).result(PATIENCE).content == b"his"
    with pytest.raises((BrokerError.challengeError, BrokerError.notAuthenticatedError)):
        alice.getContainer(made.id).result(PATIENCE)


# A page at a time


def listed(url: str, order: Order, beginning: str = "", after: int = 0, count: int = 50) -> Page:
    return read(url, lambda c: page(c, Settings(), order, count, after, beginning))


@pytest.mark.long
def test_each_order_has_the_largest_or_newest_users_first_on_pages_without_gap(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker()
    rings = [broker.new_user() for _ in range(5)]
    for number, ring in enumerate(rings):
        with Wire(broker) as wire:
            author = User(ring, wire.log_in(ring))
            for _ in range(number):
                Story(author).created({author: OWNER})
    url = broker.database_url
    created = [ring.userId for ring in rings]
    for order, wanted in {
        Order.Containers: created[::-1],
        Order.Registered: created[::-1],
        Order.Bytes: created[::-1],
        Order.Id: sorted(created),
    }.items():
        whole = listed(url, order)
        assert [each.id for each in whole.users] == wanted, order
        assert not whole.has_more
        paged = [listed(url, order, after=after, count=2) for after in (0, 2, 4)]
        assert [each.id for found in paged for each in found.users] == wanted
        assert [found.has_more for found in paged] == [True, True, False]
    [found] = listed(url, Order.Id, str(created[3]).upper()).users
    assert found.sessions == 1
    assert (found.id, found.containers) == (created[3], 3)
    assert found.bytes > 0
    assert found.quota_bytes is None
    beginning = created[0].hex[:9]
    same = [each for each in created if each.hex.startswith(beginning)]
    assert [each.id for each in listed(url, Order.Id, beginning).users] == sorted(same)
    monkeypatch.setattr(users, "_LISTED_AT_ONCE", 2)
    every = beside(broker, lambda at: users.listed(Stores(at.settings, at.database)))
    assert [each.id for each in every] == sorted(created)
