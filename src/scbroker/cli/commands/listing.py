"""Define the commands that list containers, and show all that is known of one."""

from __future__ import annotations

import enum
import json
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import CONTAINERS, Run, command, complete_container, complete_holder
from scbroker.cli.names import ContainerArgument, OfType, tell_offers
from scbroker.cli.output import SHORT_ID, Row, ShortId, Size, fields_of, local
from scbroker.desk.names import (
    LONGEST_NAME,
    Container,
    Entry,
    all_containers,
    is_damaged,
    name_of,
    shortened,
)
from scbroker.desk.people import in_words, living, modifier_is_member

_NAMED_MEMBERS: Final = 3
_DEEPEST: Final = 32
_COLUMNS: Final = {
    "name": "NAME",
    "type": "TYPE",
    "length": "SIZE",
    "members": "PEOPLE",
    "version": "VERSION",
    "modifiedAt": "CHANGED",
    "id": "ID",
}
_LONG: Final = {
    "createdBy": "CREATED BY",
    "createdAt": "CREATED",
    "permissions": "PERMISSIONS",
    "contentAvailability": "CONTENT",
}
_METADATA: Final = (
    "type", "version", "createdBy", "createdAt", "modifiedBy", "modifiedAt", "modifiedVia", "via",
    "contentAvailability", "headerAvailability",
)  # fmt: skip
"""Fields of a container that a row takes as they are."""
_ERROR: Final = {"error": "ERROR"}
_VIA: Final = {"via": "THROUGH"}


class Sort(enum.StrEnum):
    """The field by which a list is sorted."""

    name = "name"
    changed = "changed"
    size = "size"


@command(CONTAINERS)
def ls(
    run: Run,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Only the container of this name, and those below this folder, such as photos/.",
            autocompletion=complete_container,
        ),
    ] = None,
    type: OfType = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Only containers that others can access too.")
    ] = False,
    mine: Annotated[
        bool | None,
        typer.Option(
            "--mine/--others", help="Only containers that you, or that others have created."
        ),
    ] = None,
    holders: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="PERSON",
            help="Only containers to which this person or group has access of their own, as far as you may "
            "see it: the name of a contact or group, an id or a contact card. Repeated, all of them must "
            "have it.",
            autocompletion=complete_holder,
        ),
    ] = None,
    long: Annotated[
        bool,
        typer.Option(
            "--long",
            "-l",
            help="Show more: whole ids, all members, creators, times and your permissions.",
        ),
    ] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="Show the names as a tree of folders.")
    ] = False,
    sort: Annotated[
        Sort | None,
        typer.Option(
            metavar="name|changed|size",
            help="Sort by this field; on a terminal the default is name.",
        ),
    ] = None,
    all: Annotated[
        bool,
        typer.Option(
            "--all", help="Also list the containers in which your contacts and links are kept."
        ),
    ] = False,
) -> None:
    """List your containers.

    In a pipe and with --json, the containers come in the order of their ids; with --sort, in that order. A
    container that cannot be verified or opened is a row with the error, and the exit status is then 1, unless
    people who are not your contacts can have damaged it.

    The list has the containers of the groups that you have accepted. The column THROUGH names the group
    through which you reach a container to which you have no access of your own.

    Names are encrypted in the header. So the command reads the header of each container that is new or has
    changed since this device read it, and members with the permission ReceiveAccessEvents see that.
    """
    named = frozenset(run.people.find_holder(each).id for each in holders or ())
    own = run.people.own_id

    def is_wanted(each: Container) -> bool:
        is_unshared = each.access is not None and len(each.access) == 1 and each.via is None
        return (
            (all or not each.isOwnDocument)
            and (name is None or _is_below(name_of(each) or "", name))
            and mine in (None, each.createdBy == own)
            and not (shared and is_unshared)
            and named <= {level.userId for level in living(each)}
        )

    damaged = list[errors.BrokerError]()

    def found() -> Iterator[Entry]:
        count = 0
        for each in all_containers(
            run.session, type, None if name is None else partial(_is_below, wanted=name)
        ):
            if isinstance(each, errors.BrokerError):
                damaged.append(each)
                yield each
            elif is_wanted(each):
                count += 1
                yield each
        if name is not None and not count and not damaged:
            raise errors.NotFoundError(
                f"You have no container named {name!r}, and none below it, that fits the options: "
                "`scbroker ls` lists your containers."
            )

    if tree and not run.out.as_json:
        _print_tree(run, found())
    else:
        _print_list(run, found(), sort, long=long)
    if run.has_left_out:
        run.out.say(
            "Some containers that you could read before are not listed any more: your access has ended, or "
            "the broker withholds them. `scbroker verify` names them."
        )
    tell_offers(run)
    if run.names.not_of_strangers(damaged):
        raise typer.Exit(1)


