"""Share a file between two users through a broker that cannot read it.

    make demo                    # shares a file of this clone
    make demo FILE=letter.txt    # shares a file of yours
    make demo UI=1               # opens alice's page in the browser at the end, until Ctrl-C

The broker runs in a process of its own, on SQLite and a folder. The providers of alice and bob share no
state: all data between them goes through the broker.
"""

import argparse
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scbroker import (
    AccessLevel,
    BrokerError,
    Container,
    ContainerAccessLevel,
    MemoryTrustStore,
    ServerProvider,
)
from scbroker.cli.output import printable
from scbroker.client.core.sealing import OpenPart
from scbroker.desk.people import in_words
from scbroker.records.container_record import Role, parse_record, wrap_info
from scbroker.records.judge import governing_of

CLONE = Path(__file__).parent.parent
LETTER = CLONE / "requirements.txt"
NOTE = "for bob's eyes alone"
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
PASSPHRASE = "alice's Passphrase 1"
COLUMNS = 80
LARGEST = 100_000_000
"""Bytes of the file: the demo searches the broker's disk in memory."""
SHORTEST_CLUE = 8
"""Bytes of a plaintext that is not on the disk by chance."""
COMMAND = [sys.executable, "-c", "from scbroker.cli import main; main()"]
console = Console(highlight=False)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser("make demo", usage="make demo [FILE=PATH] [UI=1]")
    parser.add_argument("--file", type=Path, default=LETTER, help="the file that alice shares")
    parser.add_argument("--ui", action="store_true", help="open alice's page at the end")
    chosen = parser.parse_args(arguments)
    if fault := fault_of(chosen.file):
        parser.error(f"{printable(str(chosen.file))} {fault}: pass another as FILE=PATH")
    console.width = min(console.width, COLUMNS)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as (url, key):
        alice_id = story(Path(folder), url, key, chosen.file)
        took = time.perf_counter() - began
        console.print(f"\n[dim]The whole story took {took:.1f} s.[/dim]")
        if chosen.ui:
            open_page(alice_id, url, key)
    say_what_next()


def fault_of(file: Path) -> str | None:
    """Return why the demo cannot take this file."""
    if not file.exists():
        return "does not exist"
    if not file.is_file():
        return "is not a file"
    if not os.access(file, os.R_OK):
        return "cannot be read"
    if not 0 < (size := file.stat().st_size) <= LARGEST:
        return f"has {size:,} bytes, and the demo takes 1 byte to 100 MB"
    return None


