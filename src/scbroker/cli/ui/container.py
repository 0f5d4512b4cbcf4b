"""The page of one container: a heading, and the panels that the modules add."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request

from scbroker import errors
from scbroker.cli.groups import modifier_is_member
from scbroker.cli.run import Run
from scbroker.cli.ui.known import known, provider_of, shown_name
from scbroker.cli.ui.part import Container, Panel, Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.site import Shown, View
from scbroker.cli.words import in_words
from scbroker.desk.names import containers_of, is_damaged

PATH: Final = "/containers/{id}"


def container_page(session: Session, panels: Sequence[Panel]) -> Part:
    """Return the view of a container."""

    async def show(request: Request) -> Shown:
        container = await container_of(session, request)
        people = await known(await provider_of(session))

        def filled(run: Run) -> list[Filled]:
            return [_filled(run, container, panel) for panel in panels]

        values = {
            "people": people,
            "may": people.may(container),
            "panels": await session.do(filled),
        }
        return shown_of("container.html", container, values)

    return Part(views=[View(PATH, show)])


def details() -> Part:
    """Return the panel with a container's type, sizes, times and authors."""
    return Part(panels=[Panel("Details", "panel_details.html", _authors)])


def _authors(run: Run, container: Container) -> Mapping[str, object]:
    return {"is_member": modifier_is_member(run.session, container)}


class Filled(NamedTuple):
    """A panel with its values, or with the error that it shows."""

    title: str
    template: str
    values: Mapping[str, object]


def _filled(run: Run, container: Container, panel: Panel) -> Filled:
    try:
        return Filled(panel.title, panel.template, panel.values(run, container))
    except errors.BrokerError as error:
        return Filled(panel.title, "panel_fault.html", {"text": in_words(error.message)})


def shown_of(template: str, container: Container, values: Mapping[str, object]) -> Shown:
    """Return a view of a container, whose template extends `of_container.html`."""
    named = {"name": shown_name(container), "is_damaged": is_damaged(container)}
    return Shown(template, {"container": container, **named, **values})


async def container_of(session: Session, request: Request) -> Container:
    """Return the container of the request's path, with its header and without its content."""
    id = id_of(request)
    return await session.do(lambda run: find(run, id))


def id_of(request: Request) -> uuid.UUID:
    """Return the id in a path of a container. Raises `NotFoundError` for any other text."""
    text = request.path_params["id"]
    try:
        return uuid.UUID(text)
    except ValueError:
        raise errors.NotFoundError("This container does not exist.") from None


def find(run: Run, id: uuid.UUID) -> Container:
    """Return a container with its header, if that can be read. Raises the error of one that cannot."""
    [found] = containers_of(run.session, [id])
    if isinstance(found, errors.BrokerError):
        raise found
    return found


def path_of(id: uuid.UUID, more: str = "") -> str:
    """Return the path of a container's page, or of a view below it."""
    return f"/containers/{id}{more}"
