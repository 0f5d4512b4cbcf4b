"""Define the command that checks and shows a contact card."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import scbroker  # loads its names when they are used: the broker needs none of them


def card(
    text: Annotated[
        str, typer.Argument(help="The card, which begins with scbroker-contact: in any case.")
    ],
    svg: Annotated[
        Path | None, typer.Option(help="A new file to write the QR code to, as SVG.")
    ] = None,
) -> None:
    """Check a contact card; show its user, broker, name and QR code.

    A card proves nothing by itself: compare the fingerprint with the person.
    """
    import segno

    found = scbroker.ContactCard.parse(text)
    # Upper case fits into the QR code's alphanumeric mode, which takes 5.5 bits a character.
    code = segno.make_qr(found.text.upper(), error="m")
    if svg is not None:
        try:
            with svg.open("xb") as file:
                code.save(file, kind="svg", scale=4)
        except OSError as error:
            raise typer.BadParameter(
                f"cannot write {svg} ({error.strerror}): name a new file", param_hint="--svg"
            ) from None
    print("name:       ", found.name)
    print("user id:    ", found.userId)
    print("fingerprint:", found.fingerprint)
    print("broker:     ", found.serverUrl)
    code.terminal(sys.stdout, compact=True)
