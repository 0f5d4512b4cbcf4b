"""Calls of each operation for a type checker, in a module that is made from the interface's rows.

Each call stands on one line. A line of the interface has to pass, one that contradicts it has to be an
error, and that is all that the module is for: it never runs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.interface import INTERFACE, ROOT, Operation

_ERROR: Final = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)$")
_HEAD: Final = """\
import datetime as dt
import uuid
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Generic, TypeVar, assert_type

from scbroker import (
    AccessChange, AccessLevel, BaseProvider, BrokerError, Container, ContainerAccessLevel, ContainerEvent,
    ContainerEventType, ContainerPage, ContactCard,
    ContentReader, Group, GroupManager, GroupMember, GroupRenewal, Head, Header, Heads, KeyRing, KeyType,
    Link, MemberRole, NewContainer, Promise, PublicKey, SecuredContainer, SentChange, ServerProvider,
    UnsettledAccess, Usage,
)

T = TypeVar("T")


class Wrong: ...


class Takes(Generic[T]):
    def __call__(self, found: T) -> None: ...


def failed(error: Exception) -> None: ...


def nothing() -> None: ...

"""


@dataclass(frozen=True)
class Line:
    """A call, and whether a type checker has to refuse it."""

    operation: str
    says: str
    code: str
    is_wrong: bool = False


def lines(operation: Operation) -> Iterator[Line]:
    """Every call of one operation that the interface allows, and calls next to them that it does not."""
    names = [parameter.name for parameter in operation.parameters]
    required = [
        parameter.name
        for parameter in operation.parameters
        if not _may_be_left_out(operation, parameter.name)
    ]
    keywords = [f"{name}={name}" for name in names]
    result = INTERFACE.python_type(operation.result)

    def line(says: str, code: str, *, wrong: bool = False) -> Line:
        return Line(str(operation), says, code, wrong)

    def promise(arguments: list[str], expected: str) -> str:
        call = f"provider.{operation.name}({', '.join(arguments)})"
        if operation.is_void:
            return f"await assert_type({call}, Promise[{expected}])"
        return f"assert_type(await {call}, {expected})"

    def callback(arguments: list[str], handler: str) -> str:
        style = [f"completionHandler={handler}", "errorHandler=failed", "queue=queue"]
        call = f"provider.{operation.name}({', '.join([*arguments, *style])})"
        return f"assert_type({call}, {operation.provider})"

    for count in range(len(required), len(names) + 1):
        yield line(f"{count} by position", promise(names[:count], result))
    yield line("all by name", promise(keywords, result))
    if required:
        short = [word for name, word in zip(names, keywords, strict=True) if name in required[1:]]
        yield line(f"without {required[0]}", promise(short, result), wrong=True)
    for parameter in operation.parameters:
        if parameter.type not in ("T?", "T"):
            others = [f"{name}={'Wrong()' if name == parameter.name else name}" for name in names]
            yield line(f"{parameter.name} of another type", promise(others, result), wrong=True)
    yield line("another result", promise(keywords, "Wrong"), wrong=True)
    handler = "nothing" if operation.is_void else f"Takes[{result}]()"
    yield line("handlers, by position", callback(names, handler))
    yield line("handlers, by name", callback(keywords, handler))
    yield line("a handler of another result", callback(keywords, "Takes[Wrong]()"), wrong=True)


def _may_be_left_out(operation: Operation, name: str) -> bool:
    (parameter,) = (each for each in operation.parameters if each.name == name)
    return (parameter.default or INTERFACE.default_beyond(operation.name, name)) is not None


def module() -> tuple[str, Mapping[int, Line]]:
    """The text of the module, and which of its lines is which call."""
    text, found = _HEAD.splitlines(), {}
    for number, operation in enumerate([*INTERFACE.operations, *INTERFACE.added]):
        taken = [f"provider: {operation.provider}", "queue: Executor"] + [
            f"{each.name}: {INTERFACE.python_type(each.type)}" for each in operation.parameters
        ]
        for index, line in enumerate(lines(operation)):
            text += [f"async def call_{number}_{index}({', '.join(taken)}) -> None:"]
            text += [f"    {line.code}", ""]
            found[len(text) - 1] = line
    return "\n".join(text) + "\n", found


def misjudged(folder: Path, source: Path | None = None) -> list[Line]:
    """The calls of which mypy says something else than the interface; `source` may be a copy of the code."""
    text, expected = module()
    path = folder / "calls.py"
    path.write_text(text, "utf-8")
    errors = set(_errors(path, source or ROOT / "src"))
    if unknown := sorted(errors - expected.keys()):
        raise RuntimeError(
            f"mypy has errors outside the calls: {[text.splitlines()[n - 1] for n in unknown]}"
        )
    return [line for number, line in expected.items() if (number in errors) != line.is_wrong]


def _errors(path: Path, source: Path) -> Iterator[int]:
    cache = ROOT / ".mypy_cache" if source == ROOT / "src" else path.parent / "cache"
    command = [
        sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"),
        "--no-error-summary", "--hide-error-context", "--no-pretty", "--follow-imports", "silent",
        "--cache-dir", str(cache), str(path),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=source,
        env={"PATH": "", "MYPYPATH": str(source)},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"mypy failed: {done.stdout}{done.stderr}")
    for line in done.stdout.splitlines():
        if (match := _ERROR.match(line)) is None:
            continue
        if Path(match["file"]).name != path.name:  # a cached error names the folder of its run
            raise RuntimeError(f"mypy has an error in another file: {line}")
        yield int(match["line"])
