"""Put the views and acts of the operator's page together."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

from scbroker.cli.admin.page.overview import Overview
from scbroker.cli.admin.page.watch import LOAD_SECONDS, Watch
from scbroker.cli.web.site import Site, View

_TEMPLATES: Final = Path(__file__).parent / "templates"


def operators_page(watch: Watch, ends: dt.datetime) -> Site:
    """Return the page of a broker that `watch` watches."""
    return Site(
        "scbroker",
        _TEMPLATES,
        views=[View("/overview", Overview(watch).show, "Overview")],
        acts=[],
        ends=ends,
        refresh=LOAD_SECONDS,
    )
