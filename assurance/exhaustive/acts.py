"""Define the acts of users on a container, and an oracle that says which of them are rightful.

The oracle knows access control, and nothing of hashes, links and signatures. `scbroker.records.judge` is
compared with it. Times are small numbers. A user may act by their own entry, or as a member of the one group
that a list may name.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from scbroker.vocabulary import ContainerAccessLevel as Bit

DOWNLOAD: Final = int(Bit.Download)
DECRYPT: Final = int(Bit.Decrypt)
UPLOAD: Final = int(Bit.Upload)
MODIFY_ACCESS: Final = int(Bit.ModifyAccess)
MODIFY_TYPE: Final = int(Bit.ModifyType)
DELETE: Final = int(Bit.Delete)
READ: Final = int(Bit.Download | Bit.Decrypt)
VIEW_ACCESS: Final = int(Bit.ViewAccess)
WRITE: Final = READ | UPLOAD | VIEW_ACCESS
EVERYTHING: Final = int(Bit.DefaultOwnerPermissions)
USERS: Final = "ABC"
GROUP: Final = len(USERS)
"""The place of the group among the rights."""
FOREVER: Final = 99
READER, WRITER, SHARER = range(3)
_MEMBER: Final = READ | VIEW_ACCESS | int(Bit.ViewType | Bit.ReceiveAccessEvents)
ROLES: Final = {READER: _MEMBER, WRITER: _MEMBER | UPLOAD | MODIFY_TYPE, SHARER: EVERYTHING}


@dataclass(frozen=True, slots=True, order=True)
class Membership:
    role: int
    index: int = 0
    """The index of the member's key that the secret is wrapped to."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group after some acts: all that decides which act may follow, and who may act through it."""

    managers: tuple[int, ...]
    members: tuple[Membership | None, ...]
    time: int
    epoch: int = 0
    is_deleted: bool = False

    @property
    def users(self) -> set[int]:
        return {user for user, membership in enumerate(self.members) if membership is not None}


