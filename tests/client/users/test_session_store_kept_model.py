"""One user on two devices that keep sessions, in any order: what resumes is what a model says."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scbroker import BrokerError, FileSessionStore, MemoryTrustStore, ServerProvider
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, lost
from tests.kit.owners import KEY_FILE, ring_of
from tests.kit.waiting import PATIENCE

DEVICES = st.sampled_from((0, 1))


@dataclass
class Device:
    """A device, and what the model says of it: the numbers of keys that its two KeyRings have."""

    start: Callable[[], ServerProvider]
    provider: ServerProvider = field(init=False)
    session: int | None = None
    """Signing keys of the KeyRing in memory; None without a session."""
    kept: set[int] = field(default_factory=set)
    """Signing keys of each KeyRing that is kept; two after a change of keys whose answer was lost."""

    def restart(self) -> None:
        self.provider.close()
        self.provider, self.session = self.start(), None


class KeptSessionsOfTwoDevices(RuleBasedStateMachine):
    """Sessions of one user, who has `keys` signing keys at the broker."""

    new_provider: NewProvider
    folder: Path

    @initialize()
    def register(self) -> None:
        self.devices = [self._device() for _ in range(2)]
        first = self.devices[0]
        first.provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        self.user = first.provider.getUserId().result(PATIENCE)
        self.keys, self.secrets, self.number = 1, (PASSWORD, PASSPHRASE), 0
        first.session = 1

    def _device(self) -> Device:
        marks = MemoryTrustStore()
        store = FileSessionStore(self.folder / uuid.uuid4().hex)
        device = Device(lambda: self.new_provider(trustStore=marks, sessionStore=store))
        device.provider = device.start()
        return device

    @rule(number=DEVICES, keep=st.booleans())
    def log_in(self, number: int, keep: bool) -> None:
        device = self.devices[number]
        device.provider.logIn(self.user, *self.secrets, keep=keep).result(PATIENCE)
        device.session = self.keys
        if keep:
            device.kept = {self.keys}

    @rule(number=DEVICES)
    def restart_and_resume(self, number: int) -> None:
        device = self.devices[number]
        device.restart()
        if self.keys in device.kept:
            assert device.provider.resumeSession().result(PATIENCE) == self.user
            assert len(ring_of(device.provider).signing) == self.keys
            device.session = self.keys
        else:
            self._refused(device.provider.resumeSession)

    @invariant()
    def what_is_kept_is_listed(self) -> None:
        for device in getattr(self, "devices", []):  # none before `register`
            listed = device.provider.getKeptSessions().result(PATIENCE)
            assert listed == [self.user] * bool(device.kept)

    def _refused(self, operation: Callable[[], Any], *more: type[BrokerError]) -> None:
        with pytest.raises((BrokerError.notAuthenticatedError, *more)):
            operation().result(PATIENCE)

    @rule(number=DEVICES)
    def forget(self, number: int) -> None:
        self.devices[number].provider.forgetKeptSession(self.user).result(PATIENCE)
        self.devices[number].kept = set()

    def _in_session(self) -> list[Device]:
        return [device for device in self.devices if device.session is not None]

    @precondition(lambda self: self._in_session())
    @rule(data=st.data())
    def log_out(self, data: st.DataObject) -> None:
        device = data.draw(st.sampled_from(self._in_session()))
        device.provider.logout().result(PATIENCE)
        device.session, device.kept = None, set()

    @precondition(lambda self: self._in_session())
    @rule(data=st.data(), compromised=st.booleans(), answered=st.booleans())
    def change_credentials(self, data: st.DataObject, compromised: bool, answered: bool) -> None:
        device = data.draw(st.sampled_from(self._in_session()))
        self.number += 1
        secrets = (f"{PASSWORD} {self.number}", f"{PASSPHRASE} {self.number}")
        if device.session != self.keys:  # its keys were replaced
            # A session that published them itself, and lost the answer, still has a token.
            self._refused(
                lambda: device.provider.changeCredentials(*secrets), BrokerError.rollbackError
            )
            return
        try:
            self._change(device, secrets, compromised, answered)
        except BrokerError.conflictError:
            return  # this device has not seen the latest KeyFile: it has to log in first
        except BrokerError.unreachableError:
            assert not answered
        self.secrets = secrets
        self.keys += compromised
        if compromised and device.kept:
            device.kept = {self.keys} if answered else {self.keys - 1, self.keys}
        if answered:
            device.session = self.keys

    def _change(
        self, device: Device, secrets: tuple[str, str], compromised: bool, answered: bool
    ) -> None:
        with Network() as network:
            if not answered:
                network.treat("PUT", KEY_FILE, lost(9))
            device.provider.changeCredentials(*secrets, compromised=compromised).result(PATIENCE)


@pytest.mark.long
def test_a_session_resumes_exactly_if_a_model_of_two_devices_says_so(
    new_provider: NewProvider, tmp_path: Path
) -> None:
    """A session resumes exactly if a KeyRing with the published keys is kept, whatever was done before."""

    class Machine(KeptSessionsOfTwoDevices):
        pass

    Machine.new_provider, Machine.folder = staticmethod(new_provider), tmp_path
    few = settings(
        max_examples=20,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=few)
