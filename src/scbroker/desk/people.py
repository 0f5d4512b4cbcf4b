"""Find out who has an id, which permissions people have, and which containers strangers can change.

Everybody who can change a container counts, not only its creator: a member with Upload can replace the
content and the name, and with the name the folder. Everybody is a stranger but the user's contacts, people
whom a command names, and members of groups that the user has accepted and that the user or a contact has
made.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import re
import unicodedata
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias

from propcache.api import cached_property

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.desk.paths import is_hidden, relative_path, without_marks
from scbroker.spelling import comparable
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, GroupManager, GroupRole

Container: TypeAlias = "scbroker.Container[Any]"
_NAMED: Final = 3
"""Maximum names that a message lists; it counts the others."""
DAMAGED: Final = (errors.UntrustedError, errors.UnsupportedVersionError)
"""Errors of a list of links that this version cannot read. The ids of their users are shown then."""
_OWN_WORDS: Final = (
    "group ", "link ", "the contact ", "the group ", "the link ", "the user ",
)  # fmt: skip
"""Prefixes by which command line and page tell users and groups apart: a contact's name must not fake one."""


PREFIX: Final = re.compile(r"(?=(?:-*[0-9a-fA-F]){4})[0-9a-fA-F-]{4,36}")
"""The beginning of an id, of four digits or more."""


class Somebody(NamedTuple):
    """A user or a group. Only this module writes `kind`: a name cannot imitate it."""

    id: uuid.UUID
    kind: str
    """you, verified, contact, group, link or stranger; other-group for a group that the user is not in."""
    name: str | None
    """The name; None for a stranger, another group, and a link without a name."""


