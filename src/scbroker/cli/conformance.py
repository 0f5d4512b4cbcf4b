"""Define `conformance …`: test a broker or a client against the specification."""

import sys
import uuid
from typing import Annotated

import typer

from scbroker import errors
from scbroker.cli.command import BROKER, Command, group
from scbroker.cli.secrets import ApiKeyFile, secret

conformance: typer.Typer = group(
    "conformance", BROKER, "Test a broker or a client against the specification."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcomes as a JSON list.")]


@conformance.command("broker", cls=Command)
def conformance_broker(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The broker's address, such as https://broker.example."),
    ],
    api_key_file: ApiKeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare the answers of a broker with the specification.

    The command sends about 190 requests. The exit status is 1 if an answer is wrong. It registers users of
    its own and deletes them at the end.
    """
    from scbroker.conformance.broker import probe
    from scbroker.conformance.outcomes import conclude

    given = secret("API key", api_key_file)
    try:
        api_key = uuid.UUID(given)
    except ValueError:
        raise errors.InvalidArgumentError("The API key is not a UUID.") from None
    right = conclude(lambda report: probe(url, api_key, report), as_json=as_json)
    sys.exit(not right)


@conformance.command("client", cls=Command)
def conformance_client(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program that drives the client.")
    ],
    as_json: AsJson = False,
) -> None:
    """Test a client against honest and lying brokers.

    The exit status is 1 if a scene ends wrong. COMMAND comes after `--`. It reads steps from standard input,
    one JSON object in each line.
    """
    from scbroker.conformance.client import play
    from scbroker.conformance.outcomes import conclude

    right = conclude(lambda report: play(command, report), as_json=as_json)
    sys.exit(not right)
