"""The operator's page: a broker's state, users, API keys and the audit log."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import urllib.error
import urllib.request
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scbroker import errors
from scbroker.cli.admin.page import users
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Site, ask, done, show
from scbroker.server.admin import api_keys, audit
from scbroker.server.admin.health import health
from scbroker.server.admin.stores import Stores

_ENTRIES: Final = 200
_SECONDS: Final = 5.0
_NAVIGATION: Final = {
    "/overview": "Overview",
    "/users": "Users",
    "/api-keys": "API keys",
    "/audit": "Audit log",
}


def operators_page(stores: Stores, url: str, access: Access, ends: dt.datetime) -> ASGIApp:
    """Return the ASGI application of the operator's page; the broker answers at `url`."""
    site = Site(access, "scbroker.cli.admin.page", _NAVIGATION, ends)
    routes = [
        Route("/overview", _overview),
        Route("/api-keys", _api_keys),
        Route("/api-keys/{id}/revoke", _revoke, methods=["GET", "POST"]),
        Route("/audit", _audit_log),
        *users.routes,
    ]
    return site.application(routes, stores=stores, url=url)


async def _overview(request: Request) -> Response:
    stores, url = request.app.state.stores, request.app.state.url
    found, fault = None, ""
    try:
        found = await health(stores.settings, stores.database)
    except errors.BrokerError as error:
        fault = error.message
    state = await asyncio.to_thread(_state_of, url)
    return show(request, "overview.html", url=url, state=state, health=found, fault=fault)


def _state_of(url: str) -> str:
    """Return whether the broker at an address is ready, not ready or away."""
    try:
        ready = f"{url}/health/ready"  # the URL comes from the operator's own settings
        with urllib.request.urlopen(ready, timeout=_SECONDS):  # noqa: S310
            return "ready"
    except urllib.error.HTTPError:
        return "not ready"
    except (OSError, http.client.HTTPException):
        return "away"


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
