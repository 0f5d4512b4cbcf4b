"""Fetch groups, verify their chains and rosters, and compare them with this device's pins and marks.

A session verifies a chain once, and keeps it in memory. For a group that is new to the session it fetches all
records; the hash in the device's mark proves those up to the mark. Spec: docs/spec/groups.md, sections 1, 4
and 12.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.core import group_records
from scbroker.client.core.group_records import Basis
from scbroker.client.core.judging import Mark, Unwrap
from scbroker.client.groups import opening as kept
from scbroker.client.groups.opening import (
    Answer,
    MembershipJudge,
    OpenGroup,
    Roll,
    keys_of,
    open_group,
    with_info,
)
from scbroker.client.http.requests import check_order
from scbroker.client.users.directory import Directory
from scbroker.client.users.trust_store import Marks
from scbroker.crypto.verify import SIGNATURE_SIZE
from scbroker.errors import BrokerError
from scbroker.records.canonical import GroupName, uuid8
from scbroker.records.group import GroupChain
from scbroker.records.roster import Info
from scbroker.vocabulary import KeyType
from scbroker.wire import groups as wire
from scbroker.wire.containers import MAX_GOVERNING
from scbroker.wire.groups import GroupView
from scbroker.wire.problems import result_of

Call = Callable[..., Awaitable[Any]]
"""A request under the session's token: `Session.call`."""
_ROUNDS: Final = 5
_FEW_RECORDS: Final = 16
"""If a list only names a group with more records than this, the first record alone is verified."""
_MOST_RECORDS: Final = MAX_GOVERNING // SIGNATURE_SIZE
"""Most records that a group can have: a broker keeps a limited number of bytes, and each record has a
signature."""
_MOST_LISTED: Final = 1_000_000
"""Most groups of a user that are listed. Anybody can offer a group, so that an honest list may be long."""
_CACHED: Final = 100_000
"""Most records of groups that a session keeps in memory, of about 300 bytes each."""
_log = logging.getLogger("scbroker")
_BUSY: Final = "The group is changed faster than it can be read: try again."


class Listed(NamedTuple):
    """A group in which the user has a leaf, as the broker lists it."""

    group_id: uuid.UUID
    version: int
    accepted: bool


