"""Find the session of a filesystem: the kept session of the user, once for each process.

Secrets are not options: fsspec writes options into pickles, JSON and task graphs.
"""

from __future__ import annotations

import os
import threading
import uuid
from typing import Final

import scbroker
from scbroker import errors

_VARIABLES: Final = (
    "SCBROKER_API_KEY",
    "SCBROKER_SERVER_URL",
    "SCBROKER_APPLICATION_NAME",
    "SCBROKER_OBJECT_STORE_ORIGINS",
)
_OTHERWISE: Final = (
    "For scbroker://, storage_options can also have a sessionStore (the folder with the kept session), or "
    "a provider with a session."
)
_Key = tuple[int | str | None, ...]
_sessions: Final[dict[_Key, scbroker.ServerProvider]] = {}
_locks: Final[dict[int, threading.Lock]] = {}
"""Locks by process id: one that a thread of the parent held at a fork would stay locked in the child."""


def kept_session(
    user_id: uuid.UUID | str | None, session_store: str | None, trust_store: str | None
) -> scbroker.ServerProvider:
    """Return a provider with the kept session of a user, at the broker that the environment names.

    Raises `NotAuthenticatedError` if no session is kept, and `InvalidArgumentError` without the variables.
    """
    texts = (None if user_id is None else str(user_id), session_store, trust_store)
    process = os.getpid()  # the child of a fork needs a session of its own
    key = (process, *(os.environ.get(name) for name in _VARIABLES), *texts)
    with _locks.setdefault(process, threading.Lock()):
        if (found := _sessions.get(key)) is not None and _is_open(found):
            return found
        try:
            provider = scbroker.ServerProvider.fromEnvironment(
                sessionStore=session_store, trustStore=trust_store
            )
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(f"{error.message} {_OTHERWISE}") from None
        try:
            provider.resumeSession(user_id).result()
        except errors.BrokerError as error:
            provider.close()
            if isinstance(error, errors.NotAuthenticatedError):
                raise errors.NotAuthenticatedError(f"{error.message} {_OTHERWISE}") from None
            raise
        _sessions[key] = provider
        return provider


def _is_open(provider: scbroker.ServerProvider) -> bool:
    try:
        provider.getUserId().result()
    except errors.NotAuthenticatedError:  # the program has closed it, or logged out
        return False
    return True
