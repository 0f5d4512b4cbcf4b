"""Define the commands of API keys."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker.cli import dates
from scbroker.cli.admin.command import Admin, command, group

if TYPE_CHECKING:
    from scbroker.server.admin.api_keys import ApiKey

keys: Final = group("api-keys", "Create, list, expire and revoke API keys.")
NEVER: Final = "never"
_COLUMNS: Final = {
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
        help="When the key ends: after a duration (12h, 30d, 4w), at the end of a day of your time zone "
        "(2026-12-31), or at a time with its zone (2026-12-31T18:00Z).",
    ),
]


@command("create", of=keys)
def create(run: Admin, name: Name, expires: Expires = None) -> None:
    """Create an API key and print it.

    It is shown this once only: the broker stores its hash. The name must not be that of another valid key.
    """
    from scbroker.server import commands

    end = None if expires is None else dates.end_of(expires, "--expires")
    key = run.do(commands.create_api_key(run.settings, name, end))
    run.out.line({"apiKey": key, "name": name, "expires": end}, str(key))


@command("create-api-key")
def create_api_key(run: Admin, name: Name, expires: Expires = None) -> None:
    """Create an API key, as `api-keys create` does."""
    create(run, name, expires)


@command("ls", of=keys)
def ls(run: Admin) -> None:
    """List all API keys, the oldest first.

    The id is the beginning of the key's hash. Its last use is known to the minute, and shown up to a minute
    later.
    """
    from scbroker.server.admin import api_keys

    run.out.rows(map(_row, run.read(api_keys.all_keys)), _COLUMNS)


@command("expire", of=keys)
def expire(
    run: Admin,
    key: Key,
    time: Annotated[
        str, typer.Argument(metavar="TIME", help="When the key ends, as in --expires; or `never`.")
    ],
) -> None:
    """Set when an API key ends.

    From then on the broker refuses it, also in sessions that go on. A time in the past is refused: `revoke`
    ends a key at once.
    """
    from scbroker.server.admin import api_keys

    end = None if time == NEVER else dates.end_of(time, "TIME")
    found = run.act(lambda c, broker_key: api_keys.expire(c, broker_key, key, end))
    when = "has no end" if end is None else f"ends at {dates.local(end)}"
    run.out.done(_row(found), f"The API key {found.id} ({found.name}) {when}.")


@command("revoke", of=keys)
def revoke(run: Admin, key: Key) -> None:
    """Revoke an API key for ever.

    On SQLite the broker refuses the next request with it; on PostgreSQL each process does so within five
    seconds. A request that waits for events ends within 15 seconds.
    """
    from scbroker.server.admin import api_keys

    found, is_left = run.act(lambda c, broker_key: api_keys.revoke(c, broker_key, key))
    text = f"The API key {found.id} ({found.name}) is revoked."
    if not is_left:
        text += (
            " No valid API key is left, so the broker refuses every client: `scbroker admin api-keys create` "
            "makes another one."
        )
    run.out.done({**_row(found), "validKeysLeft": is_left}, text)


def _row(key: ApiKey) -> dict[str, Any]:
    state = "valid"
    if key.revoked is not None:
        state = "revoked"
    elif not key.is_valid:
        state = "expired"
    times: dict[str, dt.datetime | None] = {
        "created": key.created,
        "expires": key.expires,
        "lastUsed": key.last_used,
        "revoked": key.revoked,
    }
    return {"id": key.id, "name": key.name, **times, "state": state}
