"""Define the acts of users on a container, and an oracle that says which of them are rightful.

The oracle knows access control, and nothing of hashes, links and signatures. `scbroker.records.judge` is
compared with it. Times are small numbers.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
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
FOREVER: Final = 99


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """What one user may do, until when, and under which of their keys the container key was wrapped."""

    bits: int
    end: int = FOREVER
    index: int = 0


Rights = tuple[Right | None, ...]
"""One for each of USERS, in their order; with groups, one for the group after them."""


@dataclass(frozen=True, slots=True)
class World:
    """A container after some acts: all that decides which act may follow."""

    rights: Rights
    granted_by: int
    """The user, or the group, by whose entry the list in force and the container key were made."""
    granted_at: int
    time: int
    is_governing: bool
    """Whether the newest record is the governing one."""
    has_content: bool
    is_deleted: bool = False
    listed_at: int = 0
    left: frozenset[int] = frozenset()
    """The users who left the list in force."""

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


def rightful(world: World, act: Act) -> World | None:
    """Return the world after an act that the sharing guide allows; None if it does not."""
    if act.leaves:
        return _without(world, act)
    return permitted(world, act, world.alive(act.author, act.time), act.author)


def permitted(world: World, act: Act, mine: Right | None, maker: int) -> World | None:
    """Return the world after an act with these rights; `maker` has the entry by which the author acts."""
    if mine is None or world.is_deleted or act.time < world.time:
        return None
    needed = DELETE if act.deletes else UPLOAD | (MODIFY_TYPE if act.changes_type else 0)
    if mine.bits & needed != needed:
        return None
    if act.rights is not None and not (
        _delegates(world, act, mine) if mine.bits & MODIFY_ACCESS else _renews(world, act)
    ):
        return None
    governs = act.rights is not None or act.changes_type
    return World(
        rights=act.rights or world.rights,
        granted_by=world.granted_by if act.rights is None else maker,
        granted_at=act.time if governs else world.granted_at,
        time=act.time,
        is_governing=governs,
        has_content=act.content == "new" or (act.content == "keep" and world.has_content),
        is_deleted=act.deletes,
        listed_at=world.listed_at if act.rights is None else act.time,
        left=world.left if act.rights is None else frozenset(),
    )


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
    return same and not act.changes_type and is_due(world, act) and _is_list(world, act)


def is_due(world: World, act: Act) -> bool:
    """Whether a user who may not decrypt has the container key, or the list names a newer key than before."""
    maker = world.alive(world.granted_by, act.time)
    has_expired = any(r is not None and r.end <= act.time for r in world.rights)
    pairs = zip(world.rights, act.rights or (), strict=True)
    is_newer = any(old and new and new.index > old.index for old, new in pairs)
    is_left = any(r and r.bits & DECRYPT for r in (world.rights[user] for user in world.left))
    return has_expired or is_left or is_newer or maker is None or not maker.bits & DECRYPT


def _is_list(world: World, act: Act) -> bool:
    """Whether nobody in a new list has expired, and no index of another user's key is lower than before."""
    for user, (old, new) in enumerate(zip(world.rights, act.rights or (), strict=True)):
        if new and (new.end <= act.time or (old and user != act.author and new.index < old.index)):
            return False
    return True


def key_holders(world: World) -> set[int]:
    """Return everybody who could have the container key: its maker, and every user it was wrapped for."""
    named = {user for user, r in enumerate(world.rights) if r is not None and r.bits & DECRYPT}
    return named | {world.granted_by}


@dataclass(frozen=True)
class Alphabet:
    """The acts to be tried after each history."""

    name: str
    bits: tuple[int, ...]
    ends: tuple[int, ...] = (FOREVER,)
    indices: tuple[int, ...] = (0,)
    times: tuple[int, ...] = (1, 2)
    users: int = 3
    retypes: bool = False
    """Whether changes of access are also tried together with a change of type."""
    leaves: bool = False
    """Whether histories in which users leave are tried as well."""

    @cached_property
    def lists(self) -> list[Rights]:
        """Every access list of these rights, but the empty one."""
        each = [Right(*chosen) for chosen in itertools.product(self.bits, self.ends, self.indices)]
        options: list[tuple[Right | None, ...]] = [(None, *each)] * self.users
        options += [(None,)] * (len(USERS) - self.users)
        return [rights for rights in itertools.product(*options) if any(rights)]

    def first(self) -> Iterator[Act]:
        """Yield every creation of a container by the first user."""
        for rights in self.lists:
            yield Act(0, self.times[0], rights, content="new")

    def next(self) -> Iterator[Act]:
        """Yield every act after a history, rightful or not."""
        for author, time in itertools.product(range(self.users), self.times):
            yield Act(author, time, deletes=True)
            if self.leaves:
                yield Act(author, time, leaves=True)
            for changes_type, content in itertools.product((False, True), ("keep", "new", "drop")):
                yield Act(author, time, None, changes_type, content)
            for rights, changes_type in itertools.product(self.lists, {False, self.retypes}):
                yield Act(author, time, rights, changes_type)


def canonical(world: World) -> World:
    """Return the same world for all that differ in the names of the users alone."""
    orders = itertools.permutations(range(len(USERS)))
    return min((_renamed(world, order) for order in orders), key=_order)


def _renamed(world: World, order: tuple[int, ...]) -> World:
    rights = tuple(world.rights[user] for user in order)
    left = frozenset(order.index(user) for user in world.left)
    return replace(world, rights=rights, granted_by=order.index(world.granted_by), left=left)


def _order(world: World) -> tuple[object, ...]:
    return tuple(r or Right(0) for r in world.rights), world.granted_by, sorted(world.left)


KEPT: Final[Mapping[str, Alphabet]] = {
    each.name: each
    for each in (
        Alphabet("access", (READ, WRITE, WRITE | MODIFY_ACCESS, EVERYTHING), (FOREVER, 2)),
        Alphabet(
            "type-and-deletion",
            (READ, WRITE, WRITE | MODIFY_TYPE, READ | DELETE, EVERYTHING),
            retypes=True,
        ),
        Alphabet("keys", (READ, WRITE, WRITE | MODIFY_ACCESS), indices=(0, 1), times=(1,)),
        Alphabet(
            "departures",
            (DOWNLOAD, WRITE, WRITE | MODIFY_ACCESS, EVERYTHING),
            times=(1,),
            leaves=True,
        ),
        Alphabet(
            "short-departures",
            (DOWNLOAD, WRITE, WRITE | MODIFY_ACCESS, EVERYTHING),
            users=2,
            leaves=True,
        ),
        Alphabet("short", (READ, WRITE, WRITE | MODIFY_ACCESS), (FOREVER, 2), users=2),
        Alphabet("short-keys", (WRITE, EVERYTHING), indices=(0, 1), times=(1,), users=2),
        Alphabet(
            "short-types",
            (WRITE | MODIFY_TYPE, READ | DELETE, EVERYTHING),
            users=2,
            times=(1,),
            retypes=True,
        ),
    )
}
