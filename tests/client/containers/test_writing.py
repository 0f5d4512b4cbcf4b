"""Writing against odds: rubbish in place of keys, stale keys, somebody who was faster, many members."""

import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, ServerProvider
from scbroker.client.core import sealing
from scbroker.client.users.session import Session
from scbroker.crypto.verify import WRAP_SIZE
from scbroker.errors import ConflictError, StaleKeysError
from scbroker.wire.containers import RecordReceipt
from tests.client.conftest import id_of, refusal
from tests.kit.waiting import PATIENCE

OWNER = ContainerAccessLevel.DefaultOwnerPermissions


def shared(alice: ServerProvider, *others: ServerProvider) -> list[AccessLevel]:
    return [AccessLevel(id_of(user), OWNER) for user in (alice, *others)]


@pytest.fixture
def spoiled(
    alice: ServerProvider, bob: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> uuid.UUID:
    """A container of alice's, of which bob wrapped rubbish to everybody."""
    made = alice.createContainer(b"hers", {"n": 1}, accessLevels=shared(alice, bob))
    container_id = made.result(PATIENCE).id
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "wrap_key", lambda *_: os.urandom(WRAP_SIZE))
        bob.updateContainerAccessLevels(container_id, shared(alice, bob)).result(PATIENCE)
    return container_id


def test_a_reader_whose_wrap_is_invalid_gets_an_untrusted_error(
    alice: ServerProvider, spoiled: uuid.UUID
) -> None:
    refusal(alice.getContainerContent(spoiled), BrokerError.untrustedError)


def test_a_writer_whose_wrap_is_invalid_cannot_carry_parts_over(
    alice: ServerProvider, spoiled: uuid.UUID
) -> None:
    with pytest.raises(BrokerError.decryptionError, match="replace it with updateContainer"):
        alice.updateContainerAccessLevels(spoiled).result(PATIENCE)
    with pytest.raises(BrokerError.decryptionError, match="nothing can be sealed"):
        alice.updateContainerContent(spoiled, b"new").result(PATIENCE)


def test_a_writer_whose_wrap_is_invalid_can_remove_its_author_and_replace_everything(
    alice: ServerProvider, bob: ServerProvider, spoiled: uuid.UUID
) -> None:
    alice.updateContainer(
        spoiled, content=b"new", customHeaderObject=None, accessLevels=None, type=None
    ).result(PATIENCE)
    assert alice.getContainerContent(spoiled).result(PATIENCE) == b"new"
    refusal(bob.getContainer(spoiled), BrokerError.notFoundError)


def before_each_record(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[Session], Awaitable[None]]
) -> None:
    honest = Session.call

    async def call(self: Session, method: str, path: str, *rest: Any, **options: Any) -> Any:
        if method == "PUT" and "/records/" in path:
            await act(self)
        return await honest(self, method, path, *rest, **options)

    monkeypatch.setattr(Session, "call", call)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception, int], list[int]]:
    """Has the first so many records fail as if the broker had answered with this error."""

    def fail(error: Exception, times: int) -> list[int]:
        left = [times]

        async def refuse(_: Session) -> None:
            if left[0]:
                left[0] -= 1
                raise error

        before_each_record(monkeypatch, refuse)
        return left

    return fail


def test_a_creation_and_a_change_of_access_are_retried_with_newer_keys(
    alice: ServerProvider, bob: ServerProvider, failing: Callable[[Exception, int], list[int]]
) -> None:
    failing(StaleKeysError(), 1)
    made = alice.createContainer(b"x", accessLevels=shared(alice, bob)).result(PATIENCE)
    failing(StaleKeysError(), 1)
    alice.updateContainerAccessLevels(made.id).result(PATIENCE)
    assert alice.getContainerMetadata(made.id).result(PATIENCE).version == 2


def test_keys_that_are_stale_every_time_are_an_error_and_change_nothing(
    alice: ServerProvider, bob: ServerProvider, failing: Callable[[Exception, int], list[int]]
) -> None:
    made = alice.createContainer(b"x").result(PATIENCE)
    failing(StaleKeysError(), 100)
    with pytest.raises(BrokerError.staleKeysError):
        alice.createContainer(b"x", accessLevels=shared(alice, bob)).result(PATIENCE)
    with pytest.raises(BrokerError.staleKeysError):
        alice.updateContainerAccessLevels(made.id, shared(alice, bob)).result(PATIENCE)
    assert alice.getContainerMetadata(made.id).result(PATIENCE).version == 1


def test_a_change_that_another_member_overtakes_each_time_is_a_conflict_after_four_attempts(
    alice: ServerProvider, failing: Callable[[Exception, int], list[int]]
) -> None:
    made = alice.createContainer(b"x").result(PATIENCE)
    left = failing(ConflictError(), 100)
    refusal(alice.updateContainerContent(made.id, b"y"), BrokerError.conflictError)
    assert left == [96]


def test_a_receipt_for_another_record_is_refused(
    alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Session.call

    async def call(self: Session, method: str, path: str, answer: Any, **options: Any) -> Any:
        found = await honest(self, method, path, answer, **options)
        return replace(found, version=2) if isinstance(found, RecordReceipt) else found

    monkeypatch.setattr(Session, "call", call)
    refusal(alice.createContainer(b"x"), BrokerError.integrityError, "receipt")
