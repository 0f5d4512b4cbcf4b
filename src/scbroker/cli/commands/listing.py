"""Define the commands that list containers, and show all that is known of one."""

from __future__ import annotations

import enum
import json
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli.command import CONTAINERS, command
from scbroker.cli.names import ContainerArgument, complete_container, name_of
from scbroker.cli.output import SHORT_ID, Row, ShortId, Size, local
from scbroker.cli.rights import in_words
from scbroker.cli.run import Run

if TYPE_CHECKING:
    Entry = scbroker.Container[Any] | errors.BrokerError

_OWN_TYPES: Final = "scbroker."
"""The beginning of the types in which the library keeps documents of the user's own."""
_NAMED_MEMBERS: Final = 3
_LONGEST_NAME: Final = 120
_DEEPEST: Final = 32
_COLUMNS: Final = {
    "name": "NAME",
    "type": "TYPE",
    "length": "SIZE",
    "members": "WHO",
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
_ERROR: Final = {"error": "ERROR"}


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
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only containers of this type.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Only containers that others can access too.")
    ] = False,
    mine: Annotated[
        bool, typer.Option("--mine", help="Only containers that you have created.")
    ] = False,
    others: Annotated[
        bool, typer.Option("--others", help="Only containers that others have created.")
    ] = False,
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

    In a pipe and with --json, the containers come in the order of their ids, each as soon as it is read; with
    --sort, in that order. A container that cannot be verified or opened is a row with the error, and the exit
    status is then 1.

    Names are encrypted in the header. So the command reads the header of each container, and members with the
    permission ReceiveAccessEvents see that.
    """
    if mine and others:
        raise errors.InvalidArgumentError("--mine and --others exclude each other: pass one.")
    if tree and (run.out.as_json or long or sort):
        raise errors.InvalidArgumentError(
            "--tree shows names alone: leave out --json, --long and --sort."
        )
    damaged = list[uuid.UUID | None]()

    def wanted(each: scbroker.Container[Any]) -> bool:
        is_mine = each.createdBy == run.people.own_id
        return (
            (all or not (is_mine and is_own_document(each)))
            and (name is None or _is_below(name_of(each) or "", name))
            and not (mine and not is_mine)
            and not (others and is_mine)
            and not (shared and _is_unshared(each))
        )

    def found() -> Iterator[Entry]:
        count = 0
        for each in run.names.all(type):
            if isinstance(each, errors.BrokerError):
                damaged.append(each.containerId)
                yield each
            elif wanted(each):
                count += 1
                yield each
        if name is not None and not count and not damaged:
            raise errors.NotFoundError(
                f"You have no container named {name!r}, and none below it: `scbroker ls` lists your "
                "containers."
            )

    if tree:
        _print_tree(run, found())
    else:
        _print_list(run, found(), sort, long=long)
    if run.has_left_out:
        run.out.say(
            "Some containers that you could read before are not listed any more: your access has ended, or "
            "the broker withholds them. `scbroker verify` names them."
        )
    if damaged:
        raise typer.Exit(1)


@command(CONTAINERS)
def info(run: Run, container: ContainerArgument) -> None:
    """Show everything about a container except its content.

    The command reads the header, and members with the permission ReceiveAccessEvents see that.
    """
    found = run.session.getContainers([run.names.id_of(container)], content=False).result()[0]
    if isinstance(found, errors.BrokerError):
        run.failed(container, found)
    else:
        run.out.fields(_details(run, found))


def is_own_document(container: scbroker.Container[Any]) -> bool:
    """Return whether the library keeps a document in it: a member could give its type to any shared one."""
    return (container.type or "").startswith(_OWN_TYPES) and _is_unshared(container)


def _is_unshared(container: scbroker.Container[Any]) -> bool:
    return container.access is not None and len(container.access) == 1


def _is_below(name: str, wanted: str) -> bool:
    """Return whether a name is the wanted one, or in the folder of that name."""
    normal = unicodedata.normalize("NFC", wanted)
    return name == normal or name.startswith(normal if normal.endswith("/") else f"{normal}/")


def _print_list(run: Run, found: Iterator[Entry], sort: Sort | None, *, long: bool) -> None:
    rows: Iterable[Row] = (_row(run, each, long=long) for each in found)
    if sort or run.out.on_terminal:
        rows = sorted(rows, key=_KEYS[sort or Sort.name])
    columns = _COLUMNS | (_LONG if long else {})
    if not run.out.on_terminal or any(row["error"] for row in rows):
        columns |= _ERROR
    if not (long and run.out.on_terminal):
        run.out.rows(rows, columns)
        return
    for row in rows:  # a table of so many columns would fit no terminal
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
    keys = (*_COLUMNS, "createdBy", "createdAt", "modifiedBy", "permissions", "access",
            "contentAvailability", "headerAvailability", "error", "code")  # fmt: skip
    empty = dict.fromkeys(keys)
    if isinstance(each, errors.BrokerError):
        id = each.containerId
        shown = id if id is None or long else ShortId(id)
        return {**empty, "id": shown, "error": each.message, "code": each.code}
    own = _own_permissions(run, each)
    return {
        **empty,
        "name": _name(run, each),
        "type": each.type,
        "length": None if each.length is None else Size(each.length),
        "members": _members(run, each, all=long),
        "version": each.version,
        "modifiedAt": each.modifiedAt,
        "id": each.id if long else ShortId(each.id),
        "createdBy": each.createdBy if run.out.as_json else run.people.name_of(each.createdBy),
        "createdAt": each.createdAt,
        "modifiedBy": each.modifiedBy,
        "permissions": own if run.out.as_json or own is None else in_words(own),
        "access": _access(run, each),
        "contentAvailability": each.contentAvailability,
        "headerAvailability": each.headerAvailability,
    }


def _name(run: Run, each: scbroker.Container[Any]) -> str | None:
    name = name_of(each)
    if not run.out.on_terminal:
        return name
    return f"({each.id.hex[:SHORT_ID]})" if name is None else _cut(name)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _members(run: Run, each: scbroker.Container[Any], *, all: bool) -> list[str] | None:
    """Return the names of the members, with the user's own at the beginning; a few for a table."""
    if each.access is None:
        return None
    levels = sorted(each.access, key=lambda level: level.userId != run.people.own_id)
    most = _NAMED_MEMBERS if run.out.on_terminal and not all else len(levels)
    if len(levels) == most + 1:
        most += 1  # "1 more" is no shorter than a name
    names = [run.people.name_of(level.userId) for level in levels[:most]]
    return names + ([f"{len(levels) - most} more"] if len(levels) > most else [])


