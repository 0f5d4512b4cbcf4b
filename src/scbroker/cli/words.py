"""Say errors to a person at the command line."""

from __future__ import annotations

from typing import Final

from scbroker import errors

_MORE: Final = {
    errors.NotAuthenticatedError.code: "Run `scbroker login`.",
    errors.SessionStoreError.code: "With --session-folder FOLDER, `scbroker register`, `login` and `ui` keep "
    "the session in a folder: anybody who can read this folder has the account.",
    errors.TrustStoreError.code: "`scbroker login --trust-folder FOLDER` chooses another folder.",
    errors.UnsettledAccessError.code: "`scbroker mark access` shows the change, and accepts or undoes it.",
}
"""The advice at the command line by the code of an error, whose message is for programs too."""


def sentence(error: errors.BrokerError) -> str:
    """Return the message of an error, with what to do, and the id of a request that the broker failed at."""
    text = error.message
    more = _MORE.get(error.code)
    if more and "`scbroker" not in text:
        text = f"{text} {more}"
    if error.requestId and isinstance(error, errors.BrokerFaultError | errors.OverloadedError):
        text = f"{text} (request {error.requestId})"
    return text


def with_message(error: errors.BrokerError, text: str) -> errors.BrokerError:
    """Return a copy of an error with another message."""
    changed = error.fresh()
    changed.args = (text,)
    return changed
