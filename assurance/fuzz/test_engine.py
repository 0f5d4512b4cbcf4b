"""The searches can fail: a fault of each kind, planted in a decoder, is reported by the short search."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from assurance.fuzz import engine, messages
from assurance.fuzz.engine import Search, outcome, shrunk
from assurance.fuzz.run import _watch, _watched
from assurance.fuzz.targets import TARGETS
from assurance.fuzz.test_decoders import searched
from scbroker.client import sealed_log
from scbroker.errors import DeletedError
from scbroker.records import access_list, canonical, container_record, key_record
from scbroker.wire import codec, query

Real = Callable[..., Any]


def key_error(real: Real, *given: Any) -> Any:
    entry = real(*given)
    return dict.fromkeys(range(511), entry)[entry.permissions]


def undocumented(real: Real, *given: Any) -> Any:
    record = real(*given)
    if record.tombstone:
        raise DeletedError("A refusal, and not one of this decoder's.")
    return record


def endless(real: Real, *given: Any) -> Any:
    record = real(*given)
    for _ in itertools.count() if record.state == key_record.RETIRED else ():
        pass
    return record


def huge(real: Real, kind: Any, data: bytes, limit: int) -> Any:
    """Room is made for as much as a count promises, before anything of it has come."""
    if data[1:2] in (b"\xc6", b"\xdd"):
        bytes(int.from_bytes(data[2:6], "big") >> 6)
    return real(kind, data, limit)


def any_form(real: Real, kind: Any, data: bytes, limit: int) -> Any:
    """Any form of a value is taken, its shortest or not."""
    try:
        return canonical._decoder(kind).decode(data)
    except (ValueError, RecursionError):
        return real(kind, data, limit)


def any_message(real: Real, kind: Any, data: bytes, limit: int = codec.MAX_MESSAGE) -> Any:
    return any_form(real, kind, data, limit)


def any_digits(real: Real, text: str) -> Any:
    return int(text) if text.isdecimal() else real(text)


def any_mac(*_: Any) -> bool:
    return True


PLANTED: Final[dict[Callable[..., Any], tuple[str, object, str, str]]] = {
    key_error: ("entry", access_list, "decode_value", "KeyError in test_engine.py:key_error"),
    undocumented: ("container-record", container_record, "decode_object", "DeletedError in"),
    endless: ("key-record", key_record, "decode_object", "HungError: no end after"),
    huge: ("key-record", key_record, "decode_object", "BrokenError: 0 bytes of input took"),
    any_form: ("entry", access_list, "decode_value", "BrokenError: it encodes to other bytes"),
    any_message: ("message", messages, "decode", "BrokenError: accepted what is not canonical"),
    any_digits: ("number", messages, "parse_number", "BrokenError: another spelling was taken"),
    any_mac: ("trust-store", sealed_log, "equal", ""),
}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_reported(
    fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each names its target, the function in whose place it stands, and what is reported of it."""
    target, module, name, expected = PLANTED[fault]
    real = getattr(module, name)
    container_record.parse_record.cache_clear()  # or what was parsed before never meets the fault
    monkeypatch.setattr(module, name, lambda *given: fault(real, *given))
    monkeypatch.setattr(engine, "_SHRINK_SECONDS", 0.5)
    bombs = TARGETS[target].bombs if fault is huge else tuple
    report = searched(dataclasses.replace(TARGETS[target], bombs=bombs, seconds=0.3))
    assert [found for found in report.faults if found.startswith(expected)], report.faults


def test_a_fault_is_shrunk_to_a_small_input_that_still_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, target = query.parse_number, TARGETS["number"]
    monkeypatch.setattr(messages, "parse_number", lambda text: any_digits(real, text))
    small = shrunk(target, b"0" * 50, "BrokenError: another spelling was taken")
    assert len(small) == 2
    with pytest.raises(engine.BrokenError, match="another spelling"):
        outcome(target, small)


def test_a_guided_search_keeps_few_small_inputs_that_go_wherever_all_went() -> None:
    target = TARGETS["entry"]
    # Some places are passed once in the life of a process.
    _, report = (Search(target, 0, guided=True).run(target.seeds(), rounds=300) for _ in range(2))
    again = Search(target, 0, guided=True).run(report.kept)
    assert (again.edges, sorted(again.kept)) == (report.edges, sorted(report.kept))
    assert 0 < len(report.kept) < 20


def test_the_input_that_a_process_died_of_is_known_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "current"
    with _watch(path) as watch:
        watch(b"a long one")
        watch(b"short")
        assert _watched(path) == b"short"
    assert _watched(path) == b"short"