@command(CONTAINERS)
def info(run: Run, container: ContainerArgument) -> None:
    """Show everything about a container except its content.

    The command reads the header, and members with the permission ReceiveAccessEvents see that.
    """
    found = run.names.container(container, newest=True)
    run.out.fields(_details(run, found))
    if is_damaged(found):
        run.out.say("The header is damaged: the command shows what else is known of the container.")


def _is_below(name: str, wanted: str) -> bool:
    """Return whether a name is the wanted one, or in the folder of that name."""
    normal = unicodedata.normalize("NFC", wanted)
    return name == normal or name.startswith(normal if normal.endswith("/") else f"{normal}/")


def _print_list(run: Run, found: Iterator[Entry], sort: Sort | None, *, long: bool) -> None:
    rows: Iterable[Row] = (_row(run, each, long=long) for each in found)
    if sort or run.out.on_terminal:
        rows = sorted(rows, key=_KEYS[sort or Sort.name])
    columns = _COLUMNS | (_LONG if long else {})
    # A pipe always gets both columns. They come last, so that scripts which count fields keep working.
    for column in (_ERROR, _VIA):
        [key] = column
        if not run.out.on_terminal or any(row[key] for row in rows):
            columns |= column
    if not (long and run.out.on_terminal):
        run.out.rows(rows, columns)
        return
    for row in rows:  # no terminal is wide enough for a table of all columns
        run.out.fields({key: row[key] for key in columns})
        run.out.line({}, "")


_KEYS: Final[dict[Sort, Callable[[Row], Any]]] = {
    Sort.name: lambda row: (row["name"] is None, (row["name"] or "").casefold(), str(row["id"])),
    Sort.changed: lambda row: (
        row["modifiedAt"] is not None,
        row["modifiedAt"] and -row["modifiedAt"].timestamp(),
    ),
    Sort.size: lambda row: -(row["length"] or 0),
}


def _row(run: Run, each: Entry, *, long: bool) -> Row:
    empty = dict.fromkeys(
        (*_COLUMNS, *_METADATA, "modifierIsMember", "permissions", "access", "error", "code")
    )
    if isinstance(each, errors.BrokerError):
        id = each.containerId
        shown = id if id is None or long else ShortId(id)
        return {**empty, "id": shown, "error": each.message, "code": each.code}
    own = run.people.rights(each) or None
    row = {
        **empty,
        **fields_of(each, *_METADATA),
        "modifierIsMember": each.modifierIsMember,
        "name": _name(run, each),
        "length": Size.of(each.length),
        "members": _members(run, each, all=long),
        "id": each.id if long else ShortId(each.id),
        "permissions": own,
    }
    if run.out.as_json:
        return row | {"access": access_of(run, each.access)}
    via = each.via and run.people.group_of(each.via).removeprefix("group ")
    names = {"createdBy": run.people.name_of(each.createdBy), "via": via}
    return row | names | {"permissions": own and in_words(own)}


def _name(run: Run, each: Container) -> str | None:
    name = name_of(each)
    if not run.out.on_terminal:
        return name if name is None else shortened(name, LONGEST_NAME)
    return f"({each.id.hex[:SHORT_ID]})" if name is None else shortened(name)


