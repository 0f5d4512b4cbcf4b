"""Define the commands about a device's memory: the marks of what it has verified, and what it has sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import WATCHING, Yes, command, group
from scbroker.cli.commands.listing import access_in_words, access_of
from scbroker.cli.completion import complete_group
from scbroker.cli.names import ContainerArgument
from scbroker.cli.people import GROUP_HELP, GroupArgument, named_and_id
from scbroker.cli.run import Run

mark: typer.Typer = group("mark", WATCHING, "Compare a history with what this device has verified.")
Accept = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION:HASH",
        help="Accept the broker's history with this head, which the command shows without --accept.",
    ),
]


@command(name="container", of=mark)
def mark_container(
    run: Run, container: ContainerArgument, accept: Accept = None, yes: Yes = False
) -> None:
    """Compare the history of a container, and accept the broker's.

    A head is the version and hash at the end of a history. The command shows the head that this device has
    verified and the head that the broker serves. With --accept, the device follows the broker's history from
    now on.

    Accept it only after a "rollback" or "fork" for which you know the reason, such as a backup that the
    operator has restored. Compare the heads with another member first: a broker that hides changes wants you
    to accept its history.
    """
    id = run.names.id_of(container)
    _show(run, lambda head: run.session.resetContainerMark(id, head).result(), accept, yes)


@command(name="group", of=mark)
def mark_group(run: Run, group: GroupArgument, accept: Accept = None, yes: Yes = False) -> None:
    """Compare the history of a group, and accept the broker's.

    This is for a group what `scbroker mark container` is for a container.
    """
    _, id = named_and_id(run.people.find_group_or_id(group))
    _show(run, lambda head: run.session.resetContainerMark(id, head).result(), accept, yes)


@command(name="events", of=mark)
def mark_events(
    run: Run,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help=f"The events of this group in place of your own: {GROUP_HELP}",
            autocompletion=complete_group,
        ),
    ] = None,
    accept: Accept = None,
    yes: Yes = False,
) -> None:
    """Compare the history of events, and accept the broker's.

    The command shows the head of the event log that this device has verified and the head that the broker
    serves. With --accept, the device follows the broker's log from now on. Accept it only after a "rollback"
    or "fork" for which you know the reason.
    """
    id = None if group is None else named_and_id(run.people.find_group_or_id(group))[1]
    _show(run, lambda head: run.session.resetEventMark(head, groupId=id).result(), accept, yes)


@command(name="access", of=mark)
def mark_access(
    run: Run,
    container: ContainerArgument,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION:HASH",
            help="Accept the change of access with this head, which the command shows without --accept.",
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore the access list from before the change.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Show and accept a change of access by a former member.

    Somebody who acted for a group changed who has access to the container, and is not in the group any more,
    or has a lower role there. They may have made the change while they were allowed to. Or they made it
    afterwards, together with a broker that lies. Until you decide, commands that write into the container
    fail.

    Compare the two lists, and ask the person or another member. With --accept, you can write again, for the
    people of the new list. With --undo, the command restores the list from before the change, and the
    container gets a new key.
    """
    if undo and accept is not None:
        raise errors.InvalidArgumentError("--accept and --undo exclude each other: pass one.")
    id = run.names.id_of(container)
    head = None if accept is None else head_of(accept)
    if head is not None:
        run.confirm(
            "The people of the new access list read what you write from now on. Go on?", yes
        )
    found = run.session.confirmAccess(id, head).result()
    if undo and found is not None:
        if found.before is None:
            raise errors.PermissionDeniedError(
                "Your permissions hide the access list: ask a member who can manage or own the container."
            )
        run.confirm("Restore the access list from before this change?", yes)
        run.session.updateContainerAccessLevels(id, found.before).result()
    _show_access(run, found, "undone" if undo else "accepted" if head is not None else None)


def _show_access(run: Run, found: scbroker.UnsettledAccess | None, done: str | None) -> None:
    """Show an unsettled change of access with both lists, and whether it was accepted or undone."""
    before, after = (None, None) if found is None else (found.before, found.after)
    head = None if found is None else _text(found.head)
    if run.out.as_json:
        fields = ("changedBy", "changedVia", "changedAt")
        known = {each: getattr(found, each, None) for each in fields}
        lists = {"before": access_of(run, before), "after": access_of(run, after)}
        run.out.fields({"head": head, **known, **lists, "done": None if found is None else done})
        return
    if found is None:
        run.out.say("No change of access has to be confirmed: you can write into the container.")
        return
    name = run.people.name_of(found.changedBy)
    run.out.fields(
        {
            "changedBy": name if name == str(found.changedBy) else f"{name} ({found.changedBy})",
            "changedVia": run.people.group_of(found.changedVia),
            "changedAt": found.changedAt,
            "before": "hidden from you" if before is None else access_in_words(run, before),
            "after": "hidden from you" if after is None else access_in_words(run, after),
        }
    )
    run.out.say(
        f"The change of access is {done}."
        if done
        else f"To accept the change, add --accept {head}; to restore the list from before it, --undo."
    )


@command(WATCHING)
def sent(run: Run, container: ContainerArgument) -> None:
    """Show the outcome of changes that got no answer.

    These are changes of a container that this device sent and that the broker did not answer. Each is Stored,
    NotStored or still Uncertain. An uncertain one is decided by the next change of the container, which gets
    its version unless it was stored.
    """
    found = run.session.getSentChanges(run.names.id_of(container)).result()
    rows = [{"version": each.version, "outcome": each.outcome} for each in found]
    run.out.rows(rows, {"version": "VERSION", "outcome": "OUTCOME"})
    if not rows:
        run.out.say("Every change of the container that this device sent got an answer.")


def _show(
    run: Run, reset: Callable[[scbroker.Head | None], scbroker.Heads], accept: str | None, yes: bool
) -> None:
    head = None if accept is None else head_of(accept)
    if head is not None:
        run.confirm(
            "This device forgets the history that it has verified, and follows the broker's. Go on?",
            yes,
        )
    heads = reset(head)
    stored = None if heads.stored is None else _text(heads.stored)
    served = _text(heads.served)
    run.out.fields({"stored": stored, "served": served, "accepted": head is not None})
    if head is None and heads.stored != heads.served:
        run.out.say(f"To accept the served head, add --accept {served}")


def _text(head: scbroker.Head) -> str:
    return f"{head.version}:{head.hash.hex()}"


def head_of(text: str) -> scbroker.Head:
    """Parse a head as `_text` writes it."""
    if not re.fullmatch(r"[0-9]{1,20}:[0-9a-f]{64}", text):
        raise errors.InvalidArgumentError(
            f"{text!r:.100} is not VERSION:HASH, as this command prints it."
        )
    version, _, digest = text.partition(":")
    return scbroker.Head(int(version), bytes.fromhex(digest))