class GroupDirectory:
    """The verified groups that a session deals with. It keeps their chains in memory."""

    def __init__(
        self, call: Call, marks: Marks, users: Directory, fingerprint: bytes, unwrap: Unwrap
    ) -> None:
        self._call, self._marks, self._users = call, marks, users
        self._fingerprint, self._unwrap = fingerprint, unwrap
        self._memberships = MembershipJudge(marks, users, fingerprint)
        self._chains: dict[uuid.UUID, GroupChain] = {}
        self._opened: dict[uuid.UUID, OpenGroup] = {}
        self._owed_by: dict[uuid.UUID, tuple[OpenGroup, int, bool]] = {}
        """Cached results of `owes`: the group as opened, the count of key changes at that time, and the
        result."""
        self.names: set[bytes] = set()
        """Names that this session knows to be those of groups: by a verified chain, or by a pin."""
        self.followers: set[asyncio.Event] = set()
        """Set when the user accepts a group: readers of events then follow the log of this group as well."""
        self.keep: Callable[[uuid.UUID, GroupView], object] | None = None
        """Takes each page of a group's records once it was verified."""
        self.raise_owed: Callable[[uuid.UUID], Awaitable[object]] | None = None
        """Begins the epoch that a group owes whose manager the user is. `client.rosters` sets it."""

    @property
    def verified(self) -> Mapping[bytes, GroupChain]:
        """Return the chains that this session knows, by group name. Makes no request."""
        return {chain.name: chain for chain in self._chains.values()}

    def owes(self, group_id: uuid.UUID) -> bool:
        """Return whether a group owes an epoch that the user manages, as far as this session knows (3.5).

        An epoch is new keys, owed because of the members. Makes no request. Managers who left or were
        deleted, and stay in the list, do not count: the broker alone knows whether it has a wrap of the
        present secret for them.
        """
        opened = self._opened.get(group_id)
        if opened is None or not opened.is_manager:
            return False
        # Cached until the group is read again or the session adds a key: a batch asks for each of its
        # containers, and a group may have a thousand members.
        group, changes, owes = self._owed_by.get(group_id, (None, 0, False))
        if group is not opened or changes != self._users.changes:
            owes = self._owes_now(opened)
            self._owed_by[group_id] = opened, self._users.changes, owes
        return owes

    def _owes_now(self, opened: OpenGroup) -> bool:
        managers = opened.chain.managers.keys()
        if opened.owed or opened.left - managers:
            return True
        for name, keys in self._users.known(opened.members.keys() - opened.left).items():
            if keys.closed:
                if name not in managers:
                    return True
            elif keys.latest(KeyType.Encryption).index > opened.members[name].keyIndex:
                return True
        return False

    def epoch_of(self, name: bytes, *, whole: bool = False) -> int | None:
        """Return the latest epoch of a group that this device has verified; None for any other name.

        With `whole`, None also for a group that was not verified to its end.
        """
        pin = kept.pin_of(self._marks, uuid8(name))
        if pin is None or pin.name != name or (whole and pin.mark.partial):
            return None
        return pin.epoch

    def known(self, group_id: uuid.UUID) -> GroupName | None:
        """Return the pinned name of a group; None if this device has never verified it."""
        pin = kept.pin_of(self._marks, group_id)
        if pin is None:
            return None
        self.names.add(pin.name)
        return GroupName(pin.name)

    def has_own(self, group_id: uuid.UUID) -> bool:
        """Return whether the user was a member when this device read the group last. Makes no request."""
        verified = kept.verified_of(self._marks, group_id)
        return verified is not None and verified.has_member(self._fingerprint)

    async def chain(
        self, group_id: uuid.UUID, version: int = 0, *, fresh: bool = False
    ) -> GroupChain:
        """Return a group's verified chain: the one in memory if it has this version, else the newest.

        With version 0, any chain in memory is enough that reaches the device's mark; with `fresh`, the group
        is read in any case. If the broker serves no more, the chain may end below `version`: then
        `GroupChain.at` raises `RollbackError`.

        Raises `NotFoundError` if the broker does not know the group, `KeySubstitutionError` for another
        group than the pinned one, `RollbackError` and `ForkError` by this device's mark.
        """
        [found] = (await self.chains({group_id: version}, fresh=fresh)).values()
        return found

    async def chains(
        self, wanted: Mapping[uuid.UUID, int], *, fresh: bool = False
    ) -> Mapping[bytes, GroupChain]:
        """Return what `chain` returns for each of these versions, by group name; 16 groups a request."""
        known = {
            each: chain
            for each, version in wanted.items()
            if not fresh and (chain := self._at_hand(each, version)) is not None
        }
        if missing := [each for each in wanted if each not in known]:
            for each, outcome in (await self._read(missing)).items():
                known[each] = tasks.raised(outcome).chain
        return {chain.name: chain for chain in known.values()}

    def _at_hand(self, group_id: uuid.UUID, version: int) -> GroupChain | None:
        """Return the chain in memory; None if it lacks this version or the version of the device's mark.

        Another process of this device may have read the group further, and seen a removal.
        """
        chain, pin = self._chains.get(group_id), kept.pin_of(self._marks, group_id)
        least = version if pin is None else max(version, pin.mark.version)
        return None if chain is None or chain.version < least else chain

    async def among(self, ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
        """Return the ids that are groups', as their verified chains prove; 16 ids a request."""
        found = await self._read(ids)
        for outcome in found.values():
            if not isinstance(outcome, errors.NotFoundError):
                tasks.raised(outcome)
        return {each for each, outcome in found.items() if isinstance(outcome, Answer)}

    async def meet(self, ids: Iterable[uuid.UUID]) -> list[BrokerError]:
        """Prove that these are groups, and pin their names; return errors.

        Everybody can name groups with long histories in a list. Of such a group the first record proves the
        name. The others are read when something depends on them.
        """
        failed = list[BrokerError]()
        with tasks.alone(failed.append):
            found = await self._read_once(list(ids), names_only=True)
            failed += [each for each in found.values() if isinstance(each, BrokerError)]
        return failed

    async def opened(
        self, group_id: uuid.UUID, *, version: int = 0, fresh: bool = False
    ) -> OpenGroup:
        """Return a group of which the user is a member, opened: the one in memory if it has this version.

        With `fresh`, it is read from the broker in any case.

        Raises what `chain` raises, `NotFoundError` if the user is not a member any more, `DeletedError` for
        a deleted group, `IntegrityError` if the broker denies the membership without a later epoch, and
        `DecryptionError` if no manager wrapped the secret for this user.
        """
        known, chain = self._opened.get(group_id), self._at_hand(group_id, version)
        if known is not None and known.chain is chain and not fresh:
            return known
        return tasks.raised((await self.opened_each([group_id]))[group_id])

    async def opened_each(
        self, ids: Iterable[uuid.UUID]
    ) -> dict[uuid.UUID, OpenGroup | BrokerError]:
        """Return each group as `opened` does, read from the broker, or its error; 16 groups a request."""
        found: dict[uuid.UUID, OpenGroup | BrokerError] = {}
        for each, outcome in (await self._rolls(ids)).items():
            with tasks.alone(partial(found.__setitem__, each)):
                # In the pool: a group may have thousands of secrets.
                found[each] = opened = await io_thread.in_pool(
                    open_group, tasks.raised(outcome), self._unwrap, self._marks
                )
                self._keep_opened(opened)
        return found

    async def roll(self, group_id: uuid.UUID) -> Roll:
        """Return a group of the user, read from the broker and judged, and not opened."""
        return tasks.raised((await self._rolls([group_id]))[group_id])

    async def listed(self) -> list[Listed]:
        """Return the groups in which the user has a leaf, offered ones included, ascending by id.

        Raises `IntegrityError` if the broker leaves one out without a later epoch (section 12).
        """
        before = kept.memberships(self._marks, self._fingerprint)
        found: list[Listed] = []
        after: str | None = None
        while True:
            query = {} if after is None else {"after": after}
            page: wire.GroupList = await self._call(
                "GET", "/v1/groups", wire.GroupList, query=query
            )
            ids = [item.groupId for item in page.groups]
            check_order(ids, after, page.next, len(ids))
            found += [
                Listed(uuid.UUID(item.groupId), item.version, item.accepted) for item in page.groups
            ]
            after = page.next
            if after is None:
                break
            if len(found) >= _MOST_LISTED:
                raise errors.TooLargeError(
                    f"The broker lists more than {_MOST_LISTED} groups of yours: ask its operator."
                )
        listed = {each.group_id: each.version for each in found}
        # Read the groups that the list leaves out or shows older than the mark.
        suspect = [
            each
            for each, pin in before.items()
            if each not in listed or (pin is not None and listed[each] < pin.mark.version)
        ]
        for each, outcome in (await self._rolls(suspect)).items():
            with contextlib.suppress(errors.NotFoundError, errors.DeletedError):
                tasks.raised(outcome)
                if each not in listed:
                    raise errors.IntegrityError(
                        f"The broker's list leaves out group {each}, of which you are a member."
                    )
        return found

    def note_accepted(self, group_id: uuid.UUID) -> None:
        """Note that the user has accepted the group."""
        known = self._opened.get(group_id)
        if known is not None:
            self._opened[group_id] = replace(known, accepted=True)
        for follower in self.followers:
            follower.set()

    def note_departure(self, group_id: uuid.UUID, leaf_version: int) -> None:
        """Note that this device sends a departure: the broker may deny the membership from now on."""
        self._opened.pop(group_id, None)
        kept.note(self._marks, group_id, departed=leaf_version)

    async def unopened(self, group_id: uuid.UUID) -> OpenGroup:
        """Return a group that does not open, because a manager made its info or present secret wrong.

        Its info is empty, and it has only the secrets kept on this device. It serves to make the next epoch.
        """
        roll = await self.roll(group_id)
        return with_info(roll, Info("", "", [None] * roll.epoch), self._unwrap, self._marks)

    async def adopt(self, group_id: uuid.UUID, own: GroupChain, opened: OpenGroup | None) -> None:
        """Keep a group with the user's own record, which the broker stored just now.

        `opened` is None after the tombstone. Raises `ForkError` if the broker has served another history
        meanwhile.
        """
        for _ in range(_ROUNDS):
            known = self._chains.get(group_id)
            if known is not None and known.version >= own.version:
                if known.hash_at(own.version) != own.head.hash:
                    raise errors.ForkError(
                        "The broker served another history than the one of the change that it stored."
                    )
                return
            if kept.keep(self._marks, group_id, own, partial=False):
                self._keep_chain(group_id, own)
                self._opened.pop(group_id, None)
                if opened is not None:
                    kept.keep_verified(self._marks, group_id, own, opened.leaves)
                    self._keep_opened(opened)
                return
            await self._read([group_id])  # another process has raised the mark further
        raise errors.ConflictError(_BUSY)

    async def served(self, group_id: uuid.UUID) -> GroupChain:
        """Return the chain that the broker serves, verified as on a device without a mark; keep nothing."""
        return tasks.raised((await self._read_once([group_id], anew=True))[group_id]).chain

    def mark_of(self, group_id: uuid.UUID) -> Mark | None:
        """Return the mark of a group; None if this device has never verified it."""
        pin = kept.pin_of(self._marks, group_id)
        return None if pin is None else pin.mark

    def accept_head(self, group_id: uuid.UUID, chain: GroupChain, before: Mark | None) -> bool:
        """Replace the mark by the head of a served chain; False if the mark is not `before` any more."""
        if not kept.accept_head(self._marks, group_id, chain, before):
            return False
        self._chains[group_id] = chain
        self._opened.pop(group_id, None)
        return True

    def forget(self) -> None:
        """Drop all chains and secrets: the session has ended."""
        self._chains, self._opened, self._owed_by = {}, {}, {}
        self.names.clear()

    async def _rolls(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Roll | BrokerError]:
        """Read groups with the data that is served to members only, and verify both.

        A broker forgets a deleted group that no container names. A device that has not seen the tombstone
        cannot tell this from a broker that withholds the group: then it warns, once.
        """
        found: dict[uuid.UUID, Roll | BrokerError] = {}
        answers = await self._read(ids, membership=True)
        for each, outcome in answers.items():
            with tasks.alone(partial(found.__setitem__, each)):
                answer = tasks.raised(outcome)
                try:
                    found[each] = await self._memberships.judge(each, answer)
                finally:
                    if not answer.is_of_member:
                        self._opened.pop(each, None)
        unknown = {each for each, how in answers.items() if isinstance(how, errors.NotFoundError)}
        own = kept.memberships(self._marks, self._fingerprint) if unknown else {}
        for each in unknown & own.keys():
            kept.note(self._marks, each, unknown=True)
            _log.warning(
                "The broker does not know group %s any more, of which you are a member: an owner has deleted "
                "it, or the broker withholds it.",
                each,
            )
        return found

    async def _read(
        self, ids: Iterable[uuid.UUID], *, membership: bool = False
    ) -> dict[uuid.UUID, Answer | BrokerError]:
        """Read groups up to their heads; return each or its error. A changing one is read several times."""
        found: dict[uuid.UUID, Answer | BrokerError] = {}
        left = list(dict.fromkeys(ids))
        for _ in range(_ROUNDS):
            for each, outcome in (await self._read_once(left, membership)).items():
                with tasks.alone(partial(found.__setitem__, each)):
                    if self._keep(each, tasks.raised(outcome).chain):
                        found[each] = outcome
            left = [each for each in left if each not in found]
            if not left:
                return found
        return {**found, **dict.fromkeys(left, errors.ConflictError(_BUSY))}

    def _keep(self, group_id: uuid.UUID, chain: GroupChain) -> bool:
        """Raise the mark to a group's head; return False if another reading has got further."""
        if not kept.keep(self._marks, group_id, chain, partial=False):
            return False
        self._keep_chain(group_id, chain)
        return True

    def _keep_chain(self, group_id: uuid.UUID, chain: GroupChain) -> None:
        self.names.add(chain.name)
        known = self._chains.pop(group_id, None)  # the dict is ordered by last use
        self._chains[group_id] = chain if known is None or chain.version > known.version else known
        records = sum(len(each.moments) for each in self._chains.values())
        while records > _CACHED and len(self._chains) > 1:
            oldest = next(iter(self._chains))
            records -= len(self._chains.pop(oldest).moments)
            self._opened.pop(oldest, None)

    async def _read_once(
        self,
        ids: Sequence[uuid.UUID],
        membership: bool = False,
        *,
        anew: bool = False,
        names_only: bool = False,
    ) -> dict[uuid.UUID, Answer | BrokerError]:
        """Request the pages of groups, 16 groups at a time, and judge each before the next is requested.

        With `anew`, groups are read as on a device that knows nothing of them, and no mark is raised. With
        `names_only`, only the first record of a group with many records is judged.
        """
        found: dict[uuid.UUID, Answer | BrokerError] = {}
        bases = dict[uuid.UUID, Basis]()
        for each in ids:
            pin = None if anew else kept.pin_of(self._marks, each)
            mark, name = (None, None) if pin is None else (pin.mark, pin.name)
            bases[each] = Basis(each.bytes, None if anew else self._chains.get(each), mark, name)
        left = list(ids)
        while left:
            some = left[: wire.MAX_VIEWS]
            asked = [
                wire.GroupViewRequest(
                    groupId=str(each),
                    since=1 if (chain := bases[each].chain) is None else chain.version,
                    # A cache needs records and membership of one version: request both for an open group.
                    membership=membership or (self.keep is not None and each in self._opened),
                )
                for each in some
            ]
            answer: wire.GroupViews = await self._call(
                "POST",
                "/v1/groups/views",
                wire.GroupViews,
                message=wire.GroupViewsRequest(groups=asked),
            )
            if len(answer.groups) > len(some):
                raise errors.BrokerFaultError(tasks.MISCOUNTED)
            for each, item in zip(some, answer.groups, strict=False):
                with tasks.alone(partial(found.__setitem__, each)):
                    basis = bases[each]
                    view = _view(basis, result_of(item.view, item.problem))
                    is_cut = names_only and view.last > _FEW_RECORDS
                    if is_cut:
                        view = msgspec.structs.replace(view, records=view.records[:1], last=1)
                    # A broker's own users can sign any number of records.
                    if view.last > _MOST_RECORDS:
                        raise errors.TooLargeError(
                            f"A group of {view.last} records is served, and a broker keeps at most "
                            f"{_MOST_RECORDS}: ask its operator."
                        )
                    chain = await self._judge_page(basis, view)
                    if self.keep is not None and not is_cut:
                        self.keep(each, view)
                    if chain.version >= view.last:
                        basis.check_end(chain, view.last)
                        found[each] = Answer(chain, view.membership, view.keyChains, view.departure)
                        if is_cut:
                            kept.keep(self._marks, each, chain, partial=True)
                            self.names.add(chain.name)
                        elif names_only:
                            self._keep(each, chain)
                        continue
                    mark = basis.mark
                    if chain.version > basis.proved and not anew:
                        is_fresh = mark is None or mark.partial
                        if not kept.keep(self._marks, each, chain, partial=is_fresh):
                            raise errors.ConflictError(_BUSY)
                        mark = group_records.mark_of(chain, partial=is_fresh)
                    name = None if anew else chain.name
                    bases[each] = Basis(each.bytes, chain, mark, name)
            left = [each for each in left if each not in found]
        return found

    async def _judge_page(self, basis: Basis, view: GroupView) -> GroupChain:
        """Judge the records of a page; raise `IntegrityError` if it has none although the group goes on."""
        records = basis.following(view.records)
        if not records:
            if basis.chain is None or basis.chain.version < view.last:
                raise errors.IntegrityError("The broker withholds records of a group.")
            return basis.chain
        keys = await keys_of(self._users, basis.authors(records), view.keyChains)
        # In the pool: each record needs a signature verified.
        return await io_thread.in_pool(basis.judge, records, keys, now())

    def _keep_opened(self, opened: OpenGroup) -> None:
        """Keep an opened group for the session, and its wrap on this device."""
        kept.keep_wrap(self._marks, opened)
        if self._chains.get(opened.group_id) is opened.chain:
            self._opened[opened.group_id] = opened


def _view(basis: Basis, outcome: GroupView | BrokerError) -> GroupView:
    """Return a view or raise its error; a group that this device saw deleted stays deleted."""
    if isinstance(outcome, errors.NotFoundError) and basis.mark is not None and basis.mark.deleted:
        raise errors.DeletedError("The group was deleted.")
    return tasks.raised(outcome)
