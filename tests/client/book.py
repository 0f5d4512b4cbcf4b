"""What was done to containers, as the broker's own records tell it, held against the model.

`Book.settle` takes operations that have ended, reads which records the broker has from then on, and
finds for each the one operation that wrote it. Whatever does not fit is an `AssertionError` with
the story so far, for what threads did is not done a second time.
"""

import datetime as dt
import itertools
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scbroker import (
    BrokerError,
    Container,
    ContainerAccessLevel,
    ContainerEvent,
    ContainerEventType,
    SecuredContainer,
)
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import ContainerRecord, Role, parse_record, record_hash
from tests.client.model import (
    Change,
    Field,
    Grant,
    Members,
    Shown,
    State,
    Told,
    departure_events,
    news,
)
from tests.kit.devices import Device, Devices, Outcome, present_time

Level = ContainerAccessLevel
_RETRIES: Final = 3
_INLINE: Final = 65_536
_TOLD: Final = 60
_ROLES: Final[tuple[tuple[Field, Role], ...]] = (("header", Role.Header), ("content", Role.Content))


@dataclass(eq=False)
class Kept:
    """A container: its records as the broker keeps them, and what the model makes of each."""

    id: uuid.UUID
    number: int
    bodies: list[bytes] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    changed: list[set[Field]] = field(default_factory=list)
    """What each version changed of the one before."""

    @property
    def state(self) -> State:
        return self.states[-1]

    def type_hash(self) -> bytes:
        """That of the last governing record."""
        records = (parse_record(body) for body in reversed(self.bodies))
        return next(record.governing.type for record in records if record.governing is not None)

    def since(self, version: int) -> list[State]:
        return self.states[version - 1 :]


@dataclass(eq=False)
class Attempt:
    """An operation of a device: a change, or a look where there is none."""

    device: Device
    kind: str
    container: Kept | None
    change: Change | None
    outcome: Outcome = field(default_factory=Outcome)
    version: int | None = None
    """That of the record that it wrote."""
    leaves: bool = False
    """Whether its device logs out while it is under way."""

    @property
    def user(self) -> int:
        return self.device.user

    def __str__(self) -> str:
        what = "" if self.change is None else f" {self.change}"
        return f"user {self.user}, {self.device.name}: {self.kind}{what} -> {self.outcome}"


@dataclass
class Circumstances:
    """Under which operations were started together."""

    began: dt.datetime
    same_seen: bool = False
    """Whether none was let through before all had read the container."""
    broken: frozenset[int] = frozenset()
    """The ports of brokers that need not have answered."""


