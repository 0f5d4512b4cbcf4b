"""The operator's page: a broker's state and load, users, API keys and the audit log."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

import scbroker
from scbroker import errors
from scbroker.cli.admin.page import users
from scbroker.cli.admin.page.watch import SECONDS, Watch
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Site, ask, done, show
from scbroker.server.admin import api_keys, audit
from scbroker.server.admin.health import Reading
from scbroker.server.admin.stores import Stores

_ENTRIES: Final = 200
_NAVIGATION: Final = {
    "/overview": "Overview",
    "/users": "Users",
    "/api-keys": "API keys",
    "/audit": "Audit log",
}


def operators_page(stores: Stores, watch: Watch, access: Access, ends: dt.datetime) -> ASGIApp:
    """Return the ASGI application of the operator's page, with the figures of `watch`."""
    site = Site(access, "scbroker.cli.admin.page", _NAVIGATION, ends, refresh=SECONDS)
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
    first, last = (watch.readings[0], watch.readings[-1]) if watch.readings else (None, None)
    return show(
        request,
        "overview.html",
        watch=watch,
        last=last,
        load=_load(first, last) if first and last and first is not last else None,
        health=watch.health,
        version=scbroker.__version__,
        build={
            each: next(iter(last.by("scbroker_build_info", each)), "-")
            for each in ("version", "python")
        }
        if last
        else {},
    )


def _load(first: Reading, last: Reading) -> dict[str, Any]:
    """Return figures between two readings: requests a second, slow ones, refusals and failures by kind."""
    refusals = (
        ("refused at the head, because of overload", "scbroker_refused_total", "kind"),
        ("answered with an error", "scbroker_problems_total", "code"),
    )
    return {
        "requests": sum(last.since(first, "scbroker_requests_total").values())
        / max(last.time - first.time, 1e-3),
        "slow": sum(last.since(first, "scbroker_slow_requests_total").values()),
        "refusals": [
            (what, kind, number)
            for what, name, key in refusals
            for kind, number in last.since(first, name, key).items()
        ],
    }


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