Groups = Sequence[Group]
"""The group after each of its records; none if no list names one."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """What one user may do, until when, and under which of their keys the container key was wrapped."""

    bits: int
    end: int = FOREVER
    index: int = 0


Rights = tuple[Right | None, ...]
"""One for each of USERS, in their order; with a group, one for the group after them."""


@dataclass(frozen=True, slots=True)
class World:
    """A container after some acts: all that decides which act may follow."""

    rights: Rights
    granted_by: int
    """The user, or the group, by whose entry the list in force and the container key were made."""
    maker: int
    """The user who made them, alone or through the group."""
    granted_at: int
    time: int
    is_governing: bool
    """Whether the newest record is the governing one."""
    has_content: bool
    is_deleted: bool = False
    listed_at: int = 0
    left: frozenset[int] = frozenset()
    """The users who left the list in force."""
    epoch: int = -1
    """That of the group in which the newest record was made; -1 if its author acted alone."""

    def alive(self, user: int, time: int) -> Right | None:
        right = self.rights[user]
        return right if right is not None and time < right.end else None


@dataclass(frozen=True, slots=True)
class Act:
    """What one user tries to do at a time, with a container or to create it."""

    author: int
    time: int
    rights: Rights | None = None
    changes_type: bool = False
    content: str = "keep"
    """Or "new", or "drop"."""
    deletes: bool = False
    leaves: bool = False
    version: int | None = None
    """That of the group through which the author acts; None if they act by their own entry."""


def created(act: Act) -> World:
    """Return the world after a creation."""
    return World(
        act.rights or (), act.author, act.author, act.time, act.time, True, True, listed_at=act.time
    )


def imposed(world: World, act: Act, groups: Groups = ()) -> World:
    """Return the world after an act, rightful or not."""
    governs = act.rights is not None or act.changes_type
    after = replace(
        world,
        granted_at=act.time if governs else world.granted_at,
        time=act.time,
        is_governing=governs,
        has_content=act.content == "new" or (act.content == "keep" and world.has_content),
        is_deleted=act.deletes,
        epoch=-1 if act.version is None else groups[act.version - 1].epoch,
    )
    if act.rights is None:
        return after
    entry = act.author if act.version is None else GROUP
    return replace(
        after, rights=act.rights, granted_by=entry, maker=act.author, listed_at=act.time, left=frozenset()
    )  # fmt: skip


def rightful(world: World, act: Act, groups: Groups = ()) -> World | None:
    """Return the world after an act that the guides to sharing and to groups allow; None if they do not."""
    if act.leaves:
        return _without(world, act)
    mine = _mine(world, act, groups)
    if mine is None or world.is_deleted or act.time < world.time:
        return None
    needed = DELETE if act.deletes else UPLOAD | (MODIFY_TYPE if act.changes_type else 0)
    if mine.bits & needed != needed:
        return None
    if act.rights is not None and not (
        _delegates(world, act, mine) if mine.bits & MODIFY_ACCESS else _renews(world, act)
    ):
        return None
    after = imposed(world, act, groups)
    named = act.rights[GROUP] if act.rights and act.version is not None else None
    if named is not None and named.index != after.epoch:
        return None  # a former member could wrap to the key of those who stayed
    return after


def _mine(world: World, act: Act, groups: Groups) -> Right | None:
    """Return what the author of an act may do: by their own entry, or as the member that they were."""
    if act.version is None:
        return world.alive(act.author, act.time)
    then, entry = groups[act.version - 1], world.alive(GROUP, act.time)
    membership = then.members[act.author]
    if entry is None or membership is None or then.is_deleted:
        return None
    later = groups[act.version :]
    ends = [each.time for each in later if each.is_deleted or each.epoch > then.epoch]
    if act.time < then.time or (ends and act.time > ends[0]):
        return None
    if then.epoch < max(entry.index, world.epoch):  # somebody has acted who knew that it had ended
        return None
    return replace(entry, bits=entry.bits & ROLES[membership.role])


def _without(world: World, act: Act) -> World | None:
    """Return the world after a user left the list, also with an expired entry: there is nothing to write."""
    if world.rights[act.author] is None or act.time < world.listed_at:
        return None
    return replace(world, left=world.left | {act.author})


def _delegates(world: World, act: Act, mine: Right) -> bool:
    """Whether a member gives and takes nothing but what they have, and for no longer than they have it."""
    for user, new in enumerate(act.rights or ()):
        may_change = _may_change(world.alive(user, act.time), new, mine)
        if not may_change and not (user in world.left and _may_change(None, new, mine)):
            return False
    return _is_list(world, act)


def _may_change(old: Right | None, new: Right | None, mine: Right) -> bool:
    before, after = (old.bits if old else 0), (new.bits if new else 0)
    touched = before ^ after
    if old and new and old.end != new.end:
        touched |= before | after
    gained = after & ~before or (new and (not old or new.end > old.end))
    return not (touched & ~mine.bits or (new and gained and new.end > mine.end))


def _renews(world: World, act: Act) -> bool:
    """Whether a member only makes a fresh container key, because somebody has the old one who should not."""
    same = True
    for user, new in enumerate(act.rights or ()):
        old = world.alive(user, act.time)
        is_kept = (old and (old.bits, old.end)) == (new and (new.bits, new.end))
        same = same and (is_kept or (new is None and user in world.left))
    return same and not act.changes_type and _is_due(world, act) and _is_list(world, act)


def _is_due(world: World, act: Act) -> bool:
    """Whether a user who may not decrypt has the container key, or the list names a newer key than before."""
    granter = world.alive(world.granted_by, act.time)
    has_expired = any(r is not None and r.end <= act.time for r in world.rights)
    pairs = zip(world.rights, act.rights or (), strict=True)
    is_newer = any(old and new and new.index > old.index for old, new in pairs)
    is_left = any(r and r.bits & DECRYPT for r in (world.rights[user] for user in world.left))
    return has_expired or is_left or is_newer or granter is None or not granter.bits & DECRYPT


def _is_list(world: World, act: Act) -> bool:
    """Whether nobody in a new list has expired, and no index of another user's key is lower than before."""
    for user, (old, new) in enumerate(zip(world.rights, act.rights or (), strict=True)):
        if new and (new.end <= act.time or (old and user != act.author and new.index < old.index)):
            return False
    return True


def key_holders(world: World, groups: Groups = ()) -> set[int]:
    """Return everybody who could have the container key: its maker, and those whom it was wrapped for."""
    holders = {world.maker}
    for name, right in enumerate(world.rights):
        if right is not None and right.bits & DECRYPT:
            # The members of later epochs get the secrets of all earlier ones.
            epochs = [group.users for group in groups if group.epoch >= right.index]
            holders |= {name} if name != GROUP else set().union(*epochs)
    return holders