def _access(run: Run, each: scbroker.Container[Any]) -> list[Row] | None:
    """Return the access list for JSON; for a person, `_members` has its names."""
    if each.access is None or not run.out.as_json:
        return None
    return [
        {
            "userId": level.userId,
            "name": run.people.name_of(level.userId),
            "permissions": level.permissions,
            "expiresAt": level.expiresAt,
        }
        for level in each.access
    ]


def _own_permissions(
    run: Run, each: scbroker.Container[Any]
) -> scbroker.ContainerAccessLevel | None:
    """Return the user's own permissions; None without ViewAccess."""
    own = [level for level in each.access or () if level.userId == run.people.own_id]
    return own[0].permissions if own else None


def _details(run: Run, found: scbroker.Container[Any]) -> Row:
    as_json, own = run.out.as_json, _own_permissions(run, found)
    header = None if found.header is None else found.header.customHeaderObject
    return {
        "id": found.id,
        "name": name_of(found),
        "type": found.type,
        "header": header
        if as_json or found.header is None
        else json.dumps(header, ensure_ascii=False),
        "length": None if found.length is None else Size(found.length),
        "contentAvailability": found.contentAvailability,
        "headerAvailability": found.headerAvailability,
        "version": found.version,
        "createdAt": found.createdAt,
        "createdBy": _author(run, found.createdBy),
        "modifiedAt": found.modifiedAt,
        "modifiedBy": _author(run, found.modifiedBy),
        "contentBy": _author(run, found.contentBy),
        "access": _access(run, found) if as_json else _access_in_words(run, found),
        "permissions": own if as_json or own is None else in_words(own),
        "brokerSees": _seen_by_the_broker(found),
    }


def _author(run: Run, user: uuid.UUID | None) -> uuid.UUID | str | None:
    if user is None or run.out.as_json:
        return user
    name = run.people.name_of(user)
    return name if name == str(user) else f"{name} ({user})"


def _access_in_words(run: Run, found: scbroker.Container[Any]) -> list[str] | None:
    if found.access is None:
        return None
    return [
        f"{run.people.name_of(level.userId)} ({in_words(level.permissions)}"
        + (f" until {local(level.expiresAt):%Y-%m-%d %H:%M}" if level.expiresAt else "")
        + ")"
        for level in found.access
    ]


def _seen_by_the_broker(found: scbroker.Container[Any]) -> list[str]:
    """Return what the broker knows of a container; docs/security.md has the list."""
    sizes = [
        what for what, has in (("content", found.hasContent), ("header", found.hasHeader)) if has
    ]
    return [
        "no type" if found.type is None else f"the type {found.type!r}",
        "the members and their permissions",
        "authors, versions and times",
        *([f"the size of {' and '.join(sizes)} (not what is in it)"] if sizes else []),
        "the users who read it, and when",
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
            folder = folder.setdefault(f"{_cut(part)}/", {})
        size = "" if each.length is None else f"  {Size(each.length).shown()}"
        folder[f"{_cut(parts[-1])}{size}  {each.id.hex[:SHORT_ID]}"] = {}
    for line in _branches(root):
        run.out.line({}, line)


def _branches(folder: dict[str, Any], indent: str = "") -> Iterator[str]:
    entries = sorted(folder.items(), key=lambda entry: entry[0].casefold())
    for number, (text, below) in enumerate(entries, 1):
        is_last = number == len(entries)
        yield f"{indent}{'└── ' if is_last else '├── '}{text}"
        yield from _branches(below, indent + ("    " if is_last else "│   "))
