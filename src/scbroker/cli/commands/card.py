"""Define the command that checks and shows a contact card."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker.cli.command import SHARING, command
from scbroker.cli.output import Row
from scbroker.cli.run import Run

Svg = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A new file to write the QR code to, as SVG.")
]


@command(SHARING)
def card(
    run: Run,
    text: Annotated[
        str,
        typer.Argument(
            metavar="CARD", help="A contact card: the text that begins with `scbroker-contact:`."
        ),
    ],
    svg: Svg = None,
) -> None:
    """Check a contact card, and show what it says.

    It says a name, a user, a fingerprint and a broker; a terminal also shows its QR code. A card alone proves
    nothing: compare the fingerprint with the person.
    """
    show_card(run, scbroker.ContactCard.parse(text), svg)


def show_card(
    run: Run, card: "scbroker.ContactCard", svg: Path | None, more: Row | None = None
) -> None:
    """Write a card's fields and `more`; draw its QR code on a terminal, or save the code to a new file."""
    if svg is not None:
        from scbroker.cli.paths import new_file

        code = qr_code(card.text.upper())
        with new_file(svg) as file:
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
        qr_code(card.text.upper()).terminal(sys.stdout, compact=True)


def qr_code(text: str) -> Any:
    """Return the QR code of a text; upper case alone takes 5.5 bits a character."""
    import segno

    return segno.make_qr(text, error="m")
