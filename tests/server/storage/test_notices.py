"""Notices: what any role of the database may send, and a broker must bear."""

from collections.abc import Collection
from typing import Any

from structlog.testing import capture_logs

from scbroker.server.storage.notices import Notices


class _Driver:
    """A connection of another process number than the sender's."""

    def get_server_pid(self) -> int:
        return 1


async def test_notices_that_cannot_be_read_wake_nobody_and_are_logged_once_a_minute() -> None:
    woken: list[Collection[bytes] | None] = []
    unused: Any = None
    notices = Notices(unused, woken.append)
    with capture_logs() as logs:
        for payload in ["é", "A", "!!!!", "AA AA="] * 100:
            notices._receive(_Driver(), 2, "scbroker_events", payload)
    assert len(logs) == 1
    assert woken == []
