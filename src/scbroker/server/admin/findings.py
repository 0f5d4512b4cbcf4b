"""What a check finds: told at once, counted, and never kept."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator

import msgspec

from scbroker.errors import BrokerError
from scbroker.server.admin.opened import Tell


class Findings:
    """How much was looked at, and how much of it is wrong."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.wrong: int = 0
        self.seen: Counter[str] = Counter()

    def add(self, what: str) -> None:
        """One thing that is wrong, by its name and never by its content."""
        self.wrong += 1
        self._tell(what)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """What fails to be read or judged in here is wrong, and of this name."""
        try:
            yield
        except BrokerError as error:
            self.add(f"{name}: {error}")
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
            self.add(f"{name}: it cannot be read.")

    @property
    def line(self) -> str:
        looked = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        verdict = "nothing is wrong" if not self.wrong else f"{self.wrong} wrong"
        return f"Checked {looked or 'nothing'}: {verdict}."


def named(kind: str, id: bytes) -> str:
    return f"{kind} {uuid.UUID(bytes=bytes(id))}" if len(id) == 16 else f"{kind} {bytes(id).hex()}"
