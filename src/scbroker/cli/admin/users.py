"""Define the commands of users, their usage and quotas, and of API keys."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker import errors
from scbroker.cli.admin.command import Admin, admin, command, row_of, start
from scbroker.cli.command import Yes, group, listing
from scbroker.cli.output import Size, end_of, in_zone

if TYPE_CHECKING:
    from scbroker.server.admin.stores import Stores
    from scbroker.server.admin.users import Amounts, Quotas, Resource, User

users: Final = group("users", "", "List, suspend and delete users.", of=admin)
_COLUMNS: Final = {
    "userId": "USER", "registered": "REGISTERED", "lastLogIn": "LAST LOG-IN", "containers": "CONTAINERS",
    "bytes": "BYTES", "suspended": "SUSPENDED", "reason": "REASON",
}  # fmt: skip

Who = Annotated[
    str, typer.Argument(metavar="USER", help="A user id, or four or more of its first digits.")
]


@command("ls", of=users)
def ls(run: Admin) -> None:
    """List the users who were not deleted.

    The last log-in is known until about a minute after its session has ended.
    """
    from scbroker.server.admin import users as queries

    run.out.rows(map(_row, run.use(queries.listed)), _COLUMNS)


@command("show", of=users)
def show(run: Admin, user: Who) -> None:
    """Show what the broker knows of a user."""
    run.out.fields(_row(_find(run, user)))


@command("suspend", of=users)
def suspend(
    run: Admin,
    user: Who,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why, for operators only: the user cannot read it."),
    ] = None,
) -> None:
    """Refuse everything that a user sends, until `resume`.

    The user's sessions end at once. The user's data stays, and other members go on reading it. Presigned URLs
    that the user already has are valid until they expire.
    """
    from scbroker.server.admin import users as acts

    async def change(at: Stores) -> tuple[bool, User]:
        user_id = await at.database.read(lambda c: acts.find(c, user))
        is_new = await acts.suspend(at, user_id, reason)
        return is_new, await at.database.read(lambda c: acts.show(c, at.settings, user_id))

    is_new, found = run.use(change)
    said = "is suspended" if is_new else "was suspended already, and nothing was changed"
    run.out.done({**_row(found), "changed": is_new}, f"User {found.id} {said}.")


@command("resume", of=users)
def resume(run: Admin, user: Who) -> None:
    """End a user's suspension: the user can log in again."""
    from scbroker.server.admin import users as acts

    def change(connection: Any, broker_key: bytes) -> tuple[bool, User]:
        user_id = acts.find(connection, user)
        is_new = acts.resume(connection, broker_key, user_id)
        return is_new, acts.show(connection, run.settings, user_id)

    is_new, found = run.act(change)
    said = "can log in again" if is_new else "was not suspended, and nothing was changed"
    run.out.done({**_row(found), "changed": is_new}, f"User {found.id} {said}.")


@command("delete", of=users)
def delete(run: Admin, user: Who, yes: Yes = False) -> None:
    """Delete a user for ever, with every container to which nobody else has access.

    Containers with other members stay. So do groups; of a group that nobody else owns, nobody can change the
    managers any more. The id can never be registered again. The user signs no record of the deletion, so
    other users' programs have only the broker's word for it. --yes needs the whole id.
    """
    from scbroker.server.admin import users as acts

    found = _find(run, user)
    if yes and user.replace("-", "").lower() != found.id.hex:
        raise errors.InvalidArgumentError(
            f"{user} is the beginning of {found.id}: pass the whole id with --yes, or leave --yes out."
        )
    if not found.is_deleted:
        size = f"{found.containers} containers, {Size(found.bytes).shown()}"
        run.confirm(f"Delete user {found.id} ({size}) for ever?", yes)
    is_new = run.do(acts.delete(run.settings, found.id))
    said = "is deleted" if is_new else "was deleted already"
    run.out.done(
        {"userId": found.id, "deleted": True, "changed": is_new}, f"User {found.id} {said}."
    )


def _find(run: Admin, text: str) -> User:
    from scbroker.server.admin import users as queries

    return run.read(lambda c: queries.show(c, run.settings, queries.find(c, text)))


def _row(user: User) -> dict[str, Any]:
    row = row_of(user)
    return {"userId": row.pop("id"), **row}


quota: Final = group("quota", "", "Show the quotas, or set or remove them.", of=admin)
UNLIMITED: Final = "unlimited"
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST_SHOWN: Final = 1_000

