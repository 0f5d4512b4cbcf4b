"""Rename and delete a container."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from scbroker.cli.commands.changing import deletion_question, rename
from scbroker.cli.names import label_of
from scbroker.cli.paths import relative_path
from scbroker.cli.run import Run
from scbroker.cli.ui.container import PATH, find, id_of, path_of
from scbroker.cli.ui.part import Panel, Part
from scbroker.cli.ui.session import HOME, Session
from scbroker.cli.web.site import Act, Done, Question, Shown, View


def changes(session: Session) -> Part:
    """Return the views and acts that rename and delete a container."""
    views = _Changes(session)
    return Part(
        views=[
            View(f"{PATH}/rename", views.ask_for_name),
            View(f"{PATH}/delete", views.ask_to_delete),
        ],
        acts=[Act(f"{PATH}/rename", views.rename), Act(f"{PATH}/delete", views.delete)],
        panels=[Panel("Change", "panel_changes.html")],
    )


class _Changes:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def ask_for_name(self, request: Request) -> Shown:
        container = await self._session.do(lambda run: find(run, id_of(request)))
        return Shown("rename.html", {"container": container, "label": label_of(container)})

    async def rename(self, request: Request, fields: Mapping[str, str]) -> Done:
        id, new = id_of(request), str(relative_path(fields.get("name", "").strip()))
        await self._session.do(lambda run: rename(run, find(run, id), new))
        return Done(f"The container is named {new!r} now.", path_of(id))

    async def ask_to_delete(self, request: Request) -> Shown:
        def asked(run: Run) -> Question:
            container = find(run, id_of(request))
            return Question(
                heading=f"Delete {label_of(container)}?",
                texts=[deletion_question(run, [container]), "It cannot be undone."],
                button="Delete for everybody",
                is_dangerous=True,
                back=path_of(container.id),
            )

        return (await self._session.do(asked)).shown()

    async def delete(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields

        def deleted(run: Run) -> str:
            container = find(run, id_of(request))
            run.session.deleteContainer(container.id).result()
            return label_of(container)

        label = await self._session.do(deleted)
        return Done(f"{label!r} is deleted.", HOME)
