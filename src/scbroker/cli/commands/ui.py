"""Define `scbroker ui`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from scbroker.cli.command import CONTAINERS, Minutes, Opens, Port, command
from scbroker.cli.commands.account import SessionFolder, TrustFolder
from scbroker.cli.run import Run


@command(CONTAINERS)
def ui(
    run: Run,
    port: Port = 0,
    minutes: Minutes = 480,
    lock: Annotated[
        float,
        typer.Option(
            metavar="N", help="Minutes without use after which the page locks itself.", min=0.01
        ),
    ] = 15,
    opens: Opens = True,
    session_folder: SessionFolder = None,
    trust_folder: TrustFolder = None,
) -> None:
    """Show your containers in your browser, until Ctrl-C.

    The page listens on this machine only, and your keys stay in this process. Its URL is secret and valid
    once: the first browser that uses it is the only one that is admitted. After a while without use the page
    locks itself, and asks for your passphrase.
    """
    import asyncio

    from scbroker.cli import profiles
    from scbroker.cli.commands.account import folders_of
    from scbroker.cli.ui.page import users_page
    from scbroker.cli.ui.session import Session
    from scbroker.cli.web import serving

    folders = folders_of(session_folder, trust_folder)
    # Without a profile, check the folders now: the page would fail only after asking for every secret.
    if profiles.find(run.profile_name) is None:
        profiles.check_device(*folders)

    async def show() -> None:
        session = Session(
            run.profile_name, lock * 60, session_folder=folders[0], trust_folder=folders[1]
        )
        async with session.running():
            page = partial(users_page, session)
            await serving.run(run.out, port, minutes, opens, page)

    asyncio.run(show())