def story(data: Path, url: str, key: str, file: Path) -> uuid.UUID:
    """Tell the whole story and return alice's user id."""

    def program(name: str) -> ServerProvider:
        """Return the provider of a new device: its trust store is empty."""
        return ServerProvider(key, url, name, trustStore=MemoryTrustStore())

    step("Bob registers on his laptop, and alice in her program")
    with program("bob's laptop") as bobs_laptop, timed("bob registered"):
        bobs_laptop.register("bob's Password 1", "bob's Passphrase 1", "the usual").result()
        bob_id = bobs_laptop.getUserId().result()
    alice = program("alice's program")
    with timed("alice registered"):
        alice.register("alice's Password 1", PASSPHRASE).result()
    alice_id = alice.getUserId().result()
    names = {alice_id: "alice", bob_id: "bob"}
    console.print(f"  alice [cyan]{alice_id}[/]\n  bob   [cyan]{bob_id}[/]")
    fingerprint = alice.getPublicKeys(bob_id).result()[0].fingerprint.split()
    console.print("  bob's fingerprint, for the two to compare on the telephone:")
    for half in (fingerprint[:8], fingerprint[8:]):
        console.print(f"    [cyan]{' '.join(half)}[/]")

    step(f"She seals {shown(file.name)} ({file.stat().st_size:,} bytes), and lets bob read it")
    with timed("sealed, signed and stored"):
        letter = alice.createContainer(
            file,
            {"name": file.name, "note": NOTE},
            accessLevels=[AccessLevel(alice_id, OWNER), AccessLevel(bob_id)],
            type="demo/file",
        ).result()
    console.print(f"  container [cyan]{letter.id}[/], version {letter.version}")

    step("Bob's program, on a fresh device, logs in with his passphrase alone and opens it")
    bob = program("bob's program")
    with timed("fetched, verified and opened"):
        bob.logIn(bob_id, passphrase="bob's Passphrase 1").result()
        received = bob.getContainer(letter.id).result()
    show(received, file, names)

    step("What the broker saw, and what it could not: its whole disk, searched")
    search_disk(data, received, file, names)

    step("Alice removes bob, and writes again")
    kept = bobs_key(bob, letter.id)
    with timed("removed, and the next version stored under a new key"):
        alice.updateContainerAccessLevels(letter.id).result()
        alice.updateContainer(
            letter.id,
            content=file,
            customHeaderObject={"name": file.name, "note": "without bob"},
            accessLevels=None,
            type="demo/file",
        ).result()
    try:
        bob.getContainer(letter.id).result()
    except BrokerError as error:
        console.print(f"  bob asks again: [red]{type(error).__name__}[/]\n    {error}")
    else:
        raise SystemExit("bob can still read: that must not be")
    in_league(data, letter.id, kept)
    events = bob.getEvents().result()
    console.print(f"  bob's event log: {', '.join(str(event.eventType) for event in events)}")
    mine = alice.getContainer(letter.id).result()
    console.print(f"  alice reads {mine.length:,} bytes of version {mine.version}, as ever")
    alice.close()
    bob.close()
    return alice_id


def bobs_key(bob: ServerProvider, container_id: uuid.UUID) -> bytes:
    """Return the container key that a malicious bob could keep, from the wrap made for him."""
    secured = bob.getSecuredContainer(container_id).result()
    ring = bob.getKeyRing().result()
    record = parse_record(secured.record)
    info = wrap_info(record.containerId, governing_of(record), ring.rawFingerprint, 0)
    return ring.encryption[0].unwrap(secured.wrap or b"", info)


def in_league(data: Path, container_id: uuid.UUID, key: bytes) -> None:
    """Show that the old container key does not open the new version, even with the whole database."""
    with closing(sqlite3.connect(data / "broker.sqlite")) as database:
        newest = "SELECT body FROM records WHERE container_id = ? ORDER BY version DESC LIMIT 1"
        (body,) = database.execute(newest, (container_id.bytes,)).fetchone()
    part = parse_record(body).content
    try:
        OpenPart.open(container_id.bytes, Role.Content, part, key) if part else None
    except BrokerError as error:
        kind = type(error).__name__
        console.print(f"  bob, with the broker's whole disk and his old key: [red]{kind}[/]")
        console.print(f"    {error}")
    else:
        raise SystemExit("bob's old key opens what was written later: that must not be")


def show(container: Container[object], file: Path, names: dict[uuid.UUID, str]) -> None:
    content = container.content or b""
    same = hashlib.sha256(content).digest() == hashlib.sha256(file.read_bytes()).digest()
    if not same or container.header is None:
        raise SystemExit("bob got something else than alice sent: that must not be")
    table = Table("what bob holds", "", show_header=False, box=None, padding=(0, 2))
    table.add_row("header", shown(str(container.header.customHeaderObject)))
    table.add_row("content", f"{len(content):,} bytes, [green]the same SHA-256 as alice's file[/]")
    table.add_row("written by", f"{names[container.modifiedBy]}, verified by her signature")
    console.print(table)


