"""Define `scbroker admin ui`."""

from __future__ import annotations

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
    import datetime as dt
    from contextlib import nullcontext

    from scbroker.cli.admin.page.page import operators_page
    from scbroker.cli.admin.page.watch import Watch
    from scbroker.cli.web.access import Access
    from scbroker.cli.web.serving import listening, opened_in_browser, serve

    def no_browser() -> None:
        run.out.say("No browser was started: open the URL yourself.")

    async def show(at: Stores) -> None:
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
        watch = Watch(url or run.address, at)
        with listening(port) as bound:
            access = Access(*bound.getsockname())
            async with watch.running():
                run.out.line(
                    {"url": access.url, "ends": ends},
                    f"Open {access.url} in one browser of this machine. Ctrl-C ends the page.",
                )
                app = operators_page(at, watch, ends).application(access)
                with opened_in_browser(access.url, no_browser) if opens else nullcontext():
                    await serve(app, bound, minutes * 60)
        run.out.say("The page has ended.")

    run.use(show)
