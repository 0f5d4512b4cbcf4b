"""A populated broker in which any stored byte can be flipped: in each row of its database, in each object.

    with Population(folder) as population:
        for flip in population.flips():
            with population.flipped(flip):
                population.outcomes(flip)

    python -m assurance.flips.population [--every 1] [--part 1/2] [--start 0]    all take an hour

After a flip, each read gives exactly what it gave before or raises a `BrokerError`. Reads in
`UNAUTHENTICATED` are exempt: no signature covers what they return. A departure may be missing as well:
nothing proves that a user has left but the departure itself. So may the date of an event that the deletion of
its container emptied: no digest covers it. The broker's word alone says whether a user has accepted a group,
and to a fresh device also which groups there are. A device that knows a group warns if the broker does not.
"""

import argparse
import dataclasses
import logging
import resource
import sqlite3
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from assurance.people import OWNER, new_device
from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerEvent,
    KeyRing,
    NewContainer,
    Promise,
    SecuredContainer,
    ServerProvider,
)
from scbroker.server.storage.tables import metadata
from tests.kit.brokers import BrokerProcess
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, wait_until

PASSWORD: Final = "correct Horse 7"
PASSPHRASE: Final = "battery Staple 8"
UNAUTHENTICATED: Final = {"blocked", "reminder", "usage"}
OBJECT: Final = "object"
_CONTENT: Final = bytes(range(256)) * 257
_INTEGER: Final = 8
_MOST_MEMORY: Final = 400  # MiB; a few hundred flips take 130 and 120
# A broker counts in these tables, and writes to them during reads.
_COUNTERS: Final = {"nonces", "guesses", "accesses"}
_MANY: Final = 10**9

Reads = dict[str, Any]


class Value(NamedTuple):
    """A stored value: SQLite's name of its type, and its bytes (8 for an integer, none for NULL)."""

    kind: str
    octets: bytes


class Flip(NamedTuple):
    """One byte of one stored value: in a row of a table, or in the object at a path."""

    table: str
    column: str
    row: int
    byte: int
    path: Path | None = None


