"""Views and acts of the session: log in, register, lock, log out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import HOME, RESUME, START, Session
from scbroker.cli.web.site import Act, Done, Question, Shown, View
from scbroker.cli.words import in_words

_FIELDS: Final = ("server", "user", "name")
_SERVER: Final = "SCBROKER_SERVER_URL"
_API_KEY: Final = "SCBROKER_API_KEY"
"""The environment variables that `scbroker register` and `login` take as well."""


def start(session: Session) -> Part:
    """Return the views and acts that open and end the session."""
    views = _Start(session)
    return Part(
        views=[
            View(START, views.show),
            View("/log-in", views.show_log_in),
            View("/register", views.show_register),
            View("/log-out", views.ask_to_log_out),
        ],
        acts=[
            Act(START, views.unlock, changes_session=True),
            Act(RESUME, views.resume, changes_session=True),
            Act("/log-in", views.log_in, changes_session=True),
            Act("/register", views.register, changes_session=True),
            Act("/log-out", views.log_out, changes_session=True),
            Act("/lock", views.lock, changes_session=True),
        ],
    )


class _Start:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._typed: dict[str, str] = {}
        """Fields without a secret of a form that was refused: the next form shows them."""
        session.at_lock.append(self._forget)

    def _forget(self) -> None:
        self._typed = {}

    def _keep(self, given: dict[str, str]) -> dict[str, str]:
        self._typed = {name: given.get(name, "") for name in _FIELDS}
        if "@" in given["server"]:  # a password may be before it
            self._typed["server"] = ""
        return given

    async def show(self, request: Request) -> Shown:
        """Ask the profile's user for the passphrase; without a profile, ask for everything."""
        profile = self._session.profile
        if profile is None:
            return await self.show_register(request)
        return Shown("start.html", {"profile": profile})

    async def show_log_in(self, request: Request) -> Shown:
        del request
        return self._form("log_in.html")

    async def show_register(self, request: Request) -> Shown:
        del request
        return self._form("register.html")

    def _form(self, template: str) -> Shown:
        typed = dict.fromkeys(_FIELDS, "") | self._typed
        typed["server"] = typed["server"] or os.environ.get(_SERVER, "")
        self._forget()
        # A locked page shows these forms too, so the exported key is used but never in them.
        return Shown(template, {"typed": typed, "has_key": bool(os.environ.get(_API_KEY))})

    async def unlock(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request
        try:
            await asyncio.to_thread(self._session.unlock, fields.get("passphrase", ""))
        except errors.BrokerError as error:
            return Done(in_words(error.message), START, is_fault=True)
        return Done("", HOME)

    async def resume(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request, fields
        await asyncio.to_thread(self._session.resume_again)
        return Done("", START)  # which leads home if it has worked

    async def log_in(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request
        given = self._keep(_texts(fields, "server", "api_key", "user", "name"))
        if not given["server"] and (named := _named_by(given["user"])):
            self._typed["server"] = named
            text = f"The card names the broker {named}. If it is yours, enter the secrets to log in there."
            return Done(text, "/log-in", is_fault=True)
        try:
            await asyncio.to_thread(
                self._session.log_in, **_with_key(given), passphrase=fields.get("passphrase", "")
            )
        except errors.BrokerError as error:
            return Done(in_words(error.message), "/log-in", is_fault=True)
        return Done("You are logged in on this device.", HOME)

    async def register(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request
        given = self._keep(_texts(fields, "server", "api_key", "name", "reminder"))
        secrets = {name: fields.get(name, "") for name in ("password", "passphrase")}
        for name, value in secrets.items():
            if fields.get(f"{name}_again") != value:
                text = f"The {name} and its repetition differ: type both again."
                return Done(text, "/register", is_fault=True)
        try:
            await asyncio.to_thread(self._session.register, **_with_key(given), **secrets)
        except errors.BrokerError as error:
            return Done(in_words(error.message), "/register", is_fault=True)
        return Done(
            "You are registered. Keep password and passphrase safe: nobody can reset them.", HOME
        )

    async def lock(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request, fields
        self._session.lock()
        return Done("", START)

    async def ask_to_log_out(self, request: Request) -> Shown:
        del request
        return Question(
            heading="Log out on this device?",
            texts=[
                "The keys are removed from this device. To log in again you need your passphrase."
            ],
            button="Log out",
            back=HOME,
        ).shown()

    async def log_out(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request, fields
        await asyncio.to_thread(self._session.log_out)
        return Done("You are logged out on this device.", START)


def _named_by(user: str) -> str:
    """Return the broker's address that a contact card names; "" for an id. A card may come from anybody."""
    try:
        return scbroker.ContactCard.parse(user).serverUrl
    except errors.BrokerError:
        return ""


def _with_key(given: dict[str, str]) -> dict[str, str]:
    """Return the fields with the exported API key, if none was typed."""
    return given if given["api_key"] else {**given, "api_key": os.environ.get(_API_KEY, "")}


def _texts(fields: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: fields.get(name, "").strip() for name in names}
