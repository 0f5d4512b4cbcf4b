"""Define the commands that serve, check, back up and restore a broker, and show its audit log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker import errors
from scbroker.cli.admin.command import Admin, DataDir, Url, admin, command, row_of, start
from scbroker.cli.command import BROKER, Command, Minutes, Opens, Port, app, group, listing
from scbroker.cli.output import Output, past

if TYPE_CHECKING:
    from scbroker.server.admin.audit import Chain, Entry
    from scbroker.server.admin.stores import Stores

config: Final = group("config", "", "Show the settings of a broker.", of=admin)
Tell = Callable[[str], None]
Progress = Callable[[str, int, int], None]


@app.command(cls=Command, rich_help_panel=BROKER)
def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on; 127.0.0.1 by default."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port; 8400 by default, and 0 chooses a free one.",
            min=0,
            max=65535,
        ),
    ] = None,
    data_dir: DataDir = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of processes; more than one needs PostgreSQL.", min=1
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check whether the broker can start; do not start it, and change nothing.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results of --check as a JSON list.")
    ] = False,
) -> None:
    """Serve a broker until SIGTERM or Ctrl-C.

    Settings come from SCBROKER_… variables and from the TOML file that SCBROKER_CONFIG names. An option
    overrides both.

    With --check, the command prints a line for each check: ok, warning or failed, with the reason and what to
    do. The exit status is that of the first failure.
    """
    from scbroker.server import commands

    settings = commands.begin(data_dir, host=host, port=port, workers=workers)
    if check:
        from scbroker.cli.commands.doctor import DoubtfulError, found, write
        from scbroker.server.admin.starting import START_CHECKS, Check

        out = Output(as_json=as_json, quiet=False)
        run = Admin(data_dir, out)

        def result(check: Check) -> str:
            text, is_doubtful = run.do(check(settings))
            if is_doubtful:
                raise DoubtfulError(text)
            return text

        findings = (found(name, partial(result, each)) for name, each in START_CHECKS.items())
        sys.exit(write(out, findings))
    commands.serve(settings)


@command()
def sweep(run: Admin) -> None:
    """Delete abandoned, replaced and unreferenced data now.

    A running broker deletes abandoned uploads and replaced contents every minute. The command also lists the
    object store, to find objects that no row references.
    """
    from scbroker.server.admin.check import sweep

    run.do(sweep(run.settings, _teller(run)))


@command()
def check(
    run: Admin,
    quick: Annotated[
        bool, typer.Option(help="Skip the bytes of objects and the database file's own check.")
    ] = False,
) -> None:
    """Check everything that the broker stores.

    The command prints a line for each fault. The exit status is 1 if it finds one. It changes nothing, and
    can run beside the broker.
    """
    from scbroker.server.admin.check import check

    with _reporting(run) as (tell, progress):
        right = run.do(check(run.settings, tell, progress, quick=quick))
    sys.exit(not right)


@command()
def backup(
    run: Admin,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    link: Annotated[
        bool, typer.Option(help="Make hard links instead of copies, on the same file system only.")
    ] = False,
    with_key: Annotated[bool, typer.Option(help="Include the broker's key.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Make a new folder in FOLDER, named by the time, and remove all such backups but N.",
        ),
    ] = None,
) -> None:
    """Copy a broker on SQLite and a folder, while it runs.

    The exit status is 1 if an object was missing or damaged; then --keep removes no older backup.
    """
    from scbroker.server.admin.backup import backup

    with _reporting(run) as (tell, progress):
        work = backup(run.settings, target, tell, progress, keep=keep, link=link, with_key=with_key)
        right = run.do(work)
    sys.exit(not right)


@command()
def restore(
    run: Admin,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `backup` made.")],
    damaged: Annotated[
        bool, typer.Option(help="Restore even if objects are damaged or missing.")
    ] = False,
) -> None:
    """Verify a backup and put it into an empty data folder."""
    from scbroker.server.admin.backup import restore

    with _reporting(run) as (tell, progress):
        restore(run.settings, source, tell, progress, damaged=damaged)


@command("rotate-broker-key")
def rotate_broker_key(run: Admin) -> None:
    """Replace the broker's key while the broker runs.

    The command creates a new key, encrypts all stored KeyFiles and proofs of passphrases under it, and puts
    it into force. After an interruption, run it again. On PostgreSQL every broker needs the new key first:
    the command says what to do.
    """
    from scbroker.server.admin.rotation import rotate

    with _reporting(run) as (tell, progress):
        run.do(rotate(run.settings, tell, progress))


@command("show", of=config)
def show_settings(run: Admin) -> None:
    """List every setting, with its value and where it comes from.

    The source is the default, the TOML file that SCBROKER_CONFIG names, a variable or an option. Secret keys
    are shown as "set", and URLs without their passwords.
    """
    from scbroker.server import commands

    listed = commands.explain_settings(data_dir=run.data_dir)
    columns = {"name": "SETTING", "value": "VALUE", "source": "SOURCE", "meaning": "MEANING"}
    run.out.rows((each._asdict() for each in listed), columns)


@command()
def ui(
    run: Admin, url: Url = None, port: Port = 0, minutes: Minutes = 60, opens: Opens = True
) -> None:
    """Open the operator's page in your browser, until Ctrl-C.

    The page listens on this machine only. Its URL is secret and valid once: the first browser that uses it is
    the only one that is admitted.
    """
    from scbroker.cli.admin.page.page import operators_page
    from scbroker.cli.web import serving

    address = (url or run.address).rstrip("/")
    if re.match(r"https?://[\w.-]|https?://\[[0-9a-fA-F:]+\]", address) is None:
        raise errors.InvalidArgumentError("--url must be an address such as http://127.0.0.1:8400.")

    async def show(at: Stores) -> None:
        page = partial(operators_page, at, address)
        await serving.run(run.out, port, minutes, opens, page)

    run.use(show)


def _teller(run: Admin) -> Tell:
    return lambda text: run.out.line({"message": text}, text)


@contextmanager
def _reporting(run: Admin) -> Iterator[tuple[Tell, Progress]]:
    """Yield a function that prints a line, and one that takes a step's name, items done and total."""
    with ExitStack() as bar:
        shown: dict[str, Callable[[int], None]] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in shown:
                bar.close()
                shown.clear()
                shown[what] = bar.enter_context(run.out.progress(what, total, of_bytes=False))
            shown[what](done)

        yield _teller(run), progress


audit: Final = group("audit", "", "List who changed what, or verify the log.", of=admin)
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


@listing(audit, start)
def show_entries(
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
    begin = None if since is None else past(since, "--since")
    end = None if until is None else past(until, "--until")

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
