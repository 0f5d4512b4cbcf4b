"""Define the commands that give, take and refuse access to containers, and those of links."""

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import SHARING, Run, Yes, command, complete_container, complete_holder
from scbroker.cli.commands.contacts import qr_code
from scbroker.cli.commands.getting import (
    Force,
    OutputOption,
    containers_below,
    found_containers,
    save,
    without,
)
from scbroker.cli.names import (
    CONTAINER,
    LINK_MARK,
    AnyContainers,
    ContainerArgument,
    ContainersArgument,
    Everyone,
    Holder,
    PersonArgument,
    Recursive,
    check_others,
    label_of,
    warn,
)
from scbroker.cli.output import Size, Until, end_of, fields_of, in_zone, until_text
from scbroker.cli.secrets import LinkArgument, LinkPasswordFile, link_url, secret
from scbroker.cli.together import tried
from scbroker.desk.names import Container, name_of
from scbroker.desk.people import (
    MEANINGS,
    READ,
    WORDS,
    WRITE,
    capital,
    counted,
    explained,
    in_words,
    is_renamed,
    joined,
    listed,
    some,
)
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
        metavar="|".join([*WORDS, "RIGHT,..."]),
        help=f"What the people can do. {explained(MEANINGS)} Or the exact permissions: one or "
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
    end = None if until is None else end_of(until)
    texts, members = _named(run, [container, *(people or ())], others, "--with")
    check_others(run, members, "You have access already: name another person.")
    ids = ids_of(run, texts, recursive, everyone, members, gives=True)
    given = READ if permissions is None else permissions
    found = _readable(run, ids)
    listed = set[uuid.UUID]()
    for container_id, present in found.items():
        levels = _levels(present)
        listed |= levels.keys()
        for each in members if permissions is None else ():  # nobody loses permissions then
            level = levels.get(each.id)
            if level is not None and level.permissions & ~READ:
                raise errors.InvalidArgumentError(
                    f"{capital(each.name)} has more permissions on {ids[container_id]!r} than to read it "
                    f"({in_words(level.permissions)}): pass --can with the ones to have from now on."
                )
    for each in members:
        if each.id in listed:
            continue
        if not isinstance(each.who, scbroker.Group):
            warn(run, [each])
        elif not each.who.isManager:
            run.out.say(
                f"{capital(each.name)} has {counted(each.who.memberCount, 'member')}, and its managers "
                "can add others: `scbroker groups members` lists them."
            )
    granted = [scbroker.AccessLevel(each.who, given, end) for each in members]
    results = run.session.grantAccess(list(found), granted).result() if found else []
    done = list(run.succeeded(dict(zip(found, results, strict=True)), ids.__getitem__))
    if not done:
        return
    access = [
        {
            "userId": each.id,
            "name": f"group {each.title}" if each.is_group else each.name,
            "isGroup": each.is_group,
            "permissions": given,
            "expiresAt": end,
        }
        for each in members
    ]
    names, ends = some(repr(ids[each]) for each in done), until_text(end)
    run.out.done(
        {"containerIds": done, "access": access},
        f"{_has(members, 'access')} to {names}{ends}: {in_words(given)}.",
    )
    if any(each.is_group for each in members) and not given & WRITE:
        run.out.say(
            "All members of the group can read, and none can change anything: with --can write, its writers "
            "can; with --can owner, the members' roles alone decide."
        )


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
    changed = run.succeeded(dict(zip(found, results, strict=True)), ids.__getitem__)
    done = [id for id, each in changed.items() if each.version > found[id].version]
    names = joined([each.name for each in members])
    if found and not done and len(changed) == len(found):
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


def _still_reached(run: Run, members: Sequence[Holder], containers: "Sequence[Container]") -> str:
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
    leaving = {
        each: tried(run.session.leaveContainer(each, abandon=abandon).result) for each in ids
    }
    if left := list(run.succeeded(leaving, ids.__getitem__)):
        text = f"You have no access to {some(repr(ids[each]) for each in left)} any more."
        run.out.done({"containerIds": left}, text)


@command(SHARING)
def block(run: Run, person: PersonArgument) -> None:
    """Let a person share no more containers with you.

    You keep the access that the person has given you already: `scbroker leave` gives it up. The broker
    enforces the block. The person can notice it, and could register as another user.
    """
    blocked = run.people.find(person)
    check_others(run, [blocked], "Name another person.")
    run.session.blockUser(blocked.who).result()
    run.out.done(
        {"userId": blocked.id, "name": blocked.name},
        f"{blocked.name} cannot share containers with you any more. What you have access to stays.",
    )


