"""Define the commands of groups: teams of people who reach the same containers."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import SHARING, Run, Yes, command, complete_group, group
from scbroker.cli.names import (
    GROUP_HELP,
    PERSON,
    GroupArgument,
    Holder,
    OfferArgument,
    check_others,
    warn,
)
from scbroker.cli.output import ShortId
from scbroker.desk.people import (
    PLACES,
    ROLES,
    counted,
    dropped_text,
    explained,
    joined,
    managers_after,
    place_of,
)
from scbroker.vocabulary import GroupRole, MemberRole

groups: typer.Typer = group("groups", SHARING, "Share with teams: groups of people.")
_ROLE_HELP: Final = (
    f"{explained(ROLES)} No role allows more than the group itself may do with a container."
)
_COLUMNS: Final = {
    "name": "NAME",
    "status": "STATUS",
    "role": "ROLE",
    "manages": "MANAGES",
    "memberCount": "MEMBERS",
    "createdBy": "CREATED BY",
    "modifiedAt": "CHANGED",
    "id": "ID",
}
_ERROR: Final = {"error": "ERROR"}
_JSON: Final = (
    "id", "name", "description", "role", "isManager", "isOwner", "accepted", "memberCount", "fingerprint",
    "epoch", "version", "createdAt", "createdBy", "modifiedAt", "modifiedBy",
)  # fmt: skip
_WORDS: Final = (*_COLUMNS, "error")
_MEMBERS: Final = {
    "name": "NAME",
    "role": "ROLE",
    "manages": "MANAGES",
    "since": "SINCE",
    "userId": "USER",
}


class Place(enum.StrEnum):
    """Whether a person owns a group, manages it, or is only a member."""

    owner = "owner"
    manager = "manager"
    member = "member"


RoleOption = Annotated[
    str, typer.Option(metavar="|".join(ROLES), help=f"The role of the people. {_ROLE_HELP}")
]
PeopleArgument = Annotated[list[str], PERSON]
Description = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A description, which all members see.")
]


@command(name="create", of=groups)
def create(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, which all members see.")],
    people: Annotated[list[str] | None, PERSON] = None,
    role: RoleOption = "writer",
    description: Description = None,
) -> None:
    """Make a group, with people as its first members.

    You become its owner, and a sharer: a member who can do everything. The people get an offer, and become
    able to use the group when they accept it with `scbroker groups accept`.

    The broker cannot read name and description. It sees who the members and managers are.
    """
    chosen, members = _role(role), run.people.find_all(people or [])
    check_others(run, members, "You become a member in any case: name other people.")
    run.people.check_group_name(name)
    warn(run, members)
    roles = [MemberRole(each.who, chosen) for each in members]

    made = run.session.createGroup(name, roles, description or "").result()
    offered = f" It {_offered(members, chosen)}" if members else ""
    run.out.done(_row(run, made), f"The group {made.name!r} is made, and you own it.{offered}")


@command(name="ls", of=groups)
def ls(run: Run) -> None:
    """List your groups, and those that are offered to you.

    A group is offered until you accept or decline it. Anybody who knows your user id can offer a group, with
    any name: `scbroker groups members` lists who is in it. A group that cannot be verified or opened is a row
    with the error, and the exit status is then 1.
    """
    found = run.session.getGroups().result()
    readable = [each for each in found if isinstance(each, scbroker.Group)]
    is_damaged = len(readable) < len(found)
    rows = [_row(run, each) for each in found]
    if run.out.on_terminal:
        rows = [{**row, "id": row["id"] and ShortId(row["id"])} for row in rows]
        rows.sort(key=lambda row: (row["status"] == "accepted", (row["name"] or "").casefold()))
    run.out.rows(rows, _COLUMNS | (_ERROR if is_damaged or not run.out.on_terminal else {}))
    if not all(each.accepted for each in readable):
        run.out.say(
            "`scbroker groups accept GROUP` accepts an offered group, `decline` declines it."
        )
    if is_damaged:
        raise typer.Exit(1)


@command(name="show", of=groups)
def show(run: Run, group: GroupArgument) -> None:
    """Show the details of a group, also of one that is offered to you.

    Compare the fingerprint with another member if you have to be sure that both of you mean the same group.
    """
    found = run.people.find_any_group(group).who
    if not isinstance(found, scbroker.Group):
        raise errors.NotFoundError(f"{found}: `scbroker groups ls` says why it cannot be read.")
    run.out.fields(_row(run, found))


@command(name="members", of=groups)
def members(run: Run, group: GroupArgument) -> None:
    """List the members of a group, also of one that is offered to you.

    The managers have signed the list. An owner is a manager who can also change the managers and delete the
    group.
    """
    found = run.people.find_any_group(group).who
    rows: list[dict[str, Any]] = []
    for each in run.session.getGroupMembers(found).result():
        row = {
            "userId": each.userId,
            "name": run.people.name_of(each.userId),
            "fingerprint": each.fingerprint,
            "role": each.role if run.out.as_json else each.role.name.lower(),
            "since": each.since,
        }
        if run.out.as_json:
            row |= {"isManager": each.isManager, "isOwner": each.isOwner}
        else:
            row["manages"] = place_of(each) if each.isManager else None
        rows.append(row)
    if run.out.on_terminal:
        places = (Place.owner, Place.manager, None)
        rows.sort(key=lambda row: (places.index(row["manages"]), row["name"].casefold()))
    run.out.rows(rows, _MEMBERS)


@command(name="add", of=groups)
def add(
    run: Run, group: GroupArgument, people: PeopleArgument, role: RoleOption = "writer"
) -> None:
    """Add people to a group.

    They get an offer, and can use the group when they accept it. They also get the group's key, which opens
    everything that the group could ever read. You must be a manager of the group.
    """
    chosen, found, added = _role(role), run.people.find_group(group), run.people.find_all(people)
    check_others(run, added, "You are a member already.")
    warn(run, added)
    roles = [MemberRole(each.who, chosen) for each in added]

    try:
        changed = run.session.addGroupMembers(found, roles).result()
    except errors.BrokerError as error:
        if error.outcome is errors.WriteOutcome.Uncertain:
            error.args = (
                f"{error.message} The people may already have the group's key: `scbroker groups renew "
                "--new-key` replaces it.",
            )
        raise
    text = f"The group {changed.name!r} {_offered(added, chosen)}"
    _say_changed(run, changed, added, text, role=chosen)


@command(name="remove", of=groups)
def remove(run: Run, group: GroupArgument, people: PeopleArgument) -> None:
    """Remove people from a group.

    The broker refuses them at once, and the group gets a new key. Each container of the group gets a new key
    at its next change; `scbroker groups renew` gives it now. The people may have kept copies of what they
    could read, and they keep access of their own: `scbroker ls --with PERSON` lists what they reach by it.

    You must be a manager of the group, and an owner to remove a manager.
    """
    found, gone = run.people.find_group(group), run.people.find_all(people)
    check_others(run, gone, f"To leave it, run `scbroker groups leave {shlex.quote(group)}`.")
    inside = {each.userId for each in run.session.getGroupMembers(found).result()}
    if inside.isdisjoint(each.id for each in gone):
        raise errors.NotFoundError(
            f"{_are(gone)} not in the group {found.name!r}: `scbroker groups members` lists who is."
        )
    changed = run.session.removeGroupMembers(found, [each.id for each in gone]).result()
    text = (
        f"{_are(gone)} not in the group {changed.name!r} any more. `scbroker groups renew` gives its "
        "containers new keys now, instead of at their next change; `scbroker ls --with` lists what somebody "
        "reaches by access of their own."
    )
    _say_changed(run, changed, gone, text)


@command(name="role", of=groups)
def role(
    run: Run,
    group: GroupArgument,
    people: PeopleArgument,
    to: Annotated[str, typer.Argument(metavar="ROLE", help=_ROLE_HELP)],
) -> None:
    """Change the role of members of a group.

    A lower role gives the group a new key. You must be a manager of the group.
    """
    chosen, found, changing = _role(to), run.people.find_group(group), run.people.find_all(people)
    roles = [MemberRole(each.who, chosen) for each in changing]

    changed = run.session.setGroupRoles(found, roles).result()
    what = _number(changing, chosen.name.lower())
    text = f"{_are(changing)} {what} of the group {changed.name!r} now."
    _say_changed(run, changed, changing, text, role=chosen)


@command(name="managers", of=groups)
def managers(
    run: Run,
    group: GroupArgument,
    people: PeopleArgument,
    place: Annotated[
        Place | None,
        typer.Option(
            "--as",
            metavar="owner|manager|member",
            help=f"What the people are from now on. {explained(PLACES)} By default manager.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Change the managers of a group.

    The command makes people managers, or what --as says; the others stay. A person who is not a member
    becomes one, with an offer. You must be an owner of the group. `scbroker groups members` lists who manages
    it.
    """
    found, changing = run.people.find_group(group), run.people.find_all(people)
    members = {each.userId: each for each in run.session.getGroupMembers(found).result()}
    for each in changing:
        now = members.get(each.id)
        if place is None and now is not None and now.isOwner:
            raise errors.InvalidArgumentError(
                f"{each.name} is an owner: pass --as manager to take the ownership away."
            )
        if place is Place.member and (now is None or not now.isManager):
            raise errors.NotFoundError(f"{each.name} is not a manager of the group.")
    wanted = place or Place.manager
    after = managers_after(members.values(), {each.id: each.who for each in changing}, wanted)
    if wanted is not Place.owner and run.people.own_id in (each.id for each in changing):
        run.confirm(f"Give up the ownership of the group {found.name!r}?", yes)
    warn(run, [each for each in changing if each.id not in members])

    changed = run.session.setGroupManagers(found, after).result()
    only = "only " if wanted is Place.member else ""
    what = f"{only}{_number(changing, wanted)}"
    text = f"{_are(changing)} {what} of the group {changed.name!r} now."
    _say_changed(run, changed, changing, text, place=wanted.value)


