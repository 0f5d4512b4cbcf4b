"""Define the commands that list, choose and remove profiles."""

from typing import TYPE_CHECKING, Annotated

import typer

from scbroker import errors
from scbroker.cli.command import ACCOUNT, Yes, command, group, listing
from scbroker.cli.run import Run

if TYPE_CHECKING:
    from scbroker.cli.profiles import Profile

profiles: typer.Typer = group("profiles", ACCOUNT, "List, choose and remove profiles.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a profile.")]


@listing(of=profiles)
def list_profiles(run: Run) -> None:
    """List the profiles of this device, and whether a session of each is kept here."""
    from scbroker.cli import profiles as saved

    file = saved.read()
    rows = [
        {
            "profile": name,
            "default": name == file.default,
            "userId": each.user_id,
            "name": each.card_name,
            "serverUrl": each.server_url,
            "sessionKept": _is_kept(run, each),
        }
        for name, each in sorted(file.profiles.items())
    ]
    columns = {
        "profile": "profile",
        "default": "default",
        "userId": "user",
        "name": "name",
        "serverUrl": "broker",
        "sessionKept": "session",
    }
    run.out.rows(rows, columns)
    if not rows:
        run.out.say(
            f"{saved.path()} has no profile yet: run `scbroker register` or `scbroker login`."
        )


def _is_kept(run: Run, profile: "Profile") -> bool | None:
    """Return whether a session is kept on this device; warn and return None if that cannot be read."""
    try:
        with run.provider(profile) as provider:
            return profile.user_id in provider.getKeptSessions().result()
    except errors.BrokerError as error:
        run.failed(profile.name, error)
        return None


@command(of=profiles)
def use(run: Run, name: NameArgument) -> None:
    """Make a profile the default one."""
    from scbroker.cli import profiles as saved

    saved.use(name)
    run.out.done({"profile": name}, f"Commands without --profile use {name} now.")


@command(of=profiles)
def rm(run: Run, name: NameArgument, yes: Yes = False) -> None:
    """Remove a profile and its session from this device.

    The user stays at the broker. Note the user id before: `scbroker login USER` logs in again.
    """
    from scbroker.cli import profiles as saved

    profile = saved.load(name)
    run.confirm(
        f"Remove profile {name} and its session from this device? User {profile.user_id} stays at "
        f"{profile.server_url}, and can log in with the passphrase.",
        yes,
    )
    run.provider(profile).forgetKeptSession(profile.user_id).result()
    saved.remove(name)
    run.out.done(
        {"profile": name, "userId": profile.user_id},
        f"Profile {name} is removed. User {profile.user_id} stays at {profile.server_url}.",
    )