Whose = Annotated[
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
    from scbroker.server.admin import starting
    from scbroker.server.admin import users as queries

    def read(connection: Any) -> tuple[Sequence[User], Amounts]:
        if user is not None:
            found: Sequence[User] = [
                queries.show(connection, run.settings, queries.find(connection, user))
            ]
        else:
            found = queries.page(connection, run.settings, queries.Order.Bytes, limit).users
        return found, queries.total(connection)

    found, total = run.read(read, large=True)
    disk = next(iter(starting.disks(run.settings)), None)
    rows = [_usage_row(each, total) for each in found]
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


def _usage_row(found: User, total: Amounts) -> dict[str, Any]:
    row = row_of(found)
    share = round(found.bytes / total.bytes, 4) if total.bytes > 0 else 0.0
    shown = ("bytes", "containers", "quotaBytes", "quotaContainers", "deleted")
    return {"userId": found.id, "share": share, **{name: row[name] for name in shown}}


def _recount(run: Admin) -> None:
    from scbroker.server.admin import users as queries

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


@listing(quota, start)
def show_quotas(run: Admin) -> None:
    """Show the default quotas, and the users with quotas of their own."""
    from scbroker.server.admin import users as queries

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
    from scbroker.server.admin import users as queries

    return UNLIMITED if value == queries.UNLIMITED else value


@command("set", of=quota)
def set_quota(run: Admin, users: Whose, size: Bytes = None, containers: Containers = None) -> None:
    """Set the quotas of some users, or the default of all users without a quota of their own.

    If a quota is below what a user stores, nothing is deleted: the broker refuses requests that would store
    more. `unlimited` exempts a user from the default.
    """
    quotas: dict[Resource, int | None] = {}
    if size is not None:
        quotas["bytes"] = quota_of(size, "--bytes")
    if containers is not None:
        quotas["containers"] = quota_of(containers, "--containers")
    if not quotas:
        raise errors.InvalidArgumentError("Pass --bytes, --containers or both.")
    _change(run, users, quotas)


@command("unset", of=quota)
def unset_quota(
    run: Admin,
    users: Whose,
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
    from scbroker.server.admin import users as queries

    def change(connection: Any, broker_key: bytes) -> list[str]:
        named = dict.fromkeys(
            None if text == queries.DEFAULT else queries.find(connection, text) for text in texts
        )
        queries.change_quotas(connection, broker_key, named, quotas)
        return [queries.DEFAULT if user_id is None else str(user_id) for user_id in named]

    named = run.act(change)
    row: dict[str, Any] = {resource: _shown(value) for resource, value in quotas.items()}
    said = ", ".join(
        f"{'removed' if value is None else value} ({resource})" for resource, value in row.items()
    )
    run.out.done({"users": named, **row}, f"Quotas of {', '.join(named)}: {said}.")


def quota_of(text: str, option: str) -> int:
    """Parse a value of --bytes, such as 5GB, or --containers; `InvalidArgumentError` for any other text."""
    from scbroker.server.admin import users as queries

    if text.lower() == UNLIMITED:
        return queries.UNLIMITED
    found = _SIZE.fullmatch(text.strip())
    if found is None or (option == "--containers" and not text.isdigit()):
        such = "a number of bytes, 10GB, 10GiB," if option == "--bytes" else "a number,"
        raise errors.InvalidArgumentError(f"{option} cannot be {text!r}: pass {such} or unlimited.")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _POWERS[(found[2] or "").lower()])


keys: Final = group("api-keys", "", "Create, list, expire and revoke API keys.", of=admin)
NEVER: Final = "never"
_KEY_COLUMNS: Final = {
    "id": "ID", "name": "NAME", "created": "CREATED", "expires": "EXPIRES", "lastUsed": "LAST USED",
    "state": "STATE",
}  # fmt: skip

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A name for the key, stored beside its hash.")
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="An API key: its id in `ls`, or its name.")]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="When the key expires: after a duration (12h, 30d, 4w), at the end of a day of your time zone "
        "(2026-12-31), or at a time with its zone (2026-12-31T18:00Z).",
    ),
]


@command("create", of=keys)
def create(run: Admin, name: Name, expires: Expires = None) -> None:
    """Create an API key and print it.

    The key is printed only this once: the broker stores its hash. No other valid key may have the name.
    """
    from scbroker.server import commands
    from scbroker.server.admin import stores

    end = None if expires is None else end_of(expires, "--expires")
    is_new = stores.is_missing(run.settings)
    key = run.do(commands.create_api_key(run.settings, name, end))
    run.out.line({"apiKey": key, "name": name, "expires": end}, str(key))
    if is_new:
        run.out.say(f"No broker existed in {run.settings.directory}: a new one was created there.")


@command("ls", of=keys)
def list_keys(run: Admin) -> None:
    """List all API keys, the oldest first.

    The id is the beginning of the key's hash. The last use is rounded down to the minute, and is written up
    to a minute later.
    """
    from scbroker.server.admin import api_keys

    run.out.rows(map(row_of, run.read(api_keys.all_keys)), _KEY_COLUMNS)


@command("expire", of=keys)
def expire(
    run: Admin,
    key: Key,
    time: Annotated[
        str,
        typer.Argument(metavar="TIME", help="When the key expires, as in --expires; or `never`."),
    ],
) -> None:
    """Set when an API key expires.

    From then on the broker refuses it, also in running sessions. The time must be in the future: to end a key
    at once, use `revoke`.
    """
    from scbroker.server.admin import api_keys

    end = None if time == NEVER else end_of(time, "TIME")
    found = run.act(lambda c, broker_key: api_keys.expire(c, broker_key, key, end))
    when = "never expires" if end is None else f"expires at {in_zone(end)}"
    run.out.done(row_of(found), f"The API key {found.id} ({found.name}) {when}.")


@command("revoke", of=keys)
def revoke(run: Admin, key: Key) -> None:
    """Revoke an API key for ever.

    On SQLite the broker refuses the next request with it, and ends requests that wait for events within 15
    seconds. On PostgreSQL each process does both as soon as it is notified, and refuses requests after five
    seconds at the latest.
    """
    from scbroker.server.admin import api_keys

    found, is_left = run.act(lambda c, broker_key: api_keys.revoke(c, broker_key, key))
    text = f"The API key {found.id} ({found.name}) is revoked."
    if not is_left:
        text += (
            " No valid API key is left, so the broker refuses every client: `scbroker admin api-keys create` "
            "makes another one."
        )
    run.out.done({**row_of(found), "validKeysLeft": is_left}, text)
