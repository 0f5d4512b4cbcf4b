"""KeyFiles, what is in them, and chains of key records. See docs/spec/keyfile.md and docs/spec/ids.md."""

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import canonical, write
from assurance.fuzz.served import row_of, stored
from assurance.fuzz.stage import (
    cheap_argon2id,
    independent,
    mark_of,
    marked_signatures,
    public_key_of,
)
from assurance.fuzz.target import feed, kept
from scbroker import errors, keys
from scbroker.crypto.seal import pad_secret, seal
from scbroker.crypto.verify import HASH_SIZE, label, labelled_hash
from scbroker.keys import (
    KeyRing,
    PassphraseKeys,
    check_key_file,
    open_key_file,
    open_session,
    seal_key_file,
    seal_session,
)
from scbroker.records.key_record import CLOSED, LABEL, KeyChain, Signed
from scbroker.vocabulary import KeyType
from tests.independent import key_files, key_records
from tests.vectors.cast import DAY, START, cast, chosen

PASSWORD: Final = "correct horse"
PASSPHRASE: Final = "eight words that nobody else would think of"


# KeyFiles.


@cache
def passphrase_keys() -> PassphraseKeys:
    """Return what alice's passphrase derives to under the stand-in for Argon2id."""
    with cheap_argon2id():
        return PassphraseKeys.derive(PASSPHRASE, cast()["alice"].chain().userId)


@cache
def _rings() -> list[KeyRing]:
    """Return all KeyRings that were ever sealed: nothing else may come out of a KeyFile."""
    alice = cast()["alice"]
    return [alice.ring(), alice.ring(2, 2, 2)]


def _row_of(ring: KeyRing) -> list[Any]:
    kinds = (ring.signing, ring.encryption)
    seeds = [[list(map(bytes, key.seeds)) for key in kind] for kind in kinds]
    return [ring.rawFingerprint, ring.generation, *seeds]


def _key_file(data: bytes) -> None:
    user_id = cast()["alice"].chain().userId
    check_key_file(data, user_id)
    independent(key_files.parse, data, user_id.bytes)
    for secrets in ((passphrase_keys(), None), (None, PASSWORD), (passphrase_keys(), PASSWORD)):
        opened = open_key_file(data, user_id, *secrets)
        kept(_row_of(opened) in map(_row_of, _rings()), "keys that nobody sealed")


def _key_files() -> list[bytes]:
    with cheap_argon2id():
        return [seal_key_file(ring, PASSWORD, passphrase_keys()) for ring in _rings()]


# Kept sessions.

_KEY: Final = b"k" * 32
_ORIGIN: Final = "https://broker.example"


def _kept_session(data: bytes) -> None:
    opened = open_session(data, _KEY, _ORIGIN, cast()["alice"].chain().userId)
    rows = [_row_of(ring) for ring in opened]
    kept(1 <= len(rows) <= 2, "no KeyRing, or too many")
    kept(all(row in map(_row_of, _rings()) for row in rows), "keys that nobody sealed")


@cache
def _kept_sessions() -> list[bytes]:
    first, second = _rings()
    return [seal_session(rings, _KEY, _ORIGIN) for rings in ([first], [second], [first, second])]


def _key_ring(data: bytes) -> None:
    ring = keys._parse_ring(data)
    kept(stored(_row_of(ring)) == data, "it encodes to other bytes")
    kept(independent(key_files.parse_key_ring, data).stored() == data, "another KeyRing")


@cache
def _inside(base: int) -> v.Document:
    secret = PASSWORD.encode()
    padded = [pad_secret(secret), pad_secret(b"x" * 127), secret][base % 3]
    ring = _row_of(_rings()[0])
    return {"padded": padded, "ring": ring, "salt": chosen("salt"), "secret": secret}


def _key_file_inside(data: bytes) -> None:
    """Open a file whose parts are sealed correctly around an edited inside, as any writer could."""
    found = v.Program.parse(data)
    document = found.applied(_inside(found.base))
    fingerprint = cast()["alice"].fingerprint
    padded, ring, salt, secret = (document[name] for name in ("padded", "ring", "salt", "secret"))
    if not (isinstance(salt, bytes) and len(salt) == HASH_SIZE and isinstance(secret, bytes)):
        return
    plaintext = stored(ring)
    key = keys._password_key(secret, salt, fingerprint)
    part = seal(key, label("keyfile-password") + fingerprint + salt, plaintext)
    context = keys._passphrase_context(fingerprint, salt, part)
    first = seal(passphrase_keys().wrap, context, padded if isinstance(padded, bytes) else b"")
    file = keys.MAGIC + b"\x01" + write([fingerprint, salt, first, part])
    feed(file)
    opened = open_key_file(file, cast()["alice"].chain().userId, passphrase_keys(), None)
    kept(stored(_row_of(opened)) == plaintext, "another KeyRing came out")
    kept(pad_secret(secret) == padded, "accepted padding of another form")
    canonical(plaintext[1:])


# Chains of key records.


