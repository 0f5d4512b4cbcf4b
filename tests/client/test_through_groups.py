"""Containers that users reach through groups: reading, writing, sharing, and what the results say."""

import dataclasses
import datetime as dt
import uuid
from typing import Any

import pytest

from scbroker import (
    AccessChange,
    AccessLevel,
    Availability,
    BrokerError,
    Container,
    ContainerAccessLevel,
    MemberRole,
    NewContainer,
    SecuredContainer,
    ServerProvider,
    openLink,
)
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import READER, SHARER, accepted, shared, team
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

OWNER = ContainerAccessLevel.DefaultOwnerPermissions


def get(provider: ServerProvider, container: uuid.UUID) -> Container[Any]:
    found: Container[Any] = provider.getContainer(container).result(PATIENCE)
    return found


@both_engines
def test_a_member_reads_and_writes_through_a_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box = shared(alice, group)
    found = get(bob, box)
    assert found.header is not None
    assert (found.content, found.header.customHeaderObject, found.type) == (
        b"content",
        {"name": "x"},
        "box",
    )
    assert (found.via, found.modifiedVia, found.modifierIsMember) == (group.id, None, None)
    made = bob.updateContainerContent(box, b"Bob's").result(PATIENCE)
    assert (made.modifiedVia, made.modifierIsMember, made.via) == (group.id, True, group.id)
    seen = get(alice, box)
    assert (seen.content, seen.modifiedBy, seen.modifiedVia) == (b"Bob's", id_of(bob), group.id)
    assert (seen.modifierIsMember, seen.via) == (True, None)
    assert [(each.userId, each.isGroup) for each in sorted_levels(seen, alice)] == [
        (id_of(alice), False),
        (group.id, True),
    ]


def sorted_levels(found: Any, first: ServerProvider) -> list[AccessLevel]:
    return sorted(found.access, key=lambda level: level.userId != id_of(first))


def test_an_outsider_sees_who_wrote_for_which_group_and_a_member_sees_who_is_not_a_member_any_more(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box = shared(alice, group)
    alice.grantAccess(box, AccessLevel(id_of(carol))).result(PATIENCE)
    bob.updateContainerHeader(box, {"name": "y"}).result(PATIENCE)
    seen = get(carol, box)
    assert (seen.modifiedBy, seen.modifiedVia, seen.modifierIsMember) == (
        id_of(bob), group.id, True,
    )  # fmt: skip
    assert f"through group {group.id}" in repr(seen)
    alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    assert get(carol, box).modifierIsMember is None
    refusal(bob.getContainer(box), BrokerError.notFoundError)
    dora = new_provider(True)
    alice.addGroupMembers(group, MemberRole(id_of(dora))).result(PATIENCE)
    accepted(group, dora)
    found = get(dora, box)  # wrapped to an epoch that ended before she came
    assert (found.content, found.via, found.modifierIsMember) == (b"content", group.id, False)
    assert "as a former member" in repr(found)


def test_every_reading_operation_reads_through_a_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, MemberRole(id_of(bob), READER)), bob)
    box, own = shared(alice, group), bob.createContainer(b"own").result(PATIENCE).id
    both = bob.getContainers([box, own]).result(PATIENCE)
    assert [isinstance(each, Container) and each.content for each in both] == [b"content", b"own"]
    header = bob.getContainerHeader(box).result(PATIENCE)
    assert header is not None
    assert header.customHeaderObject == {"name": "x"}
    metadata = bob.getContainerMetadata(box).result(PATIENCE)
    assert (metadata.via, metadata.length, metadata.contentAvailability) == (
        group.id, 7, Availability.NotIncluded,
    )  # fmt: skip
    secured = bob.getSecuredContainer(box).result(PATIENCE)
    assert (secured.via, secured.wrap is None, secured.sealedContent is None) == (
        group.id, False, False,
    )  # fmt: skip


