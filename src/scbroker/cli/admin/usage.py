"""Define the commands that show and limit what users store."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker import errors
from scbroker.cli.admin.command import Admin, command, group, listing
from scbroker.cli.output import Size

if TYPE_CHECKING:
    from scbroker.server.admin.usage import Amounts, Quotas, Resource, Usage

quota: Final = group("quota", "Limit what users store.")
DEFAULT: Final = "default"
UNLIMITED: Final = "unlimited"
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST_SHOWN: Final = 1_000

Who = Annotated[
    list[str],
    typer.Argument(
        metavar="USER...",
        help="User ids or their first digits, or `default`, for users without their own.",
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
        int, typer.Option(metavar="N", help="List at most so many users.", min=1, max=100_000)
    ] = 50,
    recount: Annotated[
        bool, typer.Option("--recount", help="Correct the usage by what is stored.")
    ] = False,
) -> None:
    """Show how much users store, those with most bytes first.

    A user is charged with the sealed bytes that they sent and the records that they signed, until the broker
    has deleted them, and with the containers that they created. --recount reads everything that is stored
    and corrects each user's usage, beside the broker.
    """
    if recount:
        _recount(run)
        return
    from scbroker.server.admin import usage as queries
    from scbroker.server.admin.users import find

    async def read() -> tuple[Sequence[Usage], Amounts]:
        async with run.open() as (database, _):
            if user is not None:
                found = [
                    await database.read(
                        lambda c: queries.of_user(c, uuid.UUID(bytes=find(c, user)))
                    )
                ]
            else:
                found = await database.read(lambda c: queries.largest(c, limit), large=True)
            return found, await database.read(queries.total, large=True)

    found, total = run.do(read())
    disk = queries.disk_of(run.settings)
    rows = [_row(each, total) for each in found]
    if run.out.as_json:
        sums: dict[str, Any] = {"bytes": total.bytes, "containers": total.containers}
        free = (
            {"diskBytes": None, "diskFree": None}
            if disk is None
            else {"diskBytes": disk.total, "diskFree": disk.free}
        )
        run.out.fields({"users": rows, **sums, **free})
        return
    columns = {
        "userId": "USER", "bytes": "BYTES", "share": "SHARE", "containers": "CONTAINERS",
        "quotaBytes": "QUOTA", "quotaContainers": "CONTAINERS ALLOWED", "deleted": "DELETED",
    }  # fmt: skip
    run.out.rows([{**row, "share": f"{row['share']:.1%}"} for row in rows], columns)
    text = f"All users: {Size(total.bytes).shown()} in {total.containers} containers"
    if disk is not None:
        text += f"; the disk has {Size(disk.free).shown()} of {Size(disk.total).shown()} free"
    run.out.say(f"{text}.")


def _row(found: Usage, total: Amounts) -> dict[str, Any]:
    return {
        "userId": found.user_id,
        "bytes": Size(found.bytes),
        "share": round(found.bytes / total.bytes, 4) if total.bytes > 0 else 0.0,
        "containers": found.containers,
        "quotaBytes": None if found.quota_bytes is None else Size(found.quota_bytes),
        "quotaContainers": found.quota_containers,
        "deleted": found.is_deleted,
    }


def _recount(run: Admin) -> None:
    from scbroker.server.admin import usage as queries

    async def work() -> Sequence[tuple[uuid.UUID, Amounts, Amounts]]:
        async with run.open() as (database, _):
            return await queries.recount(run.settings, database)

    found = run.do(work())
    if run.out.as_json:
        run.out.rows([_corrected(*each) for each in found], {})
        return
    for each in found:
        row = _corrected(*each)
        run.out.line(
            row, f"{each[0]}: {row['bytesBefore']} bytes are now {row['bytes']}, and "
            f"{row['containersBefore']} containers {row['containers']}."
        )  # fmt: skip
    run.out.say(f"Corrected the usage of {len(found)} users.")


def _corrected(user_id: uuid.UUID, said: Amounts, stored: Amounts) -> dict[str, Any]:
    return {
        "userId": user_id,
        "bytesBefore": said.bytes,
        "bytes": stored.bytes,
        "containersBefore": said.containers,
        "containers": stored.containers,
    }


@listing(quota)
def show(run: Admin) -> None:
    """Show the default quotas, and the users with quotas of their own."""
    from scbroker.server.admin import usage as queries

    async def read() -> tuple[Quotas, Sequence[tuple[uuid.UUID, Quotas]]]:
        async with run.open() as (database, _):
            default = await database.read(queries.defaults)
            return default, await database.read(lambda c: queries.own_quotas(c, _MOST_SHOWN))

    default, own = run.do(read())
    named = [(DEFAULT, default), *own]
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
    """Set the quotas of users, or of all users without their own.

    A quota that a user exceeds already deletes nothing: the broker refuses what adds to it. `unlimited`
    exempts a user from the default.
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
    size: Annotated[bool, typer.Option("--bytes", help="The quota of bytes alone.")] = False,
    containers: Annotated[
        bool, typer.Option("--containers", help="The quota of containers alone.")
    ] = False,
) -> None:
    """Remove the quotas of users, so that the default holds, or remove the default."""
    quotas: dict[Resource, int | None] = {"bytes": None, "containers": None}
    if size and not containers:
        del quotas["containers"]
    if containers and not size:
        del quotas["bytes"]
    _change(run, users, quotas)


def _change(run: Admin, users: Sequence[str], quotas: dict[Resource, int | None]) -> None:
    from scbroker.server.admin import usage as queries
    from scbroker.server.admin.users import find

    async def work() -> list[str]:
        async with run.open() as (database, _):
            meant = await database.read(
                lambda c: [
                    None if user == DEFAULT else uuid.UUID(bytes=find(c, user)) for user in users
                ]
            )
            found = list(dict.fromkeys(meant))
            await queries.change_quotas(run.settings, database, found, quotas)
            return [DEFAULT if each is None else str(each) for each in found]

    users = run.do(work())
    row: dict[str, object] = {resource: _shown(value) for resource, value in quotas.items()}
    said = ", ".join(
        f"{'removed' if value is None else value} ({resource})" for resource, value in row.items()
    )
    run.out.done({"users": users, **row}, f"Quotas of {', '.join(users)}: {said}.")


def size_of(text: str) -> int:
    """Return the bytes that an option means; raise `InvalidArgumentError` for anything else."""
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
    from scbroker.server.admin import usage as queries

    if text.lower() == UNLIMITED:
        return queries.UNLIMITED
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise errors.InvalidArgumentError(
            f"--containers cannot be {text!r}: pass a number, or unlimited."
        )
    return int(text)