@command(name="rename", of=groups)
def rename(
    run: Run,
    group: GroupArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NEW-NAME", help="The new name, which all members see.")
    ] = None,
    description: Description = None,
) -> None:
    """Change the name or the description of a group.

    You must be a manager of the group. To mend a group that you cannot read because another manager gave you
    a wrong key, pass its id, a name and a description.
    """
    if name is None and description is None:
        raise errors.InvalidArgumentError(
            "Nothing is to be changed: pass a new name, or --description."
        )
    found = run.people.find_group_or_id(group)
    if name is not None:
        run.people.check_group_name(name, found.id)
    changed = run.session.renameGroup(found.who, name, description).result()
    text = f"The group {found.title!r} is {changed.name!r} now."
    if name is None:
        text = f"The description of the group {changed.name!r} is changed."
    run.out.done(_row(run, changed), text)


@command(name="accept", of=groups)
def accept(run: Run, group: OfferArgument) -> None:
    """Accept a group that is offered to you.

    From then on `scbroker ls` lists the containers of the group, and you read and change them as your role
    allows.
    """
    accepted = run.session.acceptGroup(run.people.find_offer(group).who).result()
    run.out.done(
        _row(run, accepted),
        f"You are a {accepted.role.name.lower()} of the group {accepted.name!r} now: `scbroker ls` lists its "
        "containers.",
    )


