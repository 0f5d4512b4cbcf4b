"""Define the commands that give, take and refuse access to containers."""

import datetime as dt
import shlex
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli import dates, rights
from scbroker.cli.command import SHARING, Yes, command
from scbroker.cli.dates import Until
from scbroker.cli.names import ContainerArgument, ContainersArgument, Recursive, label_of
from scbroker.cli.people import PersonArgument, complete_person
from scbroker.cli.rights import Can, Rights
from scbroker.cli.run import Run

if TYPE_CHECKING:
    from scbroker.vocabulary import ContainerAccessLevel

PeopleArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PERSON",
        help="A person: the name of a contact, a user id or a contact card.",
        autocompletion=complete_person,
    ),
]
_IN_MESSAGE = 3
"""The most containers that a message names; of more it says the number."""


def _of_people(option: str) -> Any:
    return typer.Option(
        option,
        metavar="PERSON",
        help="A person, for several containers: all arguments are containers then. Can be repeated.",
        autocompletion=complete_person,
    )


class Person(NamedTuple):
    """A person of a command line, with a name for messages."""

    who: "scbroker.Contact | scbroker.ContactCard | uuid.UUID"
    user_id: uuid.UUID
    name: str


@command(SHARING)
def share(
    run: Run,
    container: ContainerArgument,
    people: PeopleArgument = None,
    others: Annotated[list[str] | None, _of_people("--with")] = None,
    recursive: Recursive = False,
    can: Can = None,
    exactly: Rights = None,
    until: Until = None,
) -> None:
    """Give people access to a container.

    People who have access already get the named permissions and end in place of their present ones. All other
    members keep their access.

    For several containers, name the people with --with: `scbroker share *.pdf --with Bob --with Carol`.

    You can give only permissions that you have, and for no longer than you have them. Anybody who can read
    may keep a copy.
    """
    permissions = rights.permissions_of(can, exactly)
    end = None if until is None else dates.end_of(until)
    texts, members = _named(run, [container, *(people or ())], others, "--with")
    _check_others(run, members, "You have access already: name another person.")
    ids = ids_of(run, texts, recursive)
    given = rights.READ if permissions is None else permissions
    found = _changeable(run, ids, members, given, end)
    if permissions is None:
        _check_keeps(found, ids, members)
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
) -> None:
    """Take people's access to a container away.

    The container gets a new key, so these people cannot open what is written from now on. They may have kept
    copies of what they could read.

    For several containers, name the people with --from: `scbroker revoke -r photos/ --from Bob`.
    """
    texts, members = _named(run, [container, *(people or ())], others, "--from")
    _check_others(run, members, "To give up your own access, run `scbroker leave`.")
    ids = ids_of(run, texts, recursive)
    found = _changeable(run, ids, members, None, None)
    users = [each.user_id for each in members]
    results = run.session.revokeAccess(list(found), users).result() if found else []
    by_id = dict(zip(found, results, strict=True))
    done = [
        each
        for each in _succeeded(run, ids, members, by_id)
        if _version(by_id[each]) > found[each].version
    ]
    names = _and([each.name for each in members])
    if found and not done and not any(isinstance(each, errors.BrokerError) for each in results):
        raise errors.NotFoundError(f"{_has(members, 'no access')} to {_some(list(ids.values()))}.")
    if done:
        run.out.done(
            {"containerIds": done, "userIds": users},
            f"{_has(members, 'no access')} to {_some([ids[each] for each in done])} any more. A new key "
            f"keeps {names} from what is written from now on.",
        )


