"""A group has a row in the table of users, and no operation about people treats it as a user."""

import uuid

import pytest

from scbroker.crypto.seal import SigningKey, random_bytes
from scbroker.errors import NotFoundError
from scbroker.records.canonical import encode_object
from scbroker.server.admin.users import Order as Sorted
from scbroker.server.admin.users import Page, page, set_quotas
from scbroker.server.settings import Settings
from scbroker.server.users import accounts
from scbroker.wire import users as u
from scbroker.wire.users import NO_DIGEST, ORDER_LABEL, Order, UserDeletion
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.groups import SHARER, WRITER, Group
from tests.kit.operators import admin, admin_json
from tests.kit.quotas import read, write
from tests.kit.tables import count_rows
from tests.kit.writers import OWNER, Story, closing
from tests.server.conftest import NewUser, Unchanged
from tests.server.users.test_accounts_blocks import blocked


@pytest.fixture
def team(new_user: NewUser) -> Group:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: WRITER})
    Story(alice).created({alice: OWNER, team: OWNER})
    return team


@pytest.mark.long
def test_nobody_logs_in_as_a_group(team: Group, new_user: NewUser, unchanged: Unchanged) -> None:
    wire, key = new_user().wire, SigningKey.generate()
    statement = encode_object(u.Statement(wire.broker.origin, team.name, 0, wire.nonce()))
    request = u.SessionRequest(statement=statement, signature=key.sign(u.SESSION_LABEL, statement))
    with unchanged():
        wire.call("POST", "/v1/sessions", request).expect(401, "challenge")


@pytest.mark.long
def test_a_group_is_an_unknown_id_to_the_operations_on_users(
    team: Group, new_user: NewUser, unchanged: Unchanged
) -> None:
    user, unknown = new_user(), uuid.uuid4()
    asked = {"users": [{"userId": team.group_id}]}
    with unchanged():
        user.wire.call("POST", "/v1/key-records", asked).expect(404, "not-found")
        user.wire.call("PUT", f"/v1/blocks/{team.group_id}").expect(404, "not-found")
        for path in ("/v1/users/{}/reminder",):
            found = user.wire.call("GET", path.format(team.group_id)).expect(200)
            assert found.body == user.wire.call("GET", path.format(unknown)).body
    opened = user.wire.open_key_file(team.uuid, random_bytes(32))
    assert opened.code == user.wire.open_key_file(unknown, random_bytes(32)).code
    assert blocked(user) == []


@pytest.mark.long
def test_nobody_deletes_a_group_as_a_user(
    team: Group, new_user: NewUser, unchanged: Unchanged
) -> None:
    user, key = new_user(), SigningKey.generate()
    record = closing(user)
    order = Order(
        user.wire.broker.origin, team.name, 0, user.wire.nonce(), "delete-user", NO_DIGEST
    )
    body = encode_object(order)
    authorization = u.Authorization(order=body, signature=key.sign(ORDER_LABEL, body))
    message = UserDeletion(keyRecord=record, authorization=authorization)
    with unchanged():
        answer = user.wire.call("POST", f"/v1/users/{team.group_id}/deletion", message)
        answer.expect(401, "challenge")


@pytest.mark.long
def test_an_operator_finds_no_group_among_the_users(
    broker: BrokerProcess, team: Group, unchanged: Unchanged
) -> None:
    listed = {each["userId"] for each in admin_json(broker, "users", "ls")}
    assert team.group_id not in listed
    assert team.creator.id in listed
    with unchanged():
        for command in ("show", "suspend", "resume"):
            done = admin(broker, "users", command, team.group_id)
            assert (done.status, "knows no user" in done.error) == (3, True)
        with pytest.raises(NotFoundError, match="knows no user"):
            write(broker.database_url, lambda c: set_quotas(c, [team.uuid], {"bytes": 10}))
    settings = Settings()

    def found(order: Sorted) -> Page:
        return read(broker.database_url, lambda c: page(c, settings, order, 1000, 0, team.group_id))

    assert [found(order).users for order in Sorted] == [[]] * len(Sorted)


@pytest.mark.long
def test_a_group_does_not_count_as_a_user(start_broker: StartBroker, new_user: NewUser) -> None:
    broker = start_broker()
    alice = new_user(at=broker)
    team = Group(alice).created()
    url = broker.database_url
    assert read(url, lambda c: c.execute(accounts.COUNT_USERS).scalar_one()) == 1
    assert count_rows(url, "users") == 2
    assert count_rows(url, "usage", "user_id = ?", team.id) == 0
    lines = admin(broker, "check", "--quick").expect(0).last
    assert "1 users" in lines
    assert "1 groups" in lines
