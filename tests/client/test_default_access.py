"""An update without access levels gives the container back to its creator alone."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    NewContainer,
    Promise,
    ServerProvider,
)
from tests.client.conftest import id_of, refusal
from tests.client.test_containers import OWNER, pattern, share
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel
WRITER = Level.DefaultUserPermissions | Level.Upload
MANAGER = WRITER | Level.ModifyAccess | Level.ModifyType
Update = Callable[[ServerProvider, uuid.UUID], Promise[Any]]
WITHOUT: dict[str, Update] = {
    "access levels None": lambda p, c: p.updateContainerAccessLevels(c, None),
    "access levels empty": lambda p, c: p.updateContainerAccessLevels(c, []),
    "access levels left out": lambda p, c: p.updateContainerAccessLevels(c),
    "everything": lambda p, c: p.updateContainer(
        c, content=b"new", customHeaderObject={"h": 2}, accessLevels=None, type="u"
    ),
    "everything, large": lambda p, c: p.updateContainer(
        c, content=pattern(70_000), customHeaderObject=None, accessLevels=[], type=None
    ),
}
without = pytest.mark.parametrize("update", WITHOUT.values(), ids=WITHOUT.keys())


NO_KEY = (
    " will not open for its creator: accessLevels gives user {} no Decrypt. Include AccessLevel(userId, "
    "ContainerAccessLevel.DefaultOwnerPermissions) for yourself."
)


def test_a_container_that_its_creator_cannot_open_is_made_with_a_warning(
    alice: ServerProvider, bob: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    me, his = id_of(alice), AccessLevel(id_of(bob), OWNER)
    for levels in ([his], [his, AccessLevel(me, Level.Delete)]):
        caplog.clear()
        made = alice.createContainer(b"c", accessLevels=levels).result(PATIENCE)
        assert caplog.messages == [f"The new container{NO_KEY}".format(me)]
        assert bob.getContainerContent(made.id).result(PATIENCE) == b"c"
    caplog.clear()
    mine = NewContainer(b"", accessLevels=[AccessLevel(me)])
    items = [NewContainer(b""), mine, NewContainer(b"", accessLevels=[his])]
    alice.createContainers(items).result(PATIENCE)
    assert caplog.messages == [f"containers[2]{NO_KEY}".format(me)]


def test_a_container_that_its_creator_opens_through_a_group_is_made_without_a_warning(
    alice: ServerProvider, bob: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    group = alice.createGroup("Team", id_of(bob)).result(PATIENCE)
    levels = [AccessLevel(group, OWNER)]
    made = alice.createContainer(b"c", accessLevels=levels).result(PATIENCE)
    assert caplog.messages == []
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"c"
    bob.createContainer(b"", accessLevels=levels).result(PATIENCE)  # who has not read the group
    assert caplog.messages == [f"The new container{NO_KEY}".format(id_of(bob))]


@pytest.mark.sampled
@both_engines
@without
@pytest.mark.parametrize("level", [OWNER, MANAGER], ids=["owner", "manager"])
def test_without_access_levels_an_update_by_another_user_leaves_the_creator_alone_with_everything(
    alice: ServerProvider, bob: ServerProvider, update: Update, level: Level
) -> None:
    levels = share(alice, (bob, level))
    made = alice.createContainer(b"c", {"h": 1}, accessLevels=levels, type="t").result(PATIENCE)
    update(bob, made.id).result(PATIENCE)
    found = alice.getContainer(made.id).result(PATIENCE)
    assert list(found.access or ()) == [AccessLevel(id_of(alice), OWNER)]
    assert (found.createdBy, found.modifiedBy) == (id_of(alice), id_of(bob))
    for attempt in (bob.getContainer, bob.getContainerMetadata, bob.getSecuredContainer):
        refusal(attempt(made.id), BrokerError.notFoundError)
    refusal(bob.updateContainerContent(made.id, b"mine"), BrokerError.notFoundError)
    assert str(bob.getEvents().result(PATIENCE)[-1].eventType) == "Deleted"
    alice.updateContainerContent(made.id, b"hers again").result(PATIENCE)
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"hers again"


@pytest.mark.sampled
@without
def test_a_creator_who_was_taken_out_gets_the_container_back_from_a_device_that_never_saw_them(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider, update: Update
) -> None:
    made = alice.createContainer(b"c", accessLevels=share(alice, (bob, OWNER))).result(PATIENCE)
    bob.updateContainerAccessLevels(made.id, [AccessLevel(id_of(bob), OWNER)]).result(PATIENCE)
    refusal(alice.getContainer(made.id), BrokerError.notFoundError)
    other_device = new_provider(bob.getKeyRing().result(PATIENCE))
    update(other_device, made.id).result(PATIENCE)
    found = alice.getContainerMetadata(made.id).result(PATIENCE)
    assert list(found.access or ()) == [AccessLevel(id_of(alice), OWNER)]


@pytest.mark.sampled
@without
def test_a_caller_who_cannot_give_what_the_creator_lacks_is_refused_and_nothing_is_sent(
    alice: ServerProvider, bob: ServerProvider, update: Update
) -> None:
    levels = [AccessLevel(id_of(alice), OWNER & ~Level.Delete), AccessLevel(id_of(bob), MANAGER)]
    made = alice.createContainer(b"c", {"h": 1}, accessLevels=levels).result(PATIENCE)
    with Network() as network, pytest.raises(BrokerError.permissionDeniedError, match="rule 4"):
        update(bob, made.id).result(PATIENCE)
    sent = [(each.method, each.path) for each in network.sent if "containers" in each.path]
    assert sent == [("GET", f"/v1/containers/{made.id}")]
    assert alice.getContainerMetadata(made.id).result(PATIENCE).version == 1


@pytest.mark.sampled
@both_engines
@without
def test_of_a_deleted_creator_the_default_is_an_error_that_asks_for_access_levels(
    alice: ServerProvider, bob: ServerProvider, update: Update
) -> None:
    creator = id_of(alice)
    made = alice.createContainer(b"c", accessLevels=share(alice, (bob, OWNER))).result(PATIENCE)
    alice.deleteUser().result(PATIENCE)
    with pytest.raises(BrokerError.invalidArgumentError, match="accessLevels must name") as caught:
        update(bob, made.id).result(PATIENCE)
    assert str(creator) in str(caught.value)
    assert bob.getContainerMetadata(made.id).result(PATIENCE).version == 1
    own = [AccessLevel(id_of(bob), OWNER)]
    bob.updateContainerAccessLevels(made.id, own).result(PATIENCE)
    assert list(bob.getContainerMetadata(made.id).result(PATIENCE).access or ()) == own
