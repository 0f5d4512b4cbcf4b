"""Define the commands that make, list, revoke and open links for people without an account."""

import datetime as dt
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli import dates
from scbroker.cli.command import SHARING, Yes, command
from scbroker.cli.commands.card import qr_code
from scbroker.cli.commands.getting import Force, OutputOption, found_containers, save
from scbroker.cli.commands.sharing import ids_of
from scbroker.cli.completion import complete_container
from scbroker.cli.names import CONTAINER, LINK_MARK, AnyContainers, Everyone, Recursive, label_of
from scbroker.cli.output import Size, fields_of
from scbroker.cli.run import Run
from scbroker.cli.secrets import LinkArgument, LinkPasswordFile, link_url, secret
from scbroker.desk.names import name_of

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
    until: dates.Until = None,
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
        end = dates.end_of(until)
        ids = ids_of(run, containers, recursive, everyone, gives=True)
        needs_password = password or password_file or "SCBROKER_LINK_PASSWORD" in os.environ
        chosen = secret("link password", password_file, new=True) if needs_password else None
        made = _make(run, ids, end, chosen, name)
        _write(run, made, ids, qr=qr)
        who = "this link and its password" if made.hasPassword else "this link"
        run.out.say(f"Anybody with {who} can read until {dates.local(end)}.")
    elif containers or until:
        raise errors.InvalidArgumentError(
            "A link needs containers and an end: pass CONTAINER and --until, such as 7d."
        )
    else:
        links = run.session.getLinks().result()
        names = _names(run, links)
        run.out.rows([_row(each, names) for each in links], _COLUMNS)


def _make(
    run: Run, ids: Mapping[uuid.UUID, str], end: dt.datetime, password: str | None, name: str | None
) -> "scbroker.Link":
    try:
        making = run.session.createLink(list(ids), expiresAt=end, password=password, name=name)
        return making.result()
    except errors.BrokerError as error:
        if (called := ids.get(error.containerId or uuid.UUID(int=0))) is None:
            raise
        raise type(error)(f"{called}: {error.message}") from None


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


def _opened(run: Run, texts: list[str] | None) -> "list[scbroker.Container[Any]]":
    """Return all containers that a link opens, or only the named ones."""
    if texts:
        return found_containers(run, texts, recursive=False)
    found = []
    for each in run.session.iterContainers():
        if isinstance(each, errors.BrokerError):
            run.failed(str(each.containerId), each)
        else:
            found.append(each)
    return found


def _row(link: "scbroker.Link", names: Mapping[uuid.UUID, str]) -> dict[str, Any]:
    """Return a link without its URL, which is a secret."""
    fields = (
        "name", "userId", "containerIds", "permissions", "expiresAt", "expired", "hasPassword", "createdAt",
    )  # fmt: skip
    containers = [names.get(each, str(each)) for each in link.containerIds]
    return fields_of(link, *fields) | {"containers": containers}
