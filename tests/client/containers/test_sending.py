"""What a device says of changes that it sent: stored, surely not stored, or uncertain."""

import logging
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError, FileTrustStore, SentChange, ServerProvider, WriteOutcome
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import sending
from tests.client.conftest import PASSPHRASE, PASSWORD, beside, refusal
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, after, refused
from tests.kit.waiting import PATIENCE, until

RECORD = "/records/2"
Go = Callable[[], Any]


class Later:
    """The broker refuses a record, keeps it, and stores it when the test lets it."""

    def __init__(self, error: BrokerError) -> None:
        self.error = error
        self.kept: list[Go] = []

    async def treat(self, go: Go) -> bytes:
        if not self.kept:
            self.kept.append(go)
            raise self.error.fresh()
        found: bytes = await go()
        return found

    async def store(self) -> None:
        await self.kept[0]()


def changes(provider: ServerProvider, container: uuid.UUID) -> list[SentChange]:
    return list(provider.getSentChanges(container).result(PATIENCE))


def run_here(work: Any) -> None:
    """Run a coroutine on the client's thread, as a broker's own act at a later time."""
    io_thread.submit("later", work).result(PATIENCE)


REFUSALS = [
    BrokerError.rejectedError,
    BrokerError.invalidArgumentError,
    BrokerError.throttledError,
    BrokerError.brokerFaultError,
]


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refused_change_is_uncertain_until_another_takes_its_version(
    alice: ServerProvider, network: Network, kind: type[BrokerError]
) -> None:
    made = alice.createContainer(b"1").result(PATIENCE)
    network.treat("PUT", RECORD, Later(kind("no")).treat)
    error = refusal(alice.updateContainerContent(made.id, b"2"), kind)
    assert type(error) is kind
    assert (error.outcome, error.containerId) == (WriteOutcome.Uncertain, made.id)
    assert changes(alice, made.id) == [SentChange(2, WriteOutcome.Uncertain)]
    alice.updateContainerHeader(made.id, "other").result(PATIENCE)
    assert changes(alice, made.id)[0] == SentChange(2, WriteOutcome.NotStored)


