"""Rename and delete a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request

from scbroker.cli.commands.changing import set_name
from scbroker.cli.run import Run
from scbroker.cli.ui.container import PATH, container_of, find, id_of, path_of, shown_of
from scbroker.cli.ui.known import Somebody, known, provider_of, shown_name
from scbroker.cli.ui.part import Panel, Part
from scbroker.cli.ui.session import HOME, Session
from scbroker.cli.ui.shelf import Shelf
from scbroker.cli.web.site import Act, Done, Question, Shown, View
from scbroker.desk.names import name_of
from scbroker.desk.paths import relative_path

_NAMED: Final = 3
"""Members whom the question names one by one."""


def changes(session: Session, shelf: Shelf) -> Part:
    """Return the views and acts that rename and delete a container."""
    views = _Changes(session, shelf)
    return Part(
        views=[
            View(f"{PATH}/rename", views.ask_for_name),
            View(f"{PATH}/delete", views.ask_to_delete),
        ],
        acts=[Act(f"{PATH}/rename", views.rename), Act(f"{PATH}/delete", views.delete)],
        panels=[Panel("Change", "panel_changes.html")],
    )


class _Changes:
    def __init__(self, session: Session, shelf: Shelf) -> None:
        self._session, self._shelf = session, shelf

    async def ask_for_name(self, request: Request) -> Shown:
        container = await container_of(self._session, request)
        return shown_of("rename.html", container, {"own_name": name_of(container) or ""})

    async def rename(self, request: Request, fields: Mapping[str, str]) -> Done:
        id, new = id_of(request), str(relative_path(fields.get("name", "").strip()))
        async with self._shelf.renamed(id, new):
            await self._session.do(lambda run: set_name(run, find(run, id), new))
        return Done(f"The container is named {new!r} now.", path_of(id))

    async def ask_to_delete(self, request: Request) -> Shown:
        container = await container_of(self._session, request)
        others = (await known(await provider_of(self._session))).others(container)
        return Question(
            heading=f"Delete {shown_name(container)}?",
            texts=[_also_lost_by(others), "It cannot be undone."],
            button="Delete for everybody",
            is_dangerous=True,
            back=path_of(container.id),
        ).shown()

    async def delete(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields

        def deleted(run: Run) -> str:
            container = find(run, id_of(request))
            run.session.deleteContainer(container.id).result()
            return shown_name(container)

        label = await self._session.do(deleted)
        return Done(f"{label!r} is deleted.", HOME)


def _also_lost_by(others: Sequence[Somebody] | None) -> str:
    """Say who else loses a container that is deleted."""
    if others is None:
        return "Members whom you cannot see lose it too."
    if not others:
        return "Nobody else has access to it."
    if len(others) > _NAMED:
        return f"{len(others)} other members lose it too."
    return f"Others lose it too: {', '.join(each.in_text for each in others)}."
