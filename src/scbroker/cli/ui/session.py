"""Keep the session of the page's user: log in, register, lock the page after a while without use, log out.

A locked page has no provider: its keys and all that was read are dropped. Python cannot overwrite memory, so
somebody who reads the memory of the process may find remains.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import scbroker
from scbroker import errors
from scbroker.cli import profiles
from scbroker.cli.command import Run
from scbroker.cli.commands import account
from scbroker.cli.names import label_of
from scbroker.cli.output import Output
from scbroker.cli.web.access import STATE, refuse
from scbroker.cli.web.site import ask, done, fault, fields, go, is_by_script, is_refresh, show, tell
from scbroker.desk.names import Container as Container
from scbroker.desk.names import containers_of, is_damaged, shortened
from scbroker.desk.people import People, Somebody, contact_in_text

T = TypeVar("T")
HOME: Final = "/containers"
START: Final = "/start"
LOG_IN: Final = "/log-in"
REGISTER: Final = "/register"
LOCK: Final = "/lock"
LOG_OUT: Final = "/log-out"
UPLOAD: Final = "/upload"
_FREE: Final = (START, LOG_IN, REGISTER)
"""The paths that need no session."""
_UNCHECKED: Final = (*_FREE, LOCK, LOG_OUT, STATE, UPLOAD)
"""Paths for which `Gate` does not check the broker: they need none, or the endpoint checks it (UPLOAD)."""
_POLL_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 10.0
_SERVER: Final = "SCBROKER_SERVER_URL"
_API_KEY: Final = "SCBROKER_API_KEY"
"""The environment variables that `scbroker register` and `login` take as well."""


class Session:
    def __init__(
        self,
        profile: str | None,
        lock_seconds: float,
        *,
        session_folder: str | None = None,
        trust_folder: str | None = None,
    ) -> None:
        self._profile_name = profile
        self._lock_seconds = lock_seconds
        self._session_folder, self._trust_folder = session_folder, trust_folder
        self._run: Run | None = None
        self._used = time.monotonic()
        self.at_lock: list[Callable[[], None]] = []
        """Functions that drop what a module has read in this session."""
        self.fault: str = ""
        """Why the kept session could not be resumed."""
        self.log_ends: dict[uuid.UUID | None, int] = {}
        """The id of the last event of each log when the history was last shown: the next view reads on."""
        self.topics: dict[uuid.UUID, str] = {}
        """The names of the containers that were listed last, for views that must not read them."""

    @property
    def is_open(self) -> bool:
        """Whether a user is logged in, and the page is not locked."""
        return self._run is not None

    async def do(self, job: Callable[[Run], T]) -> T:
        """Call `job(self.run)` in a thread and return its result."""
        return await asyncio.to_thread(job, self.run)

    @property
    def run(self) -> Run:
        """The run of the open session. Raises `NotAuthenticatedError` for a locked page."""
        if self._run is None:
            raise errors.NotAuthenticatedError("The page is locked: log in again.")
        return self._run

    def use(self) -> None:
        """Count a piece of a transfer as a use of the page.

        A whole transfer is not one: a paused download, or a broker that stalls, would keep the page open.
        """
        self._used = time.monotonic()

    async def check_broker(self) -> None:
        """Raise `BrokerUnavailableError` if the broker does not answer within seconds.

        The library waits up to a minute for a broker to come back: a person at a page would not, and no
        thread of the page is to wait so long when its command ends.
        """
        provider = await self.do(lambda run: run.session)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await provider.listContainers(headers=False, limit=1)
        except TimeoutError:
            raise errors.BrokerUnavailableError(
                f"{self.run.profile.server_url} has not answered for {_ANSWER_SECONDS:g} seconds: check the "
                "network, and try again. Nothing was changed."
            ) from None

    def holds(self, run: Run) -> bool:
        """Return whether this run belongs to the open session; drop data that another run has read."""
        return self._run is run

    @property
    def profile(self) -> profiles.Profile | None:
        """The saved profile; None before a user is registered or has logged in on this device."""
        return profiles.find(self._profile_name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Resume the kept session, if there is one; lock the page when it is unused, and at the end."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                self.lock_if_unused()

        await asyncio.to_thread(self.resume)
        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            self.lock()

    def resume(self) -> None:
        """Open the kept session of the profile's user, if any; if that fails, `fault` has the reason.

        Raises `BrokerUnavailableError` if the broker does not answer.
        """
        if self.profile is None:
            return
        try:
            with self._opening() as run:
                _ = run.session
        except errors.BrokerUnavailableError:
            raise
        except errors.BrokerError as error:
            self.fault = error.message

    def unlock(self, passphrase: str) -> None:
        """Log in as the profile's user, as `scbroker login` does, and keep the session."""
        with self._opening() as run:
            provider = _checked_provider(run, run.profile)
            account.log_in(provider, run.profile.user_id, passphrase)
            run.use(provider)

    def log_in(self, server: str, api_key: str, user: str, name: str, passphrase: str) -> None:
        """Log in on this device for the first time, and save the profile."""
        with self._opening() as run:
            card, user_id = account.whom(run, user, None, None)
            draft = self._draft(server, api_key, name or (card.name if card else ""))
            provider = _checked_provider(run, draft)
            account.log_in(provider, user_id, passphrase)
            profiles.save(account.with_user(draft, provider))
            run.use(provider)

    def register(
        self, server: str, api_key: str, name: str, password: str, passphrase: str, reminder: str
    ) -> None:
        """Make a new user, as `scbroker register` does, and save the profile."""
        with self._opening() as run:
            draft = self._draft(server, api_key, name)
            provider = _checked_provider(run, draft)
            provider.register(password, passphrase, reminder or None, keep=True).result()
            profiles.save(account.with_user(draft, provider))
            run.use(provider)

    def log_out(self) -> None:
        """End the session at the broker, and remove the kept one from this device."""
        run = self.run
        user_id = run.profile.user_id
        try:
            account.notify(run, run.session, user_id)
        finally:
            run.session.forgetKeptSession(user_id).result()
            self.lock()

    def lock(self) -> None:
        """Drop the keys, and all that was read with them."""
        run, self._run = self._run, None
        self.log_ends, self.topics = {}, {}
        for forget in self.at_lock:
            forget()
        if run is not None:
            run.__exit__()

    def lock_if_unused(self) -> None:
        """Lock the page if nobody has used it for the time that `--lock` gives."""
        is_unused = time.monotonic() - self._used >= self._lock_seconds
        if self.is_open and is_unused:
            self.lock()

    async def lock_if_removed(self) -> None:
        """Lock the page if a command has removed the kept session or the profile, as `scbroker logout` does.

        A person who removes the keys from this device does not expect them in a page that is still open.
        """
        run = self._run
        if run is not None and not await asyncio.to_thread(_is_kept, run) and self.holds(run):
            self.lock()

    def _draft(self, server: str, api_key: str, name: str) -> profiles.Profile:
        if not (server and api_key and name):
            raise errors.InvalidArgumentError(
                "Enter the broker's address, the API key and your name."
            )
        return profiles.Profile(
            name=profiles.new_name(self._profile_name),
            server_url=server,
            api_key=api_key,
            fingerprint=profiles.UNKNOWN,
            card_name=name,
            session_folder=self._session_folder,
            trust_folder=self._trust_folder,
        )

    @contextlib.contextmanager
    def _opening(self) -> Iterator[Run]:
        """Yield a run whose provider the block logs in; open the session with it unless the block raises."""
        run = Run(self._profile_name, Output(as_json=False, quiet=True))
        try:
            yield run
            self.lock()
            self._run, self._used, self.fault = run, time.monotonic(), ""
        except BaseException:
            run.__exit__()
            raise


