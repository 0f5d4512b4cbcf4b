"""Define the commands that give, take and refuse access to containers."""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli import dates
from scbroker.cli.command import SHARING, Yes, command
from scbroker.cli.commands.getting import containers_below, without
from scbroker.cli.completion import complete_holder
from scbroker.cli.dates import Until
from scbroker.cli.names import ContainerArgument, ContainersArgument, Everyone, Recursive, label_of
from scbroker.cli.people import Holder, PersonArgument, check_others, holder_of, named_in, warn
from scbroker.cli.run import Run
from scbroker.desk import rights
from scbroker.desk.people import capital, counted, joined, some
from scbroker.desk.strangers import is_renamed
from scbroker.vocabulary import ContainerAccessLevel

PeopleArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PERSON",
        help="A person: the name of a contact, a user id or a contact card. Or a group: its name, its id, or "
        "four or more first digits of the id.",
        autocompletion=complete_holder,
    ),
]
_RIGHTS: Final = {(each.name or "").lower(): each for each in ContainerAccessLevel}
_NAMES: Final = ", ".join(each.name or "" for each in ContainerAccessLevel)

Can = Annotated[
    str | None,
    typer.Option(
        metavar="|".join([*rights.WORDS, "RIGHT,..."]),
        help=f"What the people can do. {rights.explained(rights.MEANINGS)} Or the exact permissions: one or "
        f"more of {_NAMES}. By default read.",
    ),
]


def _of_people(option: str) -> Any:
    return typer.Option(
        option,
        metavar="PERSON",
        help="A person or a group, for several containers: all arguments are containers then. Can be "
        "repeated.",
        autocompletion=complete_holder,
    )


@command(SHARING)
def share(
    run: Run,
    container: ContainerArgument,
    people: PeopleArgument = None,
    others: Annotated[list[str] | None, _of_people("--with")] = None,
    recursive: Recursive = False,
    everyone: Everyone = False,
    can: Can = None,
    until: Until = None,
) -> None:
    """Give people and groups access to a container.

    Those who have access already get the named permissions and end in place of their present ones. All other
    members keep their access.

    For several containers, name the people with --with: `scbroker share *.pdf --with Bob --with Carol`.

    You can name a group in place of a person: `scbroker share plan Team --can write`. Each member can then do
    what both these permissions and the member's role in the group allow (`scbroker groups`).

    You can give only permissions that you have, and for no longer than you have them. Anybody who can read
    may keep a copy.
    """
    permissions = permissions_of(can)
    end = None if until is None else dates.end_of(until)
    texts, members = _named(run, [container, *(people or ())], others, "--with")
    check_others(run, members, "You have access already: name another person.")
    ids = ids_of(run, texts, recursive, everyone, members, gives=True)
    given = rights.READ if permissions is None else permissions
    found = _readable(run, ids)
    # Without --can, nobody loses permissions.
    for container_id, present in found.items() if permissions is None else ():
        for each in members:
            level = _levels(present).get(each.id)
            if level is not None and level.permissions & ~rights.READ:
                raise errors.InvalidArgumentError(
                    f"{capital(each.name)} has more permissions on {ids[container_id]!r} than to read it "
                    f"({rights.in_words(level.permissions)}): pass --can with the ones to have from now on."
                )
    for each in members:
        _warn(run, each, found)
    levels = [scbroker.AccessLevel(each.who, given, end) for each in members]
    results = run.session.grantAccess(list(found), levels).result() if found else []
    done = _succeeded(run, ids, members, dict(zip(found, results, strict=True)))
    _say_shared(run, [ids[each] for each in done], done, members, given, end)


@command(SHARING)
def revoke(
    run: Run,
    container: ContainerArgument,
    people: PeopleArgument = None,
    others: Annotated[list[str] | None, _of_people("--from")] = None,
    recursive: Recursive = False,
    everyone: Everyone = False,
) -> None:
    """Take people's and groups' access away.

    The container gets a new key, so these people cannot open what is written from now on. They may have kept
    copies of what they could read. A person who is also in a group with access keeps that access.

    For several containers, name the people with --from: `scbroker revoke -r photos/ --from Bob`.
    """
    texts, members = _named(run, [container, *(people or ())], others, "--from")
    check_others(run, members, "To give up your own access, run `scbroker leave`.")
    ids = ids_of(run, texts, recursive, everyone, members)
    found = _readable(run, ids)
    users = [each.id for each in members]
    results = run.session.revokeAccess(list(found), users).result() if found else []
    by_id = dict(zip(found, results, strict=True))
    done = [
        each
        for each in _succeeded(run, ids, members, by_id)
        if getattr(by_id[each], "version", 0) > found[each].version
    ]
    names = joined([each.name for each in members])
    if found and not done and not any(isinstance(each, errors.BrokerError) for each in results):
        hint = _still_reached(run, members, list(found.values()))
        raise errors.NotFoundError(
            f"{_has(members, 'no access')} to {some(map(repr, ids.values()))}.{hint}"
        )
    if done:
        run.out.done(
            {"containerIds": done, "userIds": users},
            f"{_has(members, 'no access')} to {some(repr(ids[each]) for each in done)} any more. A new key "
            f"keeps {names} from what is written from now on."
            f"{_still_reached(run, members, [found[each] for each in done])}",
        )


