"""Assemble the operator's page from its views and acts."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Final

from starlette.requests import Request

from scbroker.cli.admin.page.api_keys import ApiKeys
from scbroker.cli.admin.page.overview import Overview
from scbroker.cli.admin.page.users import Users
from scbroker.cli.admin.page.watch import LOAD_SECONDS, Watch
from scbroker.cli.web.site import Act, Shown, Site, View
from scbroker.server.admin import audit
from scbroker.server.admin.stores import Stores

_ENTRIES: Final = 200
_TEMPLATES: Final = Path(__file__).parent / "templates"


def operators_page(stores: Stores, watch: Watch, ends: dt.datetime) -> Site:
    """Return the page of a broker that `watch` watches."""
    users, api_keys = Users(stores), ApiKeys(stores)
    user, key = "/users/{id}", "/api-keys/{id}"
    return Site(
        "scbroker",
        _TEMPLATES,
        views=[
            View("/overview", Overview(watch).show, "Overview"),
            View("/users", users.list, "Users"),
            View(user, users.show),
            View(f"{user}/suspend", users.ask_to_suspend),
            View(f"{user}/resume", users.ask_to_resume),
            View(f"{user}/quota", users.ask_for_quota),
            View(f"{user}/quota/confirm", users.confirm_quota),
            View("/api-keys", api_keys.list, "API keys"),
            View(f"{key}/revoke", api_keys.ask_to_revoke),
            View("/audit", partial(_audit_log, stores), "Audit log"),
        ],
        acts=[
            Act(f"{user}/suspend", users.suspend),
            Act(f"{user}/resume", users.resume),
            Act(f"{user}/quota/confirm", users.set_quota),
            Act(f"{key}/revoke", api_keys.revoke),
        ],
        ends=ends,
        refresh=LOAD_SECONDS,
    )


async def _audit_log(stores: Stores, request: Request) -> Shown:
    """Show the last entries of the audit log."""
    del request
    acts = await stores.database.read(lambda c: audit.last(c, audit.Wanted(), _ENTRIES))
    return Shown("audit.html", {"acts": acts, "count": _ENTRIES})
