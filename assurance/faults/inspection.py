"""A deployment compared with the ledger: after each kill what was touched, at the end everything."""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from assurance.faults.crowd import Crowd
from assurance.faults.ledger import Acknowledged, digest
from assurance.faults.scenes import Scene
from assurance.faults.stored import Stored, look, make_old
from assurance.faults.wholeness import check_acknowledged, check_events, check_stored, settle
from scbroker import BrokerError, ServerProvider
from scbroker.server.storage import tables as t
from scbroker.types import ContainerEvent
from scbroker.vocabulary import ContainerEventType
from tests.client.model import Told
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, wait_until

_AT_ONCE: Final = 100


@dataclass
class Inspection:
    """Compares rows and objects with the ledger and, at the end, what fresh devices read."""

    scene: Scene
    crowd: Crowd
    checked: int = 0
    """Acknowledged operations that were compared with what is there."""
    _before: set[bytes] = field(init=False)
    """The containers that others made before."""

    def __post_init__(self) -> None:
        stored = look(self.scene.database_url)
        self._before = {row.id for row in stored.of(t.containers)}

    def after_a_kill(self) -> list[str]:
        """Compare the rows of what was touched since the last time; brokers and crowd go on."""
        told, team = self.crowd.ledger.told(), self.crowd.team
        names, version = {*told.entries, *told.unnumbered, *told.deleted}, team.version
        stored = look(self.scene.database_url, [name.bytes for name in names])
        found = self._compare(told, stored)
        group = next(row for row in stored.of(t.users) if row.id == team.group.id.bytes)
        if group.group_version < version:
            found.append(f"the group is at version {group.group_version}, not {version}")
        return found

    def _compare(self, told: Acknowledged, stored: Stored) -> list[str]:
        self.checked += len(told)
        users = [ring.userId for ring in self.crowd.rings]
        missing = list(check_acknowledged(stored, told))
        return missing + list(settle(stored, told, self.crowd.ledger, users))

    def of_everything(self) -> list[str]:
        """Compare all rows and objects; brokers and crowd may go on meanwhile."""
        self.scene.await_ready()
        told = self.crowd.ledger.told(everything=True)
        stored = look(self.scene.database_url)
        found = [*self._compare(told, stored), *check_events(stored)]
        return found + check_stored(self.scene.first)

    def at_the_end(self) -> list[str]:
        """Compare everything, and what every user reads. The crowd has stopped."""
        found = self.of_everything()
        url, purges = self.scene.database_url, "SELECT container_id FROM containers_to_purge"
        # A broker that was killed leaves events of a deleted container; another one empties them.
        wait_until(lambda: not query(url, purges), "a deletion is not continued")
        gaps = self._check_histories()
        found += gaps
        if not gaps:  # with a gap, the model cannot say what a device should read
            for user in range(len(self.crowd.rings)):
                device = self.scene.device(self.crowd.rings[user], "a fresh device")
                found += self._check_containers(user, device)
                found += self._check_log(user, device)
            found += self._check_reads()
        found += self.crowd.team.check()
        found += self._check_swept()
        return found

    def _check_histories(self) -> list[str]:
        """Check that each version is one acknowledged write."""
        ledger, found = self.crowd.ledger, []
        for container, entries in ledger.entries.items():
            if sorted(entries) != list(range(1, len(entries) + 1)):
                found.append(
                    f"{container}: versions that were not acknowledged, beside {len(entries)}"
                )
        stored = look(self.scene.database_url)
        heads = {row.id: row.version for row in stored.rows["containers"]}
        for container, entries in ledger.entries.items():
            expected = len(entries) + (container in ledger.deleted)
            if heads.get(container.bytes) != expected:
                found.append(
                    f"{container}: at version {heads.get(container.bytes)}, not {expected}"
                )
        made = {container.bytes for container in ledger.entries} | self.crowd.team.containers
        strange = heads.keys() - made - self._before
        found += [f"container {name.hex()}: not acknowledged" for name in strange]
        return found

    def _check_containers(self, user: int, device: ServerProvider) -> list[str]:
        ledger, found = self.crowd.ledger, []
        last = {container: ledger.states(container)[-1] for container in ledger.entries}
        mine = [name for name, state in last.items() if user in state.access]
        for start in range(0, len(mine), _AT_ONCE):
            some = mine[start : start + _AT_ONCE]
            shown = device.getContainers(some).result(PATIENCE)
            for container, opened in zip(some, shown, strict=True):
                self.checked += 1
                state = last[container]
                if state.deleted:
                    if not isinstance(opened, BrokerError.deletedError):
                        found.append(f"{container}: deleted, and a fresh device got {opened!r}")
                    continue
                if isinstance(opened, BrokerError):
                    found.append(f"{container}: user {user} cannot open it: {opened!r}")
                    continue
                header = opened.header.customHeaderObject if opened.header else None
                levels = {self.crowd.user_of(e.userId): e.permissions for e in opened.access or ()}
                if (
                    opened.version != state.version
                    or header != state.values["header"]
                    or digest(self._content(device, opened)) != state.values["content"]
                    or levels != {name: grant.permissions for name, grant in state.access.items()}
                ):
                    found.append(f"{container}: user {user} reads something else than was written")
        return found

    def _content(self, device: ServerProvider, opened: Any) -> bytes | None:
        if opened.content is not None or opened.length is None:
            content: bytes | None = opened.content
            return content
        return device.getContainerContent(opened.id).result(PATIENCE)

    def _check_log(self, user: int, device: ServerProvider) -> list[str]:
        """Check that the log says of each container what the model says, and that ids have no gap."""
        log = list(device.getEvents().result(PATIENCE))
        found = []
        if [event.id for event in log] != list(range(1, len(log) + 1)):
            found.append(f"user {user}: event ids are not 1 to {len(log)}")
        seen = self.crowd.told.get(user, [])
        # A deletion has emptied some of them meanwhile.
        before, now = ([(e.id, e.eventType, e.containerId) for e in each] for each in (seen, log))
        if now[: len(before)] != before:
            found.append(f"user {user}: the log is not what it was when it was read before")
        told: dict[Any, list[Told]] = defaultdict(list)
        for event in log:
            if event.eventType is not ContainerEventType.Accessed:
                told[event.containerId].append(self._told(event))
        expected: dict[Any, list[Told]] = defaultdict(list)
        for container in self.crowd.ledger.entries:
            for number, news in self.crowd.ledger.log(container):
                if number == user:
                    expected[container].append(news)
        self.checked += sum(map(len, expected.values()))
        for container in told.keys() | expected.keys():
            if told[container] != expected[container]:
                was = told[container], expected[container]
                found.append(f"user {user}: the log of {container} is not what happened: {was}")
        return found

    def _told(self, event: ContainerEvent) -> Told:
        by = None if event.relatedUserId is None else self.crowd.user_of(event.relatedUserId)
        return Told(
            event.eventType,
            event.version,
            event.containerType,
            by,
            event.applicationName,
            tuple(event.changes),
        )

    def _check_reads(self) -> list[str]:
        """Check that each read returned what was written with that version."""
        ledger = self.crowd.ledger
        states = {container: ledger.states(container) for container in ledger.entries}
        self.checked += len(ledger.reads)
        return [
            f"{read.container}: version {read.version} was read with other values"
            for read in ledger.reads
            if not 1 <= read.version <= len(states[read.container])
            or (read.header, read.content)
            != tuple(
                states[read.container][read.version - 1].values[n] for n in ("header", "content")
            )
        ]

    def _check_swept(self) -> list[str]:
        """Check that sweeps remove every object that no row references, once it is old enough."""
        make_old(self.scene.database_url)
        device = self.scene.device(self.crowd.rings[0], "sweeper")
        left: set[str] = set()

        def sweep() -> bool:
            stored, names = look(self.scene.database_url), self.scene.objects()
            needed = {row.blob for row in stored.rows["chunks"]}
            left.clear()
            left.update((names - needed) | stored.pending_deletion)
            if left:  # each deletion runs a sweep
                made = device.createContainer(b"").result(PATIENCE)
                device.deleteContainer(made.id).result(PATIENCE)
            return not left

        with suppress(AssertionError):
            wait_until(sweep)
        return [f"{name} is not referenced and not swept" for name in sorted(left)[:10]]