class People:
    """The contacts, links and accepted groups of a session's user, each list read once, when it is needed."""

    def __init__(self, provider: scbroker.BrokerProvider) -> None:
        self.provider = provider
        self._members: dict[uuid.UUID, set[uuid.UUID]] = {}

    def read(self) -> People:
        """Read all lists now, so that no later call waits for the broker."""
        _ = self.own_id, self.contacts, self.links, self.groups
        return self

    @cached_property
    def own_id(self) -> uuid.UUID:
        return self.provider.getUserId().result()

    @cached_property
    def contacts(self) -> dict[uuid.UUID, scbroker.Contact]:
        """The contacts by the ids of their users; none for the user of a link."""
        with contextlib.suppress(errors.PermissionDeniedError):
            listed = scbroker.Contacts(self.provider).list().result()
            return {each.userId: each for each in listed}
        return {}

    @cached_property
    def links(self) -> dict[uuid.UUID, scbroker.Link]:
        """The links by the ids of their users; none if the document with them is damaged."""
        try:
            return {each.userId: each for each in self.provider.getLinks().result()}
        except DAMAGED:
            return {}

    @cached_property
    def accepted(self) -> list[scbroker.Group | errors.BrokerError]:
        """The groups that the user has accepted, and errors of those that cannot be read."""
        with contextlib.suppress(errors.PermissionDeniedError):  # for the user of a link
            return list(self.provider.getGroups(offered=False).result())
        return []

    @property
    def readable(self) -> list[scbroker.Group]:
        """The accepted groups that can be read."""
        return [each for each in self.accepted if isinstance(each, scbroker.Group)]

    @cached_property
    def groups(self) -> dict[uuid.UUID, scbroker.Group]:
        """The accepted groups that can be read, by id; none if the list is damaged."""
        try:
            return {each.id: each for each in self.readable}
        except errors.UntrustedError:
            return {}

    def check_group_name(self, name: str, own: uuid.UUID | None = None) -> None:
        """Raise `AlreadyExistsError` if a group other than `own` has this name, or looks as if it had."""
        if any(comparable(e.name) == comparable(name) and e.id != own for e in self.readable):
            raise errors.AlreadyExistsError(
                f"You have a group named {name!r} already: choose another name."
            )

    def user(self, id: uuid.UUID) -> Somebody:
        """Return who has this id: the user, a contact, a link, an accepted group or a stranger."""
        if id == self.own_id:
            return Somebody(id, "you", None)
        if (contact := self.contacts.get(id)) is not None:
            return Somebody(id, "verified" if contact.verified else "contact", contact.name)
        if (link := self.links.get(id)) is not None:
            return Somebody(id, "link", link.name)
        return self.group(id) if id in self.groups else Somebody(id, "stranger", None)

    def group(self, id: uuid.UUID) -> Somebody:
        """Return the accepted group with this id, or a nameless one."""
        group = self.groups.get(id)
        return (
            Somebody(id, "other-group", None)
            if group is None
            else Somebody(id, "group", group.name)
        )

    def holder(self, level: AccessLevel) -> Somebody:
        """Return the user or the group that an access level names."""
        return self.group(level.userId) if level.isGroup else self.user(level.userId)

    def others(self, container: Container) -> list[Somebody] | None:
        """Return the container's other members; None if the user may not see them."""
        if container.access is None:
            return None
        return [self.holder(each) for each in container.access if each.userId != self.own_id]

    def rights(self, container: Container) -> ContainerAccessLevel:
        """Return all that the user may do with a container, alone or through groups; 0 without ViewAccess.

        Through a group, the user may do what both the group's entry and the user's role allow.
        """
        found = ContainerAccessLevel(0)
        for each in living(container):
            if each.userId == self.own_id:
                found |= each.permissions
            elif (group := self.groups.get(each.userId)) is not None:
                found |= each.permissions & group.role.permissions
        return found

    # Strangers: see the description of this module.

    def may_change(self, container: Container, known: Collection[uuid.UUID] = ()) -> bool:
        """Return whether a stranger can change a container, or has made or changed its present version.

        They are taken for able if the user may not see the members. People in `known` are no strangers. Every
        command with `--recursive`, a mirror and a filesystem leave such a container out, unless the user
        wants those of everyone.
        """
        others = _authors(container) - {self.own_id, *known}
        if not others or not (others := others - self._makers - self._known_groups):
            return False
        groups = self._known_groups & {each.userId for each in container.access or ()}
        return bool(others.difference(*map(self._in, groups)))

    def path_of(self, container: Container, name: str, *, alone: bool = False) -> PurePosixPath:
        """Return the relative path of the file for a content; the last part of the name if it is `alone`.

        Raises `InvalidArgumentError` for a name that no file gets, and for that of a hidden file that is
        alone, or unless nobody but the user can change the container. Invisible characters in a stranger's
        name are escaped.
        """
        escaped = without_marks(name)
        path = relative_path(escaped if escaped != name and self.may_change(container) else name)
        path = PurePosixPath(path.name) if alone else path
        if (alone and is_hidden(path)) or self.hide(container, str(path)):
            raise errors.InvalidArgumentError(
                f"The name {name!r} would make a hidden file: choose another name."
            )
        return path

    def left_among(self, named: Sequence[Container]) -> list[Container]:
        """Return those of several containers with one name that strangers have neither made nor named.

        Return all of them if strangers can change each, and the user has not made and named one.
        """
        kept = [each for each in named if is_own(each, self.own_id) or not self.may_change(each)]
        return kept or list(named)

    def damaged(
        self, ids: Sequence[uuid.UUID], known: Collection[uuid.UUID] = ()
    ) -> dict[uuid.UUID, Container]:
        """Return the containers, out of some with damaged headers, that strangers can have damaged."""
        if not ids:
            return {}
        found = self.provider.getContainers(ids, content=False, headers=False).result()
        return {
            each.id: each
            for each in found
            if isinstance(each, scbroker.Container) and self.may_change(each, known)
        }

    def hide(self, container: Container, name: str) -> bool:
        """Return whether to leave out a hidden file, because others than the user made or can change it."""
        return is_hidden(PurePosixPath(name)) and _authors(container) != {self.own_id}

    @cached_property
    def _makers(self) -> set[uuid.UUID]:
        return {self.own_id, *self.contacts}

    @cached_property
    def _known_groups(self) -> set[uuid.UUID]:
        """The groups that the user has accepted, and that the user or a contact has made.

        Acceptance alone does not count: the broker could invent it, and strangers can offer groups.
        """
        return {each.id for each in self.readable if each.createdBy in self._makers}

    def _in(self, group: uuid.UUID) -> set[uuid.UUID]:
        """Return the members of a group; none if the user has left it meanwhile, or if a cache lacks it."""
        if group not in self._members:
            try:
                members = self.provider.getGroupMembers(group).result()
            except (errors.NotFoundError, errors.OfflineError):
                members = []
            self._members[group] = {each.userId for each in members}
        return self._members[group]


