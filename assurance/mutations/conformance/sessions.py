"""Mutants of session, user, KeyFile and their states: rows S and K, and operations of parts 4.2 to 4.4."""

import inspect
from collections.abc import Callable
from typing import Any, Final

from assurance.mutations.conformance.mutants import (
    Body,
    Change,
    Mutants,
    When,
    altered,
    always,
    around,
    change_body,
    failing,
    instead,
    is_of_form,
    nothing,
    with_arguments,
    with_result,
)
from scbroker import KeyRing
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.keys import PassphraseKeys
from tests.conformance.interface import INTERFACE

MUTANTS: Final = Mutants()
add, body, bodies = MUTANTS.add, MUTANTS.body, MUTANTS.bodies
BY_PASSPHRASE, BY_RING = (
    is_of_form(next(each for each in INTERFACE.operations if str(each) == row))
    for row in ("logIn", "logIn with key ring")
)


def keeping_the_session(when: When = always) -> Change:
    """The body runs, and the provider has the session that it had before."""

    async def work(honest: Body, provider: Any, _: inspect.BoundArguments) -> Any:
        before = provider._current
        result = await honest()
        provider._current = before
        return result

    return around(work, when)


for _row in ("register", "S1", "K2"):
    body(_row, "register does not authenticate", "register", keeping_the_session())
for _row in ("logIn", "S3", "K2"):
    body(_row, "logIn does not authenticate", "logIn", keeping_the_session(BY_PASSPHRASE))
for _row in ("logIn with key ring", "S5", "K2"):
    body(_row, "logIn with a KeyRing does not authenticate", "logIn", keeping_the_session(BY_RING))
_PASSWORD: Final = instead(
    failing, lambda given: BY_PASSPHRASE(given) and given["password"] is None
)
bodies(
    ("S1", "register returns another KeyFile", "register", with_result(altered)),
    ("S3", "logIn returns another KeyFile", "logIn", with_result(altered, BY_PASSPHRASE)),
    ("S5", "logIn with a KeyRing returns something", "logIn", with_result(lambda _: b"", BY_RING)),
    ("S9", "logIn needs the password", "logIn", _PASSWORD),
)


@add("logIn with key ring", "takes any userId")
def _() -> None:
    def edit(_: Any, arguments: dict[str, Any]) -> None:
        if BY_RING(arguments) and isinstance(arguments["keyRing"], KeyRing):
            arguments["userId"] = arguments["keyRing"].userId

    change_body("logIn", with_arguments(edit))


# The end of a session and of a user


def leave_the_token_alive() -> None:
    async def close(self: Session) -> None:
        self.forget()

    Session.close = close  # type: ignore[method-assign]


for _row in ("logout", "S6"):
    add(_row, "leaves the token alive")(leave_the_token_alive)
for _row in ("S6", "K4"):
    body(_row, "logout keeps the session", "logout", instead(nothing))
body("K4", "the session has another KeyRing", "getKeyRing", with_result(altered))


@add("logout", "keeps the KeyRing")
def _() -> None:
    Session.forget = lambda self: setattr(self.token, "value", None)  # type: ignore[method-assign]


async def logging_out(provider: Any, _: dict[str, Any]) -> None:
    await provider._logout()


async def deleting_at_the_broker_alone(provider: Any, _: dict[str, Any]) -> None:
    await accounts.delete_user(provider._session())


for _row in ("deleteUser", "S7"):
    body(_row, "deleteUser only logs out", "deleteUser", instead(logging_out))
body("deleteUser", "keeps the session", "deleteUser", instead(deleting_at_the_broker_alone))

# KeyFiles


def sealing_with(change: Callable[..., tuple[Any, ...]]) -> None:
    module: Any = accounts
    honest = module.seal_key_file
    module.seal_key_file = lambda *given: honest(*change(*given))


@add("K3", "the KeyRing is not encrypted under the password")
def _() -> None:
    sealing_with(lambda ring, _, keys: (ring, "A secret 12345", keys))


@add("K3", "the password is not encrypted under the passphrase")
def _() -> None:
    sealing_with(lambda ring, secret, keys: (ring, secret, PassphraseKeys(keys.auth, b"w" * 32)))


async def returning_the_bytes(_: Any, arguments: dict[str, Any]) -> bytes:
    return bytes(arguments["keyFileData"])


async def returning_the_header(*_: Any) -> bytes:
    return b"scbroker.keyfile\x01"


async def true(*_: Any) -> bool:
    return True


async def false(*_: Any) -> bool:
    return False


# Public keys


def key_at(position: int) -> Change:
    async def work(provider: Any, arguments: dict[str, Any]) -> Any:
        found = await provider.getPublicKeys(arguments["userId"], arguments["keyType"])
        return found[position]

    return instead(work)


def active(found: Any) -> Any:
    return [key for key in found if key.active]


for _name, _says, _change in (
    (
        "createOrUpdateKeyFile",
        "stores nothing, and returns the bytes",
        instead(returning_the_bytes),
    ),
    ("changeCredentials", "stores nothing, and returns bytes", instead(returning_the_header)),
    ("needToSyncAccount", "is always true", instead(true)),
    ("needToSyncAccount", "is always false", instead(false)),
    ("getLatestActiveSigningKey", "returns the oldest key", key_at(0)),
    ("getLatestActiveSigningKey", "returns a key that is not active", key_at(-1)),
    ("getPublicKeys", "leaves retired keys out", with_result(active)),
):
    body(_name, _says, _name, _change)
