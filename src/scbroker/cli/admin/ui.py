"""Define `scbroker admin ui`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from scbroker.cli.admin.command import Admin, Url, command

if TYPE_CHECKING:
    from scbroker.server.admin.stores import Stores


@command()
def ui(
    run: Admin,
    url: Url = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="The page's port at 127.0.0.1; 0 chooses both.", min=0, max=65535
        ),
    ] = 0,
    minutes: Annotated[
        int, typer.Option(metavar="N", help="Minutes after which the page ends.", min=1, max=1440)
    ] = 60,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Whether to start a browser.")
    ] = True,
) -> None:
    """Open the operator's page in your browser, until Ctrl-C.

    The page listens on this machine only. Its URL is secret and valid once: the first browser that uses it is
    the only one that is admitted.
    """
    from scbroker.cli.admin.page.page import operators_page
    from scbroker.cli.admin.page.watch import Watch
    from scbroker.cli.web import serving

    async def show(at: Stores) -> None:
        watch = Watch(url or run.address, at)
        async with watch.running():
            await serving.run(run.out, port, minutes, opens, partial(operators_page, at, watch))

    run.use(show)
