"""Define the commands that show and limit what users store."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker import errors
from scbroker.cli.admin.command import Admin, command, group, listing, row_of
from scbroker.cli.output import Size

if TYPE_CHECKING:
    from scbroker.server.admin.usage import Amounts, Quotas, Resource
    from scbroker.server.admin.users import User

quota: Final = group("quota", "Show the quotas, or set or remove them.")
UNLIMITED: Final = "unlimited"
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST_SHOWN: Final = 1_000

Who = Annotated[
    list[str],
    typer.Argument(
        metavar="USER...",
        help="User ids or their first digits, or `default` for users without their own.",
    ),
]
Bytes = Annotated[
    str | None,
    typer.Option("--bytes", metavar="SIZE", help="Bytes: a number, 10GB, 10GiB, or `unlimited`."),
]
Containers = Annotated[
    str | None, typer.Option("--containers", metavar="NUMBER", help="Containers, or `unlimited`.")
]


@command()
def usage(
    run: Admin,
    user: Annotated[
        str | None,
        typer.Argument(metavar="USER", help="A user id or its first digits; by default all users."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="List at most this many users.", min=1, max=100_000)
    ] = 50,
    recount: Annotated[
        bool,
        typer.Option(
            "--recount", help="Read everything that is stored, and correct each user's usage."
        ),
    ] = False,
) -> None:
    """Show how much users store, those with most bytes first.

    A user is charged with the encrypted bytes that they sent and the records that they signed, until the
    broker has deleted them, and with the containers that they created. --recount can run beside the broker.
    """
    if recount:
        _recount(run)
        return
    from scbroker.server.admin import health, usage, users

    def read(connection: Any) -> tuple[Sequence[User], Amounts]:
        if user is not None:
            found: Sequence[User] = [
                users.show(connection, run.settings, users.find(connection, user))
            ]
        else:
            found = users.page(connection, run.settings, users.Order.Bytes, limit).users
        return found, usage.total(connection)

    found, total = run.read(read, large=True)
    disk = next(iter(health.disks(run.settings)), None)
    rows = [_row(each, total) for each in found]
    if run.out.as_json:
        size, free = (None, None) if disk is None else (disk.size, disk.free)
        run.out.fields({"users": rows, **total._asdict(), "diskBytes": size, "diskFree": free})
        return
    columns = {
        "userId": "USER", "bytes": "BYTES", "share": "SHARE", "containers": "CONTAINERS",
        "quotaBytes": "QUOTA", "quotaContainers": "CONTAINERS ALLOWED", "deleted": "DELETED",
    }  # fmt: skip
    run.out.rows([{**row, "share": f"{row['share']:.1%}"} for row in rows], columns)
    text = f"All users: {Size(total.bytes).shown()} in {total.containers} containers"
    if disk is not None:
        text += f"; the disk has {Size(disk.free).shown()} of {Size(disk.size).shown()} free"
    run.out.say(f"{text}.")


def _row(found: User, total: Amounts) -> dict[str, Any]:
    row = row_of(found)
    share = round(found.bytes / total.bytes, 4) if total.bytes > 0 else 0.0
    shown = ("bytes", "containers", "quotaBytes", "quotaContainers", "deleted")
    return {"userId": found.id, "share": share, **{name: row[name] for name in shown}}


def _recount(run: Admin) -> None:
    from scbroker.server.admin import usage as queries

    found = run.use(lambda at: queries.recount(at.settings, at.database))
    rows = [
        {"userId": user, "bytesBefore": said.bytes, "bytes": stored.bytes,
         "containersBefore": said.containers, "containers": stored.containers}
        for user, said, stored in found
    ]  # fmt: skip
    columns = {
        "userId": "USER", "bytesBefore": "BYTES BEFORE", "bytes": "BYTES",
        "containersBefore": "CONTAINERS BEFORE", "containers": "CONTAINERS",
    }  # fmt: skip
    run.out.rows(rows, columns)
    run.out.say(f"Corrected the usage of {len(rows)} users.")


@listing(quota)
def show(run: Admin) -> None:
    """Show the default quotas, and the users with quotas of their own."""
    from scbroker.server.admin import usage as queries

    def read(connection: Any) -> tuple[Quotas, Sequence[tuple[uuid.UUID, Quotas]]]:
        return queries.defaults(connection), queries.own_quotas(connection, _MOST_SHOWN)

    default, own = run.read(read)
    named = [(queries.DEFAULT, default), *own]
    rows = [
        {"user": user, "bytes": _shown(found.bytes), "containers": _shown(found.containers)}
        for user, found in named
    ]
    run.out.rows(rows, {"user": "USER", "bytes": "BYTES", "containers": "CONTAINERS"})


def _shown(value: int | None) -> int | str | None:
    from scbroker.server.admin import usage as queries

    return UNLIMITED if value == queries.UNLIMITED else value


@command("set", of=quota)
def set_quota(run: Admin, users: Who, size: Bytes = None, containers: Containers = None) -> None:
    """Set the quotas of some users, or the default of all users without a quota of their own.

    If a quota is below what a user stores, nothing is deleted: the broker refuses requests that would store
    more. `unlimited` exempts a user from the default.
    """
    quotas: dict[Resource, int | None] = {}
    if size is not None:
        quotas["bytes"] = size_of(size)
    if containers is not None:
        quotas["containers"] = number_of(containers)
    if not quotas:
        raise errors.InvalidArgumentError("Pass --bytes, --containers or both.")
    _change(run, users, quotas)


@command("unset", of=quota)
def unset_quota(
    run: Admin,
    users: Who,
    size: Annotated[bool, typer.Option("--bytes", help="Remove only the quota of bytes.")] = False,
    containers: Annotated[
        bool, typer.Option("--containers", help="Remove only the quota of containers.")
    ] = False,
) -> None:
    """Remove the quotas of some users, who then have the default, or remove the default."""
    quotas: dict[Resource, int | None] = {"bytes": None, "containers": None}
    if size and not containers:
        del quotas["containers"]
    if containers and not size:
        del quotas["bytes"]
    _change(run, users, quotas)


def _change(run: Admin, texts: Sequence[str], quotas: dict[Resource, int | None]) -> None:
    from scbroker.server.admin import usage as queries
    from scbroker.server.admin import users

    def change(connection: Any, broker_key: bytes) -> list[str]:
        named = dict.fromkeys(
            None if text == queries.DEFAULT else users.find(connection, text) for text in texts
        )
        queries.change_quotas(connection, broker_key, named, quotas)
        return [queries.DEFAULT if user_id is None else str(user_id) for user_id in named]

    named = run.act(change)
    row: dict[str, Any] = {resource: _shown(value) for resource, value in quotas.items()}
    said = ", ".join(
        f"{'removed' if value is None else value} ({resource})" for resource, value in row.items()
    )
    run.out.done({"users": named, **row}, f"Quotas of {', '.join(named)}: {said}.")


def size_of(text: str) -> int:
    """Parse an option's number of bytes, such as 5GB; raise `InvalidArgumentError` for other text."""
    from scbroker.server.admin import usage as queries

    if text.lower() == UNLIMITED:
        return queries.UNLIMITED
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise errors.InvalidArgumentError(
            f"--bytes cannot be {text!r}: pass a number of bytes, 10GB, 10GiB, or unlimited."
        )
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _POWERS[(found[2] or "").lower()])


def number_of(text: str) -> int:
    """Parse an option's number of containers; raise `InvalidArgumentError` for other text."""
    from scbroker.server.admin import usage as queries

    if text.lower() == UNLIMITED:
        return queries.UNLIMITED
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise errors.InvalidArgumentError(
            f"--containers cannot be {text!r}: pass a number, or unlimited."
        )
    return int(text)
