"""Define the commands that show and reset a device's marks."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import scbroker  # loads its names when they are used: the broker needs none of them

app: typer.Typer = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Show the history that this device has verified and the one that the broker serves, and accept the "
    "latter. SCBROKER_API_KEY and SCBROKER_SERVER_URL name the broker.",
)
User = Annotated[uuid.UUID, typer.Option(help="Your user id.")]
Passphrase = Annotated[
    str, typer.Option(prompt=True, hide_input=True, help="Asked for if left out.")
]
Accept = Annotated[str | None, typer.Option(help="VERSION:HASH of the served head, to accept it.")]
Store = Annotated[
    Path | None, typer.Option(help="The folder of the program's trust store, if not the default.")
]


@app.command()
def container(
    container_id: Annotated[uuid.UUID, typer.Argument(help="The container's id.")],
    user: User,
    passphrase: Passphrase,
    accept: Accept = None,
    trust_store: Store = None,
) -> None:
    """Show both heads of a container; with --accept, follow the served one from now on.

    Compare them with another member first: a broker that hides changes wants you to accept.
    """
    with _logged_in(user, passphrase, trust_store) as provider:
        _show(lambda head: provider.resetContainerMark(container_id, head).result(), accept)


@app.command()
def events(
    user: User, passphrase: Passphrase, accept: Accept = None, trust_store: Store = None
) -> None:
    """Show both ends of the event log; with --accept, follow the served one from now on."""
    with _logged_in(user, passphrase, trust_store) as provider:
        _show(lambda head: provider.resetEventMark(head).result(), accept)


@contextmanager
def _logged_in(
    user: uuid.UUID, passphrase: str, folder: Path | None
) -> "Iterator[scbroker.ServerProvider]":
    environment = {"SCBROKER_APPLICATION_NAME": "scbroker mark", **os.environ}
    store = None if folder is None else scbroker.FileTrustStore(folder)
    with scbroker.ServerProvider.fromEnvironment(environment, trustStore=store) as provider:
        provider.logIn(user, passphrase=passphrase).result()
        yield provider


def _show(reset: "Callable[[scbroker.Head | None], scbroker.Heads]", accept: str | None) -> None:
    heads = reset(None if accept is None else _parsed(accept))
    print("verified by this device:", "nothing" if heads.stored is None else _text(heads.stored))
    print("served by the broker:   ", _text(heads.served))
    if accept is not None:
        print("The served one is accepted.")
    elif heads.stored != heads.served:
        print(f"To accept the served one, add --accept {_text(heads.served)}")


def _text(head: "scbroker.Head") -> str:
    return f"{head.version}:{head.hash.hex()}"


def _parsed(text: str) -> "scbroker.Head":
    version, _, digest = text.partition(":")
    try:
        return scbroker.Head(int(version), bytes.fromhex(digest))
    except ValueError:
        raise typer.BadParameter(
            "must be VERSION:HASH, as this command prints it", param_hint="--accept"
        ) from None
