"""Containers as a broker serves them, judged by the client's own `fetching`."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, Final

from assurance.fuzz import programs
from assurance.fuzz.engine import Target, canonical, kept
from assurance.fuzz.programs import Program, path_to, program
from assurance.fuzz.served import (
    HASHES,
    LINKS,
    NAMES,
    NOW,
    SCENES,
    SIGNATURES,
    Served,
    drive,
    scene,
)
from assurance.fuzz.stage import fixed_clock, marked_signatures, stage
from scbroker.client.containers import contents, fetching
from scbroker.client.containers.fetching import Fetched
from scbroker.client.core.judging import Mark, State, judge_view
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.errors import (
    BrokerFaultError,
    ClockError,
    DecryptionError,
    DeletedError,
    ForkError,
    IntegrityError,
    KeySubstitutionError,
    RollbackError,
    TooLargeError,
)
from scbroker.records.access_list import list_hash
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import record_hash
from scbroker.records.ids import user_id_of
from scbroker.records.judge import Known, governing_of
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import MAX_INLINE, GoverningView
from tests.vectors.cast import DAY, cast

_now = [NOW]


def _container(data: bytes) -> None:
    found = Program.parse(data)
    reader, *_ = SCENES[found.base % len(SCENES)]
    document = found.applied(scene(found.base))
    _now[0] = document["now"] if isinstance(document["now"], int) else NOW
    served = Served(document, found.fixups)
    marks = MemoryTrustStore().open(uuid.UUID(int=1), b"")
    container_id = uuid.UUID(bytes=stage().box.id)
    mark = _kept_mark(document["mark"])
    if mark is not None:
        marks.swap(fetching.KIND, container_id.bytes, None, mark.encode())
    rings = {"erin": (1, 2, 2)}
    session = Session(served, cast()[reader].ring(*rings.get(reader, (1, 1, 1))), marks)
    session.token.value, session.token.expires = "token", float("inf")
    fetched: Fetched = drive(fetching.fetch(session, container_id, header=True, content=True))
    _check_state(fetched.state, served, mark)
    stored = marks.get(fetching.KIND, container_id.bytes)
    kept(stored == fetched.state.mark.encode(), "another mark was kept")
    kept(
        stored is not None and Mark.decode(stored) == fetched.state.mark,
        "a mark that reads otherwise",
    )
    opened = fetching.open_fetched(session, fetched)
    shown = fetching.metadata(session, opened)
    creator = cast()["alice"].fingerprint if mark is None else mark.createdBy
    kept(shown.createdBy == user_id_of(creator), "another creator")
    header = fetching.read_header(session, opened)
    content = _read_content(session, opened)
    if not found.fixups & SIGNATURES:
        _check_untouched(fetched.state)
        version = fetched.state.record.version
        kept(header in (b'{"name":"story"}', None), "another header than was sealed")
        kept(
            content in (b"Once" if version == 1 else b"upon a time", None),
            "another content than was sealed",
        )
        kept(
            shown.type in ("story" if version > 2 else "note", None), "another type than was signed"
        )
    _check_again(session, fetched, container_id.bytes)


def _read_content(session: Session, opened: fetching.Opened) -> bytes | None:
    part = opened.state.record.content
    reading = contents.read(session, opened, lambda *_: None)
    if part is None or part.paddedLength <= MAX_INLINE:
        return drive(reading)  # type: ignore[no-any-return]
    with asyncio.Runner() as runner:  # a large one is fetched by several tasks
        return runner.run(reading)


def _kept_mark(value: Any) -> Mark | None:
    """The device's own: an edit may choose among what it can have seen, and spoils nothing in it."""
    match value:
        case [
            int() as version, bytes() as digest, int() as governing, bytes() as named, bool() as complete,
            bytes() as author, int() as time,
        ]:  # fmt: skip
            if not any(isinstance(number, bool) for number in (version, governing, time)):
                return Mark(version, digest, governing, named, complete, author, time)
    return None


def _check_state(state: State, served: Served, mark: Mark | None) -> None:
    bodies = [signed.body for signed in served.records]
    kept(state.signed.body in bodies, "a head that nobody served")
    for known in (state.head, state.governing.known):
        body = encode_object(known.record)
        kept(body in bodies and record_hash(body) == known.hash, "a record that nobody served")
        canonical(body[1:])
    head, governing = state.record, state.governing.record
    kept(
        head.version >= governing.version and head.time >= governing.time,
        "a head before what governs it",
    )
    kept(head.containerId == stage().box.id, "another container")
    named = governing_of(governing)
    access = state.governing.access
    kept(
        list_hash(head.containerId, named.accessVersion, access.entryHashes) == named.accessList,
        "another list",
    )
    _check_head_author(state)
    if mark is not None:
        kept(head.version >= mark.version, "a rollback")
        kept(
            (state.createdBy, state.createdAt) == (mark.createdBy, mark.createdAt),
            "another creator",
        )
        kept(head.version > mark.version or state.head.hash == mark.hash, "a fork")


