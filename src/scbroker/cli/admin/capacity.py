"""Define `scbroker admin capacity`."""

from typing import Annotated

import typer

from scbroker.cli.admin.command import Admin, command
from scbroker.cli.output import Size


@command()
def capacity(
    run: Admin,
    users: Annotated[int, typer.Option(metavar="N", help="Users of the broker.", min=0, max=10**9)],
    containers: Annotated[
        int, typer.Option(metavar="N", help="Containers of each user.", min=0, max=10**9)
    ] = 100,
    members: Annotated[
        int,
        typer.Option(
            metavar="N", help="Members of each container, including its owner.", min=1, max=1024
        ),
    ] = 2,
    content: Annotated[
        int, typer.Option(metavar="BYTES", help="Mean size of a content.", min=0, max=2**40)
    ] = 1024,
    active: Annotated[
        int,
        typer.Option(
            metavar="PERCENT", help="Percentage of users active on a day.", min=0, max=100
        ),
    ] = 20,
) -> None:
    """Calculate the disk and memory that a broker needs.

    The command reads no broker. It calculates from measurements, as docs/guide/capacity.md explains.
    """
    import msgspec

    from scbroker.server.admin.needs import needs_of

    needs = needs_of(
        users=users, containers=containers, members=members, content=content, share=active / 100
    )
    row = msgspec.to_builtins(needs)
    run.out.fields({k: Size(v) if "Bytes" in k else v for k, v in row.items()})