def _members(run: Run, each: Container, *, all: bool) -> list[str] | None:
    """Return the names of the members, first the user's own and the group through which the user reads.

    A table has only the first few names, and omits this group, which has a column of its own.
    """
    if each.access is None:
        return None
    own, is_short = (run.people.own_id, each.via), run.out.on_terminal and not all
    levels = sorted(each.access, key=lambda level: level.userId not in own)
    if is_short:
        levels = [level for level in levels if level.userId != each.via]
    most = _NAMED_MEMBERS if is_short else len(levels)
    names = [run.people.of_level(level, is_short=is_short) for level in levels[:most]]
    return names + ([f"{len(levels) - most} more"] if len(levels) > most else [])


def access_of(run: Run, levels: Sequence[scbroker.AccessLevel] | None) -> list[Row] | None:
    """Return an access list for JSON."""
    if levels is None:
        return None
    return [
        {
            "userId": level.userId,
            "name": run.people.of_level(level),
            "isGroup": level.isGroup,
            "permissions": level.permissions,
            "expiresAt": level.expiresAt,
        }
        for level in levels
    ]


def _details(run: Run, found: Container) -> Row:
    own = run.people.rights(found) or None
    is_member = modifier_is_member(run.session, found)
    row = {
        "id": found.id,
        "name": name_of(found),
        "header": found.header and found.header.customHeaderObject,
        "length": Size.of(found.length),
        **fields_of(found, *_METADATA, "contentBy", "headerBy"),
        "modifierIsMember": is_member,
        "access": access_of(run, found.access),
        "permissions": own,
    }
    if run.out.as_json:
        return row
    return row | {
        "header": found.header and json.dumps(row["header"], ensure_ascii=False),
        "createdBy": _author(run, found.createdBy),
        "modifiedBy": _author(run, found.modifiedBy, found.modifiedVia, is_member),
        "modifiedVia": None,
        "modifierIsMember": None,
        "contentBy": _author(run, found.contentBy),
        "headerBy": _author(run, found.headerBy),
        "access": found.access and access_in_words(run, found.access),
        "via": found.via and run.people.group_of(found.via),
        "permissions": own and in_words(own),
    }


def _author(
    run: Run, user: uuid.UUID | None, via: uuid.UUID | None = None, is_member: bool | None = None
) -> str | None:
    """Return the name and the id of an author, and the group for which the author acted."""
    if user is None:
        return None
    known = run.people.named_with_id(user)
    if via is None:
        return known
    former = ", who is not a member any more" if is_member is False else ""
    return f"{known} through {run.people.group_of(via)}{former}"


def access_in_words(run: Run, levels: Sequence[scbroker.AccessLevel]) -> list[str]:
    return [
        f"{run.people.of_level(level)} ({in_words(level.permissions)}"
        + (f" until {local(level.expiresAt):%Y-%m-%d %H:%M}" if level.expiresAt else "")
        + ")"
        for level in levels
    ]


def _print_tree(run: Run, found: Iterable[Entry]) -> None:
    root: dict[str, Any] = {}
    for each in found:
        if isinstance(each, errors.BrokerError):
            root.setdefault(f"({each.containerId}: {each.message})", {})
            continue
        name = name_of(each) or f"({each.id.hex[:SHORT_ID]})"
        parts = name.split("/") if name.count("/") < _DEEPEST else [name]
        folder = root
        for part in parts[:-1]:
            folder = folder.setdefault(f"{shortened(part)}/", {})
        size = "" if each.length is None else f"  {Size(each.length).shown()}"
        folder[f"{shortened(parts[-1])}{size}  {each.id.hex[:SHORT_ID]}"] = {}
    for line in _branches(root):
        run.out.line({}, line)


def _branches(folder: dict[str, Any], indent: str = "") -> Iterator[str]:
    entries = sorted(folder.items(), key=lambda entry: entry[0].casefold())
    for number, (text, below) in enumerate(entries, 1):
        is_last = number == len(entries)
        yield f"{indent}{'└── ' if is_last else '├── '}{text}"
        yield from _branches(below, indent + ("    " if is_last else "│   "))
