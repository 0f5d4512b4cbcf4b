"""Limits of client and broker that a test lowers: at their real size they take minutes or gigabytes.

lower(monkeypatch, key_records=6)
"""

from typing import Final

import pytest

_PLACES: Final = {
    "cache_size": "client.cache.folder.SMALLEST",
    "chunks_at_once": "client.http.requests.CHUNKS_AT_ONCE",
    "departure_attempts": "client.containers.sending._DEPARTURES",
    "entries": "client.containers.writing.MAX_ENTRIES",
    "events": "client.events._MOST",
    "follow_floor": "client.events._FLOOR",
    "follow_turn": "client.events._TURN",
    "group_proof_leaves": "server.groups.memberships._MOST_LEAVES",
    "group_records_judged": "client.groups.directory._FEW_RECORDS",
    "groups_followed": "client.events._GROUPS_AT_ONCE",
    "groups_listed": "client.groups.directory._MOST_LISTED",
    "index_changes": "client.cache.index._FEWEST_CHANGES",
    "index_governing": "client.cache.index._LONG",
    "index_twins": "client.cache.index._MOST_TWINS",
    "key_records": "client.users.directory._MOST",
    "mark_entries": "client.users.trust_store._COMPACT_AT",
    "piece_signers": "client.core.judging.PIECE_SIGNERS",
    "silent_seconds": "client.http.requests._SILENT_SECONDS",
    "state_lock_seconds": "client.local_state.LOCK_SECONDS",
}


def lower(patched: pytest.MonkeyPatch, **limits: float) -> None:
    """Give these limits other values, until the patch ends."""
    for name, value in limits.items():
        patched.setattr(f"scbroker.{_PLACES[name]}", value)
