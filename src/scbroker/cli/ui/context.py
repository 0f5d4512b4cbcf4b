"""Give endpoints of the user's page the session, people and a container of a request.

Also format names of people and containers, which other users may have chosen.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

import scbroker
from scbroker import errors
from scbroker.cli.names import label_of
from scbroker.cli.run import Run
from scbroker.cli.ui.session import session_of
from scbroker.cli.web.site import show
from scbroker.desk.names import containers_of, is_damaged
from scbroker.desk.people import People, Somebody, contact_in_text

Container: TypeAlias = scbroker.Container[Any]
_LONGEST: Final = 120
"""Maximum characters of a name on the page: other users choose the names of what they share."""


def provider_of(request: Request) -> scbroker.ServerProvider:
    """Return the provider of the open session. Raises `NotAuthenticatedError` for a locked page."""
    return session_of(request).run.session


async def people_of(request: Request) -> People:
    """Read the user's contacts, links and groups as they are now."""
    return await session_of(request).do(lambda run: People(run.session).read())


async def container_of(request: Request) -> Container:
    """Return the container of the request's path, with its header and without its content."""
    return await session_of(request).do(lambda run: find(run, request.path_params["id"]))


def find(run: Run, id: uuid.UUID) -> Container:
    """Return a container with its header, if that can be read. Raises the error of one that cannot."""
    [found] = containers_of(run.session, [id])
    if isinstance(found, errors.BrokerError):
        raise found
    return found


def show_of(request: Request, template: str, container: Container, **values: object) -> Response:
    """Return a view of a container, whose template extends `of_container.html`."""
    common = {"name": shown_name(container), "is_damaged": is_damaged(container)}
    return show(request, template, container=container, **common, **values)


def path_of(id: uuid.UUID, more: str = "") -> str:
    """Return the path of a container's page, or of a view below it."""
    return f"/containers/{id}{more}"


def uuid_of(text: str) -> uuid.UUID:
    """Return the id of a text as the page writes it; raise `InvalidArgumentError` for any other text."""
    with contextlib.suppress(ValueError):
        if str(found := uuid.UUID(text)) == text:
            return found
    raise errors.InvalidArgumentError(f"{text!r:.80} is not an id.")


async def first_result(batch: Awaitable[list[Any]]) -> Any:
    """Return the only result of a batch; raise it if it is an error."""
    [result] = await batch
    if isinstance(result, errors.BrokerError):
        raise result
    return result


def named(who: Somebody) -> str:
    """Return a user's or group's name for a list that shows the kind in another column."""
    if who.kind == "you":
        return "You"
    return shortened(who.name or ("without a name" if who.kind == "link" else str(who.id)))


def in_text(who: Somebody) -> str:
    """Return the words for a user or a group in a sentence."""
    before = {"link": "the link ", "stranger": "the user ", "group": "the group ",
              "other-group": "the group "}  # fmt: skip
    if who.kind == "you":
        return "you"
    return before[who.kind] + named(who) if who.kind in before else contact_in_text(named(who))


def shown_name(container: Container) -> str:
    """Return a container's name, or its id, short enough for a page."""
    return shortened(label_of(container))


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Return a text, cut if it is longer."""
    return text if len(text) <= longest else f"{text[:longest]}…"
