"""Calculate the disk, memory and processes that a broker needs.

Every constant was measured: docs/scale.md and docs/performance.md have the tables, and a test compares.
"""

import math
from typing import Final

import msgspec

# Bytes with their indexes, on PostgreSQL: docs/scale.md, "What a user and a container cost".
USER: Final = 13_300
CONTAINER: Final = 9_100
"""For its owner alone, with a content of `CONTENT` bytes."""
CONTENT: Final = 1_024
MEMBER: Final = 1_750
UPDATE: Final = 4_900
EVENT: Final = 500
CHUNK: Final = 500
CONTAINER_INDEXES: Final = 1_090
EVENT_INDEXES: Final = 320
_LARGEST_INLINE: Final = 65_536
_CHUNK_BYTES: Final = 8_388_608
# Requests of an active user in a day: docs/scale.md, "Which requests they make".
LOG_IN_REQUESTS: Final = 4
READS: Final = 30
FIRST_READS: Final = 10
"""Reads on a device that has not read the container before; each makes two requests."""
WRITES: Final = 5
WRITE_REQUESTS: Final = 2
LOOKS: Final = 20
_PEAK: Final = 5
"""Requests of the busiest hour, as a multiple of the mean hour."""
_DAY: Final = 86_400
# Operations a second of one process on PostgreSQL: docs/performance.md, "On PostgreSQL".
CREATES: Final = 447
GETS: Final = 1_338
_HEADROOM: Final = 2
"""The busiest hour may use half of the processes, so that the busiest minute is served as well."""
_SPARE: Final = 1
"""A process more, so that one may fail or restart."""
# One machine: docs/scale.md measured SQLite with a million containers.
SQLITE_CONTAINERS: Final = 1_000_000
_CONNECTIONS: Final = 17
_PROCESS_BYTES: Final = 1_073_741_824
"""Memory below which a process stays: docs/guide/running-a-broker.md."""


class Needs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The hardware that a broker needs. Sizes are in bytes."""

    database_bytes: int
    """Users, containers and the events of their creation."""
    object_bytes: int
    """Contents of more than 64 KiB, in the object store."""
    database_bytes_a_day: int
    """Records and events that the writes of a day add; both are kept."""
    index_bytes: int
    """Indexes of containers and events: the part in use should fit into the memory of the database."""
    requests_a_second: float
    """In the busiest hour."""
    processes: int
    """Broker processes: one on SQLite; on PostgreSQL twice what the busiest hour needs, and one more."""
    memory_bytes: int
    """Memory of all these processes; the database needs its own."""
    database_connections: int
    """To PostgreSQL; 0 on SQLite."""
    fits_one_machine: bool
    """Whether a broker on SQLite is enough, according to the measurements."""


def needs_of(
    *,
    users: int,
    containers: int = 100,
    members: int = 2,
    content: int = CONTENT,
    share: float = 0.2,
) -> Needs:
    """Return what a broker for so many users needs, each of whom has so many containers.

    A container has so many members, with its owner, and a content of so many bytes on average. A share of the
    users, from 0 to 1, uses the broker on a day.
    """
    total = users * containers
    is_large = content > _LARGEST_INLINE
    chunks = total * -(-content // _CHUNK_BYTES) if is_large else 0
    inline = 0 if is_large else max(0, content - CONTENT)
    container = CONTAINER + (members - 1) * MEMBER + members * EVENT + inline
    active = users * share
    requests = active * (LOG_IN_REQUESTS + READS + FIRST_READS + WRITES * WRITE_REQUESTS + LOOKS)
    peak = _PEAK / _DAY
    reads = active * (LOG_IN_REQUESTS + READS + FIRST_READS + LOOKS) * peak
    busy = reads / GETS + active * WRITES * peak / CREATES
    one_machine = total <= SQLITE_CONTAINERS and busy * _HEADROOM <= 1
    processes = 1 if one_machine else max(1, math.ceil(busy * _HEADROOM)) + _SPARE
    return Needs(
        database_bytes=users * USER + total * container + chunks * CHUNK,
        object_bytes=total * content if is_large else 0,
        database_bytes_a_day=round(active * WRITES * (UPDATE + members * EVENT)),
        index_bytes=total * (CONTAINER_INDEXES + members * EVENT_INDEXES),
        requests_a_second=round(requests * peak, 1),
        processes=processes,
        memory_bytes=processes * _PROCESS_BYTES,
        database_connections=0 if one_machine else processes * _CONNECTIONS,
        fits_one_machine=one_machine,
    )