class _Warnings(logging.Handler):
    """The warnings that clients log in its `with` block."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages = list[str]()

    def __enter__(self) -> Self:
        logging.getLogger("scbroker").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("scbroker").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def tell_of(self, group: uuid.UUID) -> bool:
        """Return whether one says that the broker does not know this group."""
        said = f"The broker does not know group {group} any more"
        return any(message.startswith(said) for message in self.messages)


class Population:
    """Alice wrote, and Bob reads: on a device that has marks of everything, and on fresh ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._warnings = _Warnings()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._warnings)
        # Each flip in a verifier counts as a wrong guess.
        names = ("guesses", "guesses_user", "guesses_address", "reminders_address")
        limits: dict[str, Any] = dict.fromkeys(names, _MANY)
        self.broker = self._stack.enter_context(BrokerProcess(self._folder, **limits))
        self._populate()
        path = self._folder / "broker.sqlite"
        database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        database.text_factory = bytes
        self._database = self._stack.enter_context(closing(database))
        self._written = self._read_all(Flip("", "", 0, 0))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _populate(self) -> None:
        alice = self._device(self._stack, self.broker.new_user())
        self._known = bob = self._device(self._stack)
        bob.register(PASSWORD, PASSPHRASE, "what the horse said").result(PATIENCE)
        self._ring = bob.getKeyRing().result(PATIENCE)
        self._alice = alice.getUserId().result(PATIENCE)
        both = [AccessLevel(user, OWNER) for user in (self._alice, self._ring.userId)]
        carol = self._device(self._stack, self.broker.new_user())
        leaver = AccessLevel(carol.getUserId().result(PATIENCE))
        together = [
            NewContainer(b"one", {"name": "first"}, accessLevels=both, type="note"),
            NewContainer(b"", accessLevels=[*both, leaver]),
        ]
        small, left = _made(alice.createContainers(together).result(PATIENCE))
        alice.updateContainerHeader(small.id, {"name": "second"}).result(PATIENCE)
        bob.updateContainerContent(small.id, b"two").result(PATIENCE)
        large = alice.createContainer(_CONTENT, accessLevels=both, type="file").result(PATIENCE)
        deleted = alice.createContainer(b"gone", accessLevels=both).result(PATIENCE)
        alice.deleteContainer(deleted.id).result(PATIENCE)
        self._small, self._large, self._deleted = small.id, large.id, deleted.id
        self._left = left.id
        carol.leaveContainer(self._left).result(PATIENCE)
        team = alice.createGroup("Team", [self._ring.userId, leaver.userId]).result(PATIENCE)
        self._team = bob.acceptGroup(team.id).result(PATIENCE).id
        shared = [AccessLevel(self._alice, OWNER), AccessLevel(team, OWNER)]
        through = alice.createContainer(b"for all", accessLevels=shared).result(PATIENCE)
        bob.updateContainerContent(through.id, b"by one").result(PATIENCE)
        self._through = through.id
        carol.declineGroup(self._team).result(PATIENCE)
        bob.blockUser(leaver.userId).result(PATIENCE)
        url = self.broker.database_url
        query(url, "UPDATE api_keys SET expires_at = ?, last_used_at = 60000000", 2**62)
        suspended = "UPDATE users SET suspended_at = 1, suspension_reason = 'x' WHERE id = ?"
        query(url, suspended, leaver.userId.bytes)
        query(url, "INSERT INTO default_quotas VALUES ('bytes', 1000000000)")
        self._wait_for_accesses()

    def _wait_for_accesses(self) -> None:
        """Wait for the Accessed events of the updates: the broker writes them up to a second later."""
        wait_until(lambda: self._known.getEvents("Accessed").result(PATIENCE))

    def _device(self, stack: ExitStack, ring: KeyRing | None = None) -> ServerProvider:
        return new_device(stack, self.broker, ring)

    # What is flipped.

    def flips(self) -> Iterator[Flip]:
        """Yield every byte of every stored value."""
        for table in metadata.tables.values():
            for column in () if table.name in _COUNTERS else table.columns:
                for (row,) in self._run(f"SELECT rowid FROM {table.name}"):
                    size = len(self._stored(table.name, column.name, row).octets)
                    yield from (Flip(table.name, column.name, row, n) for n in range(size))
        for path in sorted((self._folder / "objects").rglob("*")):
            if path.is_file():
                size = path.stat().st_size
                yield from (Flip(OBJECT, "", 0, n, path) for n in range(size))

    @contextmanager
    def flipped(self, flip: Flip) -> Iterator[bool]:
        """Flip a bit of the byte, and back at the end; give False if the database refuses the value."""
        with self._flipped(flip) as taken:
            yield taken
        if self._warnings.messages:  # a device warns once, until it reads the group again
            self._known.getGroups().result(PATIENCE)

    @contextmanager
    def _flipped(self, flip: Flip) -> Iterator[bool]:
        if flip.path is not None:
            whole = flip.path.read_bytes()
            flip.path.write_bytes(_flip(whole, flip.byte))
            try:
                yield True
            finally:
                flip.path.write_bytes(whole)
            return
        value = self._stored(flip.table, flip.column, flip.row)
        changed = Value(value.kind, _flip(value.octets, flip.byte))
        try:
            self._store(flip, flip.row, changed)
        except sqlite3.IntegrityError:
            yield False
            return
        try:
            yield True
        finally:
            # The flipped value may be the row number itself.
            numbered = flip.column == "row_id"
            row = int.from_bytes(changed.octets, signed=True) if numbered else flip.row
            self._store(flip, row, value)

    def _stored(self, table: str, column: str, row: int) -> Value:
        [(kind, value)] = self._run(
            f"SELECT typeof({column}), {column} FROM {table} WHERE rowid = ?", row
        )
        if kind == b"integer":
            value = value.to_bytes(_INTEGER, signed=True)
        return Value(kind.decode(), value or b"")

    def _store(self, flip: Flip, row: int, value: Value) -> None:
        place = "CAST(? AS TEXT)" if value.kind == "text" else "?"
        given: bytes | int = value.octets
        if value.kind == "integer":
            given = int.from_bytes(value.octets, signed=True)
        self._run(f"UPDATE {flip.table} SET {flip.column} = {place} WHERE rowid = ?", given, row)

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, values).fetchall()

    # What is read.

    def outcomes(self, flip: Flip) -> Counter[str]:
        """Count what became of each read; raise AssertionError if one gave what was never written."""
        found: Counter[str] = Counter()
        for name, result in self._read_all(flip).items():
            if isinstance(result, BrokerError):
                found[type(result).__name__] += 1
            elif result == self._written[name]:
                found["as written"] += 1
            else:
                # No chain closes with the broker's mark that a user is deleted: the client returns no keys.
                marked = (flip.table, flip.column) == ("users", "deleted")
                no_keys = marked and name.endswith(" keys") and result == []
                hidden = flip.table == "departures" and name.endswith(" left")
                dated = (flip.table, flip.column, name) == ("events", "date", "log")
                is_exempt = (
                    name in UNAUTHENTICATED
                    or no_keys
                    or (hidden and len(result.access) == 3)
                    or (dated and _without_dates(result) == _without_dates(self._written[name]))
                    or (
                        name.endswith(" group")
                        and (
                            name.startswith("fresh") or result or self._warnings.tell_of(self._team)
                        )
                        and _is_brokers_word(result, self._written[name])
                    )
                    or (_is_departure(flip, name) and len(result) == 3)
                )
                assert is_exempt, f"{flip}: {name} gave {result!r}"
                found["unauthenticated"] += 1
        return found

    def _read_all(self, flip: Flip) -> Reads:
        self._warnings.messages.clear()
        if flip.path is not None:
            return {"large": _result(self._known.getContainerContent(self._large))}
        found = {f"known {name}": value for name, value in self._reads(self._known).items()}
        found["log"] = _result(self._known.getEvents())
        found["blocked"] = _result(self._known.getBlockedUsers())
        found["usage"] = _result(self._known.getUsage())
        with ExitStack() as stack:
            fresh = self._device(stack)
            found["log-in"] = _result(fresh.logIn(keyRing=self._ring, userId=self._ring.userId))
            if found["log-in"] is None:
                found |= {f"fresh {name}": value for name, value in self._reads(fresh).items()}
            if flip.table in ("key_files", ""):  # two Argon2id
                found |= self._read_key_file(stack)
        return found

    def _reads(self, device: ServerProvider) -> Reads:
        """Read everything of users and containers."""
        return {
            "keys": _result(device.getPublicKeys(self._alice)),
            "small": _result(device.getContainer(self._small)),
            "sealed": _result(device.getSecuredContainer(self._small)),
            "metadata": _result(device.getContainerMetadata(self._large)),
            "large": _result(device.getContainerContent(self._large)),
            "deleted": _result(device.getContainer(self._deleted)),
            "left": _result(device.getContainerMetadata(self._left)),
            "group": _result(device.getGroups()),
            "members": _result(device.getGroupMembers(self._team)),
            "through": _result(device.getContainer(self._through)),
        }

    def _read_key_file(self, stack: ExitStack) -> Reads:
        device, user = self._device(stack), self._ring.userId
        return {
            "reminder": _result(device.getReminder(user)),
            "KeyFile": _result(device.logIn(user, PASSWORD, PASSPHRASE)),
        }


