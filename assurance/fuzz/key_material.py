"""KeyFiles, what is in them, and chains of key records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from assurance.fuzz import bombs, mutation, programs
from assurance.fuzz.engine import Target, canonical, feed, kept
from assurance.fuzz.messagepack import read, write
from assurance.fuzz.programs import Document, Program, path_to, program, tree
from assurance.fuzz.stage import (
    author_of,
    cheap_argon2id,
    mark_of,
    marked_signatures,
    public_key_of,
)
from scbroker import keys
from scbroker.crypto.seal import pad_secret, seal
from scbroker.crypto.verify import HASH_SIZE, label, labelled_hash, sha256
from scbroker.errors import (
    ClockError,
    DecryptionError,
    ForkError,
    IntegrityError,
    KeySubstitutionError,
    RollbackError,
)
from scbroker.keys import KeyRing, PassphraseKeys, check_key_file, open_key_file, seal_key_file
from scbroker.records.canonical import decode_object, encode_object
from scbroker.records.key_record import (
    CLOSED,
    LABEL,
    MAX_KEY_RECORD,
    MAX_KEYS,
    KeyChain,
    KeyRecord,
    Signed,
)
from scbroker.vocabulary import KeyType
from tests.vectors.cast import DAY, START, cast, chosen

PASSWORD: Final = "correct horse"
PASSPHRASE: Final = "eight words that nobody else would think of"
_IN_BYTES: Final = mutation.mixed(
    mutation.in_messagepack, mutation.in_messagepack, mutation.in_bytes
)


# KeyFiles.


@cache
def passphrase_keys() -> PassphraseKeys:
    with cheap_argon2id():
        return PassphraseKeys.derive(PASSPHRASE, cast()["alice"].chain().userId)


@cache
def _rings() -> list[KeyRing]:
    """What was ever sealed; nothing else may come out of a KeyFile."""
    alice = cast()["alice"]
    return [alice.ring(), alice.ring(2, 2, 2)]


def _ring_row(ring: KeyRing) -> list[Any]:
    signing = [list(map(bytes, key.seeds)) for key in ring.signing]
    encryption = [list(map(bytes, key.seeds)) for key in ring.encryption]
    return [ring.rawFingerprint, ring.generation, signing, encryption]


def _key_file(data: bytes) -> None:
    user_id = cast()["alice"].chain().userId
    check_key_file(data, user_id)
    fingerprint, *_ = canonical(data[17:])
    rings = [
        open_key_file(data, user_id, *secrets)
        for secrets in ((passphrase_keys(), None), (None, PASSWORD), (passphrase_keys(), PASSWORD))
    ]
    kept(fingerprint == cast()["alice"].fingerprint, "another user's file was opened")
    for opened in rings:
        kept(opened.hash == sha256(data), "another file's hash")
        rows = [_ring_row(ring) for ring in _rings()]
        kept(_ring_row(opened.ring) in rows, "keys that nobody sealed")


def _key_files() -> list[bytes]:
    with cheap_argon2id():
        return [seal_key_file(ring, PASSWORD, passphrase_keys()) for ring in _rings()]


def _key_ring(data: bytes) -> None:
    ring = keys._parse_ring(data)
    kept(b"\x01" + write(_ring_row(ring)) == data, "it encodes to other bytes")
    canonical(data[1:])


def _key_rings() -> list[bytes]:
    return [b"\x01" + write(_ring_row(ring)) for ring in _rings()]


@cache
def _inside(base: int) -> Document:
    secret = PASSWORD.encode()
    padded = [pad_secret(secret), pad_secret(b"x" * 127), secret][base % 3]
    return {
        "padded": padded,
        "ring": _ring_row(_rings()[0]),
        "salt": chosen("salt"),
        "secret": secret,
    }


def _key_file_inside(data: bytes) -> None:
    """What stands in both parts of a file, sealed rightly: its own writer may have been anybody."""
    found = Program.parse(data)
    document = found.applied(_inside(found.base))
    fingerprint = cast()["alice"].fingerprint
    padded, ring, salt, secret = (document[name] for name in ("padded", "ring", "salt", "secret"))
    if not (isinstance(salt, bytes) and len(salt) == HASH_SIZE and isinstance(secret, bytes)):
        return
    plaintext = ring if isinstance(ring, bytes) else b"\x01" + write(tree(ring))
    key = keys._password_key(secret, salt, fingerprint)
    part = seal(key, label("keyfile-password") + fingerprint + salt, plaintext)
    context = keys._passphrase_context(fingerprint, salt, part)
    first = seal(passphrase_keys().wrap, context, padded if isinstance(padded, bytes) else b"")
    file = keys.MAGIC + b"\x01" + write([fingerprint, salt, first, part])
    feed(file)
    opened = open_key_file(file, cast()["alice"].chain().userId, passphrase_keys(), None)
    kept(b"\x01" + write(_ring_row(opened.ring)) == plaintext, "another KeyRing came out")
    kept(pad_secret(secret) == padded, "padding of another form was taken")
    canonical(plaintext[1:])


# Chains of key records.


@cache
def _chain(base: int) -> Document:
    person = cast()[("erin", "alice")[base % 2]]
    rows = [[read(signed.body[1:]), signed.signature] for signed in person.records]
    return {
        "records": rows,
        "now": START + 30 * DAY,
        "first": 2,
        "mark": [1, person.hashes[1]],
        "ring": [2, 2] if base % 2 == 0 else [1, 1],
    }


def _key_chain(data: bytes) -> None:
    """Verified in one and in two steps, against a mark and against a KeyRing. Fixups: 1 links, 2 signs."""
    found = Program.parse(data)
    document = found.applied(_chain(found.base))
    name = ("erin", "alice")[found.base % 2]
    records = _signed(document["records"], name, found.fixups)
    now = document["now"] if isinstance(document["now"], int) else START
    whole = KeyChain.verify(records, now)
    first = document["first"] if isinstance(document["first"], int) else 2
    cut = 2 + abs(first) % len(records)
    steps = KeyChain.verify(records[:cut], now).extend(records[cut:], now)
    kept(
        (steps.records, steps.hashes, steps.keys) == (whole.records, whole.hashes, whole.keys),
        "two steps lead elsewhere",
    )
    _check_chain(whole, records)
    match document["mark"]:
        case [int() as sequence, bytes() as digest] if sequence >= 0:
            whole.check_mark(sequence, digest)
            kept(whole.hashes[sequence] == digest, "a chain that does not lead through its mark")
    match document["ring"]:
        case [int() as signing, int() as encryption] if 0 < signing < 4 and 0 < encryption < 4:
            ring = cast()[name].ring(1, signing, encryption)
            ring.check_chain(whole)
            own = [*(key.public for key in ring.signing), *(key.public for key in ring.encryption)]
            public = [key.public for kind in KeyType for key in whole.of_type(kind)]
            kept(own == public, "other keys than the KeyRing's")


def _signed(items: Any, name: str, fixups: int) -> list[Signed]:
    previous, records = None, []
    for sequence, item in enumerate(items if isinstance(items, list) else []):
        match item:
            case [row, bytes() as signature]:
                pass
            case _:
                continue
        if fixups & 1 and isinstance(row, list) and len(row) == 8:
            row = [cast()[name].fingerprint, sequence, *row[2:7], previous]
        body = row if isinstance(row, bytes) else b"\x01" + write(tree(row))
        if fixups & 2:
            signature = mark_of(public_key_of(cast()[name], 0), LABEL, body)
        previous = labelled_hash(LABEL, body)
        records.append(Signed(body, signature))
        feed(body, signature)
    return records


def _check_chain(chain: KeyChain, records: list[Signed]) -> None:
    """The rules K1 to K8 once more, told otherwise: what came in, and what the chain makes of it."""
    kept(list(chain.records) == records, "other records than were given")
    introduced: dict[tuple[int, int], list[Any]] = {}
    before, closed = None, False
    for sequence, signed in enumerate(records):
        row = canonical(signed.body[1:])
        parsed = decode_object(KeyRecord, signed.body, MAX_KEY_RECORD)
        kept(encode_object(parsed) == signed.body, "a record encodes to other bytes")
        _, number, kind, index, public, state, time, previous = row
        kept((number, previous) == (sequence, before), "a chain with a gap")
        before = labelled_hash(LABEL, signed.body)
        kept(chain.hashes[sequence] == before, "another hash")
        name = (kind, index)
        kept(not closed, "a record after the one that closed the chain")
        if state == CLOSED:
            kept((name, public) == ((0, 0), introduced[0, 0][0]), "closed with another key")
            for key in introduced.values():
                kept(key[2] is not None or key[1] <= time, "a key was closed before its time")
                key[2] = time if key[2] is None else key[2]
            closed = True
        elif state == 0:
            kept(name not in introduced, "a key was introduced twice")
            kept(public not in [item[0] for item in introduced.values()], "one key under two names")
            introduced[name] = [public, time, None]
        else:
            kept(introduced[name][::2] == [public, None], "what is no active key was retired")
            kept(introduced[name][1] <= time, "a key was retired before its time")
            introduced[name][2] = time
    for kind in KeyType:
        of_kind = [introduced[name] for name in sorted(introduced) if name[0] == kind]
        active = of_kind[-1][2] is None
        kept(0 < len(of_kind) <= MAX_KEYS and active != closed, "no active key")
        kept((kind, len(of_kind) - 1) in introduced, "an index was left out")
        shown = [[key.public, key.introduced, key.retired] for key in chain.of_type(kind)]
        kept(shown == of_kind, "the chain shows other keys")
        if not closed:
            kept(chain.latest(kind).index == len(of_kind) - 1, "the latest key is another")
    kept(chain.closed == closed, "the chain is closed otherwise than its records say")
    kept(author_of(chain.fingerprint) is not None, "a fingerprint that nobody has")


def _key_chains() -> list[bytes]:
    late = path_to(_chain(0), "records", 4, 0, 6)
    return [
        program(0), program(1), program(0, 3), program(0, 2, (programs.ADD, late, DAY)),
        program(0, 3, (programs.DROP, path_to(_chain(0), "records", 5), None)),
        program(0, 3, (programs.SET, path_to(_chain(0), "records", 4, 0, 5), CLOSED),
                (programs.DROP, path_to(_chain(0), "records", 5), None)),
        program(0, 3, (programs.SET, path_to(_chain(0), "records", 4, 0, 5), CLOSED)),
        program(0, 0, (programs.SET, path_to(_chain(0), "now"), START)),
        program(0, 0, (programs.SET, path_to(_chain(0), "mark", 0), 9)),
        program(0, 0, (programs.SET, path_to(_chain(0), "mark", 1), bytes(32))),
        program(1, 0, (programs.SET, path_to(_chain(1), "ring", 0), 2)),
        program(0, 3, (programs.FLIP, path_to(_chain(0), "records", 2, 0, 4), 3)),
    ]  # fmt: skip


@contextlib.contextmanager
def _cheap() -> Iterator[None]:
    with cheap_argon2id(), marked_signatures():
        yield


TARGETS: Final = (
    Target(
        "key-file",
        _key_file,
        (IntegrityError, DecryptionError, KeySubstitutionError),
        _key_files,
        _IN_BYTES,
        lambda: bombs.in_messagepack(_key_files()[0]),
        _cheap,
    ),
    Target(
        "key-ring",
        _key_ring,
        (DecryptionError,),
        _key_rings,
        _IN_BYTES,
        lambda: bombs.in_messagepack(_key_rings()[0]),
        seconds=2.0,
    ),
    Target(
        "key-file-inside",
        _key_file_inside,
        (IntegrityError, DecryptionError),
        lambda: [program(0), program(1), program(2), program(0, 0, (programs.SET, [1], b""))],
        programs.mutator(_inside, 3, 0),
        lambda: programs.bombs(_inside(0), 0, ("padded",), ("ring",), ("ring", 2), ("secret",)),
        _cheap,
        seconds=2.0,
        spare=8 << 20,
    ),
    Target(
        "key-chain",
        _key_chain,
        (IntegrityError, ClockError, RollbackError, ForkError, KeySubstitutionError),
        _key_chains,
        programs.mutator(_chain, 2, 2),
        lambda: programs.bombs(
            _chain(0),
            3,
            ("records",),
            ("records", 2),
            ("records", 2, 0),
            ("records", 2, 0, 4),
            ("records", 2, 1),
        ),
        _cheap,
        seconds=3.0,
        spare=8 << 20,
    ),
)