def _still_reached(
    run: Run, members: Sequence[Holder], containers: "Sequence[scbroker.Container[Any]]"
) -> str:
    """Return a sentence for each group through which these people still have access; "" for none."""
    people = {each.id: each.name for each in members if not each.is_group}
    taken = {each.id for each in members}
    listed = {each for container in containers for each in _levels(container)} - taken
    sentences = []
    for group in run.people.readable if people and len(listed) > 1 else ():
        if group.id in listed:
            inside = run.session.getGroupMembers(group).result()
            names = [people[each.userId] for each in inside if each.userId in people]
            if names:
                verb = "is" if len(names) == 1 else "are"
                sentences.append(
                    f" {joined(names)} {verb} in the group {group.name!r}, which has access."
                )
    return "".join(sentences)


@command(SHARING)
def leave(
    run: Run,
    containers: ContainersArgument,
    recursive: Recursive = False,
    everyone: Everyone = False,
    abandon: Annotated[
        bool,
        typer.Option(
            "--abandon",
            help="Leave even if nobody else may change access: nobody can share the container any more then. "
            "Also forget a container that the broker denies.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Give up your own access to containers.

    Only a member who may share a container can give you access again. The next change of the container makes
    a new key, which you do not get. Access that you have through a group stays: `scbroker groups leave` gives
    up the group with all of its containers.
    """
    ids = ids_of(run, containers, recursive, everyone)
    run.confirm(f"Give up your access to {some(map(repr, ids.values()))}?", yes)
    left = []
    for container_id, name in ids.items():
        try:
            run.session.leaveContainer(container_id, abandon=abandon).result()
        except errors.BrokerError as error:
            run.failed(name, error)
        else:
            left.append(container_id)
    if left:
        text = f"You have no access to {some(repr(ids[each]) for each in left)} any more."
        run.out.done({"containerIds": left}, text)


@command(SHARING)
def block(run: Run, person: PersonArgument) -> None:
    """Let a person share no more containers with you.

    You keep the access that the person has given you already: `scbroker leave` gives it up. The broker
    enforces the block. The person can notice it, and could register as another user.
    """
    who = run.people.find(person)
    blocked = holder_of(who)
    check_others(run, [blocked], "Name another person.")
    run.session.blockUser(who).result()
    run.out.done(
        {"userId": blocked.id, "name": blocked.name},
        f"{blocked.name} cannot share containers with you any more. What you have access to stays.",
    )


@command(SHARING)
def unblock(run: Run, person: PersonArgument) -> None:
    """Let a person share containers with you again."""
    who = run.people.find(person)
    found = holder_of(who)
    run.session.unblockUser(who).result()
    run.out.done(
        {"userId": found.id, "name": found.name},
        f"{found.name} can share containers with you again.",
    )


@command(SHARING)
def blocked(run: Run) -> None:
    """List the people whom you have blocked."""
    users = run.session.getBlockedUsers().result()
    run.out.rows(
        [{"userId": each, "name": run.people.name_of(each)} for each in users],
        {"name": "NAME", "userId": "USER"},
    )


def ids_of(
    run: Run,
    texts: Sequence[str],
    recursive: bool,
    everyone: bool,
    people: "Sequence[Holder]" = (),
    *,
    gives: bool = False,
) -> dict[uuid.UUID, str]:
    """Return the ids of the containers that are named, or below the names, with names for messages.

    Those that strangers can change are left out; the people whom the command names are not strangers. If the
    command `gives` access, a member's name does not put a container into the folder.
    """
    if recursive:
        known = {each.id for each in people}
        below = containers_below(run, texts, everyone=everyone, known=known)
        if gives:
            own, why = run.people.own_id, "another member has named: name them by their ids"
            below = without(run, below, lambda each: is_renamed(each, own), why)
        return {each.id: label_of(each) for each in sorted(below, key=label_of)}
    return dict(zip(run.names.ids_of(texts), texts, strict=True))


def _named(
    run: Run, arguments: Sequence[str], people: Sequence[str] | None, option: str
) -> tuple[Sequence[str], list[Holder]]:
    """Return container names and people: without the option, the first argument is the only container."""
    texts, names = (arguments, people) if people else (arguments[:1], arguments[1:])
    if not names:
        raise errors.InvalidArgumentError(
            f"No person is named: add the people after the container {texts[0]!r}, or pass {option} PERSON."
        )
    try:
        found = [run.people.find_holder(each) for each in names]
    except errors.NotFoundError as error:
        hint = "" if people or len(names) < 2 else f" For several containers, use {option} PERSON."
        raise errors.NotFoundError(f"{error}{hint}") from None
    return texts, list({each.id: each for each in found}.values())


def _readable(run: Run, ids: Mapping[uuid.UUID, str]) -> dict[uuid.UUID, "scbroker.Container[Any]"]:
    """Return the metadata of the containers that can be read; report the others."""
    found = {}
    results = run.session.getContainers(list(ids), content=False, headers=False).result()
    for container_id, result in zip(ids, results, strict=True):
        if isinstance(result, errors.BrokerError):
            run.failed(ids[container_id], result)
        else:
            found[container_id] = result
    return found


def _levels(container: "scbroker.Container[Any]") -> dict[uuid.UUID, "scbroker.AccessLevel"]:
    return {each.userId: each for each in container.access or ()}


def _warn(run: Run, person: Holder, found: Mapping[uuid.UUID, "scbroker.Container[Any]"]) -> None:
    """Say how to verify a person, or who is in a group, unless they have access to a container already."""
    if any(person.id in _levels(each) for each in found.values()):
        return
    if isinstance(person.who, scbroker.Group):
        if not person.who.isManager:
            run.out.say(
                f"{capital(person.name)} has {counted(person.who.memberCount, 'member')}, and its managers "
                "can add others: `scbroker groups members` lists them."
            )
        return
    warn(run, [person])


def _succeeded(
    run: Run,
    ids: Mapping[uuid.UUID, str],
    members: Sequence[Holder],
    results: Mapping[uuid.UUID, object],
) -> list[uuid.UUID]:
    """Return the ids of the containers that were changed; report the others."""
    done = []
    for container_id, result in results.items():
        if isinstance(result, errors.BrokerError):
            run.failed(ids[container_id], named_in(result, members))
        else:
            done.append(container_id)
    return done


def _say_shared(
    run: Run,
    names: Sequence[str],
    done: Sequence[uuid.UUID],
    members: Sequence[Holder],
    permissions: ContainerAccessLevel,
    end: dt.datetime | None,
) -> None:
    if not done:
        return
    access = [
        {
            "userId": each.id,
            "name": each.label,
            "isGroup": each.is_group,
            "permissions": permissions,
            "expiresAt": end,
        }
        for each in members
    ]
    until = "" if end is None else f" until {dates.local(end)}"
    run.out.done(
        {"containerIds": done, "access": access},
        f"{_has(members, 'access')} to {some(map(repr, names))}{until}: {rights.in_words(permissions)}.",
    )
    if any(each.is_group for each in members) and not permissions & rights.WRITE:
        run.out.say(
            "All members of the group can read, and none can change anything: with --can write, its writers "
            "can; with --can owner, the members' roles alone decide."
        )


def _has(members: Sequence[Holder], what: str) -> str:
    names = capital(joined([each.name for each in members]))
    return f"{names} {'has' if len(members) == 1 else 'have'} {what}"


def permissions_of(can: str | None) -> ContainerAccessLevel | None:
    """Return the permissions that --can names, by a word or one by one; None without it.

    Raises `InvalidArgumentError` for unknown words, and for permissions that cannot be given together.
    """
    if can is None:
        return None
    if can.lower() in rights.WORDS:
        return rights.WORDS[can.lower()]
    found = ContainerAccessLevel(0)
    for each in can.split(","):
        right = _RIGHTS.get(each.strip().lower())
        if right is None:
            raise errors.InvalidArgumentError(
                f"--can cannot be {each.strip()!r}: pass one of {', '.join(rights.WORDS)}, or some of "
                f"{_NAMES}."
            )
        found |= right
    if missing := found.missing():
        raise errors.InvalidArgumentError(
            f"--can {can} also needs {rights.listed(missing)}: pass all of them."
        )
    return found
