"""Define the commands of API keys."""

from typing import Annotated

import typer

from scbroker.cli.admin.command import Admin, command


@command("create-api-key")
def create_api_key(
    run: Admin,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name for the key, stored beside its hash.")
    ],
) -> None:
    """Create an API key and print it.

    It is shown this once only: the broker stores its hash.
    """
    from scbroker.server import commands

    key = run.do(commands.create_api_key(run.settings, name))
    run.out.line({"apiKey": key, "name": name}, str(key))
