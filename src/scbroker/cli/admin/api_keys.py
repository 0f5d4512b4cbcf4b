"""Define the commands of API keys."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from scbroker.cli import dates
from scbroker.cli.admin.command import Admin, command, group, row_of

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

    end = None if expires is None else dates.end_of(expires, "--expires")
    is_new = stores.is_missing(run.settings)
    key = run.do(commands.create_api_key(run.settings, name, end))
    run.out.line({"apiKey": key, "name": name, "expires": end}, str(key))
    if is_new:
        run.out.say(f"No broker existed in {run.settings.directory}: a new one was created there.")


@command("ls", of=keys)
def ls(run: Admin) -> None:
    """List all API keys, the oldest first.

    The id is the beginning of the key's hash. The last use is rounded down to the minute, and is written up
    to a minute later.
    """
    from scbroker.server.admin import api_keys

    run.out.rows(map(row_of, run.read(api_keys.all_keys)), _COLUMNS)


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

    end = None if time == NEVER else dates.end_of(time, "TIME")
    found = run.act(lambda c, broker_key: api_keys.expire(c, broker_key, key, end))
    when = "never expires" if end is None else f"expires at {dates.local(end)}"
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