def readers(world: World, at: int, groups: Groups = ()) -> set[int]:
    """Return everybody who may decrypt at a time."""
    alive = [world.alive(name, at) for name in range(len(world.rights))]
    named = {name for name, right in enumerate(alive) if right and right.bits & DECRYPT}
    through = groups[-1].users if GROUP in named else set()
    return (named - {GROUP} | through) - world.left


@dataclass(frozen=True)
class Alphabet:
    """The acts to be tried after each history."""

    bits: tuple[int, ...]
    """The permissions to try for each user; with `own`, for the group."""
    ends: tuple[int, ...] = (FOREVER,)
    indices: tuple[int, ...] = (0,)
    times: tuple[int, ...] = (1, 2)
    users: int = 3
    retypes: bool = False
    """Whether changes of access are also tried together with a change of type."""
    leaves: bool = False
    """Whether histories in which users leave are tried as well."""
    own: tuple[tuple[int, ...], ...] = ()
    """If lists name a group: the permissions to try for each user; a user beyond these has none."""

    @cached_property
    def lists(self) -> list[Rights]:
        """Every access list of these rights, but the empty one."""
        each = (
            None,
            *itertools.starmap(Right, itertools.product(self.bits, self.ends, self.indices)),
        )
        options: list[tuple[Right | None, ...]] = [each] * self.users
        if self.own:
            options = [(None, *map(Right, some)) for some in self.own]
        options += [(None,)] * (len(USERS) - len(options))
        options += [each] if self.own else []
        return [rights for rights in itertools.product(*options) if any(rights)]

    def first(self) -> Iterator[Act]:
        """Yield every creation of a container by the first user."""
        for rights in self.lists:
            yield Act(0, self.times[0], rights, content="new")

    def next(self, versions: int) -> Iterator[Act]:
        """Yield every act after a history, rightful or not, alone and through so many versions of a group."""
        through = [None, *range(1, versions + 1)]
        for author, time, version in itertools.product(range(self.users), self.times, through):
            act = partial(Act, author, time, version=version)
            yield act(deletes=True)
            if self.leaves:
                yield act(leaves=True)
            for changes_type, content in itertools.product((False, True), ("keep", "new", "drop")):
                yield act(changes_type=changes_type, content=content)
            for rights, changes_type in itertools.product(self.lists, {False, self.retypes}):
                yield act(rights=rights, changes_type=changes_type)


def canonical(world: World) -> World:
    """Return the same world for all that differ in the names of the users alone; it has no group."""
    orders = itertools.permutations(range(len(USERS)))
    return min((_renamed(world, order) for order in orders), key=_order)


def _renamed(world: World, order: tuple[int, ...]) -> World:
    return replace(
        world,
        rights=tuple(world.rights[user] for user in order),
        left=frozenset(order.index(user) for user in world.left),
        granted_by=order.index(world.granted_by),
        maker=order.index(world.maker),
    )


def _order(world: World) -> tuple[object, ...]:
    return tuple(r or Right(0) for r in world.rights), world.granted_by, sorted(world.left)


_LEAVERS: Final = (DOWNLOAD, WRITE, WRITE | MODIFY_ACCESS, EVERYTHING)
KEPT: Final[Mapping[str, Alphabet]] = {
    "access": Alphabet((READ, WRITE, WRITE | MODIFY_ACCESS, EVERYTHING), (FOREVER, 2)),
    "type-and-deletion": Alphabet(
        (READ, WRITE, WRITE | MODIFY_TYPE, READ | DELETE, EVERYTHING), retypes=True
    ),
    "keys": Alphabet((READ, WRITE, WRITE | MODIFY_ACCESS), indices=(0, 1), times=(1,)),
    "departures": Alphabet(_LEAVERS, times=(1,), leaves=True),
    "short-departures": Alphabet(_LEAVERS, users=2, leaves=True),
    "short": Alphabet((READ, WRITE, WRITE | MODIFY_ACCESS), (FOREVER, 2), users=2),
    "short-keys": Alphabet((WRITE, EVERYTHING), indices=(0, 1), times=(1,), users=2),
    "short-types": Alphabet(
        (WRITE | MODIFY_TYPE, READ | DELETE, EVERYTHING), users=2, times=(1,), retypes=True
    ),
}
