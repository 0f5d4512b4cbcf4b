"""The operator's page: a broker's state, users, API keys and the audit log."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import re
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scbroker import errors
from scbroker.cli.admin.users import quota_of
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Site, ask, done, fields, show
from scbroker.server.admin import api_keys, audit, users
from scbroker.server.admin.starting import health
from scbroker.server.admin.stores import Stores

_ENTRIES: Final = 200
_SECONDS: Final = 5.0
_COUNT: Final = 50
_AFTER: Final = re.compile("[0-9]{1,9}")
"""The parameter `after`: how many users the earlier pages show."""
_ACTS: Final = 20
_NAVIGATION: Final = {
    "/overview": "Overview",
    "/users": "Users",
    "/api-keys": "API keys",
    "/audit": "Audit log",
}


def operators_page(stores: Stores, url: str, access: Access, ends: dt.datetime) -> ASGIApp:
    """Return the ASGI application of the operator's page; the broker answers at `url`."""
    site = Site(access, "scbroker.cli.admin.page", _NAVIGATION, ends)
    both = ["GET", "POST"]
    routes = [
        Route("/overview", _overview),
        Route("/users", _users),
        Route("/users/{id}", _user),
        Route("/users/{id}/suspend", _suspend, methods=both),
        Route("/users/{id}/resume", _resume, methods=both),
        Route("/users/{id}/quota", _set_quota, methods=both),
        Route("/api-keys", _api_keys),
        Route("/api-keys/{id}/revoke", _revoke, methods=both),
        Route("/audit", _audit_log),
    ]
    return site.application(routes, stores=stores, url=url)


def _stores(request: Request) -> Stores:
    stores: Stores = request.app.state.stores
    return stores


async def _overview(request: Request) -> Response:
    stores, url = _stores(request), request.app.state.url
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
        ready = f"{url}/health/ready"
        with urllib.request.urlopen(ready, timeout=_SECONDS):  # noqa: S310 # of the operator's own settings
            return "ready"
    except urllib.error.HTTPError as error:
        return "not ready" if error.code == HTTPStatus.SERVICE_UNAVAILABLE else "away"
    except (OSError, http.client.HTTPException):
        return "away"


async def _users(request: Request) -> Response:
    stores, query = _stores(request), request.query_params
    order = query.get("order", "")
    order = users.Order(order if order in [*users.Order] else users.Order.Bytes)
    after = int(number[0]) if (number := _AFTER.fullmatch(query.get("after", ""))) else 0
    beginning = query.get("id", "").strip()
    found, total, default = await stores.database.read(
        lambda c: (
            users.page(c, stores.settings, order, _COUNT, after, beginning),
            users.total(c),
            users.defaults(c),
        ),
        large=True,
    )
    return show(
        request,
        "users.html",
        **found._asdict(),
        total=total,
        default=default,
        chosen=order.value,
        beginning=beginning,
        after=after,
        count=_COUNT,
    )


async def _user(request: Request) -> Response:
    user = await _find(request)
    wanted = audit.Wanted(user=str(user.id))
    acts = await _stores(request).database.read(lambda c: audit.last(c, wanted, _ACTS))
    return show(request, "user.html", user=user, acts=acts)


async def _suspend(request: Request) -> Response:
    user = await _find(request)
    if request.method == "POST":
        reason = fields(request).get("reason", "").strip() or None
        await users.suspend(_stores(request), user.id, reason)
        return done(request, f"User {user.id} is suspended.", _path_of(user))
    return ask(
        request,
        f"Suspend user {user.id}?",
        [
            "The user's sessions end at once, and the broker refuses all requests of the user until you "
            "resume the user. The user's data stays, and other members can read it."
        ],
        "Suspend this user",
        _path_of(user),
        is_dangerous=True,
        field=("reason", "Reason, for operators only"),
    )


async def _resume(request: Request) -> Response:
    user = await _find(request)
    if request.method == "POST":
        await _stores(request).act(lambda c, key: users.resume(c, key, user.id))
        return done(request, f"User {user.id} can log in again.", _path_of(user))
    texts = ["The user can log in again."]
    return ask(request, f"Resume user {user.id}?", texts, "Resume this user", _path_of(user))


async def _set_quota(request: Request) -> Response:
    user = await _find(request)
    if request.method == "GET":
        return show(request, "quota.html", user=user)
    given = fields(request)
    quotas: dict[users.Resource, int | None] = {}
    options: dict[users.Resource, str] = {"bytes": "--bytes", "containers": "--containers"}
    # Empty fields change no quota; `default` removes the user's own.
    for name, option in options.items():
        if text := given.get(name, "").strip():
            is_default = text.lower() == users.DEFAULT
            quotas[name] = None if is_default else quota_of(text, option)
    if not quotas:
        raise errors.InvalidArgumentError("Enter bytes, containers or both.")
    await _stores(request).act(lambda c, key: users.change_quotas(c, key, [user.id], quotas))
    return done(request, f"The quota of user {user.id} is set.", _path_of(user))


async def _find(request: Request) -> users.User:
    stores, wanted = _stores(request), request.path_params["id"]
    return await stores.database.read(
        lambda c: users.show(c, stores.settings, users.find(c, wanted))
    )


def _path_of(user: users.User) -> str:
    return f"/users/{user.id}"


async def _api_keys(request: Request) -> Response:
    stores = _stores(request)
    return show(request, "api_keys.html", keys=await stores.database.read(api_keys.all_keys))


async def _revoke(request: Request) -> Response:
    stores = _stores(request)
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
    stores = _stores(request)
    acts = await stores.database.read(lambda c: audit.last(c, audit.Wanted(), _ENTRIES))
    return show(request, "audit.html", acts=acts, count=_ENTRIES)
