"""Define the commands of the address book: people and their fingerprints."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import SHARING, Run, command, complete_person, group
from scbroker.cli.output import Row, fields_of

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
        from scbroker.cli.files import new_file

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


contacts: typer.Typer = group("contacts", SHARING, "Keep a list of the people whom you share with.")
_LONGEST_CARD = 4096
_COLUMNS = {"name": "NAME", "verified": "VERIFIED", "userId": "USER", "addedAt": "ADDED"}
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of a contact.", autocompletion=complete_person),
]


@command(name="add", of=contacts)
def add(
    run: Run,
    card: Annotated[
        str,
        typer.Argument(
            metavar="CARD",
            help="A contact card: the text that begins with `scbroker-contact:`, as `scbroker whoami` shows "
            "it; `-` reads it from standard input.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Your name for the person; by default the name on the card."
        ),
    ] = None,
) -> None:
    """Add the person of a contact card.

    Your contacts are stored at the broker, encrypted, and are the same on all of your devices. Anybody can
    make a card with any name: compare fingerprints with `scbroker contacts verify`, before you share
    something that matters.
    """
    if card == "-":
        card = sys.stdin.buffer.read(_LONGEST_CARD + 1).decode("utf-8", "replace")
    parsed = scbroker.ContactCard.parse(card)
    if parsed.userId == run.profile.user_id:
        raise errors.InvalidArgumentError(
            f"This is your own card: give it to others, and add theirs (profile {run.profile.name})."
        )
    contact = run.people.book.add(parsed, name).result()
    verified = (
        "verified."
        if contact.verified
        else "not verified: ask for the fingerprint, and run "
        f"`scbroker contacts verify {shlex.quote(contact.name)}`."
    )
    run.out.done(_row(contact), f"{contact.name} is in your contacts, {verified}")


@command(name="ls", of=contacts)
def ls(run: Run) -> None:
    """List your contacts by name."""
    run.out.rows([_row(each) for each in run.people.book.list().result()], _COLUMNS)


@command(name="show", of=contacts)
def show(run: Run, name: NameArgument, svg: Svg = None) -> None:
    """Show a contact with fingerprint, card and QR code."""
    contact = run.people.book.get(name).result()
    card = scbroker.ContactCard(contact.fingerprint, contact.serverUrl, contact.name)
    show_card(run, card, svg, {"verified": contact.verified, "addedAt": contact.addedAt})


@command(name="verify", of=contacts)
def verify(
    run: Run,
    name: NameArgument,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            metavar="DIGITS",
            help="The whole fingerprint, as the person reads it out. Without it, you are asked.",
        ),
    ] = None,
) -> None:
    """Compare the fingerprint of a contact with the person.

    Call or meet the person: a message could be from somebody else. The person runs `scbroker whoami` and
    reads out the fingerprint; you type it. If it is the same, the contact is marked as verified.
    """
    contact = run.people.book.get(name).result()
    if fingerprint is None and sys.stdin.isatty():
        run.out.say(
            f"Call {contact.name}, who runs `scbroker whoami` and reads out the fingerprint: 16 groups of 4 "
            "digits."
        )
    read_out = fingerprint or run.ask(
        "Fingerprint",
        f"The fingerprint of {contact.name} is missing: pass what the person reads out with --fingerprint, "
        "or run the command in a terminal.",
    )
    found = run.people.book.verify(contact.name, read_out).result()
    run.out.done(_row(found), f"The fingerprint is the same: {found.name} is verified.")


@command(name="rename", of=contacts)
def rename(
    run: Run,
    name: NameArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW-NAME", help="The new name.")],
) -> None:
    """Give a contact another name.

    A verified contact stays verified.
    """
    contact = run.people.book.rename(name, new_name).result()
    run.out.done(_row(contact), f"The contact is named {contact.name} now.")


@command(name="rm", of=contacts)
def rm(run: Run, name: NameArgument) -> None:
    """Remove a contact.

    The person keeps the access that you gave: `scbroker revoke` takes it away.
    """
    contact = run.people.book.get(name).result()
    run.people.book.remove(contact.name).result()
    run.out.done(
        _row(contact),
        f"{contact.name} is not in your contacts any more, and keeps access to containers.",
    )


def _row(contact: "scbroker.Contact") -> dict[str, Any]:
    names = ("name", "userId", "fingerprint", "serverUrl", "verified", "addedAt")
    return fields_of(contact, *names)
