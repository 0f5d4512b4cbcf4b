"""Assemble the user's page from its modules."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

from scbroker.cli.ui.broker_sees import broker_sees
from scbroker.cli.ui.changes import changes
from scbroker.cli.ui.contacts import contacts
from scbroker.cli.ui.container import container_page, details
from scbroker.cli.ui.content import content
from scbroker.cli.ui.links import links
from scbroker.cli.ui.listing import listing
from scbroker.cli.ui.members import members
from scbroker.cli.ui.session import Session
from scbroker.cli.ui.shelf import Shelf
from scbroker.cli.ui.start import start
from scbroker.cli.ui.timeline import timeline
from scbroker.cli.ui.upload import upload
from scbroker.cli.web.site import Site

_HERE: Final = Path(__file__).parent


def users_page(session: Session, ends: dt.datetime) -> Site:
    """Return the page of a session. The navigation has the views with titles, in the order of the parts."""
    shelf = Shelf(session)
    parts = [
        listing(session, shelf),
        content(session),
        details(),
        members(session),
        changes(session),
        links(session),
        contacts(session),
        timeline(session, shelf),
        broker_sees(session),
        upload(session, shelf),
        start(session),
    ]
    panels = [panel for part in parts for panel in part.panels]
    parts.append(container_page(session, panels))
    return Site(
        "scbroker",
        _HERE / "templates",
        views=[view for part in parts for view in part.views],
        acts=[act for part in parts for act in part.acts],
        calls=[call for part in parts for call in part.calls],
        ends=ends,
        gate=session,
        static=_HERE / "static",
        styles=["ui.css", "sharing.css"],
        modules=["lock.js", "upload.js", "copy.js"],
        values={"session": session},
    )