def _is_brokers_word(groups: Sequence[Any], written: Sequence[Any]) -> bool:
    """Return whether nothing but the broker's word says what is wrong with a list of groups.

    It says which groups there are, whether a group was accepted, and who has left. A group that is damaged is
    in the list as its error.
    """
    unsigned = {"accepted": False, "memberCount": 0}
    [expected] = [dataclasses.replace(each, **unsigned) for each in written]
    return all(
        isinstance(each, BrokerError) or dataclasses.replace(each, **unsigned) == expected
        for each in groups
    )


def _is_departure(flip: Flip, name: str) -> bool:
    """Return whether a flip may hide that a member has left, as it may for a container."""
    return flip.table in ("group_members", "users") and name.endswith(" members")


def _without_dates(log: list[ContainerEvent]) -> list[Any]:
    """Return a log without the dates of emptied events."""
    return [event if event.version else (event.id, event.containerId) for event in log]


def _result(promise: Promise[Any]) -> Any:
    """Return the result of an operation, or its error."""
    try:
        return promise.result(PATIENCE)
    except BrokerError as error:
        return error


def _flip(octets: bytes, byte: int) -> bytes:
    return octets[:byte] + bytes([octets[byte] ^ 1 << byte % 8]) + octets[byte + 1 :]


def _made(found: Sequence[SecuredContainer | BrokerError]) -> list[SecuredContainer]:
    """Return the containers of a batch; raise the first error among them."""
    for each in found:
        if isinstance(each, BrokerError):
            raise each
    return [each for each in found if isinstance(each, SecuredContainer)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="one flip of so many")
    parser.add_argument("--start", type=int, default=0, help="how many are behind already")
    parser.add_argument("--part", default="1/1", help="which part of the work this process does")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    done, wrong, outcomes = 0, 0, Counter[str]()
    began = time.monotonic()  # about time
    with tempfile.TemporaryDirectory(prefix="flips-") as name, Population(Path(name)) as population:
        flips = list(population.flips())
        first = options.start + (part - 1) * options.every
        for flip in flips[first :: parts * options.every]:
            try:
                with population.flipped(flip) as taken:
                    outcomes += population.outcomes(flip) if taken else Counter(["not stored"])
            except AssertionError as error:
                print(error, flush=True)
                wrong += 1
            done += 1
            if done % 1000 == 0:
                seconds = time.monotonic() - began  # about time
                print(f"{done} of {len(flips)} bytes, {seconds:.0f} s", flush=True)
    seconds = time.monotonic() - began  # about time
    print(f"{done} of {len(flips)} bytes in {seconds:.0f} s: {dict(outcomes)}")
    client, broker = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"at most {client:.0f} MiB resident in the clients, {broker:.0f} MiB in the broker")
    print(f"{wrong} gave something else than was written")
    return int(wrong > 0 or max(client, broker) > _MOST_MEMORY)


if __name__ == "__main__":
    raise SystemExit(main())