def meant(text: str, groups: Sequence[scbroker.Group]) -> list[scbroker.Group]:
    """Return the groups that a text means: by id, by four or more first digits of it, or by name.

    A text that is a whole id is never taken as a name. Otherwise a manager could name a group after the id of
    a user. A name that is exactly the text comes before similar ones.
    """
    digits = text.replace("-", "").lower()
    if is_id(text):
        return [each for each in groups if each.id == uuid.UUID(text)]
    by_id = [each for each in groups if PREFIX.fullmatch(text) and each.id.hex.startswith(digits)]
    similar = [each for each in groups if comparable(each.name) == comparable(text)]
    normal = unicodedata.normalize("NFC", text)
    exact = [each for each in similar if unicodedata.normalize("NFC", each.name) == normal]
    return list({each.id: each for each in (*by_id, *(exact or similar))}.values())


def is_id(text: str) -> bool:
    """Return whether a text is a whole id."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def counted(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or the plural."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def joined(names: Sequence[str]) -> str:
    """Return names with commas, and with "and" before the last one."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def some(names: Iterable[str]) -> str:
    """Return the first few of many names, for a message."""
    listed = list(names)
    more = len(listed) - _NAMED
    return joined([*listed[:_NAMED], f"{more} more"] if more > 0 else listed)


def capital(words: str) -> str:
    """Return words for the beginning of a sentence: "You", "The group"; names stay as they are."""
    return words[0].upper() + words[1:] if words == "you" or words.startswith("the ") else words


def modifier_is_member(provider: scbroker.ServerProvider, container: Container) -> bool | None:
    """Return whether the user who changed a container last is still in the group for which they acted.

    None if they acted for no group, or if it cannot be known. A container that was read by the user's own
    access does not say it, so this reads the members, which works if the user is in the group too.
    """
    if container.modifierIsMember is not None or container.modifiedVia is None:
        return container.modifierIsMember
    try:
        members = provider.getGroupMembers(container.modifiedVia).result()
    except (errors.NotFoundError, errors.DeletedError, errors.UntrustedError):
        return None
    return any(each.userId == container.modifiedBy for each in members)


def contact_in_text(name: str) -> str:
    """Return the words for a contact in a list or a sentence: "you" is the user, and "group Team" a group.

    The name on a card is what its maker chose, and the user may have kept it. Lists have commas.
    """
    plain = comparable(name)
    is_ambiguous = plain == "you" or plain.startswith(_OWN_WORDS) or "," in plain
    return f"the contact {quoted(name)}" if is_ambiguous else name


def quoted(name: str) -> str:
    """Return a name in quotation marks, which no part of it ends."""
    return json.dumps(name, ensure_ascii=False)


def dropped_text(group: scbroker.Group, name: Callable[[uuid.UUID], str]) -> str:
    """Return a sentence with the members removed as deleted on the broker's unproven claim; "" if none."""
    if not group.dropped:
        return ""
    return (
        "Removed as well, because the broker says, without a proof, that their accounts were deleted: "
        f"{', '.join(map(name, group.dropped))}."
    )


def place_of(each: scbroker.Group | scbroker.GroupMember) -> str:
    """Return "owner", "manager" or "member", for the user in a group or for one of its members."""
    return "owner" if each.isOwner else "manager" if each.isManager else "member"


def managers_after(
    members: Iterable[scbroker.GroupMember], changed: Mapping[uuid.UUID, Any], place: str
) -> list[GroupManager]:
    """Return all managers of a group after people got a place: owner, manager or member.

    `changed` has what names these people, by their ids. Raises `InvalidArgumentError` if nobody owned the
    group then.
    """
    after = [
        GroupManager(each, each.isOwner)
        for each in members
        if each.isManager and each.userId not in changed
    ]
    if place != "member":
        after += [GroupManager(each, place == "owner") for each in changed.values()]
    if not any(each.owner for each in after):
        raise errors.InvalidArgumentError(
            "The group would have no owner: make somebody else an owner first."
        )
    return after


