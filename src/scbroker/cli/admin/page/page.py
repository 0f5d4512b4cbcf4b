"""Assemble the operator's page from its views and acts."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

from scbroker.cli.admin.page.api_keys import ApiKeys
from scbroker.cli.admin.page.audit import AuditLog
from scbroker.cli.admin.page.overview import Overview
from scbroker.cli.admin.page.users import Users
from scbroker.cli.admin.page.watch import LOAD_SECONDS, Watch
from scbroker.cli.web.site import Act, Site, View
from scbroker.server.admin.stores import Stores

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
            View("/audit", AuditLog(stores).show, "Audit log"),
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
