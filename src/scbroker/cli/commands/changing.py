"""Define the commands that delete and rename containers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import CONTAINERS, Yes, command
from scbroker.cli.commands.getting import found_containers
from scbroker.cli.names import (
    ContainerArgument,
    ContainersArgument,
    Everyone,
    Recursive,
    is_whole,
    label_of,
)
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, do_each
from scbroker.desk.names import check_free, header_of, is_damaged, name_of
from scbroker.desk.paths import relative_path
from scbroker.desk.people import some
from scbroker.desk.strangers import is_own

_COLUMNS: Final = {"name": "NAME", "status": "STATUS", "id": "ID"}


@command(CONTAINERS)
def rm(
    run: Run,
    containers: ContainersArgument,
    recursive: Recursive = False,
    everyone: Everyone = False,
    yes: Yes = False,
) -> None:
    """Delete containers for all of their members.

    This cannot be undone, and needs the permission Delete. `scbroker leave` gives up your own access only.

    A container of yours to which somebody else has given its name is deleted by its whole id alone.
    """
    found = found_containers(run, containers, recursive=recursive, everyone=everyone)
    own, named = run.people.own_id, []
    for each in found:
        if (
            each.createdBy != own
            or is_own(each, own)
            or any(is_whole(text, each.id) for text in containers)
        ):
            named.append(each)
        else:
            who = run.people.name_of(each.headerBy or each.createdBy)
            refused = errors.InvalidArgumentError(
                f"{who} has given this name: `scbroker rm {each.id}` deletes the container."
            )
            run.failed(label_of(each), refused)
    if not (found := named):
        return
    others = [run.people.others_of(each) for each in found]
    people = {name for each in others for name in each or []}
    also = f" for everybody, also for {some(sorted(people))}" if people else ""
    if None in others:
        also = " for everybody, also for members whom you cannot see"
    what = some(repr(label_of(each)) for each in found)
    run.confirm(f"Delete {what}{also}? It cannot be undone.", yes)

    def jobs(together: Together) -> Iterable[Job]:
        return (partial(_delete, run, together, container) for container in found)

    do_each(run, "Deleting", len(found), jobs, _COLUMNS, of_bytes=False)


def _delete(run: Run, together: Together, container: scbroker.Container[Any]) -> list[Outcome]:
    label = label_of(container)
    try:
        together.wait(run.session.deleteContainer(container.id))
    except errors.BrokerError as error:
        return [Outcome(label, error)]
    together.progress(container.id, 1)
    row = {"name": name_of(container), "status": "deleted", "id": container.id}
    return [Outcome(label, row)]


@command(CONTAINERS)
def mv(
    run: Run,
    container: ContainerArgument,
    name: Annotated[
        str, typer.Argument(metavar="NEW-NAME", help="The new name, with / for folders.")
    ],
) -> None:
    """Give a container another name.

    All members see the new name. Nothing else in the header changes. This needs the permission Upload.
    """
    new = str(relative_path(name))
    found = run.names.container(container)
    version = rename(run, found, new)
    row = {"id": found.id, "name": new, "version": version}
    run.out.done(row, f"{label_of(found)!r} is {new!r} now.")


def rename(run: Run, found: scbroker.Container[Any], new: str) -> int:
    """Give a container a name that no other one of the user has, and return its new version."""
    check_free(run.session, new, run.people.own_id, found.id)
    header = header_of(found)
    if header is None and found.hasHeader and not is_damaged(found):
        raise errors.InvalidArgumentError(
            f"The container {label_of(found)!r} cannot be renamed: its header is hidden from you, or another "
            "program wrote it in a form without names."
        )
    renamed = {**(header or {}), "name": new}
    changing = run.session.updateContainerHeader(found.id, renamed, ifVersion=found.version)
    return changing.result().version