@cache
def _chain(base: int) -> v.Document:
    person = cast()[("erin", "alice")[base % 2]]
    rows = [[row_of(item.body), item.signature] for item in person.records]
    return {
        "records": rows,
        "now": START + 30 * DAY,
        "first": 2,
        "mark": [1, person.hashes[1]],
        "ring": [2, 2] if base % 2 == 0 else [1, 1],
    }


def _key_chain(data: bytes) -> None:
    """Verify a chain in one and in two steps, against a mark and a KeyRing. Fixups: 1 links, 2 signs."""
    found = v.Program.parse(data)
    document = found.applied(_chain(found.base))
    name = ("erin", "alice")[found.base % 2]
    records = _signed(document["records"], name, found.fixups)
    now = document["now"] if isinstance(document["now"], int) else START
    whole = KeyChain.verify(records, now)
    first = document["first"] if isinstance(document["first"], int) else 2
    cut = 2 + abs(first) % len(records)
    steps = KeyChain.verify(records[:cut], now).extend(records[cut:], now)
    same = (steps.records, steps.hashes, steps.keys) == (whole.records, whole.hashes, whole.keys)
    kept(same, "two steps lead elsewhere")
    _check_chain(whole, records, now)
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
    for sequence, item in enumerate(v.list_of(items)):
        match item:
            case [row, bytes() as signature]:
                pass
            case _:
                continue
        if fixups & 1 and isinstance(row, list) and len(row) == 8:
            row = [cast()[name].fingerprint, sequence, *row[2:7], previous]
        body = stored(row)
        if fixups & 2:
            signature = mark_of(public_key_of(cast()[name], 0), LABEL, body)
        previous = labelled_hash(LABEL, body)
        records.append(Signed(body, signature))
        feed(body, signature)
    return records


def _check_chain(chain: KeyChain, records: list[Signed], now: int) -> None:
    """Check the chain against rules K1 to K8 as the second implementation has them."""
    # Their marks are verified above.
    unsigned = [key_records.Signed(signed.body, None) for signed in records]
    other = independent(key_records.judge, unsigned, now)
    kept(list(chain.records) == records, "other records than were given")
    closed = other.closed is not None
    kept((list(chain.hashes), chain.closed) == (other.hashes, closed), "another chain")
    kept(chain.fingerprint == other.fingerprint, "another user's")
    for kind in KeyType:
        shown = [(key.public, key.introduced, key.retired) for key in chain.of_type(kind)]
        theirs = [
            (key.public, key.introduced, other.closed if key.retired is None else key.retired)
            for key in other.keys[int(kind)]
        ]
        kept(shown == theirs, "other keys")
        if not chain.closed:
            kept(chain.latest(kind).index == other.latest_active(int(kind)), "another latest key")


def _key_chains() -> list[bytes]:
    first, state = _chain(0), v.path_to(_chain(0), "records", 4, 0, 5)
    last = v.path_to(first, "records", 5)
    return [
        v.program(0), v.program(1), v.program(0, 3),
        v.program(0, 2, (v.ADD, v.path_to(first, "records", 4, 0, 6), DAY)),
        v.program(0, 3, (v.DROP, last, None)),
        v.program(0, 3, (v.SET, state, CLOSED), (v.DROP, last, None)),
        v.program(0, 3, (v.SET, state, CLOSED)),
        v.program(0, 0, (v.SET, v.path_to(first, "now"), START)),
        v.program(0, 0, (v.SET, v.path_to(first, "mark", 0), 9)),
        v.program(0, 0, (v.SET, v.path_to(first, "mark", 1), bytes(32))),
        v.program(1, 0, (v.SET, v.path_to(_chain(1), "ring", 0), 2)),
        v.program(0, 3, (v.FLIP, v.path_to(first, "records", 2, 0, 4), 3)),
    ]  # fmt: skip


@contextlib.contextmanager
def _cheap() -> Iterator[None]:
    with cheap_argon2id(), marked_signatures():
        yield


def _stored_rings() -> list[bytes]:
    return [stored(_row_of(ring)) for ring in _rings()]


_SEALED: Final = (errors.IntegrityError, errors.DecryptionError)
TARGETS: Final = (
    v.messagepack_target("kept-session", _kept_session, _SEALED, _kept_sessions),
    v.messagepack_target("key-file", _key_file, (*_SEALED, errors.KeySubstitutionError), _key_files,
                         around=_cheap),
    v.messagepack_target("key-ring", _key_ring, (errors.DecryptionError,), _stored_rings),
    v.program_target(
        "key-file-inside", _key_file_inside, _SEALED,
        lambda: [v.program(0), v.program(1), v.program(2), v.program(0, 0, (v.SET, [1], b""))],
        (_inside, 3, 0), around=_cheap,
    ),
    v.program_target(
        "key-chain", _key_chain,
        (errors.IntegrityError, errors.ClockError, errors.RollbackError, errors.ForkError,
         errors.KeySubstitutionError),
        _key_chains, (_chain, 2, 2), around=_cheap,
    ),
)  # fmt: skip
