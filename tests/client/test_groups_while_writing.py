"""Members who are removed, demoted or left with an old key while they write through a group."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scbroker import BrokerError, MemberRole, ServerProvider, WriteOutcome
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import READER, accepted, shared, team
from tests.kit.both_engines import both_engines
from tests.kit.network import Network, after
from tests.kit.waiting import PATIENCE

LARGE = bytes(range(256)) * 40_960
"""10 MiB: several chunks."""


def content_of(owner: ServerProvider, container: uuid.UUID) -> tuple[bytes | None, int]:
    found = owner.getContainer(container).result(PATIENCE)
    return found.content, found.version


@both_engines
def test_a_record_that_arrives_after_its_authors_demotion_is_refused(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    made = shared(alice, group)
    with Network() as network:
        role = MemberRole(id_of(bob), READER)
        demotion = after(lambda: alice.setGroupRoles(group, role).result(PATIENCE))
        network.treat("PUT", f"/{made}/records/2", demotion)
        refusal(bob.updateContainerContent(made, b"late"), BrokerError.permissionDeniedError)
    assert content_of(bob, made) == (b"content", 1)


def pieces(meanwhile: Callable[[], object]) -> Iterator[bytes]:
    """A content of which one chunk is sent before somebody else makes a change."""
    yield LARGE[:-1]
    meanwhile()
    yield LARGE[-1:]


@pytest.mark.long
@both_engines
def test_an_upload_ends_at_once_when_its_author_is_removed(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = shared(alice, group)
    content = pieces(lambda: alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE))
    with pytest.raises(BrokerError.notFoundError) as raised:
        bob.updateContainerContent(made, content).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.NotStored
    assert content_of(carol, made) == (b"content", 1)


@pytest.mark.long
def test_an_upload_of_a_file_during_which_another_member_is_removed_is_sent_again_under_a_new_key(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, tmp_path: Path
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = shared(alice, group)
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    with Network() as network:
        removal = after(lambda: alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE))
        network.treat("PUT", f"/{made}/records/2", removal)
        carol.updateContainerContent(made, file).result(PATIENCE)
        parts = {each.path.split("/")[5] for each in network.sent if "/parts/" in each.path}
    assert len(parts) == 2
    assert content_of(alice, made) == (LARGE, 2)


@pytest.mark.long
def test_an_upload_that_can_be_read_only_once_is_asked_for_again_when_another_member_is_removed(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    """What was sent is sealed under a key that the removed member knows."""
    group = accepted(team(alice, bob, carol), bob, carol)
    made = shared(alice, group)
    content = pieces(lambda: alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE))
    refusal(carol.updateContainerContent(made, content), BrokerError.conflictError, "pass it again")
    assert content_of(carol, made) == (b"content", 1)
    again = pieces(lambda: None)
    assert carol.updateContainerContent(made, again).result(PATIENCE).version == 2
    assert content_of(alice, made) == (LARGE, 2)
