"""Log in, register, lock the page and log out."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.ui.context import session_of
from scbroker.cli.ui.session import HOME, LOCK, LOG_IN, LOG_OUT, REGISTER, START
from scbroker.cli.web.site import ask, done, fault, fields, go, show

_FIELDS: Final = ("server", "user", "name")
"""The fields without a secret of a form that was refused: the next form shows them."""
_SERVER: Final = "SCBROKER_SERVER_URL"
_API_KEY: Final = "SCBROKER_API_KEY"
"""The environment variables that `scbroker register` and `login` take as well."""


async def _unlock(request: Request) -> Response:
    """Ask the profile's user for the passphrase; without a profile, ask for everything."""
    session = session_of(request)
    if request.method == "GET":
        profile = session.profile
        if profile is None:
            return _form(request, "register.html")
        return show(request, "start.html", profile=profile)
    try:
        await asyncio.to_thread(session.unlock, fields(request).get("passphrase", ""))
    except errors.BrokerError as error:
        return fault(request, error, START)
    return go(request, HOME)


async def _log_in(request: Request) -> Response:
    if request.method == "GET":
        return _form(request, "log_in.html")
    given = _given(request, "server", "api_key", "user", "name")
    if not given["server"] and (server := _named_by(given["user"])):
        session_of(request).typed["server"] = server
        text = f"The card names the broker {server}. If it is yours, enter the secrets to log in there."
        return done(request, text, LOG_IN, is_fault=True)
    passphrase = fields(request).get("passphrase", "")
    try:
        await asyncio.to_thread(session_of(request).log_in, **given, passphrase=passphrase)
    except errors.BrokerError as error:
        return fault(request, error, LOG_IN)
    return done(request, "You are logged in on this device.", HOME, in_new_session=True)


async def _register(request: Request) -> Response:
    if request.method == "GET":
        return _form(request, "register.html")
    given = _given(request, "server", "api_key", "name", "reminder")
    secrets = {name: fields(request).get(name, "") for name in ("password", "passphrase")}
    for name, value in secrets.items():
        if fields(request).get(f"{name}_again") != value:
            text = f"The {name} and its repetition differ: type both again."
            return done(request, text, REGISTER, is_fault=True)
    try:
        await asyncio.to_thread(session_of(request).register, **given, **secrets)
    except errors.BrokerError as error:
        return fault(request, error, REGISTER)
    text = (
        "You are registered. Keep password and passphrase safe: the broker's operator cannot reset them; "
        "a device that is logged in can."
    )
    return done(request, text, HOME, in_new_session=True)


async def _lock(request: Request) -> Response:
    session_of(request).lock()
    return go(request, START)


async def _log_out(request: Request) -> Response:
    if request.method == "GET":
        text = "The keys are removed from this device. To log in again you need your passphrase."
        return ask(request, "Log out on this device?", [text], "Log out", HOME)
    await asyncio.to_thread(session_of(request).log_out)
    return done(request, "You are logged out on this device.", START, in_new_session=True)


def _form(request: Request, template: str) -> Response:
    session = session_of(request)
    typed, session.typed = dict.fromkeys(_FIELDS, "") | session.typed, {}
    typed["server"] = typed["server"] or os.environ.get(_SERVER, "")
    # A locked page shows these forms too: they must not contain the API key of the environment.
    return show(request, template, typed=typed, has_key=bool(os.environ.get(_API_KEY)))


def _given(request: Request, *names: str) -> dict[str, str]:
    """Return a form's fields, with the environment's API key if none was typed.

    Fields without a secret are remembered: after an error, the form shows them again.
    """
    given = {name: fields(request).get(name, "").strip() for name in names}
    typed = {name: given.get(name, "") for name in _FIELDS}
    if "@" in given["server"]:  # a URL may have a password before the @
        typed["server"] = ""
    session_of(request).typed = typed
    return given | {"api_key": given["api_key"] or os.environ.get(_API_KEY, "")}


def _named_by(user: str) -> str:
    """Return the broker's address that a contact card names; "" for an id. A card may come from anybody."""
    try:
        return scbroker.ContactCard.parse(user).serverUrl
    except errors.BrokerError:
        return ""


_BOTH: Final = ["GET", "POST"]
routes: Final = [
    Route(START, _unlock, methods=_BOTH),
    Route(LOG_IN, _log_in, methods=_BOTH),
    Route(REGISTER, _register, methods=_BOTH),
    Route(LOG_OUT, _log_out, methods=_BOTH),
    Route(LOCK, _lock, methods=["POST"]),
]
