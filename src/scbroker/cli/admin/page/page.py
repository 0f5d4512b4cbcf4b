"""The operator's page: a broker's load, the state of its stores, their growth, API keys and the audit log."""

from __future__ import annotations

import datetime as dt
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

import scbroker
from scbroker import errors
from scbroker.cli.admin.page import users
from scbroker.cli.admin.page.watch import DAYS, LOAD_SECONDS, Watch
from scbroker.cli.output import Size, duration
from scbroker.cli.web.access import Access
from scbroker.cli.web.charts import line_chart
from scbroker.cli.web.site import Site, ask, done, show
from scbroker.server.admin import api_keys, audit
from scbroker.server.admin.health import Load, Reading
from scbroker.server.admin.stores import Stores

_OPERATIONS: Final = 10
_ENTRIES: Final = 200
_NAVIGATION: Final = {
    "/overview": "Overview",
    "/users": "Users",
    "/api-keys": "API keys",
    "/audit": "Audit log",
}


def operators_page(stores: Stores, watch: Watch, access: Access, ends: dt.datetime) -> ASGIApp:
    """Return the application of the page of a broker that `watch` watches."""
    site = Site(access, "scbroker.cli.admin.page", _NAVIGATION, ends, refresh=LOAD_SECONDS)
    routes = [
        Route("/overview", _overview),
        Route("/api-keys", _api_keys),
        Route("/api-keys/{id}/revoke", _revoke, methods=["GET", "POST"]),
        Route("/audit", _audit_log),
        *users.routes,
    ]
    return site.application(routes, stores=stores, watch=watch)


async def _overview(request: Request) -> Response:
    watch: Watch = request.app.state.watch
    last, load = watch.last, watch.load
    operations = [] if load is None else [each for each in load.operations if each.rate]
    return show(
        request,
        "overview.html",
        watch=watch,
        last=last,
        load=load,
        refusals=_refusals(load),
        operations=operations[:_OPERATIONS],
        health=watch.health,
        version=scbroker.__version__,
        broker_version=_label(last, "version"),
        python=_label(last, "python"),
        charts=[
            line_chart("Requests per second", [*watch.requests], _rate, _clock),
            line_chart("95th percentile", [*watch.latency], duration, _clock),
        ],
        growth=[
            line_chart("Size of the database", [*watch.database_bytes], _size, _clock),
            line_chart("Users registered a day", _by_day(watch.registered), _whole, _day),
        ],
        days=DAYS,
    )


def _refusals(load: Load | None) -> list[tuple[str, str, float]]:
    """Return the refused, failed and slow requests of the last minute: how, kind or name, and number."""
    if load is None:
        return []
    slow = {f"{each.method} {each.path}": each.slow for each in load.operations}
    rates = (
        ("refused at the head, because of overload", load.refusals),
        ("answered with an error", load.problems),
        ("logged as slow", slow),
    )
    return [
        (what, name, rate * load.seconds)
        for what, found in rates
        for name, rate in found.items()
        if rate
    ]


def _label(reading: Reading | None, name: str) -> str | None:
    """Return a version from the metrics; None if the broker does not answer."""
    found = [] if reading is None else [*reading.by("scbroker_build_info", name)]
    return found[0][0] if found else None


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else ""


def _size(value: float) -> str:
    return Size(value).shown()


def _clock(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at).astimezone():%H:%M}"


def _day(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d}"


def _by_day(counts: list[int]) -> list[tuple[float, float | None]]:
    midnight = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight - dt.timedelta(days=len(counts) - 1)
    return [
        ((first + dt.timedelta(days=day)).timestamp(), float(count))
        for day, count in enumerate(counts)
    ]


async def _api_keys(request: Request) -> Response:
    stores: Stores = request.app.state.stores
    return show(request, "api_keys.html", keys=await stores.database.read(api_keys.all_keys))


async def _revoke(request: Request) -> Response:
    stores: Stores = request.app.state.stores
    wanted = request.path_params["id"]
    if request.method == "POST":
        key, _ = await stores.act(lambda c, broker_key: api_keys.revoke(c, broker_key, wanted))
        return done(request, f"The API key {key.name} ({key.id}) was revoked.", "/api-keys")
    keys = await stores.database.read(api_keys.all_keys)
    found = next((each for each in keys if each.id == wanted), None)
    if found is None:
        raise errors.NotFoundError(f"No API key has the id {wanted!r:.80}.")
    if not found.is_valid:
        raise errors.InvalidArgumentError(
            f"The API key {found.id} was revoked or has expired already."
        )
    texts = [
        f"From then on the broker refuses programs with the key {found.name} ({found.id}). A revoked key "
        "cannot be restored: create another one."
    ]
    if sum(each.is_valid for each in keys) == 1:
        texts.append(
            "It is the only valid key: without another one the broker refuses all programs."
        )
    heading = f"Revoke the API key {found.name}?"
    return ask(request, heading, texts, "Revoke this key", "/api-keys", is_dangerous=True)


async def _audit_log(request: Request) -> Response:
    stores: Stores = request.app.state.stores
    acts = await stores.database.read(lambda c: audit.last(c, audit.Wanted(), _ENTRIES))
    return show(request, "audit.html", acts=acts, count=_ENTRIES)