class Gate:
    """ASGI middleware: lead requests to the log-in while the page is locked, and from there home afterwards.

    While the broker does not answer, requests that need it fail soon.
    """

    def __init__(self, app: ASGIApp, session: Session, root: str) -> None:
        self._app, self._session, self._root = app, session, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session, request = self._session, Request(scope)
        path, is_person = scope["path"].removeprefix(self._root), not is_refresh(request)
        if is_person or path == STATE:
            await session.lock_if_removed()
        to = None
        if path != STATE:
            session.lock_if_unused()
            if path in _FREE:
                to = HOME if session.is_open else None
            elif not session.is_open:
                to = START
            elif is_person:
                session.use()
        if to is None:
            if path not in _UNCHECKED:
                await session.check_broker()
            await self._app(scope, receive, send)
        elif is_by_script(request):
            await refuse(403, "The page is locked: log in again.")(scope, receive, send)
        else:
            await go(request, to)(scope, receive, send)


def session_of(request: Request) -> Session:
    session: Session = request.app.state.session
    return session


def _checked_provider(run: Run, profile: profiles.Profile) -> scbroker.ServerProvider:
    profiles.check_device(profile.session_folder, profile.trust_folder)
    return run.provider(profile)


def _is_kept(run: Run) -> bool:
    """Return whether this device still has the run's profile and session; True if that cannot be read."""
    try:
        profile = run.profile
        saved = profiles.read().profiles.get(profile.name)
        is_saved = saved is not None and saved.user_id == profile.user_id
        return is_saved and profile.user_id in run.session.getKeptSessions().result()
    except errors.BrokerError:
        return True


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
    if not given["server"]:
        with contextlib.suppress(errors.BrokerError):  # an id, which names no broker
            server = scbroker.ContactCard.parse(given["user"]).serverUrl
            text = f"The card names the broker {server}. If it is yours, enter the secrets to log in there."
            return _form(request, "log_in.html", text, server=server)  # anybody can make a card
    passphrase = fields(request).get("passphrase", "")
    try:
        await asyncio.to_thread(session_of(request).log_in, **given, passphrase=passphrase)
    except errors.BrokerError as error:
        return _form(request, "log_in.html", error.message)
    return done(request, "You are logged in on this device.", HOME, in_new_session=True)


