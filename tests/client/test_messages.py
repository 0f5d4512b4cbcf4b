"""What a user reads after a common mistake: what is wrong, and what to do about it."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, ServerProvider
from tests.client.conftest import id_of, refusal
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.impatience import be_impatient
from tests.kit.tls import Terminator, certificate
from tests.kit.waiting import PATIENCE

KEY = uuid.UUID("bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb")


@pytest.mark.long
def test_a_wrong_scheme_in_the_address_is_named_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    be_impatient(monkeypatch)

    def check(url: str, right: str) -> None:
        with ServerProvider(KEY, url, "x", timeout=PATIENCE) as provider:
            refusal(provider.getReminder(KEY), BrokerError.unreachableError, f"use {right} in serv")

    with Terminator(certificate(tmp_path)).running() as url:
        check(url.replace("https", "http"), "https://")
    with BrokerProcess(tmp_path / "data") as broker:
        check(broker.url.replace("http", "https"), "http://")


@pytest.mark.long
def test_every_id_may_be_text(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    me, him = str(id_of(alice)), str(id_of(bob))
    levels = [AccessLevel(me, "DefaultOwnerPermissions"), AccessLevel(him.upper())]
    assert levels[1] == AccessLevel(id_of(bob))
    made = alice.createContainer(b"1", {"h": 1}, accessLevels=levels, type="t").result(PATIENCE)
    box = str(made.id)
    alice.updateContainerContent(box, b"2").result(PATIENCE)
    alice.updateContainerHeader(box, {"h": 2}).result(PATIENCE)
    alice.updateContainerType(box, "u").result(PATIENCE)
    alice.updateContainerAccessLevels(box, levels).result(PATIENCE)
    assert alice.getSentChanges(box).result(PATIENCE) == []
    assert alice.resetContainerMark(box).result(PATIENCE).served.version == 5
    found = bob.getContainer(made.id.hex).result(PATIENCE)
    assert bob.getContainers([box, made.id]).result(PATIENCE) == [found, found]
    assert bob.getContainerMetadata(box).result(PATIENCE).id == made.id
    assert bob.getSecuredContainer(box).result(PATIENCE).version == 5
    assert bob.getContainerContent(box).result(PATIENCE) == b"2"
    assert bob.getContainerHeader(box).result(PATIENCE) == found.header
    assert bob.getEvents(containerId=box).result(PATIENCE)[0].version == 1
    assert len(bob.getPublicKeys(me).result(PATIENCE)) == 2
    assert bob.getLatestActiveSigningKey(me).result(PATIENCE)
    assert bob.getReminder(me).result(PATIENCE) == ""
    ring = alice.getKeyRing().result(PATIENCE)
    new_provider().logIn(keyRing=ring, userId=me).result(PATIENCE)
    alice.updateContainer(box, b"3", accessLevels=levels).result(PATIENCE)
    alice.deleteContainer(box).result(PATIENCE)
    with pytest.raises(BrokerError.deletedError):
        bob.getContainer(box).result(PATIENCE)


def test_an_unknown_host_and_an_object_in_place_of_an_id_are_named(
    alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    provider: Any = alice
    made = alice.createContainer(b"")
    with pytest.raises(BrokerError.invalidArgumentError, match="await it first"):
        provider.getContainer(made)
    with pytest.raises(BrokerError.invalidArgumentError, match="pass its id"):
        provider.getContainer(made.result(PATIENCE))
    with ServerProvider(KEY, "https://broker.invalid", "x") as unknown:
        refusal(unknown.getReminder(KEY), BrokerError.unreachableError, "host name is unknown")
