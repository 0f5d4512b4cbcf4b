"""Report what `admin check` and the copies of `backup` and `restore` find: print and count, keep nothing."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from scbroker.errors import BrokerError

Tell = Callable[[str], None]
"""Takes a line for the operator."""
Progress = Callable[[str, int, int], None]
"""Takes the name of a step, how many items of it are done, and of how many."""


class Findings:
    """Counts of what was checked, and of what is wrong with it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.wrong: int = 0
        self.seen: Counter[str] = Counter()

    def add(self, what: str) -> None:
        """Report a fault; `what` names the faulty thing and never quotes its content."""
        self.wrong += 1
        self._tell(what)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Report an error of the block as a fault of `name`."""
        try:
            yield
        except BrokerError as error:
            self.add(f"{name}: {error}")
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
            self.add(f"{name}: it cannot be read.")

    @property
    def line(self) -> str:
        checked = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        verdict = "nothing is wrong" if not self.wrong else f"{self.wrong} wrong"
        return f"Checked {checked or 'nothing'}: {verdict}."


def named(kind: str, id: bytes) -> str:
    """Return `kind` with an id as the operator sees it: a UUID where it is one."""
    return f"{kind} {uuid.UUID(bytes=bytes(id))}" if len(id) == 16 else f"{kind} {bytes(id).hex()}"
