"""Build the ASGI application: routes, health checks, metrics, and the broker's background work."""

import asyncio
import contextlib
import functools
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec
import sqlalchemy as sa
import structlog
from sqlalchemy import bindparam as b
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from scbroker import errors, tracing
from scbroker.server import logs, metrics, requests
from scbroker.server.admin import starting, users
from scbroker.server.answers import answer, problem
from scbroker.server.broker import CLOCK_BOUND, SECOND, Broker, now
from scbroker.server.capacity import Gate
from scbroker.server.containers import ended_groups, tombstones
from scbroker.server.events import log, pages
from scbroker.server.operations import OPERATIONS, document
from scbroker.server.parts import sweeping
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.server.users import deletion, sessions

_log: Final = structlog.get_logger("scbroker.server")
_ACCESS_FLUSH: Final = 0.5
_SWEEP: Final = 60.0
_CHECK: Final = 1.0
_KEYS: Final = 5.0  # admin.rotation waits twice as long: each process has read the key by then
_MINUTE: Final = 60 * SECOND
_AT_ONCE: Final = ("check the clock", "measure storage", "read the broker's key")
"""Background work that runs when the broker starts; other work waits for its interval first."""
_FRONT_PAGE: Final = b"""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>scbroker</title>
<h1>A program opens this link, not a browser</h1>
<p>At this address is a broker of scbroker, which stores encrypted containers.
If somebody sent you a link to it:</p>
<ol>
<li>Copy the whole link, with all that is behind the #.</li>
<li>Install scbroker with its command line.</li>
<li>Run <code>scbroker open</code>, and paste the link when you are asked for it.</li>
</ol>
<p>The secret behind the # stays in your browser. This page has no script that could read it.</p>
"""
_TEXT: Final = "text/plain; charset=utf-8"
_FIRST_ROUTES: Final = (
    "/v1/containers/{containerId}",
    "/v1/containers/{containerId}/records/{version}",
)

ANY_API_KEY: Final = sa.select(sa.func.count()).select_from(t.api_keys)
USE_API_KEY: Final = sql.change(
    t.api_keys,
    t.api_keys.c.key_hash == b("hash"),
    t.api_keys.c.last_used_at.is_(None) | (t.api_keys.c.last_used_at < b("used")),
    last_used_at=b("used"),
)

_MOST: Final = 100_000
"""Rows that wait for the sweeper are counted up to this number."""


def _counted(column: Any, *conditions: Any) -> sa.Select[Any]:
    found = sa.select(column).where(column <= b("before"), *conditions).limit(_MOST).subquery()
    return sa.select(sa.func.count()).select_from(found)


_OBJECTS_DUE: Final = _counted(t.pending_blobs.c.since)
_REPLACED: Final = _counted(t.parts.c.replaced_at)
_ABANDONED: Final = _counted(t.parts.c.touched_at, ~t.parts.c.committed)
# Groups have rows of `users` as well.
_USERS: Final = sa.select(
    sa.func.count(t.users.c.id).filter(t.users.c.group_version.is_(None)).label("users"),
    sa.func.count(t.users.c.group_version).label("groups"),
).where(~t.users.c.deleted)
# A role without pg_monitor reads NULL as the positions of standbys: the lag is then 0.
_REPLICATION: Final = sa.text(
    "SELECT count(*), coalesce(max(extract(epoch FROM replay_lag)), 0), "
    "coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0) FROM pg_stat_replication"
)


