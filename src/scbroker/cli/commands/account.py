"""Define the commands of a user's account: register, log in, keys and secrets."""

from pathlib import Path
from typing import Annotated

import typer

from scbroker.cli.command import ACCOUNT, command
from scbroker.cli.commands.card import show_card
from scbroker.cli.run import Run


@command(ACCOUNT)
def whoami(
    run: Run,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file to write the card's QR code to, as SVG."),
    ] = None,
) -> None:
    """Show your user id, fingerprint and contact card, with its QR code. Needs no network."""
    show_card(run, run.profile.card, svg)