def test_a_change_that_takes_effect_later_is_reported_as_the_devices_own(
    alice: ServerProvider, network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    made = alice.createContainer(b"1").result(PATIENCE)
    later = Later(BrokerError.rejectedError("no"))
    network.treat("PUT", RECORD, later.treat)
    refusal(alice.updateContainerContent(made.id, b"2"), BrokerError)
    run_here(later.store())
    with caplog.at_level(logging.WARNING, "scbroker"):
        assert alice.getContainerContent(made.id).result(PATIENCE) == b"2"
    [told] = [record.getMessage() for record in caplog.records if record.name == "scbroker"]
    assert str(made.id) in told
    assert "version 2" in told
    assert changes(alice, made.id) == [SentChange(2, WriteOutcome.Stored)]


def test_a_creation_that_is_refused_names_its_container_which_may_exist_later(
    alice: ServerProvider, network: Network
) -> None:
    later = Later(BrokerError.invalidArgumentError("no"))
    network.treat("PUT", "/records/1", later.treat)
    error = refusal(alice.createContainer(b"1"), BrokerError)
    assert error.outcome is WriteOutcome.Uncertain
    assert error.containerId is not None
    assert changes(alice, error.containerId) == [SentChange(1, WriteOutcome.Uncertain)]
    run_here(later.store())
    assert alice.getContainerContent(error.containerId).result(PATIENCE) == b"1"
    assert changes(alice, error.containerId) == [SentChange(1, WriteOutcome.Stored)]


def test_an_error_before_anything_was_sent_says_that_nothing_is_stored(
    alice: ServerProvider, network: Network
) -> None:
    made = alice.createContainer(b"1").result(PATIENCE)
    conflict = refusal(alice.updateContainerContent(made.id, b"2", ifVersion=7), BrokerError)
    assert conflict.outcome is WriteOutcome.NotStored
    down = BrokerError.unreachableError("Nobody there.", sent=False)
    network.treat("PUT", RECORD, refused(down))
    unsent = refusal(alice.updateContainerContent(made.id, b"2"), BrokerError)
    assert (type(unsent), unsent.outcome) == (type(down), WriteOutcome.NotStored)
    assert changes(alice, made.id) == []


def test_a_conflict_with_another_member_says_that_nothing_is_stored(
    alice: ServerProvider, network: Network, new_provider: NewProvider
) -> None:
    """The broker's word is not enough: the client reads which record has the version."""
    made = alice.createContainer(b"1").result(PATIENCE)
    other = beside(alice, new_provider)
    overtake = after(lambda: other.updateContainerContent(made.id, b"theirs").result(PATIENCE))
    network.treat("PUT", RECORD, overtake)
    error = refusal(alice.updateContainerContent(made.id, b"mine", ifVersion=1), BrokerError)
    assert (type(error), error.outcome) == (BrokerError.conflictError, WriteOutcome.NotStored)
    assert changes(alice, made.id) == [SentChange(2, WriteOutcome.NotStored)]


@pytest.mark.parametrize("changes_of_other", [1, 3])
def test_a_conflict_with_another_program_of_the_device_says_that_nothing_is_stored(
    alice: ServerProvider,
    network: Network,
    caplog: pytest.LogCaptureFixture,
    changes_of_other: int,
    new_provider: NewProvider,
) -> None:
    """It reads, and sends its record, first. By then it has raised the mark to that version, or beyond it."""
    made = alice.createContainer(b"1").result(PATIENCE)
    other = beside(alice, new_provider, trustStore=alice._trust_store)
    theirs, stored, is_refused = list[Any](), list[bytes](), list[bool]()

    async def read(go: Go) -> bytes:
        found: bytes = await go()
        if not theirs:
            theirs.append(other.updateContainerContent(made.id, b"theirs"))
            await until(lambda: stored)
        return found

    async def write(go: Go) -> bytes:
        if not stored:
            stored.append(await go())
            await until(lambda: is_refused)
            return stored[0]
        with pytest.raises(BrokerError.conflictError) as conflict:
            await go()
        is_refused.append(True)
        await theirs[0]
        for _ in range(changes_of_other - 1):
            await other.updateContainerContent(made.id, b"theirs")
        raise conflict.value

    network.treat("GET", str(made.id), read)
    network.treat("PUT", RECORD, write)
    error = refusal(alice.updateContainerContent(made.id, b"mine", ifVersion=1), BrokerError)
    assert (type(error), error.outcome) == (BrokerError.conflictError, WriteOutcome.NotStored)
    assert {each.outcome for each in changes(alice, made.id)} <= {WriteOutcome.NotStored}
    assert "it took effect" not in caplog.text


def test_a_receipt_that_was_given_and_marks_that_cannot_be_written_are_stored(
    alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = alice.createContainer(b"1").result(PATIENCE)
    session: Any = alice._current
    honest = session.marks.swap

    def full(kind: str, *rest: Any) -> bool:
        if kind == "container":
            raise BrokerError.trustStoreError("The disk is full.")
        return bool(honest(kind, *rest))

    with monkeypatch.context() as patched:
        patched.setattr(session.marks, "swap", full)
        # The reading before the write leaves the mark as it is.
        error = refusal(alice.updateContainerContent(made.id, b"2"), BrokerError)
    assert (error.code, error.outcome) == ("trust-store", WriteOutcome.Stored)
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"2"


def test_a_record_that_cannot_be_remembered_is_not_sent(
    alice: ServerProvider, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = alice.createContainer(b"1").result(PATIENCE)
    session: Any = alice._current
    honest = session.marks.swap

    def full(kind: str, *rest: Any) -> bool:
        if kind == sending.KIND:
            raise BrokerError.trustStoreError("The disk is full.")
        return bool(honest(kind, *rest))

    monkeypatch.setattr(session.marks, "swap", full)
    error = refusal(alice.updateContainerContent(made.id, b"2"), BrokerError)
    assert (error.code, error.outcome) == ("trust-store", WriteOutcome.NotStored)
    assert network.those("PUT", RECORD) == []


def test_a_change_whose_version_the_broker_does_not_keep_any_more_stays_uncertain(
    alice: ServerProvider, network: Network, new_provider: NewProvider
) -> None:
    """Of a deleted container it keeps the governing records and the tombstone."""
    made = alice.createContainer(b"1").result(PATIENCE)
    other = beside(alice, new_provider)
    network.treat("PUT", RECORD, Later(BrokerError.rejectedError("no")).treat)
    refusal(alice.updateContainerContent(made.id, b"2"), BrokerError)
    for content in (b"other 2", b"other 3"):
        other.updateContainerContent(made.id, content).result(PATIENCE)
    other.deleteContainer(made.id).result(PATIENCE)
    assert refusal(alice.getContainer(made.id), BrokerError).code == "deleted"
    assert changes(alice, made.id) == [SentChange(2, WriteOutcome.Uncertain)]


def test_only_so_many_sent_changes_are_remembered(alice: ServerProvider, network: Network) -> None:
    made = alice.createContainer(b"1").result(PATIENCE)
    network.treat("PUT", RECORD, refused(BrokerError.rejectedError("no")))
    for _ in range(sending._MOST + 1):
        refusal(alice.updateContainerType(made.id, "t"), BrokerError)
    assert changes(alice, made.id) == [SentChange(2, WriteOutcome.Uncertain)] * sending._MOST


KILLED = """
import os, signal, sys, uuid
from scbroker import FileTrustStore, ServerProvider
from scbroker.client.users.session import Session
key, url, folder, user, container, moment = sys.argv[1:]
provider = ServerProvider(key, url, "killed", trustStore=FileTrustStore(folder))
provider.logIn(uuid.UUID(user), passphrase="battery Staple 8").result()
honest = Session.call

async def call(self, method, path, *rest, **options):
    is_record = method == "PUT" and path.endswith("/records/2")
    if is_record and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = await honest(self, method, path, *rest, **options)
    if is_record:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

Session.call = call
provider.updateContainerContent(uuid.UUID(container), b"2").result()
"""


@pytest.mark.long
@pytest.mark.usefixtures("real_argon2id")
@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_a_kill_around_the_sending_leaves_a_truthful_state(
    moment: str, tmp_path: Path, broker: BrokerProcess
) -> None:
    """The record is noted before it leaves: after a kill in between the device cannot know better."""
    folder, address = tmp_path / "marks", (str(broker.api_key), broker.url)
    with ServerProvider(*address, "here", trustStore=FileTrustStore(folder)) as here:
        here.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        ring = here.getKeyRing().result(PATIENCE)
        made = here.createContainer(b"1").result(PATIENCE)
    given = (*address, str(folder), str(ring.userId), str(made.id), moment)
    done = subprocess.run([sys.executable, "-c", KILLED, *given])
    assert done.returncode == -signal.SIGKILL
    is_sent = moment == "after"
    with ServerProvider(*address, "again", trustStore=FileTrustStore(folder)) as again:
        again.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
        outcome = WriteOutcome.Stored if is_sent else WriteOutcome.Uncertain
        assert changes(again, made.id) == [SentChange(2, outcome)]
        content = again.getContainerContent(made.id).result(PATIENCE)
        assert content == (b"2" if is_sent else b"1")
        again.updateContainerHeader(made.id, "h").result(PATIENCE)
        settled = WriteOutcome.Stored if is_sent else WriteOutcome.NotStored
        assert changes(again, made.id)[0] == SentChange(2, settled)
