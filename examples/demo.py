"""Share a file between two users through a broker that cannot read it (`make demo`).

The broker runs in a process of its own, on SQLite and a folder. The providers of alice and bob share no
state: all data between them goes through the broker.
"""

import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scbroker import (
    AccessLevel,
    BrokerError,
    Container,
    ContainerAccessLevel,
    MemoryTrustStore,
    ServerProvider,
)
from scbroker.client.core.sealing import OpenPart
from scbroker.records.container_record import Role, parse_record, wrap_info
from scbroker.records.judge import governing_of

CLONE = Path(__file__).parent.parent
LETTER = CLONE / "requirements.txt"
NEXT = CLONE / "LICENSE"
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
console = Console(highlight=False)


def main() -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as (url, key):
        story(Path(folder), url, key)
    console.print(f"\n[dim]The whole story took {time.perf_counter() - began:.1f} s.[/dim]")


def story(data: Path, url: str, key: str) -> None:
    def program(name: str) -> ServerProvider:
        """Return the provider of a new device: its trust store is empty."""
        return ServerProvider(key, url, name, trustStore=MemoryTrustStore())

    step("Alice's program registers; bob registered on his own device before")
    with program("bob's laptop") as bobs_laptop, timed():
        bobs_laptop.register("bob's Password 1", "bob's Passphrase 1", "the usual").result()
        bob_id = bobs_laptop.getUserId().result()
    alice = program("alice's program")
    with timed():
        alice.register("alice's Password 1", "alice's Passphrase 1").result()
    alice_id = alice.getUserId().result()
    console.print(f"  alice [cyan]{alice_id}[/]   bob [cyan]{bob_id}[/]")
    keys = alice.getPublicKeys(bob_id).result()
    console.print(f"  bob's fingerprint, for the two to compare: [cyan]{keys[0].fingerprint}[/]")

    step(f"She seals {LETTER.name} ({LETTER.stat().st_size:,} bytes) and shares it with bob")
    with timed():
        letter = alice.createContainer(
            LETTER,
            {"fileName": LETTER.name, "note": "what this project stands on"},
            accessLevels=[AccessLevel(alice_id, OWNER), AccessLevel(bob_id)],
            type="demo/file",
        ).result()
    console.print(f"  container [cyan]{letter.id}[/], version {letter.version}")

    step("Bob's program, on a fresh device, logs in with his passphrase alone and opens it")
    bob = program("bob's program")
    with timed():
        bob.logIn(bob_id, passphrase="bob's Passphrase 1").result()
        received = bob.getContainer(letter.id).result()
    show(received)

    step("What the broker saw, and what it could not: its whole disk, searched")
    search_disk(data, received)

    step("Alice takes bob out, and writes again")
    kept = bobs_key(bob, letter.id)
    with timed():
        alice.updateContainerAccessLevels(letter.id).result()
        alice.updateContainer(
            letter.id,
            content=NEXT,
            customHeaderObject={"fileName": NEXT.name},
            accessLevels=None,
            type="demo/file",
        ).result()
    try:
        bob.getContainer(letter.id).result()
    except BrokerError as error:
        console.print(f"  bob asks again: [red]{type(error).__name__}[/] {error}")
    else:
        raise SystemExit("bob can still read: that must not be")
    in_league(data, letter.id, kept)
    events = bob.getEvents().result()
    console.print(f"  bob's log: {', '.join(str(event.eventType) for event in events)}")
    mine = alice.getContainer(letter.id).result()
    console.print(f"  alice reads {mine.length:,} bytes of version {mine.version}, as ever")
    alice.close()
    bob.close()


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
        console.print(
            f"  bob, with the broker's whole disk and his old key: [red]{kind}[/] {error}"
        )
    else:
        raise SystemExit("bob's old key opens what was written later: that must not be")


def show(container: Container[object]) -> None:
    content = container.content or b""
    same = hashlib.sha256(content).digest() == hashlib.sha256(LETTER.read_bytes()).digest()
    if not same or container.header is None:
        raise SystemExit("bob got something else than alice sent: that must not be")
    table = Table("what bob holds", "", show_header=False, box=None, padding=(0, 2))
    table.add_row("header", str(container.header.customHeaderObject))
    table.add_row("content", f"{len(content):,} bytes, [green]the same SHA-256 as alice's file[/]")
    table.add_row("written by", f"{container.modifiedBy}, verified by signature")
    console.print(table)


def search_disk(data: Path, received: Container[object]) -> None:
    """Search all files of the broker for plaintexts and secrets, and show the metadata that it has."""
    disk = b"".join(path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file())
    secrets = {
        "a line of the content": LETTER.read_bytes().splitlines()[-1],
        "the header": b"what this project stands on",
        "alice's password": b"alice's Password 1",
        "alice's passphrase": b"alice's Passphrase 1",
    }
    table = Table("looked for", "found", title=f"{len(disk):,} bytes on the broker's disk")
    for name, secret in secrets.items():
        if secret in disk:
            raise SystemExit(f"{name} is on the broker's disk: that must not be")
        table.add_row(name, "[green]nowhere[/]")
    with closing(sqlite3.connect(data / "broker.sqlite")) as database:
        kind, version = database.execute("SELECT type, version FROM containers").fetchone()
        members = database.execute("SELECT user_id, permissions FROM members").fetchall()
        reminder = database.execute("SELECT max(reminder) FROM key_files").fetchone()[0]
    table.add_row("the container's type", f"[yellow]{kind}[/] (clear, by design)")
    who = ", ".join(f"{str(uuid.UUID(bytes=user))[:8]}…: {bits}" for user, bits in members)
    table.add_row("its members and their rights", f"[yellow]{who}[/]")
    table.add_row("version and length", f"[yellow]{version}, {received.length:,} bytes[/]")
    table.add_row("bob's reminder", f"[yellow]{reminder}[/] (that is its purpose)")
    console.print(table)


@contextmanager
def broker(data: Path) -> Iterator[tuple[str, str]]:
    """Run `scbroker serve` on a free port; yield its URL and API key."""
    step("A broker starts: SQLite and a folder, in a process of its own")
    key = str(uuid.uuid4())
    command = "from scbroker.cli import main; main()"
    log = data / "broker.log"
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [sys.executable, "-c", command, "serve", "--port", "0", "--data-dir", str(data)],
            env={**os.environ, "SCBROKER_API_KEY": key},
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
        )
    try:
        with timed():
            line = process.stdout.readline() if process.stdout else ""
        if not line.startswith("scbroker serves "):
            raise SystemExit(f"The broker did not start:\n{log.read_text('utf-8')}")
        console.print(f"  {line.strip()}")
        yield line.split()[-1], key
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


def step(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


@contextmanager
def timed() -> Iterator[None]:
    began = time.perf_counter()
    yield
    console.print(f"  [dim]{time.perf_counter() - began:.2f} s[/dim]")


if __name__ == "__main__":
    main()