@command(name="decline", of=groups)
def decline(run: Run, group: OfferArgument) -> None:
    """Decline a group that is offered to you.

    A manager can offer it again: `scbroker block` keeps a person from that.
    """
    found = run.people.find_offer(group)
    run.session.declineGroup(found.who).result()
    _say_ended(run, found, f"You have declined the group {found.title!r}.")


@command(name="leave", of=groups)
def leave(
    run: Run,
    group: GroupArgument,
    abandon: Annotated[
        bool,
        typer.Option(
            "--abandon",
            help="Leave as the only owner too: nobody can change the managers or delete the group then.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Leave a group.

    You lose its containers, except those to which you have access of your own. Only a manager can add you
    again. The next change by a manager gives the group a new key, which you do not get.
    """
    found = run.people.find_group_or_id(group)
    run.confirm(f"Leave the group {found.title!r}, and lose its containers?", yes)
    run.session.leaveGroup(found.who, abandon=abandon).result()
    _say_ended(run, found, f"You are not in the group {found.title!r} any more.")


@command(name="renew", of=groups)
def renew(
    run: Run,
    group: GroupArgument,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key", help="Give the group a new key first. You must be a manager for that."
        ),
    ] = False,
) -> None:
    """Give the containers of a group new keys.

    Former members do not get these keys. After somebody was removed from the group or has left it, each
    container gets a new key at its next change. This command gives all of them new keys now. After an
    interruption, run it again: it does the rest. You must be a writer or a sharer of the group.
    """
    found = run.people.find_group(group)
    with _keys_shown(run) as progress:
        renewal = run.session.renewGroup(found, newKey=new_key, progress=progress).result()
    verb = "has a new key" if renewal.renewed == 1 else "have new keys"
    _say_renewed(run, {"groupId": found.id, "name": found.name}, renewal, verb)


@command(name="replace", of=groups)
def replace(
    run: Run,
    group: GroupArgument,
    new_group: Annotated[
        str,
        typer.Argument(
            metavar="NEW-GROUP",
            help=f"The group that takes its place: {GROUP_HELP}",
            autocompletion=complete_group,
        ),
    ],
    yes: Yes = False,
) -> None:
    """Replace a group by another one.

    The command takes all containers from the old group and shares them with the new one, with the same
    permissions. Use it for a group that nobody can manage any more. You must be a sharer of the old group.
    After an interruption, run the command again: it does the rest.
    """
    old, new = run.people.find_group(group), run.people.find_group(new_group)
    if old.id == new.id:
        raise errors.InvalidArgumentError(
            f"Both names mean the group {old.name!r}: name another one to take its place."
        )
    run.confirm(
        f"Take all containers of the group {old.name!r} away from it, and share them with the group "
        f"{new.name!r}?",
        yes,
    )
    with _keys_shown(run) as progress:
        replacing = run.session.replaceGroup(old, new, progress=progress).result()
    verb = "is" if replacing.renewed == 1 else "are"
    end = f"{verb} shared with the group {new.name!r} instead"
    _say_renewed(run, {"groupId": old.id, "newGroupId": new.id}, replacing, end)


@command(name="rm", of=groups)
def rm(run: Run, group: GroupArgument, yes: Yes = False) -> None:
    """Delete a group for all of its members.

    This cannot be undone. All members lose the containers to which they have no access of their own. A
    container to which nobody else has access is deleted too; if the group may share or delete it, the command
    stops and names it instead. You must be an owner of the group.
    """
    found = run.people.find_group_or_id(group)
    others = ""
    if found.is_group and found.who.memberCount > 1:
        others = f" for all of its {found.who.memberCount} members"
    run.confirm(f"Delete the group {found.title!r}{others}? It cannot be undone.", yes)
    run.session.deleteGroup(found.who).result()
    _say_ended(run, found, f"The group {found.title!r} is deleted.")


def _say_ended(run: Run, group: Holder, text: str) -> None:
    run.out.done({"groupId": group.id, "name": group.title}, text)


@contextmanager
def _keys_shown(run: Run) -> Iterator[Callable[[int, int | None], None]]:
    """Yield the function to pass as `progress`, which shows how many containers got new keys."""
    with run.out.progress("New keys", None, of_bytes=False) as moved:
        yield lambda done, _: moved(done)


def _role(text: str) -> GroupRole:
    if text.lower() not in ROLES:
        raise errors.InvalidArgumentError(
            f"The role cannot be {text!r}: pass one of {', '.join(ROLES)}."
        )
    return GroupRole[text.capitalize()]


def _say_changed(
    run: Run, group: scbroker.Group, people: Sequence[Holder], text: str, **more: object
) -> None:
    row = {
        "groupId": group.id,
        "name": group.name,
        "userIds": [each.id for each in people],
        "epoch": group.epoch,
        "version": group.version,
        "dropped": list(group.dropped),
        **more,
    }
    run.out.done(row, text)
    if text := dropped_text(group, run.people.name_of):
        run.out.say(f"{text} `scbroker groups add` adds somebody again.")


def _row(run: Run, each: scbroker.Group | errors.BrokerError) -> dict[str, Any]:
    """Return the row for a group or its error: the library's fields for JSON, words otherwise."""
    if isinstance(each, errors.BrokerError):
        keys = _JSON if run.out.as_json else _WORDS
        found = {"id": each.containerId, "error": each.message, "code": each.code}
        return {**dict.fromkeys(keys), **found}
    if run.out.as_json:
        return {**{key: getattr(each, key) for key in _JSON}, "error": None, "code": None}
    return {
        "name": each.name,
        "description": each.description or None,
        "status": "accepted" if each.accepted else "offered",
        "role": each.role.name.lower(),
        "manages": place_of(each) if each.isManager else None,
        "memberCount": each.memberCount,
        "id": each.id,
        "fingerprint": each.fingerprint,
        "createdBy": run.people.name_of(each.createdBy),
        "createdAt": each.createdAt,
        "modifiedBy": run.people.name_of(each.modifiedBy),
        "modifiedAt": each.modifiedAt,
        "epoch": each.epoch,
        "version": each.version,
        "error": None,
    }


def _say_renewed(run: Run, row: dict[str, Any], renewal: scbroker.GroupRenewal, text: str) -> None:
    """Write how many containers were changed, and the errors of the others."""
    failed = [
        {"id": each.containerId, "code": each.code, "error": each.message}
        for each in renewal.failed
    ]
    row = {**row, "renewed": renewal.renewed, "failed": failed}
    run.out.done(row, f"{counted(renewal.renewed, 'container')} {text}.")
    for each in renewal.failed:
        run.failed(str(each.containerId), each)


def _offered(people: Sequence[Holder], role: GroupRole) -> str:
    """Return the end of a sentence that begins with the group, such as "is offered to Bob as a reader"."""
    names = joined([each.name for each in people])
    return f"is offered to {names} as {_number(people, role.name.lower())}."


def _are(people: Sequence[Holder]) -> str:
    return f"{joined([each.name for each in people])} {'is' if len(people) == 1 else 'are'}"


def _number(people: Sequence[Holder], noun: str) -> str:
    """Return a role with its article, or in the plural: "a reader", "an owner", "readers"."""
    if len(people) > 1:
        return f"{noun}s"
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
