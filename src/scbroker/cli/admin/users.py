"""Define the commands that show, suspend and delete users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scbroker import errors
from scbroker.cli.admin.command import Admin, command, group, row_of
from scbroker.cli.command import Yes
from scbroker.cli.output import Size

if TYPE_CHECKING:
    from scbroker.server.admin.stores import Stores
    from scbroker.server.admin.users import User

users: Final = group("users", "List, suspend and delete users.")
_COLUMNS: Final = {
    "userId": "USER", "registered": "REGISTERED", "lastLogIn": "LAST LOG-IN", "containers": "CONTAINERS",
    "bytes": "BYTES", "suspended": "SUSPENDED", "reason": "REASON",
}  # fmt: skip

Who = Annotated[
    str, typer.Argument(metavar="USER", help="A user id, or four or more of its first digits.")
]


@command("ls", of=users)
def ls(run: Admin) -> None:
    """List the users who were not deleted.

    The last log-in is known until about a minute after its session has ended.
    """
    from scbroker.server.admin import users as queries

    run.out.rows(map(_row, run.use(queries.listed)), _COLUMNS)


@command("show", of=users)
def show(run: Admin, user: Who) -> None:
    """Show what the broker knows of a user."""
    run.out.fields(_row(_find(run, user)))


@command("suspend", of=users)
def suspend(
    run: Admin,
    user: Who,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why, for operators only: the user cannot read it."),
    ] = None,
) -> None:
    """Refuse everything that a user sends, until `resume`.

    The user's sessions end at once. The user's data stays, and other members go on reading it. Presigned URLs
    that the user already has are valid until they expire.
    """
    from scbroker.server.admin import users as acts

    async def change(at: Stores) -> tuple[bool, User]:
        user_id = await at.database.read(lambda c: acts.find(c, user))
        is_new = await acts.suspend(at, user_id, reason)
        return is_new, await at.database.read(lambda c: acts.show(c, at.settings, user_id))

    is_new, found = run.use(change)
    said = "is suspended" if is_new else "was suspended already, and nothing was changed"
    run.out.done({**_row(found), "changed": is_new}, f"User {found.id} {said}.")


@command("resume", of=users)
def resume(run: Admin, user: Who) -> None:
    """End a user's suspension: the user can log in again."""
    from scbroker.server.admin import users as acts

    def change(connection: Any, broker_key: bytes) -> tuple[bool, User]:
        user_id = acts.find(connection, user)
        is_new = acts.resume(connection, broker_key, user_id)
        return is_new, acts.show(connection, run.settings, user_id)

    is_new, found = run.act(change)
    said = "can log in again" if is_new else "was not suspended, and nothing was changed"
    run.out.done({**_row(found), "changed": is_new}, f"User {found.id} {said}.")


@command("delete", of=users)
def delete(run: Admin, user: Who, yes: Yes = False) -> None:
    """Delete a user for ever, with every container to which nobody else has access.

    Containers with other members stay. So do groups; of a group that nobody else owns, nobody can change the
    managers any more. The id can never be registered again. The user signs no record of the deletion, so
    other users' programs have only the broker's word for it. --yes needs the whole id.
    """
    from scbroker.server.admin import users as acts

    found = _find(run, user)
    if yes and user.replace("-", "").lower() != found.id.hex:
        raise errors.InvalidArgumentError(
            f"{user} is the beginning of {found.id}: pass the whole id with --yes, or leave --yes out."
        )
    if not found.is_deleted:
        size = f"{found.containers} containers, {Size(found.bytes).shown()}"
        run.confirm(f"Delete user {found.id} ({size}) for ever?", yes)
    is_new = run.do(acts.delete(run.settings, found.id))
    said = "is deleted" if is_new else "was deleted already"
    run.out.done(
        {"userId": found.id, "deleted": True, "changed": is_new}, f"User {found.id} {said}."
    )


def _find(run: Admin, text: str) -> User:
    from scbroker.server.admin import users as queries

    return run.read(lambda c: queries.show(c, run.settings, queries.find(c, text)))


def _row(user: User) -> dict[str, Any]:
    row = row_of(user)
    return {"userId": row.pop("id"), **row}
