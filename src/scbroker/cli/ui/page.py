"""Assemble the user's page from its modules."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from scbroker.cli.ui.broker_sees import broker_sees
from scbroker.cli.ui.changes import changes
from scbroker.cli.ui.contacts import contacts
from scbroker.cli.ui.container import container_page, details
from scbroker.cli.ui.content import content
from scbroker.cli.ui.groups import groups
from scbroker.cli.ui.links import links
from scbroker.cli.ui.listing import listing
from scbroker.cli.ui.members import members
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import Session
from scbroker.cli.ui.shelf import Shelf
from scbroker.cli.ui.start import start
from scbroker.cli.ui.timeline import timeline
from scbroker.cli.ui.upload import upload
from scbroker.cli.web.site import Site

P = ParamSpec("P")
T = TypeVar("T")
_HERE: Final = Path(__file__).parent


def users_page(session: Session, ends: dt.datetime) -> Site:
    """Return the page of a session. The navigation has the views with titles, in the order of the parts."""
    shelf = Shelf(session)
    parts = [
        listing(session, shelf),
        content(session),
        details(),
        members(session),
        changes(session, shelf),
        groups(session),
        links(session),
        contacts(session),
        timeline(session, shelf),
        broker_sees(session),
        upload(session, shelf),
    ]
    panels = [panel for part in parts for panel in part.panels]
    parts.append(container_page(session, panels))
    parts = [*(_at_broker(session, part) for part in parts), start(session)]
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
        modules=["upload.js", "copy.js"],
        values={"session": session},
    )


def _at_broker(session: Session, part: Part) -> Part:
    """Return a part whose views and acts fail soon while the broker does not answer."""

    def checked(work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        async def after_check(*args: P.args, **kwargs: P.kwargs) -> T:
            await session.check_broker()
            return await work(*args, **kwargs)

        return after_check

    return part._replace(
        views=[each._replace(show=checked(each.show)) for each in part.views],
        acts=[each._replace(do=checked(each.do)) for each in part.acts],
    )