@command(SHARING)
def unblock(run: Run, person: PersonArgument) -> None:
    """Let a person share containers with you again."""
    found = run.people.find(person)
    run.session.unblockUser(found.who).result()
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


def _readable(run: Run, ids: Mapping[uuid.UUID, str]) -> dict[uuid.UUID, Container]:
    """Return the metadata of the containers that can be read; report the others."""
    results = run.session.getContainers(list(ids), content=False, headers=False).result()
    return run.succeeded(dict(zip(ids, results, strict=True)), ids.__getitem__)


def _levels(container: Container) -> dict[uuid.UUID, "scbroker.AccessLevel"]:
    return {each.userId: each for each in container.access or ()}


def _has(members: Sequence[Holder], what: str) -> str:
    names = capital(joined([each.name for each in members]))
    return f"{names} {'has' if len(members) == 1 else 'have'} {what}"


def permissions_of(can: str | None) -> ContainerAccessLevel | None:
    """Return the permissions that --can names, by a word or one by one; None without it.

    Raises `InvalidArgumentError` for unknown words, and for permissions that cannot be given together.
    """
    if can is None:
        return None
    if can.lower() in WORDS:
        return WORDS[can.lower()]
    found = ContainerAccessLevel(0)
    for each in can.split(","):
        right = _RIGHTS.get(each.strip().lower())
        if right is None:
            raise errors.InvalidArgumentError(
                f"--can cannot be {each.strip()!r}: pass one of {', '.join(WORDS)}, or some of "
                f"{_NAMES}."
            )
        found |= right
    if missing := found.missing():
        raise errors.InvalidArgumentError(
            f"--can {can} also needs {listed(missing)}: pass all of them."
        )
    return found


_OPENED = {"name": "NAME", "length": "SIZE", "type": "TYPE", "modifiedAt": "CHANGED", "id": "ID"}
_COLUMNS = {
    "name": "NAME",
    "containers": "CONTAINERS",
    "expiresAt": "UNTIL",
    "expired": "EXPIRED",
    "hasPassword": "PASSWORD",
    "userId": "USER",
}


Qr = Annotated[bool, typer.Option("--qr", help="Show the link as a QR code on the terminal.")]
_NAMED = "The name of a link, or the id of its user."


