"""Define the commands that show and verify the audit log."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker import errors
from scbroker.cli import dates
from scbroker.cli.admin.command import Admin, command, group, listing, row_of

if TYPE_CHECKING:
    from scbroker.server.admin.audit import Chain, Entry
    from scbroker.server.admin.stores import Stores

audit: Final = group("audit", "List who changed what, or verify the log.")
_COLUMNS: Final = {
    "id": "ID", "time": "TIME", "actor": "ACTOR", "action": "ACTION", "subject": "SUBJECT",
    "details": "DETAILS",
}  # fmt: skip
_WIDTHS: Final = {
    "id": 6, "time": 16, "actor": 36, "action": 18, "subject": 36, "details": 0,
}  # fmt: skip
_HASH: Final = re.compile("[0-9a-fA-F]{64}")

Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Entries since a time: a duration before now (12h, 7d), a day (2026-12-31), or a time with "
        "its zone (2026-12-31T18:00Z).",
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Entries before a time, as in --since.")
]


@listing(audit)
def show(
    run: Admin,
    since: Since = None,
    until: Until = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="ACTION", help="Entries of one action, such as user-suspended."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Entries by or about a user: an id or its first digits."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further entries, until Ctrl-C.")
    ] = False,
) -> None:
    """List the acts of operators, and those of users that concern their accounts, oldest first.

    An operator is named as USER@MACHINE: the operating system's user and the host name. With --json each
    entry is a line of JSON.
    """
    from scbroker.server.admin import audit as log
    from scbroker.server.admin import users

    if follow and until is not None:
        raise errors.InvalidArgumentError("Pass --follow or --until, not both.")
    begin = None if since is None else dates.past(since, "--since")
    end = None if until is None else dates.past(until, "--until")

    def wanted_of(connection: Any) -> log.Wanted:
        if action is not None and not follow:
            log.check_action(connection, action)
        name = None if user is None else str(users.find(connection, user))
        return log.Wanted(begin, end, action, name)

    async def read(at: Stores) -> None:
        wanted = await at.database.read(wanted_of)
        entries = log.entries(at.database, wanted, follow=follow)
        if run.out.on_terminal and not follow:
            run.out.rows([_row(run, each) async for each in entries], _COLUMNS)
        else:
            async for each in entries:
                run.out.item(_row(run, each), _WIDTHS)

    run.use(read)


@command("verify", of=audit)
def verify(
    run: Admin,
    head: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="The hash of an entry that the log must still contain."),
    ] = None,
) -> None:
    """Verify that no entry of the audit log was changed, removed or inserted.

    The exit status is 1 if one was. The command prints the hash of the last entry: store it elsewhere, and
    pass it later as --head, to prove that the log still contains that entry and all before it. Somebody who
    has both the database and the broker's key can write another log, but not one with that hash.
    """
    from scbroker.server.admin import audit as log
    from scbroker.server.admin import stores

    if head is not None and not _HASH.fullmatch(head):
        raise errors.InvalidArgumentError(
            "--head must be 64 hexadecimal digits, as this command prints them."
        )

    async def read(at: Stores) -> Chain:
        key = await at.database.read(lambda c: stores.find_key(c, at.settings))
        return await log.verify(at.database, key, None if head is None else head.lower())

    found = run.use(read)
    faults = list(found.faults)
    if not found.has_head:
        faults.append(
            "no entry has the hash of --head: the log was cut off before it, or was replaced."
        )
    for fault in faults:
        run.out.error(f"Audit log: {fault}")
    row = {"entries": found.entries, "head": found.head, "faults": faults}
    run.out.fields(row if run.out.as_json else {**row, "faults": len(faults)})
    sys.exit(bool(faults))


def _row(run: Admin, entry: Entry) -> dict[str, Any]:
    """Return a row; without --json, details are name=value, and a value that is not one word is JSON."""
    row = row_of(entry)
    if run.out.as_json:
        return row
    texts = (
        f"{name}={each if isinstance(each, str) and each and ' ' not in each else json.dumps(each)}"
        for name, each in entry.details.items()
    )
    return {**row, "details": " ".join(texts)}
