"""Assemble the user's page from its modules."""

from __future__ import annotations

import datetime as dt

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from scbroker import errors
from scbroker.cli.ui import contacts, container, content, groups, links, listing, members, timeline
from scbroker.cli.ui import session as sessions
from scbroker.cli.ui.context import in_text, named, path_of, shortened
from scbroker.cli.ui.session import HOME, START, Gate, Session
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Site, fault

_NAVIGATION = {
    "/containers": "Containers",
    "/groups": "Groups",
    "/links": "Links",
    "/contacts": "Contacts",
    "/history": "History",
}


def users_page(session: Session, access: Access, ends: dt.datetime) -> ASGIApp:
    """Return the application of a session's page."""
    site = Site(access, "scbroker.cli.ui", _NAVIGATION, ends, is_open=lambda: session.is_open)
    site.styles, site.modules = ["ui.css", "sharing.css"], ["upload.js", "copy.js"]
    site.templates.env.globals["session"] = session
    site.templates.env.filters.update(in_text=in_text, named=named, shortened=shortened)
    session.at_lock.append(site.forget)

    async def ended(request: Request, error: errors.NotAuthenticatedError) -> Response:
        """Lock the page when the session has ended, as after `scbroker logout`."""
        session.lock()
        return fault(request, error, START)

    async def unsettled(request: Request, error: errors.UnsettledAccessError) -> Response:
        """Redirect to the view of the change of access that has to be confirmed."""
        id = error.containerId
        return fault(request, error, HOME if id is None else path_of(id, "/people"))

    parts = (listing, content, container, members, groups, links, contacts, timeline, sessions)
    return site.application(
        [route for part in parts for route in part.routes],
        [Middleware(Gate, session=session, root=access.root)],
        {errors.NotAuthenticatedError: ended, errors.UnsettledAccessError: unsettled},
        session=session,
    )