def _check_head_author(state: State) -> None:
    """Rule 2, once more: whoever wrote a head that governs nothing was let to."""
    head = state.record
    if head.governing is not None:
        return
    entry = state.governing.access.entries.get(head.author)
    needed = Level.Delete if head.tombstone else Level.Upload
    kept(
        entry is not None and bool(entry.permissions & needed),
        "a head by somebody without the right to it",
    )
    ends = None if entry is None else entry.expiresAt
    kept(ends is None or ends > head.time, "a head by somebody whose access had ended")


def _check_untouched(state: State) -> None:
    """Where nobody signed anew, only what was signed is believed."""
    true = {made.signed.body for made in stage().story}
    believed = {state.signed.body, encode_object(state.governing.record)}
    kept(believed <= true, "a record that its author did not sign")
    lists = {salted.hash for made in stage().story if made.access for salted in made.access.salted}
    hashes = state.governing.access.entryHashes
    kept(
        all(hashes[n : n + 32] in lists for n in range(0, len(hashes), 32)),
        "a list that nobody signed",
    )


def _check_again(session: Session, fetched: Fetched, container_id: bytes) -> None:
    """With the mark that was just kept, the same head is believed, and nothing else becomes of it."""
    state = fetched.state
    if not state.complete:
        return
    version = governing_of(state.governing.record).accessVersion
    views = fetched.view.governing
    lists = [
        view.accessList
        for view in views
        if view.accessList is not None
        and governing_of(Known.parse(view.record.body).record).accessVersion == version
    ]
    own = [
        view for view in views if Known.parse(view.record.body).hash == state.governing.known.hash
    ]
    if not own or not lists:
        return  # it came with a page
    again = GoverningView(record=own[0].record, accessList=lists[0])
    head = None if fetched.view.head is None else fetched.view.head.signed
    chains = {chain.fingerprint: chain for chain in session.directory._chains.values()}
    judged = judge_view(
        container_id, session.fingerprint, [again], head, None, chains, state.mark, _now[0]
    )
    kept(judged.mark == state.mark, "another state at a second look")


@contextlib.contextmanager
def _read() -> Iterator[None]:
    with marked_signatures(), fixed_clock(lambda: _now[0]):
        yield


def _container_programs() -> list[bytes]:
    """Every scene as it is, and what leads to each refusal."""
    first = scene(0)
    late = path_to(first, "records", 4, 0, 6)
    return [
        *(program(base) for base in range(len(SCENES))),
        *(program(base, HASHES | LINKS | SIGNATURES) for base in (0, 8)),
        program(0, 0, (programs.ADD, path_to(first, "now"), -20 * DAY)),
        program(4, 0, (programs.SET, path_to(scene(4), "mark", 0), 6)),
        program(4, 0, (programs.SET, path_to(scene(4), "mark", 1), bytes(32))),
        program(0, 0, (programs.SET, path_to(first, "lastGoverning"), None)),
        program(
            0, 0, (programs.SWAP, path_to(first, "chains", 0, 2), path_to(first, "chains", 1, 2))
        ),
        program(0, HASHES | LINKS | SIGNATURES, (programs.ADD, late, DAY)),
        program(0, 7, (programs.FLIP, path_to(first, "records", 4, 0, 10, 4), 3)),
        program(0, 0, (programs.FLIP, path_to(first, "wrap"), 3)),
    ]


def _container_bombs() -> Iterator[bytes]:
    first = scene(0)
    yield from programs.bombs(
        first, HASHES | LINKS | SIGNATURES | NAMES,
        ("records", 0, 0), ("records", 1), ("lists", 0), ("lists", 0, 0, 1), ("governing",),
        ("governing", 1), ("governing", 0, 2), ("page",), ("skipped",), ("bodies",), ("wrap",),
        ("type",), ("type", 1), ("header",), ("content",), ("keyChains",), ("keyChains", 0, 0),
        ("chains",), ("chains", 0, 2), ("chains", 0, 2, 0, 0),
    )  # fmt: skip
    whole = [{"userId": first["keyChains"][0][0], "sequence": 0}] * 5000
    yield program(0, 0, (programs.SET, path_to(first, "keyChains"), whole))
    yield program(0, 0, (programs.SET, path_to(first, "skipped"), [1] * 1000))


TARGETS: Final = (
    Target(
        "container",
        _container,
        (
            IntegrityError,
            ClockError,
            TooLargeError,
            RollbackError,
            ForkError,
            KeySubstitutionError,
            BrokerFaultError,
            DecryptionError,
            DeletedError,
        ),
        _container_programs,
        programs.mutator(scene, len(SCENES), 4),
        _container_bombs,
        _read,
        seconds=3.0,
        spare=8 << 20,
    ),
)