READ: Final = ContainerAccessLevel.DefaultUserPermissions
_WRITE: Final = READ | ContainerAccessLevel.Upload
WORDS: Final = {
    "read": READ,
    "write": _WRITE,
    "manage": _WRITE | ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.ModifyType,
    "owner": ContainerAccessLevel.DefaultOwnerPermissions,
}
MEANINGS: Final = {
    "read": "see content, name, members and type",
    "write": "read, and replace content and name",
    "manage": "write, share, and change the type",
    "owner": "manage, delete, and get an event when somebody reads",
}
ROLES: Final = {
    "reader": "read the containers of the group",
    "writer": "read the containers of the group, and replace content and name",
    "sharer": "read and change the containers of the group, share and delete them",
}
PLACES: Final = {
    "member": "manages nothing",
    "manager": "adds and removes members, changes their roles, and renames the group",
    "owner": "also changes the managers, and deletes the group",
}
_OF_ROLES: Final = {each.name.lower(): each.permissions for each in GroupRole}
"""Permissions of a role in a container to which the group itself has every permission."""
SHARE: Final = ContainerAccessLevel.ModifyAccess
WRITE: Final = ContainerAccessLevel.Upload


@functools.cache  # thousands of containers share a few permissions
def in_words(permissions: ContainerAccessLevel) -> str:
    """Return the word for permissions, that of a role in a group, or their names with commas."""
    words = (word for word, each in (WORDS | _OF_ROLES).items() if each == permissions)
    return next(words, listed(permissions))


def explained(meanings: Mapping[str, str]) -> str:
    """Return words with their meanings, for the help of an option."""
    return " ".join(f"{word}: {meaning}." for word, meaning in meanings.items())


def listed(permissions: ContainerAccessLevel) -> str:
    """Return the names of permissions with commas."""
    return ",".join(each.name or "" for each in permissions)


def living(container: Container) -> list[AccessLevel]:
    """Return the entries of a container's access list that have not ended; none if the list is hidden."""
    now = dt.datetime.now(dt.UTC)
    levels = container.access or ()
    return [each for each in levels if each.expiresAt is None or each.expiresAt > now]


_UNKNOWN: Final = uuid.UUID(int=0)


def others_can_change(container: scbroker.SecuredContainer | Container, user: uuid.UUID) -> bool:
    """Return whether others than this user can change a container now, or have created or named it."""
    named_by = container.headerBy if isinstance(container, scbroker.Container) else None
    return {*_writers(container), named_by or user} != {user}


def newest_twin(named: Sequence[Container], user: uuid.UUID) -> Container | None:
    """Return the newest of several containers with one name; None if others can have named any of them.

    Programs that create a name at once make a container each.
    """
    if len(named) < 2 or any(others_can_change(each, user) for each in named):
        return None
    return max(named, key=lambda each: (each.modifiedAt, each.id))


def text_of_twins(name: str, newest: uuid.UUID, others: Collection[uuid.UUID]) -> str:
    """Return the warning that the newest of several containers with one name is used."""
    return (
        f"{len(others) + 1} of your containers are named {name!r}. The newest is used, {newest}: rename or "
        f"delete the others, as by `scbroker rm {min(others)}`."
    )


def is_renamed(container: Container, user: uuid.UUID) -> bool:
    """Return whether a member has named a container that neither they nor this user have made.

    By a name such a member puts it into a folder whose containers the user gives to them, or to others.
    """
    return container.headerBy not in (None, user, container.createdBy)


def is_own(container: Container, user: uuid.UUID) -> bool:
    """Return whether this user has made a container and given it its name, as a member with Upload may."""
    return container.createdBy == user and container.headerBy in (None, user)


def _writers(container: scbroker.SecuredContainer | Container) -> set[uuid.UUID]:
    """Return the creator, and the users and groups that can change name and content; `_UNKNOWN` if hidden."""
    if container.access is None:
        return {container.createdBy, _UNKNOWN}
    upload = scbroker.ContainerAccessLevel.Upload
    writers = {each.userId for each in container.access if each.permissions & upload}
    return {container.createdBy, *writers}


def _authors(container: Container) -> set[uuid.UUID]:
    """Return all who can change a container, or have made its present version, name or content.

    Not by `modifiedBy` alone: after the user has ended a member's access, the newest version is the user's,
    and the name and content may still be the member's.
    """
    found = {container.modifiedBy, container.contentBy, container.headerBy, *_writers(container)}
    return {each for each in found if each is not None}