def test_a_user_reads_by_their_own_entry_and_writes_through_a_group_where_it_does_not_allow_that(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    levels = [
        AccessLevel(id_of(alice), OWNER),
        AccessLevel(id_of(bob), "Download|Decrypt|ViewAccess"),
        AccessLevel(group, OWNER),
    ]
    box = alice.createContainer(b"content", None, levels).result(PATIENCE).id
    found = get(bob, box)
    assert (found.content, found.via) == (b"content", None)
    made = bob.updateContainerContent(box, b"new").result(PATIENCE)
    assert (made.modifiedVia, made.via) == (group.id, group.id)
    assert get(bob, box).via is None
    refusal(bob.deleteContainer(box), BrokerError.permissionDeniedError, "lacks Delete")


def test_groups_are_granted_and_revoked_as_users_are(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    made = alice.createContainers([NewContainer(b"1"), NewContainer(b"2")]).result(PATIENCE)
    boxes = [each.id for each in made if isinstance(each, SecuredContainer)]
    granted = alice.grantAccess(boxes, AccessLevel(str(group.id))).result(PATIENCE)
    assert all(isinstance(each, SecuredContainer) for each in granted)
    assert [get(bob, box).content for box in boxes] == [b"1", b"2"]
    changes = [AccessChange(boxes[0], add=[AccessLevel(id_of(carol))], remove=[group])]
    alice.updateContainersAccessLevels(changes).result(PATIENCE)
    refusal(bob.getContainer(boxes[0]), BrokerError.notFoundError)
    alice.revokeAccess(boxes[1], group).result(PATIENCE)
    refusal(bob.getContainer(boxes[1]), BrokerError.notFoundError)
    both = [AccessLevel(id_of(alice), OWNER), AccessLevel(group, OWNER)]
    [created] = alice.createContainers([NewContainer(b"3", accessLevels=both)]).result(PATIENCE)
    assert isinstance(created, SecuredContainer)
    assert get(bob, created.id).content == b"3"


@pytest.mark.long
def test_a_link_shares_what_its_maker_reaches_through_a_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, MemberRole(id_of(bob), SHARER)), bob)
    box = shared(alice, group)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    link = bob.createLink(box, expiresAt=until).result(PATIENCE)
    with openLink(link).result(PATIENCE) as opened:
        assert opened.getContainerContent(box).result(PATIENCE) == b"content"
        assert get(alice, box).modifiedVia == group.id
        bob.revokeLink(link).result(PATIENCE)
        refusal(opened.getContainer(box), BrokerError.notAuthenticatedError)


def test_a_fresh_device_finds_out_which_ids_are_groups(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    levels = [AccessLevel(each) for each in (id_of(carol), id_of(alice), group.id)]
    box = carol.createContainer(b"for a team", None, levels).result(PATIENCE).id
    assert get(bob, box).via == group.id
    unknown = [*levels, AccessLevel(uuid.uuid4())]
    refusal(carol.createContainer(b"", None, unknown), BrokerError.notFoundError)
    other = dataclasses.replace(group, fingerprint=" ".join(["0000"] * 16))
    refusal(
        carol.createContainer(b"", None, [AccessLevel(other)]), BrokerError.keySubstitutionError
    )


def test_a_whole_list_keeps_what_a_result_says_of_it(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box = shared(alice, group)
    access = get(alice, box).access
    assert access is not None
    alice.updateContainerAccessLevels(box, access).result(PATIENCE)
    assert get(alice, box).access == access


def test_a_sharer_may_take_the_access_of_their_own_group_away(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, MemberRole(id_of(bob), SHARER)), bob)
    box = shared(alice, group)
    levels = [AccessLevel(id_of(alice), OWNER)]
    made = bob.updateContainer(box, b"last", None, levels, None).result(PATIENCE)
    assert (made.access, made.sealedContent, made.wrap) == (None, None, None)
    refusal(bob.getContainer(box), BrokerError.notFoundError)
    found = get(alice, box)
    assert (found.content, found.modifiedVia) == (b"last", group.id)


def test_a_container_is_deleted_for_all_members_through_a_group(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, MemberRole(id_of(bob), SHARER), carol), bob, carol)
    box = shared(alice, group)
    get(carol, box)
    bob.deleteContainer(box).result(PATIENCE)
    for each in (alice, bob, carol):
        refusal(each.getContainer(box), BrokerError.deletedError)


@pytest.mark.long
def test_a_deleted_group_stays_in_lists_until_it_is_revoked_and_gets_no_new_access(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box = shared(alice, group)
    alice.grantAccess(box, AccessLevel(id_of(carol), OWNER)).result(PATIENCE)
    own = alice.createContainer(b"").result(PATIENCE).id
    alice.deleteGroup(group).result(PATIENCE)
    refusal(bob.getContainer(box), BrokerError.notFoundError)
    carol.updateContainerContent(box, b"renewed").result(PATIENCE)
    found = get(alice, box)
    assert found.content == b"renewed"
    assert group.id in [each.userId for each in found.access or ()]
    [refused] = alice.grantAccess(own, AccessLevel(group)).result(PATIENCE)
    assert isinstance(refused, BrokerError.notFoundError)
    assert f"Group {group.id} was deleted" in str(refused)
    carol.revokeAccess(box, group).result(PATIENCE)
    assert group.id not in [each.userId for each in get(alice, box).access or ()]


def test_a_user_without_access_of_their_own_is_sent_to_leave_the_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box = shared(alice, group)
    refusal(bob.leaveContainer(box), BrokerError.invalidArgumentError, "leaveGroup")
    alice.leaveContainer(box).result(PATIENCE)  # the group can change access
    assert get(bob, box).content == b"content"