def create_app(opened: Callable[[], Awaitable[Broker]]) -> Starlette:
    """Return the ASGI application of a broker, which is opened when the application starts."""
    # Starlette tries routes one after the other: the most frequent requests come first.
    ordered = sorted(OPERATIONS, key=lambda operation: operation.path not in _FIRST_ROUTES)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Gate]]:
        app.state.broker = broker = await opened()
        started = time.monotonic()
        wake = broker.wake
        # After a second Ctrl-C uvicorn skips the shutdown, and asyncio cancels this task. Suppress that:
        # uvicorn would log a traceback, as if the application had failed.
        with logs.noting_stop() as why_it_ends, contextlib.suppress(asyncio.CancelledError):
            try:
                async with broker.database.listening(wake), _background_work(broker):
                    yield {"gate": broker.gate}
            finally:
                await broker.database.close()
                tracing.stop()
                seconds = round(time.monotonic() - started)
                _log.info("stopped", reason=why_it_ends(), seconds=seconds)

    app = Starlette(
        routes=[
            *(
                Route(each.path, functools.partial(requests.perform, each), methods=[each.method])
                for each in ordered
            ),
            Route("/", _fixed(lambda: _FRONT_PAGE, "text/html; charset=utf-8"), methods=["GET"]),
            Route("/openapi.json", _fixed(_schema, "application/json"), methods=["GET"]),
            Route("/metrics", _metrics, methods=["GET"]),
            Route("/health/live", _fixed(lambda: b"live\n", _TEXT), methods=["GET"]),
            Route("/health/ready", _ready, methods=["GET"]),
        ],
        lifespan=lifespan,
        exception_handlers={
            errors.BrokerError: requests.refused,
            HTTPException: _no_such_path,
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False  # no client may follow a redirect
    return app


@contextlib.asynccontextmanager
async def _background_work(broker: Broker) -> AsyncIterator[None]:
    """Run the periodic work; at the end record the fetches that are still waiting."""
    work = [
        asyncio.create_task(_repeat(name, seconds, functools.partial(task, broker)))
        for name, seconds, task in (
            ("record fetches", _ACCESS_FLUSH, log.record_accesses),
            ("sweep", _SWEEP, _sweep),
            ("check connections", _CHECK, _check_connections),
            ("scrub", _CHECK, _scrub),
            ("check the clock", _SWEEP, check_clock),
            ("read the broker's key", _KEYS, lambda broker: broker.database.read(broker.keys.at)),
            ("measure storage", _SWEEP, _measure),
            ("drop events", _SWEEP, pages.drop_old),
            ("record uses of API keys", _SWEEP, record_api_key_uses),
            ("delete users", _SWEEP, deletion.finish),
            ("delete groups", _SWEEP, ended_groups.finish),
            ("delete containers", _SWEEP, tombstones.finish),
        )
    ]
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        try:
            await log.record_accesses(broker)
            await record_api_key_uses(broker)
        except Exception as error:
            count = len(broker.accesses)
            _log.warning("fetches were not recorded", count=count, error=repr(error))


async def _repeat(name: str, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Repeat some work for ever; a failure is logged, and the work is tried again."""
    wait, failures = 0.0 if name in _AT_ONCE else seconds, metrics.BACKGROUND_FAILURES.labels(name)
    while True:
        await asyncio.sleep(wait)
        wait = seconds
        try:
            await work()
        except Exception as error:
            failures.inc()
            _log.warning("background work failed", work=name, error=repr(error))


async def check_clock(broker: Broker) -> None:
    """Compare this machine's clock with the database's, which all brokers of a cluster share.

    Two brokers that are each within the bound differ by at most a minute (docs/spec/ids.md, section 4).
    """
    difference = await broker.database.clock_difference()
    metrics.CLOCK_DIFFERENCE.set(difference)
    if abs(difference) > CLOCK_BOUND:
        _log.warning("the clock differs from the database's", seconds=round(difference, 1))


async def _check_connections(broker: Broker) -> None:
    await broker.gate.check()
    broker.database.count_load()


async def record_api_key_uses(broker: Broker) -> None:
    """Write when API keys were used last, rounded down to the minute."""
    uses = sorted(broker.api_key_uses.items())  # always in this order: no deadlock
    if not uses:
        return
    rows = [{"hash": key_hash, "used": moment - moment % _MINUTE} for key_hash, moment in uses]
    await broker.database.write(lambda c: c.execute(USE_API_KEY, rows))
    for key_hash, moment in uses:
        if broker.api_key_uses[key_hash] == moment:  # not used again meanwhile
            del broker.api_key_uses[key_hash]


async def _measure(broker: Broker) -> None:
    """Set the metrics of what is stored, of free disks, and of PostgreSQL's standbys."""
    found = await broker.database.read(lambda c: _stored(c, broker), large=True)
    for name, value in found.items():
        metrics.STORED[name].set(value)
    for of, folder in starting.folders(broker.settings).items():
        metrics.DISK_FREE.labels(of).set(shutil.disk_usage(folder).free)


def _stored(connection: Connection, broker: Broker) -> dict[str, float]:
    moment, settings = now(), broker.settings

    def count(statement: sa.Select[Any], seconds: int) -> int:
        values = {"before": moment - seconds * SECOND}
        return int(connection.execute(statement, values).scalar_one())

    total, users_and_groups = users.total(connection), connection.execute(_USERS).one()
    found: dict[str, float] = {
        "stored_bytes": total.bytes,
        "containers": total.containers,
        "users": users_and_groups.users,
        "groups": users_and_groups.groups,
        "objects_due": count(_OBJECTS_DUE, sweeping.DUE_AFTER // SECOND),
        "parts_due": (
            count(_REPLACED, settings.part_grace_seconds)
            + count(_ABANDONED, settings.upload_seconds)
        ),
    }
    if connection.dialect.name == "postgresql":
        names = ("replicas", "replication_lag_seconds", "replication_lag_bytes")
        row = connection.execute(_REPLICATION).one()
        found |= {name: float(value) for name, value in zip(names, row, strict=True)}
    return found


async def _sweep(broker: Broker) -> None:
    """Delete expired sessions, counters and nonces, and the parts that are no longer referenced."""
    await broker.database.write(sessions.delete_expired)
    while await sweeping.sweep(broker):
        pass


async def _scrub(broker: Broker) -> None:
    """Remove replaced and deleted KeyFiles from the write-ahead log; a failed attempt is repeated."""
    if broker.is_scrubbed:
        return
    # Set before the scrub: a KeyFile that is replaced during it resets the flag.
    broker.is_scrubbed, done = True, False
    try:
        done = await broker.database.scrub()
    except errors.OverloadedError:
        await asyncio.sleep(_SWEEP)  # the disk failed, which the sweep logs: try again later
    finally:
        broker.is_scrubbed &= done


def _fixed(body: Callable[[], bytes], media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that sends every client the same response."""

    async def endpoint(request: Request) -> Response:
        del request
        return answer(body(), 200, media_type)

    return endpoint


@functools.cache  # built at the first request: it would take a third of the time of a start
def _schema() -> bytes:
    return msgspec.json.encode(document(OPERATIONS))


async def _ready(request: Request) -> Response:
    broker: Broker = request.app.state.broker
    try:
        await broker.database.read(lambda connection: connection.execute(ANY_API_KEY))
        await broker.blobs.check()
    except Exception as error:
        _log.warning("not ready", error=repr(error), cause=repr(error.__cause__))
        return problem(errors.OverloadedError("Database or object store cannot be used.", 1))
    return answer(b"ready\n", 200, _TEXT)


async def _metrics(request: Request) -> Response:
    broker: Broker = request.app.state.broker
    broker.gate.count_load()
    broker.database.count_load()
    return answer(await asyncio.to_thread(metrics.page), 200, metrics.CONTENT_TYPE)


async def _no_such_path(request: Request, error: Exception) -> Response:
    del request, error
    return problem(errors.NotFoundError("The protocol has no such path or method."))


async def _fault(request: Request, error: Exception) -> Response:
    entry = logs.current()
    path = None
    if entry is not None:
        path, entry.is_fault = entry.path, True  # the route's path: the log must not have ids
    _log.error("fault", method=request.method, path=path, exc_info=error)
    answered = errors.BrokerFaultError("The broker failed. Its log says why.")
    metrics.count_problem(answered)
    return problem(answered)
