"""Containers as a broker serves them, judged by the client's own `fetching`. See docs/spec/container.md."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, Final

from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import canonical
from assurance.fuzz.served import HASHES, LINKS, NOW, SCENES, SIGNATURES, Served, scene
from assurance.fuzz.stage import fixed_clock, marked_signatures, stage
from assurance.fuzz.target import kept
from scbroker import errors
from scbroker.client.containers import contents, fetching
from scbroker.client.containers.fetching import Fetched, Opened
from scbroker.client.core.judging import Evidence, Mark, State
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.records.canonical import encode_object, user_id_of
from scbroker.records.container_record import Role, list_hash, record_hash
from scbroker.records.judge import Known, governing_of
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import GoverningView
from tests.vectors.cast import DAY, cast

_now = [NOW]


def _container(data: bytes) -> None:
    found = v.Program.parse(data)
    reader, *_ = SCENES[found.base % len(SCENES)]
    document = found.applied(scene(found.base))
    _now[0] = document["now"] if isinstance(document["now"], int) else NOW
    served = Served(document, found.fixups)
    marks = MemoryTrustStore().open(uuid.UUID(int=1), b"")
    container_id = uuid.UUID(bytes=stage().box.id)
    mark = _mark_of(document["mark"])
    if mark is not None:
        marks.swap(fetching.KIND, container_id.bytes, None, mark.encode())
    rings = {"erin": (1, 2, 2)}
    session = Session(served, cast()[reader].ring(*rings.get(reader, (1, 1, 1))), marks)
    session.token.value, session.token.expires = "token", float("inf")
    fetched: Fetched = asyncio.run(fetching.fetch(session, container_id, header=True, content=True))
    _check_state(fetched.state, served, mark)
    stored = marks.get(fetching.KIND, container_id.bytes)
    kept(stored == fetched.state.mark.encode(), "another mark was kept")
    kept(stored is not None and Mark.decode(stored) == fetched.state.mark, "another mark is read")
    opened = fetching.open_fetched(session, fetched)
    shown = fetching.container(session, opened, None, None, asked=())
    creator = cast()["alice"].fingerprint if mark is None else mark.createdBy
    kept(shown.createdBy == user_id_of(creator), "another creator")
    header, content = (fetching.read_part(opened, Role.Header), _read_content(session, opened))
    if not found.fixups & SIGNATURES:
        _check_untouched(fetched.state)
        version = fetched.state.record.version
        written = b"Once" if version == 1 else b"upon a time"
        kept(header in (b'{"name":"story"}', None), "another header than was sealed")
        kept(content in (written, None), "another content than was sealed")
        kept(
            shown.type in ("story" if version > 2 else "note", None), "another type than was signed"
        )
    _check_again(session, fetched, container_id.bytes)


def _read_content(session: Session, opened: Opened) -> bytes | None:
    return asyncio.run(contents.read(session, opened, lambda *_: None))


def _mark_of(value: Any) -> Mark | None:
    """Return the mark of the device, unless an edit has made it one that no device can have."""
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
    kept(state.signed.body in bodies, "a head that was not served")
    for known in (state.head, state.governing.known):
        body = encode_object(known.record)
        kept(body in bodies and record_hash(body) == known.hash, "a record that was not served")
        canonical(body[1:])
    head, governing = state.record, state.governing.record
    kept(head.version >= governing.version, "a head before the record that governs it")
    kept(head.time >= governing.time, "a head older than the record that governs it")
    kept(head.containerId == stage().box.id, "another container")
    named, access = governing_of(governing), state.governing.access
    digest = list_hash(head.containerId, named.accessVersion, access.entryHashes)
    kept(digest == named.accessList, "another list")
    kept(state.governing.left <= access.entries.keys(), "a departure of somebody without an entry")
    if head.governing is None:  # rule 2
        entry = access.entries.get(head.author)
        needed = Level.Delete if head.tombstone else Level.Upload
        kept(entry is not None and bool(entry.permissions & needed), "an author without the right")
        ends = None if entry is None else entry.expiresAt
        kept(ends is None or ends > head.time, "an author whose access had expired")
    if mark is not None:
        kept(head.version >= mark.version, "a rollback")
        created = (state.createdBy, state.createdAt)
        kept(created == (mark.createdBy, mark.createdAt), "another creator")
        kept(head.version > mark.version or state.head.hash == mark.hash, "a fork")


def _check_untouched(state: State) -> None:
    """Check that without new signatures only what was signed in the story is believed."""
    true = {made.signed.body for made in stage().story}
    believed = {state.signed.body, encode_object(state.governing.record)}
    kept(believed <= true, "a record that its author did not sign")
    hashes = state.governing.access.entryHashes
    lists = {salted.hash for access in stage().lists for salted in access}
    every = {hashes[n : n + 32] for n in range(0, len(hashes), 32)}
    kept(every <= lists, "a list that its author did not sign")


def _check_again(session: Session, fetched: Fetched, container_id: bytes) -> None:
    """Check that the mark just kept leads to the same head, and to the same mark."""
    state = fetched.state
    if not state.complete:
        return
    version = governing_of(state.governing.record).accessVersion
    known = [(view, Known.parse(view.record.body)) for view in fetched.view.governing]
    lists = [
        view.accessList
        for view, record in known
        if view.accessList and governing_of(record.record).accessVersion == version
    ]
    own = [view for view, record in known if record.hash == state.governing.known.hash]
    if not own or not lists:
        return  # it came with a page
    again = GoverningView(record=own[0].record, accessList=lists[0])
    head = None if fetched.view.head is None else fetched.view.head.signed
    chains = {chain.fingerprint: chain for chain in session.directory._chains.values()}
    judged = Evidence(
        container_id, session.fingerprint, [again], head, None, chains, state.mark, _now[0]
    ).judge()
    kept(judged.mark == state.mark, "another mark at the second reading")


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    with marked_signatures(), fixed_clock(lambda: _now[0]):
        yield


def _programs() -> list[bytes]:
    """Return every scene as it is, and what leads to each refusal."""
    first, mark = scene(0), v.path_to(scene(4), "mark")
    signed = HASHES | LINKS | SIGNATURES
    return [
        *(v.program(base) for base in range(len(SCENES))),
        *(v.program(base, signed) for base in (0, 8)),
        v.program(0, 0, (v.ADD, v.path_to(first, "now"), -20 * DAY)),
        v.program(4, 0, (v.SET, [*mark, 0], 6)),
        v.program(4, 0, (v.SET, [*mark, 1], bytes(32))),
        v.program(0, 0, (v.SET, v.path_to(first, "lastGoverning"), None)),
        v.program(
            0, 0, (v.SWAP, v.path_to(first, "chains", 0, 2), v.path_to(first, "chains", 1, 2))
        ),
        v.program(0, signed, (v.ADD, v.path_to(first, "records", 4, 0, 6), DAY)),
        v.program(0, signed, (v.FLIP, v.path_to(first, "records", 4, 0, 10, 4), 3)),
        v.program(0, 0, (v.FLIP, v.path_to(first, "wrap"), 3)),
        v.program(14, HASHES | SIGNATURES),
        v.program(
            14, SIGNATURES, (v.ADD, v.path_to(scene(14), "departures", 0, 0, 0, 5), -4 * DAY)
        ),
    ]


def _bombs() -> Iterator[bytes]:
    first = scene(0)
    whole = [{"userId": first["keyChains"][0][0], "sequence": 0}] * 5000
    yield v.program(0, 0, (v.SET, v.path_to(first, "keyChains"), whole))
    yield v.program(0, 0, (v.SET, v.path_to(first, "skipped"), [1] * 1000))


_REFUSALS: Final = (
    errors.IntegrityError, errors.ClockError, errors.TooLargeError, errors.RollbackError,
    errors.ForkError, errors.KeySubstitutionError, errors.BrokerFaultError, errors.DecryptionError,
    errors.DeletedError,
)  # fmt: skip
TARGETS: Final = (
    v.program_target("container", _container, _REFUSALS, _programs, (scene, len(SCENES), 4), _bombs,
                     around=_stand_ins),
)  # fmt: skip