async def _register(request: Request) -> Response:
    if request.method == "GET":
        return _form(request, "register.html")
    given = _given(request, "server", "api_key", "name", "reminder")
    secrets = {name: fields(request).get(name, "") for name in ("password", "passphrase")}
    for name, value in secrets.items():
        if fields(request).get(f"{name}_again") != value:
            text = f"The {name} and its repetition differ: type both again."
            return _form(request, "register.html", text)
    try:
        await asyncio.to_thread(session_of(request).register, **given, **secrets)
    except errors.BrokerError as error:
        return _form(request, "register.html", error.message)
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


def _form(request: Request, template: str, refused: str = "", **typed: str) -> Response:
    """Return a form; one that was `refused` has what was typed, but for the secrets."""
    given = fields(request) if request.method == "POST" else {}
    typed = {name: given.get(name, "").strip() for name in ("server", "user", "name")} | typed
    if not typed["server"] or "@" in typed["server"]:  # a URL may have a password before the @
        typed["server"] = os.environ.get(_SERVER, "")
    if refused:
        tell(request, refused)
    # A locked page shows these forms too: they must not contain the API key of the environment.
    return show(request, template, typed=typed, has_key=bool(os.environ.get(_API_KEY)))


def _given(request: Request, *names: str) -> dict[str, str]:
    """Return a form's fields, with the environment's API key if none was typed."""
    given = {name: fields(request).get(name, "").strip() for name in names}
    return given | {"api_key": given["api_key"] or os.environ.get(_API_KEY, "")}


_BOTH: Final = ["GET", "POST"]
routes: Final = [
    Route(START, _unlock, methods=_BOTH),
    Route(LOG_IN, _log_in, methods=_BOTH),
    Route(REGISTER, _register, methods=_BOTH),
    Route(LOG_OUT, _log_out, methods=_BOTH),
    Route(LOCK, _lock, methods=["POST"]),
]


def provider_of(request: Request) -> scbroker.ServerProvider:
    """Return the provider of the open session. Raises `NotAuthenticatedError` for a locked page."""
    return session_of(request).run.session


async def people_of(request: Request) -> People:
    """Read the user's contacts, links and groups as they are now."""
    return await session_of(request).do(lambda run: People(run.session).read())


async def container_of(request: Request) -> Container:
    """Return the container of the request's path, with its header and without its content."""
    return await session_of(request).do(lambda run: find(run, request.path_params["id"]))


def find(run: Run, id: uuid.UUID) -> Container:
    """Return a container with its header, if that can be read. Raises the error of one that cannot."""
    [found] = containers_of(run.session, [id])
    if isinstance(found, errors.BrokerError):
        raise found
    return found


def show_of(request: Request, template: str, container: Container, **values: object) -> Response:
    """Return a view of a container, whose template extends `of_container.html`."""
    common = {"name": shown_name(container), "is_damaged": is_damaged(container)}
    return show(request, template, container=container, **common, **values)


def path_of(id: uuid.UUID, more: str = "") -> str:
    """Return the path of a container's page, or of a view below it."""
    return f"/containers/{id}{more}"


def uuid_of(text: str) -> uuid.UUID:
    """Return the id of a text as the page writes it; raise `InvalidArgumentError` for any other text."""
    with contextlib.suppress(ValueError):
        if str(found := uuid.UUID(text)) == text:
            return found
    raise errors.InvalidArgumentError(f"{text!r:.80} is not an id.")


def of_user(found: Iterable[T], wanted: uuid.UUID, missing: str) -> T:
    """Return the one that has this user id. Raises `NotFoundError` with `missing` if none has."""
    for each in found:
        if getattr(each, "userId", None) == wanted:
            return each
    raise errors.NotFoundError(missing)


async def first_result(batch: Awaitable[list[Any]]) -> Any:
    """Return the only result of a batch; raise it if it is an error."""
    [result] = await batch
    if isinstance(result, errors.BrokerError):
        raise result
    return result


def named(who: Somebody) -> str:
    """Return a user's or group's name for a list that shows the kind in another column."""
    if who.kind == "you":
        return "You"
    return shortened(who.name or ("without a name" if who.kind == "link" else str(who.id)))


def in_text(who: Somebody) -> str:
    """Return the words for a user or a group in a sentence."""
    before = {"link": "the link ", "stranger": "the user ", "group": "the group ",
              "other-group": "the group "}  # fmt: skip
    if who.kind == "you":
        return "you"
    return before[who.kind] + named(who) if who.kind in before else contact_in_text(named(who))


def shown_name(container: Container) -> str:
    """Return a container's name, or its id, short enough for a page."""
    return shortened(label_of(container))
