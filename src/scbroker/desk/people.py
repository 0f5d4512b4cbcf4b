"""Find out who has an id: the user, a contact, a group, a link or a stranger."""

from __future__ import annotations

import json
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.desk.rights import living
from scbroker.spelling import comparable
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, GroupManager

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

    def __init__(self, provider: scbroker.ServerProvider) -> None:
        self._provider = provider

    def read(self) -> People:
        """Read all lists now, so that no later call waits for the broker."""
        _ = self.own_id, self.contacts, self.links, self.groups
        return self

    @cached_property
    def own_id(self) -> uuid.UUID:
        return self._provider.getUserId().result()

    @cached_property
    def contacts(self) -> dict[uuid.UUID, scbroker.Contact]:
        """The contacts by the ids of their users."""
        return {each.userId: each for each in scbroker.Contacts(self._provider).list().result()}

    @cached_property
    def links(self) -> dict[uuid.UUID, scbroker.Link]:
        """The links by the ids of their users; none if the document with them is damaged."""
        try:
            return {each.userId: each for each in self._provider.getLinks().result()}
        except DAMAGED:
            return {}

    @cached_property
    def accepted(self) -> list[scbroker.Group | errors.BrokerError]:
        """The groups that the user has accepted, and errors of those that cannot be read."""
        return list(self._provider.getGroups(offered=False).result())

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
