"""Define the command that checks and shows a contact card."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker.cli.command import SHARING, command
from scbroker.cli.output import Row
from scbroker.cli.paths import new_file
from scbroker.cli.run import Run


@command(SHARING)
def card(
    run: Run,
    text: Annotated[
        str,
        typer.Argument(
            metavar="CARD", help="A contact card: the text that begins with `scbroker-contact:`."
        ),
    ],
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file to write the QR code to, as SVG."),
    ] = None,
) -> None:
    """Check a contact card, and show what it says.

    It says a name, a user, a fingerprint and a broker; a terminal also shows its QR code. A card alone proves
    nothing: compare the fingerprint with the person.
    """
    show_card(run, scbroker.ContactCard.parse(text), svg)


def show_card(
    run: Run, card: "scbroker.ContactCard", svg: Path | None, more: Row | None = None
) -> None:
    """Write the fields of a card and more, its QR code on a terminal, and the code into a new file."""
    if svg is not None:
        code = _qr_code(card)
        with new_file(svg, option="--svg") as file:
            code.save(file, kind="svg", scale=4)
    run.out.fields(
        {
            "name": card.name,
            "userId": card.userId,
            "fingerprint": card.fingerprint,
            "serverUrl": card.serverUrl,
            "card": card.text,
            **(more or {}),
        }
    )
    if run.out.on_terminal and not run.out.quiet:
        _qr_code(card).terminal(sys.stdout, compact=True)


def _qr_code(card: "scbroker.ContactCard") -> Any:
    import segno

    # Upper case fits into the QR code's alphanumeric mode, which takes 5.5 bits a character.
    return segno.make_qr(card.text.upper(), error="m")
