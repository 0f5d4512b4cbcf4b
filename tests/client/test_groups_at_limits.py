"""Groups at the limits: 1,024 members, 16 groups in a list, and 100,000 containers.

The 100,000 are copies of the rows of one, which no reader verifies.
"""

import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, text

from benchmarks.population import on
from scbroker import (
    AccessLevel,
    BrokerError,
    Container,
    ContainerAccessLevel,
    KeyRing,
    MemberRole,
    ServerProvider,
)
from scbroker.records.roster import MAX_GROUPS, MAX_MEMBERS
from scbroker.server.storage import tables
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import WRITER, accepted, roles, shared, team
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.operators import admin
from tests.kit.tables import count_rows
from tests.kit.waiting import PATIENCE

OWNER = ContainerAccessLevel.DefaultOwnerPermissions
Users = Callable[[int], list[KeyRing]]


@pytest.mark.long
@both_engines
def test_a_group_has_1024_members_of_whom_one_leaves_one_is_removed_and_the_rest_read_on(
    alice: ServerProvider, new_provider: NewProvider, user_pool: Users, broker: BrokerProcess
) -> None:
    rings = user_pool(MAX_MEMBERS)
    users = [ring.userId for ring in rings]
    group = team(alice, *map(MemberRole, users[: MAX_MEMBERS - 1]))
    assert group.memberCount == MAX_MEMBERS
    refusal(alice.addGroupMembers(group, users[-1]), BrokerError.tooLargeError)
    first, middle, last = (new_provider(rings[n]) for n in (0, 512, MAX_MEMBERS - 2))
    accepted(group, first, middle, last)
    made = shared(alice, group)
    last.updateContainerContent(made, b"last").result(PATIENCE)
    middle.leaveGroup(group).result(PATIENCE)
    removed = alice.removeGroupMembers(group, users[0]).result(PATIENCE)
    assert (removed.memberCount, removed.epoch) == (MAX_MEMBERS - 2, 1)
    for each in (first, middle):
        refusal(each.getContainer(made), BrokerError.notFoundError)
    newcomer = new_provider(rings[-1])
    alice.addGroupMembers(group, users[-1]).result(PATIENCE)
    accepted(group, newcomer)
    assert newcomer.getContainer(made).result(PATIENCE).content == b"last"
    newcomer.updateContainerContent(made, b"new").result(PATIENCE)
    found = last.getContainer(made).result(PATIENCE)
    assert (found.content, found.modifierIsMember) == (b"new", True)
    members = roles(last, group)
    assert len(members) == MAX_MEMBERS - 1
    assert members[users[-1]] is WRITER
    done = admin(broker, "check", "--quick")  # other tests of this broker damage what is theirs
    assert not any(str(each) in line for line in done.lines for each in (group.id, made))


@pytest.mark.long
@both_engines
def test_16_groups_stand_in_one_list_and_a_member_of_each_reads_and_writes(
    alice: ServerProvider, new_provider: NewProvider, user_pool: Users
) -> None:
    members = [new_provider(ring) for ring in user_pool(MAX_GROUPS)]
    groups = [accepted(team(alice, member), member) for member in members]
    made = shared(alice, *groups)
    [refused] = alice.grantAccess(made, AccessLevel(team(alice))).result(PATIENCE)
    assert isinstance(refused, BrokerError.tooLargeError)
    for number, (member, group) in enumerate(zip(members, groups, strict=True)):
        found = member.getContainer(made).result(PATIENCE)
        assert (found.via, found.version) == (group.id, number + 1)
        member.updateContainerContent(made, b"%d" % number).result(PATIENCE)
    # Each removal makes the container stale: the next writer renews once for all of them.
    for member, group in zip(members[1:], groups[1:], strict=True):
        alice.removeGroupMembers(group, id_of(member)).result(PATIENCE)
        refusal(member.getContainer(made), BrokerError.notFoundError)
    done = members[0].updateContainerContent(made, b"renewed").result(PATIENCE)
    assert done.version == MAX_GROUPS + 2
    found = new_provider(user_pool(1)[0]).getContainer(made).result(PATIENCE)
    assert (found.content, len(found.access or ())) == (b"renewed", MAX_GROUPS + 1)


def copy(database_url: str, container: uuid.UUID, count: int) -> None:
    """Copy the rows of a container and of its members under random ids, without its records."""
    is_sqlite = database_url.startswith("sqlite")
    new_id = "randomblob(16)" if is_sqlite else "uuid_send(gen_random_uuid())"
    numbers = (
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)"
        if is_sqlite
        else "WITH numbers (n) AS (SELECT generate_series(1, CAST(:count AS bigint)))"
    )

    def fill(connection: Connection) -> None:
        connection.execute(text("CREATE TEMP TABLE copies (id BYTEA)"))
        made = f"INSERT INTO copies {numbers} SELECT {new_id} FROM numbers"
        connection.execute(text(made), {"count": count})
        for table, own in ((tables.containers, "id"), (tables.members, "container_id")):
            names = [column.name for column in table.columns]
            chosen = ["copies.id" if name == own else f"{table.name}.{name}" for name in names]
            connection.execute(
                text(
                    f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(chosen)}"
                    f" FROM copies CROSS JOIN {table.name} WHERE {table.name}.{own} = :real"
                ),
                {"real": container.bytes},
            )

    on(database_url, fill)


@pytest.mark.long
@both_engines
def test_beside_100_000_containers_a_change_of_members_writes_one_record_and_two_events(
    start_broker: StartBroker, new_provider: NewProvider
) -> None:
    broker = start_broker()
    url, rings = broker.database_url, [broker.new_user() for _ in range(3)]
    alice, bob, carol = (new_provider(ring, at=broker) for ring in rings)
    group = accepted(team(alice, bob), bob)
    copied, other = shared(alice, group), shared(alice, group)
    wanted = alice.createContainer(
        b"found", None, [AccessLevel(id_of(alice), OWNER), AccessLevel(group, OWNER)], "rare"
    ).result(PATIENCE)
    broker.stop()
    copy(url, copied, 100_000)
    broker.start()

    def rows() -> list[int]:
        return [count_rows(url, name) for name in ("records", "events", "members", "containers")]

    before = rows()
    alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    written = [after - each for after, each in zip(rows(), before, strict=True)]
    assert written == [2, 4, 0, 0], "an event for the member and one for the group, each time"
    accepted(group, carol)
    refusal(bob.getContainer(other), BrokerError.notFoundError)
    assert carol.getContainer(other).result(PATIENCE).content == b"content"
    carol.updateContainerContent(other, b"hers").result(PATIENCE)
    [found] = carol.listContainers("rare").result(PATIENCE).containers
    assert isinstance(found, Container)
    assert found.id == wanted.id