@command(SHARING)
def link(
    run: Run,
    containers: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONTAINER", help=CONTAINER, autocompletion=complete_container),
    ] = None,
    until: Until = None,
    recursive: Recursive = False,
    everyone: Everyone = False,
    password: Annotated[
        bool,
        typer.Option("--password", help="Ask for a password, which is needed to open the link."),
    ] = False,
    password_file: LinkPasswordFile = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A name for your own list of links, which others do not see."
        ),
    ] = None,
    qr: Qr = False,
    show: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Print a link again, to send it once more. {_NAMED}"),
    ] = None,
    revoke: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"End a link, also for people who have it already; they may have kept copies. {_NAMED}",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Make a link for people without an account.

    Without a container, the command lists your links; with --show or --revoke, it shows or ends one. Revoke
    expired links too: this removes the users of the links from the containers.

    Anybody who has the link, and its password if it has one, can read the containers until the end: send the
    password another way than the link. The link contains the API key of the profile.

    `scbroker open` opens a link, and so does a Python program; a browser does not. Only the link goes to
    standard output. SCBROKER_LINK_PASSWORD gives a password without a terminal.
    """
    if qr and not run.out.on_terminal:
        raise errors.InvalidArgumentError("--qr needs a terminal, and no --json.")
    if sum(map(bool, (containers, show, revoke))) > 1:
        raise errors.InvalidArgumentError(
            "CONTAINER, --show and --revoke exclude each other: pass one of them."
        )
    if show:
        found = _find(run, show)
        _write(run, found, _names(run, [found]), qr=qr)
    elif revoke:
        found = _find(run, revoke)
        called = str(found.userId) if found.name is None else repr(found.name)
        run.confirm(f"Revoke the link {called}?", yes)
        run.session.revokeLink(found).result()
        row = {"userId": found.userId, "name": found.name}
        run.out.done(row, f"The link {called} opens nothing any more.")
    elif containers and until:
        end = end_of(until)
        ids = ids_of(run, containers, recursive, everyone, gives=True)
        needs_password = password or password_file or "SCBROKER_LINK_PASSWORD" in os.environ
        chosen = secret("link password", password_file, new=True) if needs_password else None
        try:
            making = run.session.createLink(list(ids), expiresAt=end, password=chosen, name=name)
            made = making.result()
        except errors.BrokerError as error:
            if (label := ids.get(error.containerId or uuid.UUID(int=0))) is None:
                raise
            raise type(error)(f"{label}: {error.message}") from None
        _write(run, made, ids, qr=qr)
        who = "this link and its password" if made.hasPassword else "this link"
        run.out.say(f"Anybody with {who} can read until {in_zone(end)}.")
    elif containers or until:
        raise errors.InvalidArgumentError(
            "A link needs containers and an end: pass CONTAINER and --until, such as 7d."
        )
    else:
        links = run.session.getLinks().result()
        names = _names(run, links)
        run.out.rows([_row(each, names) for each in links], _COLUMNS)


def _write(run: Run, link: "scbroker.Link", names: Mapping[uuid.UUID, str], *, qr: bool) -> None:
    """Write the URL, which is a secret, to standard output, and its QR code where it is wanted."""
    run.out.line({"url": link.url, **_row(link, names)}, link.url)
    if qr:
        qr_code(link.url).terminal(sys.stdout, compact=True)


def _names(run: Run, links: "Sequence[scbroker.Link]") -> dict[uuid.UUID, str]:
    """Return, by id, the names of those containers of some links that can be read."""
    ids = list({each: None for link in links for each in link.containerIds})
    found = run.session.getContainers(ids, content=False).result() if ids else []
    return {each.id: label_of(each) for each in found if isinstance(each, scbroker.Container)}


def _find(run: Run, text: str) -> "scbroker.Link":
    """Return the link with this user id, name or URL. Raises `InvalidArgumentError` for a name of several."""
    links = run.session.getLinks().result()
    found = [
        each for each in links if text in (str(each.userId), each.userId.hex, each.name, each.url)
    ]
    if len(found) > 1:
        ids = ", ".join(str(each.userId) for each in found)
        raise errors.InvalidArgumentError(
            f"{len(found)} links are named {text!r}: use the user id of one, {ids}."
        )
    if not found:
        named = "like this" if LINK_MARK.search(text) else f"named {text!r}"
        raise errors.NotFoundError(f"You have no link {named}: `scbroker link` lists your links.")
    return found[0]


@command(SHARING, "open")
def open_link(
    run: Run,
    link: LinkArgument = None,
    containers: AnyContainers = None,
    output: OutputOption = None,
    force: Force = False,
    password_file: LinkPasswordFile = None,
) -> None:
    """List or save what a link opens.

    This needs no account and no profile. Without --output, the command lists the containers; with it, several
    contents are saved below a folder, under the names of their containers.

    Other users of this machine can see the arguments of a command, and shells keep them. So leave LINK out
    and type it when you are asked, or give it on standard input. If the link has a password,
    SCBROKER_LINK_PASSWORD is used, or you are asked.
    """
    url = link_url(link)
    try:
        opening = scbroker.openLink(url)
    except errors.CredentialsError:  # raised before anything is sent, for a link with a password
        opening = scbroker.openLink(url, secret("link password", password_file))
    run.use(opening.result())
    found = _opened(run, containers)
    if output is None:
        rows = [
            fields_of(each, "id", "type", "modifiedAt")
            | {"name": name_of(each), "length": Size.of(each.length)}
            for each in sorted(found, key=label_of)
        ]
        run.out.rows(rows, _OPENED)
    else:
        save(run, found, output, recursive=len(found) > 1, force=force, how="scbroker open LINK")


def _opened(run: Run, texts: list[str] | None) -> list[Container]:
    """Return all containers that a link opens, or only the named ones."""
    if texts:
        return found_containers(run, texts, recursive=False)
    results = {
        each.id if isinstance(each, scbroker.Container) else each.containerId: each
        for each in run.session.iterContainers()
    }
    return list(run.succeeded(results).values())


def _row(link: "scbroker.Link", names: Mapping[uuid.UUID, str]) -> dict[str, Any]:
    """Return a link without its URL, which is a secret."""
    fields = (
        "name", "userId", "containerIds", "permissions", "expiresAt", "expired", "hasPassword", "createdAt",
    )  # fmt: skip
    containers = [names.get(each, str(each)) for each in link.containerIds]
    return fields_of(link, *fields) | {"containers": containers}