class Book:
    """All containers, and what everybody has to have been told."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.containers: list[Kept] = []
        self.step = 0
        self._told: dict[int, list[tuple[int, uuid.UUID, Told]]] = defaultdict(list)
        self._listed: dict[int, list[list[ContainerEvent]]] = defaultdict(list)
        self._listeners: set[tuple[int, uuid.UUID]] = set()
        self._story: list[str] = []
        self._numbers = itertools.count()

    def begin(self, what: str) -> None:
        self.step += 1
        self._story.append(f"step {self.step}: {what}")

    def note(self, attempt: Attempt) -> None:
        where = attempt.container and attempt.container.number
        self._story.append(f"    container {where}: {attempt}")

    def claim(self, holds: bool, words: str) -> None:
        if not holds:
            raise self._failure(words)

    def _failure(self, words: str) -> AssertionError:
        return AssertionError("\n".join([words, *self._story[-_TOLD:]]))

    def tell(self, user: int, kept: Kept, told: Told) -> None:
        self._told[user].append((self.step, kept.id, told))

    def _empty(self, kept: Kept) -> None:
        """What everybody was told of a container says no more than that, once it is deleted."""
        for entries in self._told.values():
            entries[:] = [
                (step, name, told.emptied if name == kept.id else told)
                for step, name, told in entries
            ]

    def leave(self, device: Device, kept: Kept, outcome: Outcome, *, abandon: bool) -> None:
        """Checks how a departure of a device's user ended, alone, and who is told of it."""
        now = present_time()
        state = kept.state
        self._story.append(f"    container {kept.number}: user {device.user} leaves: {outcome}")
        legal = state.refusal_to_leave(device.user, now, abandon=abandon)
        if legal:
            self.claim(type(outcome.error) in legal, f"it may end with {legal} alone")
            return
        self.claim(outcome.error is None, f"a member could not leave: {outcome}")
        for user, told in departure_events(state, device.user, device.name, now):
            self.tell(user, kept, told)
        kept.states[-1] = state.without(device.user)

    # What the operations of a step have come to.

    def settle(self, attempts: Sequence[Attempt], given: Circumstances) -> None:
        """Finds what each has written, and whether it had to end as it did."""
        for attempt in attempts:
            if attempt.kind == "create":
                self._find_created(attempt, given)
        for attempt in attempts:
            self.note(attempt)
            if attempt.kind == "log" and attempt.outcome.error is None:
                self._listed[attempt.user].append(list(attempt.outcome.result))
            elif attempt.container is None:
                self._check_answer(attempt, given)
        for kept in {id(a.container): a.container for a in attempts if a.container}.values():
            self._settle_one(kept, [a for a in attempts if a.container is kept], given)

    def _find_created(self, attempt: Attempt, given: Circumstances) -> None:
        made = attempt.outcome.result
        if made is not None:
            self._enter(made.id, attempt, given)
        elif attempt.outcome.unknown:
            known = {kept.id for kept in self.containers}
            for event in self._created_by(attempt):
                if event.containerId not in known:
                    self._enter(event.containerId, attempt, given)
                    return

    def _created_by(self, attempt: Attempt) -> Iterator[ContainerEvent]:
        assert attempt.change is not None
        for user in attempt.change.values["access"]:
            for event in self.devices.log(user):
                if (event.version, event.applicationName) == (1, attempt.device.name):
                    yield event

    def _enter(self, container: uuid.UUID, attempt: Attempt, given: Circumstances) -> None:
        change, kept = attempt.change, Kept(container, next(self._numbers))
        assert change is not None
        state = State(1, change.values, attempt.user, attempt.user, attempt.user)
        body = self._bodies(kept, state.access, 1)[1]
        made = attempt.outcome.result
        same = made is None or (made.version, made.record) == (1, body)
        self.claim(same, f"another container is kept than {attempt}")
        attempt.container, attempt.version = kept, 1
        self.containers.append(kept)
        self._append(kept, body, state, set(), attempt.device.name, given)

    def _append(
        self,
        kept: Kept,
        body: bytes,
        state: State,
        changed: set[Field],
        application: str,
        given: Circumstances,
    ) -> None:
        before = kept.state if kept.states else None
        if state.deleted:
            self._empty(kept)
        for user, told in news(before, state, changed, application, given.began):
            self.tell(user, kept, told)
        for user, grant in state.access.items():
            if grant.allows(Level.ReceiveAccessEvents):
                self._listeners.add((user, kept.id))
        kept.bodies.append(body)
        kept.states.append(state)
        kept.changed.append(changed)

    def _bodies(self, kept: Kept, members: Members, since: int) -> dict[int, bytes]:
        """As somebody gets them who has access; who was a member need not be one any more."""
        for user in sorted(self.devices.users, key=lambda user: user not in members):
            found = self.devices.bodies(user, kept.id, since)
            if found is not None:
                return found
        raise self._failure("nobody has access any more")

    def _settle_one(self, kept: Kept, attempts: Sequence[Attempt], given: Circumstances) -> None:
        base = kept.state.version
        bodies = self._bodies(kept, kept.state.access, base)
        numbers = list(range(base, base + len(bodies)))
        self.claim(list(bodies) == numbers, f"versions have gaps: {list(bodies)}")
        self.claim(bodies[base] == kept.bodies[-1], "a record that was written is another now")
        for version in numbers[1:]:
            self._add(kept, self._writer(version, bodies[version], attempts), bodies, given)
        for attempt in attempts:
            self._judge(attempt, kept.since(base), given)

    def _writer(self, version: int, body: bytes, attempts: Sequence[Attempt]) -> Attempt:
        """The one operation that wrote this record."""
        may = [
            attempt
            for attempt in attempts
            if attempt.change is not None
            and attempt.version is None
            and (attempt.outcome.error is None or attempt.outcome.unknown)
        ]
        may = [attempt for attempt in may if not self._wrote_nothing(attempt, version, body)]
        sure = [a for a in may if isinstance(a.outcome.result, SecuredContainer)]
        sure = [attempt for attempt in sure if attempt.outcome.result.version == version]
        if not sure and len(attempts) > 1:
            name = self.devices.post.sent[record_hash(body)][1]
            sure = [attempt for attempt in may if attempt.device.name == name]
        elif not sure:
            sure = may
        self.claim(len(sure) == 1, f"version {version} was written by {len(sure)} operations")
        writer = sure[0]
        reported = writer.outcome.result
        same = reported is None or (reported.version, reported.record) == (version, body)
        self.claim(same, f"version {version} is another record than its author was told of")
        writer.version = version
        return writer

    def _wrote_nothing(self, attempt: Attempt, version: int, body: bytes) -> bool:
        """Return whether a merge had nothing to change in this version, or an earlier one."""
        result = attempt.outcome.result
        if attempt.change is None or attempt.change.merge is None or result is None:
            return False
        sender = self.devices.post.sent[record_hash(body)][1]
        return bool(result.version < version) or sender != attempt.device.name

    def _add(
        self, kept: Kept, writer: Attempt, bodies: dict[int, bytes], given: Circumstances
    ) -> None:
        """Takes a record for the next version; it has to be what its author meant, and no more."""
        before, change, user = kept.state, writer.change, writer.user
        assert change is not None
        version = before.version + 1
        record = parse_record(bodies[version])
        author = self.devices.user_of(user_id_of(record.author))
        self.claim(author == user, f"version {version} has another author: user {author}")
        refusal = before.refusal(user, change, given.began)
        self.claim(refusal is None, f"version {version} was not allowed: {refusal}")
        self.claim(record.tombstone == change.delete, f"version {version} deletes or does not")
        changed = self._changed(kept, record, writer)
        renewed = "access" in changed and "access" not in change.values
        needed = before.needs_renewal(given.began)
        if renewed or (needed and change.seals and "access" not in change.values):
            self.claim(renewed and needed, f"version {version}: renewed {renewed}, needed {needed}")
        state = before.after(user, change, given.began, renewed=renewed)
        self._append(kept, bodies[version], state, changed, writer.device.name, given)

    def _changed(self, kept: Kept, record: ContainerRecord, writer: Attempt) -> set[Field]:
        """The fields that a record changes: those that its author meant, and access if it renews."""
        if record.tombstone:
            return set()
        found = {name for name, role in _ROLES if self._part_changed(kept, record, role)}
        if record.changes_access:
            found.add("access")
        if record.governing is not None and record.governing.type != kept.type_hash():
            found.add("type")
        assert writer.change is not None
        values = kept.state.values
        hidden = not kept.state.access[writer.user].allows(Level.ViewType)
        meant = {
            name
            for name, value in writer.change.values.items()
            if value is not None or values[name] is not None or (name == "type" and hidden)
        }
        self.claim(found - {"access"} == meant - {"access"}, f"changed {found}, not {meant}")
        self.claim("access" in found or "access" not in meant, "access was to be changed")
        return found

    def _part_changed(self, kept: Kept, record: ContainerRecord, role: Role) -> bool:
        new, old = record.part(role), parse_record(kept.bodies[-1]).part(role)
        return (new and new.partId) != (old and old.partId)

    # Whether an operation had to end as it did.

    def _judge(self, attempt: Attempt, seen: Sequence[State], given: Circumstances) -> None:
        """`seen` are the states that the container had meanwhile, first that from before."""
        outcome = attempt.outcome
        if outcome.unknown:
            self._check_answer(attempt, given)
        elif attempt.change is None:
            self.judge_read(attempt, seen, given)
        elif outcome.error is None:
            self._judge_success(attempt, seen, given)
        else:
            self._judge_failure(attempt, outcome.error, seen, given)

    def _check_answer(self, attempt: Attempt, given: Circumstances) -> None:
        """An operation whose end is not known has a right to that."""
        broken = attempt.outcome.unknown and attempt.device.broker.port in given.broken
        self.claim(broken, f"no answer although nothing was broken: {attempt}")

    def _judge_success(self, attempt: Attempt, seen: Sequence[State], given: Circumstances) -> None:
        version, change, kept = attempt.version, attempt.change, attempt.container
        assert change is not None
        assert kept is not None
        if version is None and change.merge is not None:
            self._judge_idle(attempt, change, seen, given)
            return
        self.claim(version is not None, f"it was reported as done, and no record has it: {attempt}")
        assert version is not None
        between = kept.changed[seen[0].version : version - 1]
        if given.same_seen:
            lost = [name for name in change.replaced if any(name in each for each in between)]
            self.claim(not lost, f"{lost} of somebody else were overwritten unseen: {attempt}")
            alone = not between or not change.tried_once
            self.claim(alone, f"it was written although there had been a change: {attempt}")
        if isinstance(attempt.outcome.result, SecuredContainer):
            self._judge_metadata(attempt, kept.states[version - 1])

    def _judge_idle(
        self, attempt: Attempt, change: Change, seen: Sequence[State], given: Circumstances
    ) -> None:
        """Check a change that wrote nothing: one of the container's states was already as requested."""
        result, kept = attempt.outcome.result, attempt.container
        assert kept is not None
        there = {state.version: state for state in seen}
        self.claim(result.version in there, f"it shows none of {sorted(there)}: {attempt}")
        state = there[result.version]
        refusal = state.refusal(attempt.user, change, given.began)
        self.claim(refusal is None, f"it was done in place of {refusal}: {attempt}")
        self.claim(state.has(change, given.began), f"{state} was to be changed: {attempt}")
        self.claim(result.record == kept.bodies[state.version - 1], f"another record: {attempt}")
        self._judge_metadata(attempt, state)

    def _judge_metadata(self, attempt: Attempt, state: State) -> None:
        """What a writer gets back is what they would read of their own version."""
        result: SecuredContainer = attempt.outcome.result
        told = (result.version, result.createdBy, result.modifiedBy)
        meant = (state.version, *map(self.devices.id_of, (state.creator, state.author)))
        self.claim(told == meant, f"{told} was given for {meant}: {attempt}")
        if attempt.user in state.access:
            shown = state.shown(attempt.user)
            got = (result.type, self._members(result))
            self.claim(got == (shown.type, shown.access), f"{got} was given for {shown}: {attempt}")
            decrypts = state.access[attempt.user].allows(Level.Decrypt)
            self.claim((result.wrap is not None) == decrypts, f"a wrap or none: {attempt}")

    def _judge_failure(
        self, attempt: Attempt, error: BrokerError, seen: Sequence[State], given: Circumstances
    ) -> None:
        change = attempt.change
        assert change is not None
        self.claim(attempt.version is None, f"it failed, and a record has it: {attempt}")
        legal = {state.refusal(attempt.user, change, given.began) for state in seen}
        if self._had_cause(attempt, change, seen):
            legal.add(BrokerError.conflictError)
        self.claim(type(error) in legal, f"it may end with {legal} alone: {attempt}")

    def _had_cause(self, attempt: Attempt, change: Change, seen: Sequence[State]) -> bool:
        """Return whether others wrote what makes a conflict of this change."""
        assert attempt.container is not None
        others = attempt.container.changed[seen[0].version :]
        if change.tried_once or (len(others) > _RETRIES and change.merge is None):
            return bool(others)
        return any(name in each for name in change.replaced for each in others)

    def judge_read(self, attempt: Attempt, seen: Sequence[State], given: Circumstances) -> None:
        """A look shows one of the states that there were, as far as the user may see it."""
        error, found = attempt.outcome.error, attempt.outcome.result
        if error is not None:
            legal = {self._read_refusal(state, attempt.user, given) for state in seen}
            if len(seen) > _RETRIES:
                legal.add(BrokerError.conflictError)
            if self._lost_download(attempt.user, seen, given):
                legal.add(BrokerError.permissionDeniedError)
            self.claim(type(error) in legal, f"it may end with {legal} alone: {attempt}")
            return
        there = {state.version: state for state in seen}
        self.claim(found.version in there, f"it shows none of {sorted(there)}: {attempt}")
        state = there[found.version]
        refusal = self._read_refusal(state, attempt.user, given)
        self.claim(refusal is None, f"it shows something in place of {refusal}: {attempt}")
        shown = state.shown(attempt.user)
        if isinstance(found, Container):
            got = self._shown(found)
            self.claim(got == shown, f"it shows {got} in place of {shown}: {attempt}")
            return
        assert attempt.container is not None
        body = attempt.container.bodies[state.version - 1]
        self.claim(found.record == body, f"it shows another record: {attempt}")
        got_fields = (found.type, self._members(found), found.length)
        meant = (shown.type, shown.access, shown.length)
        self.claim(got_fields == meant, f"it shows {got_fields} in place of {meant}: {attempt}")

    def _read_refusal(
        self, state: State, user: int, given: Circumstances
    ) -> type[BrokerError] | None:
        if user not in state.members(given.began):
            return BrokerError.notFoundError
        return BrokerError.deletedError if state.deleted else None

    def _lost_download(self, user: int, seen: Sequence[State], given: Circumstances) -> bool:
        """Return whether a content in pieces may have been forbidden while it was read."""
        large = any(len(state.values["content"] or b"") > _INLINE for state in seen)
        own = [state.members(given.began).get(user) for state in seen]
        return large and any(grant and not grant.allows(Level.Download) for grant in own)

    def _shown(self, found: Container[Any]) -> Shown:
        return Shown(
            version=found.version,
            header=None if found.header is None else found.header.customHeaderObject,
            content=found.content, type=found.type, access=self._members(found),
            length=found.length, creator=self._number(found.createdBy),
            author=self._number(found.modifiedBy),
        )  # fmt: skip

    def _members(self, found: Container[Any] | SecuredContainer) -> Members | None:
        if found.access is None:
            return None
        return {
            self._number(level.userId): Grant(level.permissions, level.expiresAt)
            for level in found.access
        }

    def _number(self, user_id: uuid.UUID) -> int:
        user = self.devices.user_of(user_id)
        assert user is not None
        return user

    def check_list(self, device: Device) -> None:
        """Check that a list has the user's containers: each once, by id, in its present state."""
        given = Circumstances(present_time())
        found = []
        for each in device.provider.iterContainers():
            assert isinstance(each, Container), f"{device.name} lists {each!r}"
            found.append(each)
        mine = {
            kept.id: kept.state
            for kept in self.containers
            if self._read_refusal(kept.state, device.user, given) is None
        }
        ids = [each.id for each in found]
        self.claim(ids == sorted(mine), f"{device.name} lists {ids} in place of {sorted(mine)}")
        for each in found:
            shown = replace(mine[each.id].shown(device.user), content=None)
            got = self._shown(each)
            self.claim(got == shown, f"{device.name} lists {got} in place of {shown}")

    # What everybody is told.

    def check_log(self, user: int) -> None:
        """Ids without a gap, of each container everything once, and nothing before its cause."""
        log = list(self.devices.log(user))
        ids = [event.id for event in log]
        self.claim(ids == list(range(1, len(ids) + 1)), f"user {user} has events {ids}")
        followed = self.devices.followed(user, len(ids))
        self.claim(
            [(e.id, e.eventType, e.containerId) for e in followed]
            == [(e.id, e.eventType, e.containerId) for e in log],
            f"user {user} followed {followed}, and has {log}",
        )
        for listed in self._listed[user]:
            now = log[: len(listed)]
            same = [new if new.version == 0 else old for old, new in zip(listed, now, strict=False)]
            self.claim(
                [(e.id, e.eventType, e.containerId) for e in listed]
                == [(e.id, e.eventType, e.containerId) for e in now]
                and same == now,
                f"user {user} was shown {listed}, which are {now} now",
            )
        expected: dict[uuid.UUID, list[tuple[int, Told]]] = defaultdict(list)
        for step, container, told in self._told[user]:
            expected[container].append((step, told))
        last = 0
        for event in self._changes(user, log):
            due = expected[event.containerId]
            self.claim(bool(due), f"user {user} was told too much: {event}")
            step, told = due.pop(0)
            self.claim(self._event(event) == told, f"user {user} was told {event}, not {told}")
            if told.by is not None:  # whose time is over is told when they look
                words = f"user {user} was told of step {step} after {last}: {event}"
                self.claim(step >= last, words)
                last = step
        missed = [told for due in expected.values() for _, told in due]
        self.claim(not missed, f"user {user} was not told: {missed}")

    def _changes(self, user: int, log: Sequence[ContainerEvent]) -> Iterator[ContainerEvent]:
        """All events but those of fetches, of which each reader makes one an hour at most."""
        fetched = set()
        for event in log:
            if event.eventType is not ContainerEventType.Accessed:
                yield event
                continue
            if event.version == 0:
                continue  # of a deleted container
            key = (event.containerId, self.devices.user_of(event.relatedUserId))
            self.claim(key not in fetched, f"user {user} was told twice of a fetch: {event}")
            self.claim(key[1] != user, f"user {user} was told of an own fetch: {event}")
            allowed = (user, event.containerId) in self._listeners
            self.claim(allowed, f"user {user} was told of a fetch without the right to: {event}")
            fetched.add(key)

    def _event(self, event: ContainerEvent) -> Told:
        return Told(
            event.eventType, event.version, event.containerType,
            self.devices.user_of(event.relatedUserId), event.applicationName, tuple(event.changes),
        )  # fmt: skip
