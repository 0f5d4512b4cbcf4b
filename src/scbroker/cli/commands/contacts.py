"""Define the commands of the address book: people and their fingerprints."""

import shlex
import sys
from typing import Annotated, Any

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import SHARING, command, group
from scbroker.cli.commands.card import Svg, show_card
from scbroker.cli.completion import complete_person
from scbroker.cli.output import fields_of
from scbroker.cli.run import Run

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
