"""What a type checker says of one id in the place of another, although all are bytes.

A call that is accepted here fails `make check`: its comment is unused then.
"""

from scbroker.records.canonical import ContainerId, Fingerprint, PartId, UserId
from scbroker.server.broker import Broker, Call, SessionUser
from scbroker.server.containers import tombstones
from scbroker.server.events import log
from scbroker.server.storage.driver import Connection
from scbroker.server.users import deletion


def right(connection: Connection, broker: Broker, call: Call) -> None:
    tombstones.purge_some(connection, call.container_id)
    deletion.purge_some(connection, call.user_id)
    log.note_access(broker, call, call.container_id)
    broker.chains.cached(call.session.id, 2)


def swapped(connection: Connection, broker: Broker, call: Call) -> None:
    user, container, part = call.user_id, call.container_id, call.part_id
    tombstones.purge_some(connection, user)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    deletion.purge_some(connection, container)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.note_access(broker, call, part)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    broker.chains.cached(call.session.fingerprint, 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    broker.accesses[user, container] = "program"  # type: ignore[index]  # pyright: ignore[reportArgumentType]


def swapped_in_a_session(user: UserId, fingerprint: Fingerprint) -> None:
    SessionUser(user, fingerprint, 2, b"")
    SessionUser(fingerprint, user, 2, b"")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def made_from_bytes(name: bytes) -> tuple[ContainerId, PartId]:
    """Bytes become an id where somebody says of which kind they are, and nowhere else."""
    return ContainerId(name), PartId(name)
