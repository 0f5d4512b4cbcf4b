"""Compare `records.key_record` with an oracle for every chain of keys, up to a bound.

Every sequence of key records is tried, rightful or not, signed by the user or by somebody else. Names stand
in place of keys. If two sequences lead to the same keys, only one of them is continued.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple
from unittest import mock

from assurance.exhaustive.chains import Count
from scbroker.crypto import verify
from scbroker.errors import BrokerError, IntegrityError
from scbroker.records import key_record
from scbroker.records.canonical import encode_object, fingerprint_of
from scbroker.records.key_record import ACTIVE, CLOSED, RETIRED, KeyChain, KeyRecord, Signed
from scbroker.vocabulary import KeyType

SIGNING, ENCRYPTION = 0, 1
_SIZES: Final = {SIGNING: verify.SIGNING_KEY_SIZE, ENCRYPTION: verify.ENCRYPTION_KEY_SIZE}
_LATE: Final = 10


class Key(NamedTuple):
    """A key as the oracle sees it: its kind, its name, when it was introduced and retired."""

    kind: int
    name: int
    introduced: int
    retired: int | None = None


class Step(NamedTuple):
    """One key record to be tried."""

    kind: int
    place: int
    name: int
    state: int
    time: int
    is_signed: bool = True


Keys = tuple[Key, ...]


def allowed(keys: Keys, step: Step, *, is_closed: bool) -> Keys | None:
    """Return the keys after a record that rules K1 to K8 allow; None if they do not."""
    if is_closed or not step.is_signed:
        return None
    same = [key for key in keys if key.kind == step.kind]
    if step.state == ACTIVE:
        wanted = (SIGNING, ENCRYPTION)[len(keys)] if len(keys) < 2 else step.kind
        fits = step.kind == wanted and step.place == len(same) and (keys or step.name == 0)
        new = Key(step.kind, step.name, step.time)
        return (*keys, new) if fits and step.name not in [key.name for key in same] else None
    if len(keys) < 2:
        return None
    if step.state == CLOSED:
        active = [key for key in keys if key.retired is None]
        fits = (step.kind, step.place, step.name) == (SIGNING, 0, 0)
        if not fits or any(step.time < key.introduced for key in active):
            return None
        return tuple(k._replace(retired=step.time) if k.retired is None else k for k in keys)
    if step.place >= len(same) - 1:  # unknown, or the newest
        return None
    old = same[step.place]
    if old.retired is not None or old.name != step.name or step.time < old.introduced:
        return None
    return tuple(key._replace(retired=step.time) if key is old else key for key in keys)


class _NamedKey:
    """A verifying key that accepts its owner's name as the signature."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def verify(self, label: str, body: bytes, signature: bytes) -> None:
        del label, body
        if signature != self.raw:
            raise IntegrityError("Not the user's signature.")


def public(kind: int, name: int) -> bytes:
    return bytes([name + 1]) * _SIZES[kind]


ROOT: Final = public(SIGNING, 0)
USER: Final = fingerprint_of(ROOT)


@dataclass(frozen=True)
class _Tried:
    keys: Keys
    records: tuple[Signed, ...]
    chain: KeyChain | None


def steps(times: tuple[int, ...], names: int) -> Iterator[Step]:
    for kind, index, name, state, at in itertools.product(
        (SIGNING, ENCRYPTION), range(3), range(names), (ACTIVE, RETIRED, CLOSED), times
    ):
        yield Step(kind, index, name, state, at)
    yield Step(SIGNING, 1, 1, ACTIVE, times[-1], is_signed=False)
    yield Step(SIGNING, 0, 0, RETIRED, times[-1], is_signed=False)
    yield Step(SIGNING, 0, 0, CLOSED, times[-1], is_signed=False)


def search(length: int, times: tuple[int, ...] = (1, 2), names: int = 3) -> Count:
    """Try all chains of up to `length` records; raise `AssertionError` where code and oracle differ."""
    count, started = Count(), time.monotonic()  # about time
    seen: set[tuple[Keys, bool]] = set()
    with (
        mock.patch.object(key_record, "VerifyingKey", _NamedKey),
        mock.patch.object(verify, "check_encryption_key"),
    ):
        layer = [_Tried((), (), None)]
        for depth in range(1, length + 1):
            found = [
                after
                for before in layer
                for step in steps(times, names)
                if (after := _try(count, before, step)) is not None
            ]
            layer = []
            for after in found:
                closed = after.chain is not None and after.chain.closed
                if (after.keys, closed) not in seen:
                    seen.add((after.keys, closed))
                    layer.append(after)
            if depth == length:
                break
    count.worlds, count.seconds = len(seen), time.monotonic() - started  # about time
    return count


def _try(count: Count, before: _Tried, step: Step) -> _Tried | None:
    count.acts += 1
    is_closed = before.chain is not None and before.chain.closed
    after = allowed(before.keys, step, is_closed=is_closed)
    previous = (
        verify.labelled_hash(key_record.LABEL, before.records[-1].body) if before.records else None
    )
    record = KeyRecord(
        USER, len(before.records), step.kind, step.place, public(step.kind, step.name),
        step.state, step.time, previous,
    )  # fmt: skip
    signed = Signed(encode_object(record), ROOT if step.is_signed else b"?")
    records = (*before.records, signed)
    chain = _accepted(before, records)
    is_begun = after is not None and len(records) == 1  # a chain has at least two records
    assert (chain is not None) == (after is not None and not is_begun), (before.keys, step)
    if after is None:
        return None
    count.accepted += 1
    if chain is not None:
        _compare(after, chain)
        for false in _falsified(record):
            count.lies += 1
            bad = (*before.records, Signed(encode_object(false), ROOT))
            assert _accepted(before, bad) is None, (before.keys, step, false)
    return _Tried(after, records, chain)


def _accepted(before: _Tried, records: tuple[Signed, ...]) -> KeyChain | None:
    try:
        if before.chain is not None:
            return before.chain.extend(records[-1:], _LATE)
        return KeyChain.verify(records, _LATE)
    except BrokerError:
        return None


def _falsified(record: KeyRecord) -> Iterator[KeyRecord]:
    for changed in (
        {"fingerprint": bytes(32)},
        {"sequence": record.sequence + 1},
        {"previous": bytes(32)},
        {"time": 2**50},
    ):
        yield KeyRecord(**{**{f: getattr(record, f) for f in record.__struct_fields__}, **changed})


def _compare(keys: Keys, chain: KeyChain) -> None:
    """Check that the chain has the oracle's keys, and gives none out at a time when it was not in force."""
    for kind in (SIGNING, ENCRYPTION):
        mine = [key for key in keys if key.kind == kind]
        theirs = chain.of_type(KeyType(kind))
        assert [(k.introduced, k.retired) for k in theirs] == [k[2:] for k in mine]
        assert _succeeds(chain.latest, KeyType(kind)) == (mine[-1].retired is None), keys
    signing = [key for key in keys if key.kind == SIGNING]
    for index in range(len(signing) + 1):
        key = signing[index] if index < len(signing) else None
        is_active = key is not None and key.retired is None
        assert _succeeds(chain.check_active, index) == is_active, (keys, index)
        for at in range(4):
            is_good = key is not None and key.introduced <= at
            is_good = is_good and (key is None or key.retired is None or at < key.retired)
            assert _succeeds(chain.signing_key, index, at) == is_good, (keys, index, at)


def _succeeds(work: Callable[..., object], *arguments: object) -> bool:
    try:
        work(*arguments)
    except BrokerError:
        return False
    return True