def search_disk(
    data: Path, received: Container[object], file: Path, names: dict[uuid.UUID, str]
) -> None:
    """Search all files of the broker for plaintexts and secrets, and show the metadata that it has."""
    disk = b"".join(path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file())
    secrets = {
        "a line of the content": max(file.read_bytes().splitlines(), key=len, default=b""),
        "the header": NOTE.encode(),
        "alice's password": b"alice's Password 1",
        "alice's passphrase": PASSPHRASE.encode(),
    }
    table = Table("looked for", "found", title=f"{len(disk):,} bytes on the broker's disk")
    for name, secret in secrets.items():
        if len(secret) < SHORTEST_CLUE:
            table.add_row(name, "too short to search for")
            continue
        if secret in disk:
            raise SystemExit(f"{name} is on the broker's disk: that must not be")
        table.add_row(name, "[green]nowhere[/]")
    with closing(sqlite3.connect(data / "broker.sqlite")) as database:
        kind, version = database.execute("SELECT type, version FROM containers").fetchone()
        members = database.execute("SELECT user_id, permissions FROM members").fetchall()
        reminder = database.execute("SELECT max(reminder) FROM key_files").fetchone()[0]
    table.add_row("the container's type", f"[yellow]{kind}[/] (clear, by design)")
    who = ", ".join(
        f"{names[uuid.UUID(bytes=user)]}: {in_words(ContainerAccessLevel(bits))}"
        for user, bits in members
    )
    table.add_row("its members and what they can do", f"[yellow]{who}[/]")
    table.add_row("version and length", f"[yellow]{version}, {received.length:,} bytes[/]")
    table.add_row("bob's reminder", f"[yellow]{reminder}[/] (that is its purpose)")
    console.print(table)


def open_page(alice_id: uuid.UUID, url: str, key: str) -> None:
    """Log alice in on a device of her own, and open `scbroker ui` there until Ctrl-C."""
    step("Alice's page opens in the browser; Ctrl-C ends it")
    with tempfile.TemporaryDirectory() as home:
        environment = {each: os.environ[each] for each in os.environ if "SCBROKER" not in each}
        environment |= {"SCBROKER_API_KEY": key, "SCBROKER_PASSPHRASE": PASSPHRASE}
        environment |= {"XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home}
        places = ["--session-folder", f"{home}/sessions", "--trust-folder", f"{home}/trust"]
        login = ["login", str(alice_id), "--profile", "alice", "--name", "Alice", "--server", url]
        command = [*COMMAND, *login, *places, "--quiet"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        page = subprocess.Popen([*COMMAND, "ui", "--profile", "alice"], env=environment)
        while page.poll() is None:
            with suppress(KeyboardInterrupt):  # the page got it too, and ends
                page.wait()
        if page.returncode:
            raise SystemExit(f"The page ended with status {page.returncode}.")


def say_what_next() -> None:
    step("What next")
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_row("make demo FILE=PATH", "the same with a file of yours")
    table.add_row("make demo UI=1", "look at alice's containers in the browser")
    table.add_row(".venv/bin/scbroker serve", "start a broker that stays")
    table.add_row("docs/guide/command-line.md", "five minutes at the command line")
    table.add_row("docs/guide/getting-started.md", "the first program")
    console.print(table)


def shown(text: str) -> str:
    """Return text as the terminal can show it: without control characters and markup."""
    return escape(printable(text))


@contextmanager
def broker(data: Path) -> Iterator[tuple[str, str]]:
    """Run `scbroker serve` on a free port; yield its URL and API key."""
    step("A broker starts: SQLite and a folder, in a process of its own")
    key = str(uuid.uuid4())
    log = data / "broker.log"
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", "--data-dir", str(data)],
            env={**os.environ, "SCBROKER_API_KEY": key},
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
        )
    try:
        with timed("started"):
            line = process.stdout.readline() if process.stdout else ""
        if not line.startswith("scbroker serves "):
            raise SystemExit(f"The broker did not start:\n{log.read_text('utf-8')}")
        console.print(f"  {line.strip()}")
        yield line.split()[-1], key
    finally:
        process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()


def step(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what was done, and how long it took."""
    began = time.perf_counter()
    yield
    console.print(f"  {what} [dim]in {time.perf_counter() - began:.2f} s[/dim]")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