@command(SHARING)
def leave(
    run: Run,
    containers: ContainersArgument,
    recursive: Recursive = False,
    abandon: Annotated[
        bool,
        typer.Option(
            "--abandon",
            help="Leave even if nobody else may change access: nobody can share the container any more then.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Give up your own access to containers.

    Only a member who may share a container can give you access again. The next change of the container makes
    a new key, which you do not get.
    """
    ids = ids_of(run, containers, recursive)
    run.confirm(f"Give up your access to {_some(list(ids.values()))}?", yes)
    left = []
    for container_id, name in ids.items():
        try:
            run.session.leaveContainer(container_id, abandon=abandon).result()
        except errors.BrokerError as error:
            run.failed(name, error)
        else:
            left.append(container_id)
    if left:
        text = f"You have no access to {_some([ids[each] for each in left])} any more."
        run.out.done({"containerIds": left}, text)


@command(SHARING)
def block(run: Run, person: PersonArgument) -> None:
    """Let a person share no more containers with you.

    What the person has shared already stays: `scbroker leave` gives it up. The broker enforces the block. The
    person can notice it, and could register as another user.
    """
    blocked = _person(run, person)
    _check_others(run, [blocked], "Name another person.")
    run.session.blockUser(blocked.who).result()
    run.out.done(
        {"userId": blocked.user_id, "name": blocked.name},
        f"{blocked.name} cannot share containers with you any more. What you have access to stays.",
    )


@command(SHARING)
def unblock(run: Run, person: PersonArgument) -> None:
    """Let a person share containers with you again."""
    found = _person(run, person)
    if found.user_id not in run.session.getBlockedUsers().result():
        raise errors.NotFoundError(
            f"{found.name} is not blocked: `scbroker blocked` lists the people who are."
        )
    run.session.unblockUser(found.who).result()
    run.out.done(
        {"userId": found.user_id, "name": found.name},
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


def ids_of(run: Run, texts: Sequence[str], recursive: bool) -> dict[uuid.UUID, str]:
    """Return the ids of the containers that are named, or below the names, with names for messages."""
    if recursive:
        below = [each for text in texts for each in run.names.below(text)]
        return {each.id: label_of(each) for each in sorted(below, key=label_of)}
    return dict(zip(run.names.ids_of(texts), texts, strict=True))


def _named(
    run: Run, arguments: Sequence[str], people: Sequence[str] | None, option: str
) -> tuple[Sequence[str], list[Person]]:
    """Return the containers' names and the people: all but the first argument, or those of the option."""
    texts, names = (arguments, people) if people else (arguments[:1], arguments[1:])
    if not names:
        raise errors.InvalidArgumentError(
            f"No person is named: add the people after the container {texts[0]!r}, or pass {option} PERSON."
        )
    try:
        found = [_person(run, each) for each in names]
    except errors.NotFoundError as error:
        hint = "" if people or len(names) < 2 else f" For several containers, use {option} PERSON."
        raise errors.NotFoundError(f"{error}{hint}") from None
    return texts, list({each.user_id: each for each in found}.values())


def _person(run: Run, text: str) -> Person:
    found = run.people.find(text)
    if isinstance(found, uuid.UUID):
        return Person(found, found, str(found))
    return Person(found, found.userId, found.name)


def _check_others(run: Run, people: Sequence[Person], what_to_do: str) -> None:
    if any(each.user_id == run.profile.user_id for each in people):
        raise errors.InvalidArgumentError(f"You are the user {run.profile.user_id}. {what_to_do}")


def _changeable(
    run: Run,
    ids: Mapping[uuid.UUID, str],
    members: Sequence[Person],
    given: "ContainerAccessLevel | None",
    end: dt.datetime | None,
) -> dict[uuid.UUID, "scbroker.Container[Any]"]:
    """Return the metadata of the containers where the user may make this change; report the others."""
    found = {}
    results = run.session.getContainers(list(ids), content=False, headers=False).result()
    for container_id, result in zip(ids, results, strict=True):
        try:
            if isinstance(result, errors.BrokerError):
                raise result
            _check_allowed(run, result, members, given, end)
        except errors.BrokerError as error:
            run.failed(ids[container_id], error)
        else:
            found[container_id] = result
    return found


def _check_allowed(
    run: Run,
    container: "scbroker.Container[Any]",
    members: Sequence[Person],
    given: "ContainerAccessLevel | None",
    end: dt.datetime | None,
) -> None:
    """Raise `PermissionDeniedError` for access that the user may not give, or take if `given` is None."""
    levels = _levels(container)
    own = levels.get(run.profile.user_id)
    if own is None or not own.permissions & rights.SHARE:
        raise errors.PermissionDeniedError(
            "You may not change who has access: ask a member who can manage or own the container."
        )
    if given is not None and (lacking := given & ~own.permissions):
        raise errors.PermissionDeniedError(
            f"You cannot give {rights.in_words(lacking)}, which you do not have: pass --rights without it."
        )
    if given is not None and own.expiresAt is not None and (end is None or end > own.expiresAt):
        raise errors.PermissionDeniedError(
            f"Your own access ends at {dates.local(own.expiresAt)}: pass --until with an earlier time."
        )
    for each in members:
        level = levels.get(each.user_id)
        if level is not None and level.permissions & ~own.permissions:
            raise errors.PermissionDeniedError(
                f"{each.name} has permissions that you do not have, and cannot be changed by you: "
                f"{rights.in_words(level.permissions)}."
            )


def _levels(container: "scbroker.Container[Any]") -> dict[uuid.UUID, "scbroker.AccessLevel"]:
    return {each.userId: each for each in container.access or ()}


def _check_keeps(
    found: Mapping[uuid.UUID, "scbroker.Container[Any]"],
    ids: Mapping[uuid.UUID, str],
    members: Sequence[Person],
) -> None:
    """Raise `InvalidArgumentError` if somebody would lose permissions that the person has not named."""
    for container_id, container in found.items():
        for each in members:
            level = _levels(container).get(each.user_id)
            if level is not None and level.permissions & ~rights.READ:
                raise errors.InvalidArgumentError(
                    f"{each.name} has more permissions on {ids[container_id]!r} than to read it "
                    f"({rights.in_words(level.permissions)}): pass --can with the ones to have from now on."
                )


def _warn(run: Run, person: Person, found: Mapping[uuid.UUID, "scbroker.Container[Any]"]) -> None:
    """Say how to make sure who a person is, unless they have been verified or have access already."""
    if any(person.user_id in _levels(each) for each in found.values()):
        return
    if isinstance(person.who, scbroker.Contact):
        if not person.who.verified:
            run.out.say(
                f"Warning: {person.name} is not verified, so this may be somebody else's card. Compare "
                f"fingerprints with `scbroker contacts verify {shlex.quote(person.name)}`."
            )
    elif isinstance(person.who, scbroker.ContactCard):
        run.out.say(
            f"Warning: anybody can make a card that says {person.name!r}. Add it with `scbroker contacts "
            f"add`, and compare fingerprints with `scbroker contacts verify`."
        )
    else:
        run.out.say(
            f"Warning: an id alone does not say who the user {person.user_id} is. Add the person's card with "
            "`scbroker contacts add`, and compare fingerprints with `scbroker contacts verify`."
        )


def _succeeded(
    run: Run,
    ids: Mapping[uuid.UUID, str],
    members: Sequence[Person],
    results: Mapping[uuid.UUID, object],
) -> list[uuid.UUID]:
    """Return the ids of the containers that were changed; report the others."""
    done = []
    for container_id, result in results.items():
        if isinstance(result, errors.BrokerError):
            run.failed(ids[container_id], _with_names(result, members))
        else:
            done.append(container_id)
    return done


def _with_names(error: errors.BrokerError, members: Sequence[Person]) -> errors.BrokerError:
    """Return an error whose message has the names of people in place of their ids."""
    text = error.message
    for each in members:
        if not isinstance(each.who, uuid.UUID):
            for word in ("user", "User"):
                text = text.replace(f"{word} {each.user_id}", each.name)
    return type(error)(text)


def _version(result: object) -> int:
    return result.version if isinstance(result, scbroker.SecuredContainer) else 0


def _say_shared(
    run: Run,
    names: Sequence[str],
    done: Sequence[uuid.UUID],
    members: Sequence[Person],
    permissions: "ContainerAccessLevel",
    end: dt.datetime | None,
) -> None:
    if not done:
        return
    access = [
        {"userId": each.user_id, "name": each.name, "permissions": permissions, "expiresAt": end}
        for each in members
    ]
    until = "" if end is None else f" until {dates.local(end)}"
    run.out.done(
        {"containerIds": done, "access": access},
        f"{_has(members, 'access')} to {_some(names)}{until}: {rights.in_words(permissions)}.",
    )


def _has(members: Sequence[Person], what: str) -> str:
    return (
        f"{_and([each.name for each in members])} {'has' if len(members) == 1 else 'have'} {what}"
    )


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _some(names: Sequence[str]) -> str:
    """Return the names of containers, or how many there are."""
    if len(names) > _IN_MESSAGE:
        return f"{len(names)} containers"
    return _and([repr(each) for each in names])
