"""The checks can fail: each kind of fault, planted in a decoder, is noticed."""

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest

from assurance.fuzz import messages
from assurance.fuzz import target as target_module
from assurance.fuzz.target import BrokenError, HungError
from assurance.fuzz.targets import TARGETS
from assurance.fuzz.test_decoders import outcomes, search
from scbroker.client import own_files
from scbroker.errors import DeletedError
from scbroker.records import canonical, container_record, key_record
from scbroker.wire import codec

Real = Callable[..., Any]


def key_error(real: Real, *given: Any) -> Any:
    found = real(*given)
    if not isinstance(found, container_record.Entry):
        return found
    return dict.fromkeys(range(511), found)[found.permissions]


def undocumented_refusal(real: Real, *given: Any) -> Any:
    record = real(*given)
    if record.tombstone:
        raise DeletedError("Not a refusal of this decoder.")
    return record


def endless_loop(real: Real, *given: Any) -> Any:
    record = real(*given)
    for _ in itertools.count() if record.state == key_record.RETIRED else ():
        pass
    return record


def allocation_by_count(real: Real, kind: Any, data: bytes, limit: int) -> Any:
    if data[1:2] in (b"\xc6", b"\xdd"):
        bytes(int.from_bytes(data[2:6], "big") >> 6)
    return real(kind, data, limit)


def any_form_of_a_value(real: Real, kind: Any, data: bytes, limit: int = codec.MAX_MESSAGE) -> Any:
    try:
        return canonical.decoder(kind).decode(data)
    except (ValueError, RecursionError):
        return real(kind, data, limit)


def any_digits(real: Real, text: str) -> Any:
    return int(text) if text.isdecimal() and len(text) < 100 else real(text)


def no_authentication(*_: Any) -> bool:
    return True


# The target, the fault, the function in whose place it stands, and what notices it.
PLANTED: Final[list[tuple[str, Callable[..., Any], object, str, type[BaseException]]]] = [
    ("entry", key_error, container_record, "decode_value", KeyError),
    ("container-record", undocumented_refusal, container_record, "decode_object", DeletedError),
    ("key-record", endless_loop, key_record, "decode_object", HungError),
    ("key-record", allocation_by_count, key_record, "decode_object", BrokenError),
    ("entry", any_form_of_a_value, container_record, "decode_value", BrokenError),
    ("message", any_form_of_a_value, messages, "decode", BrokenError),
    ("number", any_digits, messages, "parse_number", BrokenError),
    ("trust-store", no_authentication, own_files, "equal", Exception),
]


# The input that fails may be large: nothing prints it.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize(
    "name, fault, module, function, error",
    PLANTED,
    ids=[f"{p[0]}-{p[1].__name__}" for p in PLANTED],
)
def test_a_planted_fault_is_noticed(
    name: str,
    fault: Callable[..., Any],
    module: object,
    function: str,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *given: fault(real, *given))
    if error is HungError:
        monkeypatch.setattr(target_module, "SECONDS", 0.3)  # it has to pass
    target = TARGETS[name]

    def run_all() -> None:
        outcomes(target, [*target.seeds(), *target.bombs()], measured=True)
        search(target, examples=2000)

    with pytest.raises(error):
        run_all()
