"""Errors as the command line says them."""

import pytest

from scbroker import errors
from scbroker.cli.output import Size
from scbroker.cli.words import sentence


@pytest.mark.parametrize(
    "error,words",
    [
        (errors.NotAuthenticatedError(), "Run `scbroker login`."),
        (errors.SessionStoreError(), "--session-folder"),
        (errors.TrustStoreError(), "--trust-folder"),
        (errors.UnsettledAccessError(), "`scbroker mark access`"),
        (errors.QuotaExceededError("The quota is used up."), "The quota is used up."),
    ],
)
def test_an_error_names_the_command_or_option(error: errors.BrokerError, words: str) -> None:
    assert words in sentence(error)


def test_an_error_that_names_a_command_is_said_as_it_is() -> None:
    message = "Profile work has no session on this device: run `scbroker login --profile work`."
    assert sentence(errors.NotAuthenticatedError(message)) == message


@pytest.mark.parametrize("size", [0, 1023, 1024, 2**20 - 1, 2**20, 10**9, 2**40, 2**52])
def test_the_error_of_a_quota_shows_a_size_as_the_commands_do(size: int) -> None:
    error = errors.QuotaExceededError(resource="bytes", quota=2 * size, used=size, needed=size + 1)
    assert f"You have {Size(size).shown()} of {Size(2 * size).shown()} left" in error.message
