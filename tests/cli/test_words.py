"""The library's messages as the command line says them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import scbroker
from scbroker import errors
from scbroker.cli.output import Size
from scbroker.cli.words import in_words
from tests.kit.cases import in_one_case

SOURCE = Path(scbroker.__file__).parent
# What only a program can do, and no command does.
OF_PROGRAMS = (
    "The provider was closed",
    "must be the path of a folder, a",
    "logIn takes a KeyRing or secrets",
    "logIn needs the passphrase",
    "pass userId, one of",
    "what urllib.parse.urlsplit",
    "renameGroup needs",
)
TERMS = re.compile(
    r"keep=|sessionStore|trustStore|serverUrl|apiKey|logIn|resumeSession|changeCredentials|createOrUpdateKeyFile"
    r"|confirmAccess|\b[a-z]+Group(?:Members|Roles|Managers)?\b"
)


def literal(node: ast.expr) -> str:
    """The text of a string; of an f-string with … for its values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def messages() -> Iterator[str]:
    """The texts in the modules of the client, but for docstrings, and the errors' own messages."""
    shared = [SOURCE / name for name in ("keys.py", "cards.py", "vocabulary.py")]
    folders = [SOURCE / name for name in ("client", "wire", "server/users")]
    for path in [*shared, *(path for folder in folders for path in folder.rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Constant | ast.JoinedStr) and not isinstance(
                    node, ast.Expr | ast.JoinedStr
                ):
                    yield literal(child)
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.BrokerError):
            yield str(kind())


FOUND = sorted({each for each in messages() if TERMS.search(each) and " " in each})


def test_messages_that_name_parameters_and_operations_are_found() -> None:
    assert len(FOUND) >= 15


@in_one_case("message", FOUND)
def test_no_message_of_a_session_speaks_to_programmers(message: str) -> None:
    if any(each in message for each in OF_PROGRAMS):
        return
    assert not TERMS.search(in_words(message)), in_words(message)


@pytest.mark.parametrize(
    "message,words",
    [
        (str(errors.NotAuthenticatedError()), "run `scbroker login`"),
        ("No session is kept for this broker: log in with keep=True.", "run `scbroker login`."),
        (str(errors.SessionStoreError()), "--session-folder"),
        (
            "refused: x. For an authority of your own, pass ssl=ssl.create_default_context(cafile=...).",
            "For an authority of your own, set SSL_CERT_FILE to a file with the authority's certificate.",
        ),
        ("serverUrl must be an origin", "The broker's address must be an origin"),
        ("name must be printable: x", "--name must be printable: x"),
        (
            "Nobody else is a member of the group: delete it with deleteGroup instead.",
            "delete it with `scbroker groups rm` instead",
        ),
        (str(errors.UnsettledAccessError()), "run `scbroker mark access`"),
        ("Group x was deleted: remove the group from accessLevels.", "leave the group out"),
        ("User x was deleted: remove the user from accessLevels.", "leave this person out"),
        ("startId must be from 0 to 9", "--since must be from 0 to 9"),
    ],
)
def test_a_message_names_the_command_or_option(message: str, words: str) -> None:
    assert words in in_words(message)


def test_what_a_person_typed_is_not_changed() -> None:
    text = "You have no container named 'serverUrl.txt': `scbroker ls` lists them."
    assert in_words(text) == text


@pytest.mark.parametrize("size", [0, 1023, 1024, 2**20 - 1, 2**20, 10**9, 2**40, 2**52])
def test_the_error_of_a_quota_shows_a_size_as_the_commands_do(size: int) -> None:
    error = errors.QuotaExceededError(resource="bytes", quota=2 * size, used=size, needed=size + 1)
    assert f"You have {Size(size).shown()} of {Size(2 * size).shown()} left" in error.message
