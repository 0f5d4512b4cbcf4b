"""Build the application of a page from its views and acts.

A view answers a GET with a template. An act answers a POST of a form: it changes something, and leads to a
view that says what was done. A call answers a POST of the page's script. No view changes anything.
"""

import datetime as dt
import hmac
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scbroker import errors
from scbroker.cli.output import SHORT_ID, Size, duration, local, printable
from scbroker.cli.web.access import ENTER, STATE, STATIC, Access, Guard, refuse
from scbroker.cli.words import in_words

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FORM_HEADER: Final = "x-page-form"
"""The header in which the page's script sends the secret of forms. Another site cannot set it."""
_MAX_FORM: Final = 8192
_MAX_FIELDS: Final = 16
_FAILED: Final = "This did not work"
_FAULTS: Final[tuple[tuple[type[errors.BrokerError], HTTPStatus, str], ...]] = (
    (errors.InvalidArgumentError, HTTPStatus.BAD_REQUEST, _FAILED),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND, "Not found"),
    (errors.DeletedError, HTTPStatus.GONE, "Deleted"),
    (errors.NotAuthenticatedError, HTTPStatus.FORBIDDEN, "Log in again"),
    (errors.CredentialsError, HTTPStatus.FORBIDDEN, _FAILED),
    (errors.SuspendedError, HTTPStatus.FORBIDDEN, _FAILED),
    (errors.ApiKeyError, HTTPStatus.FORBIDDEN, _FAILED),
    (errors.PermissionDeniedError, HTTPStatus.FORBIDDEN, "Not permitted"),
    (errors.AlreadyExistsError, HTTPStatus.CONFLICT, _FAILED),
    (errors.ConflictError, HTTPStatus.CONFLICT, _FAILED),
    (errors.TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Too large"),
    (errors.QuotaExceededError, HTTPStatus.INSUFFICIENT_STORAGE, "No space is left"),
    (errors.BrokerUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "The broker does not answer"),
    (errors.UntrustedError, HTTPStatus.BAD_GATEWAY, "This cannot be trusted"),
    (errors.BrokerError, HTTPStatus.INTERNAL_SERVER_ERROR, _FAILED),
)
"""The status and the heading of an error's view, by the first class that fits."""
_OF_FORMS: Final = (errors.InvalidArgumentError, errors.AlreadyExistsError, errors.ConflictError)
"""Errors that a form with other values may not have."""


class Shown(NamedTuple):
    """A template and its values, which a view shows."""

    template: str
    values: Mapping[str, object] = {}


class Question(NamedTuple):
    """A view that asks for confirmation: its form is sent to the act with the same path."""

    heading: str
    texts: Sequence[str]
    button: str
    back: str
    """The path, below the root, of the view to return to."""
    is_dangerous: bool = False
    link: tuple[str, str] | None = None
    """Path, below the root, and words of a view that helps to decide."""
    asks: tuple[str, str] | None = None
    """Name and label of a text field."""
    hidden: Mapping[str, str] = {}
    """Further fields of the form."""

    def shown(self) -> Shown:
        return Shown("question.html", self._asdict())


class Done(NamedTuple):
    """The result of an act, and the path, below the root, of the view that shows it."""

    text: str
    path: str
    is_fault: bool = False
    """Whether it did not work, and the text says why."""


_Endpoint = Callable[[Request], Awaitable[Response]]
Show = Callable[[Request], Awaitable[Shown | Response]]
Do = Callable[[Request, Mapping[str, str]], Awaitable[Done]]


class View(NamedTuple):
    path: str
    show: Show
    title: str = ""
    """The title in the navigation, which has no view without one."""


class Act(NamedTuple):
    path: str
    do: Do
    changes_session: bool = False
    """True if it begins or ends the gate's session: another one's result is dropped then."""


class Call(NamedTuple):
    """A POST of the page's script, which sends the secret of forms in a header.

    `answer` reads the body itself, as a stream.
    """

    path: str
    answer: Callable[[Request], Awaitable[Response]]


class Gate(Protocol):
    """Decides which requests of the admitted browser reach a view, an act or a call, as after a log-in."""

    @property
    def is_open(self) -> bool:
        """Whether the navigation is shown."""

    @property
    def at_lock(self) -> MutableSequence[Callable[[], None]]:
        """Functions that drop what is kept of a session, at its beginning and end."""

    async def leads_to(self, path: str, *, is_person: bool) -> str | None:
        """Return the path to go to in place of this one (both below the root); None to admit the request.

        `is_person` is false for what the page's script reads by itself.
        """

    def leads_to_after(self, error: errors.BrokerError) -> str | None:
        """Return the path, below the root, to go to after an error; None to show it where it happened."""


@dataclass
class Site:
    """A page: `templates` is the folder of its templates, and `ends` the time at which the command ends."""

    title: str
    templates: Path
    views: Sequence[View]
    acts: Sequence[Act]
    ends: dt.datetime
    refresh: float = 5.0
    """Seconds after which the live parts of a view are read again."""
    calls: Sequence[Call] = ()
    gate: Gate | None = None
    static: Path | None = None
    """A folder of further styles and scripts, from which each view loads `styles` and `modules`."""
    styles: Sequence[str] = ()
    modules: Sequence[str] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    """Values for all templates."""

    def application(self, access: Access) -> ASGIApp:
        """Return the application that serves the page to the browser that `access` admits."""
        return _Application(self, access).guarded()


class _Application:
    def __init__(self, site: Site, access: Access) -> None:
        self._site, self._access = site, access
        self._done: Done | None = None
        """The result of the last act, which the next view shows; dropped with the session."""
        self._sessions = 0
        if site.gate is not None:
            site.gate.at_lock.append(self._forget)
        self._folders = [_HERE / "static", *([site.static] if site.static else [])]
        self._templates = _environment(site.templates)
        self._navigation = [
            (access.root + each.path, each.title) for each in site.views if each.title
        ]
        self._templates.globals.update(
            site.values, site=site, root=access.root, form_secret=access.form, static=STATIC
        )

    def guarded(self) -> ASGIApp:
        app = Starlette(
            routes=[
                Route("/", self._entrance, methods=["GET"]),
                Route(ENTER, self._enter, methods=["POST"]),
                Route(STATIC + "{name}", self._static, methods=["GET"]),
                self._route("GET", STATE, self._state),
                *(self._route("GET", view.path, self._view(view)) for view in self._site.views),
                *(self._route("POST", act.path, self._act(act)) for act in self._site.acts),
                *(
                    self._route("POST", call.path, self._call(call), is_call=True)
                    for call in self._site.calls
                ),
            ],
            exception_handlers={errors.BrokerError: self._failed, HTTPException: self._refused},
        )
        app.router.redirect_slashes = False
        return Guard(app, self._access)

    def _route(
        self, method: str, path: str, endpoint: _Endpoint, *, is_call: bool = False
    ) -> Route:
        """Return a route below the root; a request that the gate does not admit is led elsewhere."""

        async def gated(request: Request) -> Response:
            gate, path = self._site.gate, request.scope["path"].removeprefix(self._access.root)
            is_person = not _is_refresh(request)
            to = None if gate is None else await gate.leads_to(path, is_person=is_person)
            if to is not None and is_call:
                return refuse(403, "The page is locked: log in again.")
            if to is not None:
                return RedirectResponse(self._access.root + to, HTTPStatus.SEE_OTHER)
            return await endpoint(request)

        return Route(self._access.root + path, gated, methods=[method])

    async def _entrance(self, request: Request) -> Response:
        return self._page(request, Shown("entrance.html"))

    async def _enter(self, request: Request) -> Response:
        cookie = self._access.exchange((await _fields(request)).get("code", ""))
        if cookie is None:
            return refuse(403, "This code is wrong or was used before: start the command again.")
        first = self._access.root + self._site.views[0].path
        return RedirectResponse(first, HTTPStatus.SEE_OTHER, {"Set-Cookie": cookie})

    async def _state(self, request: Request) -> Response:
        """Answer whether the page is open, and prove it to the script of a view."""
        state = "open" if self._site.gate is None or self._site.gate.is_open else "locked"
        proof = self._access.prove(request.query_params.get("nonce", ""), state)
        return PlainTextResponse(state, headers={"X-Page-Proof": proof})

    def _view(self, view: View) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            shown = await view.show(request)
            if isinstance(shown, Response):
                return shown
            done = None
            if not _is_refresh(request):
                done, self._done = self._done, None
            return self._page(request, shown, done=done)

        return endpoint

    def _act(self, act: Act) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            fields = await _fields(request)
            if not self._is_own(fields.pop("form", "")):
                return refuse(403, "This form was not sent by this page.")
            before = self._sessions
            done = await act.do(request, fields)
            if act.changes_session or self._sessions == before:
                self._done = done
            return RedirectResponse(self._access.root + done.path, HTTPStatus.SEE_OTHER)

        return endpoint

    def _forget(self) -> None:
        self._done = None
        self._sessions += 1

    def _call(self, call: Call) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            if not self._is_own(request.headers.get(_FORM_HEADER, "")):
                return refuse(403, "This was not sent by this page.")
            try:
                return await call.answer(request)
            except errors.BrokerError as error:
                return refuse(_fault_of(error)[0], in_words(error.message))

        return endpoint

    def _is_own(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode(), self._access.form.encode())

    async def _failed(self, request: Request, error: Exception) -> Response:
        failed, gate = cast(errors.BrokerError, error), self._site.gate
        text = in_words(failed.message)
        to = None if gate is None else gate.leads_to_after(failed)
        if to is not None:
            self._done = Done(text, to, is_fault=True)
            return RedirectResponse(self._access.root + to, HTTPStatus.SEE_OTHER)
        status, heading = _fault_of(failed)
        # The path of an act is that of the view with its form.
        is_form = request.method == "POST" and isinstance(failed, _OF_FORMS)
        again = _address(request) if is_form or failed.retryable else None
        shown = Shown("error.html", {"text": text, "heading": heading, "again": again})
        return self._page(request, shown, status)

    async def _refused(self, request: Request, error: Exception) -> Response:
        refused = cast(HTTPException, error)
        status = HTTPStatus(refused.status_code)
        is_missing = status == HTTPStatus.NOT_FOUND
        text = "This page does not exist." if is_missing else refused.detail
        heading = "Not found" if is_missing else _FAILED
        shown = Shown("error.html", {"text": text, "heading": heading, "again": None})
        return self._page(request, shown, status)

    def _page(
        self,
        request: Request,
        shown: Shown,
        status: HTTPStatus = HTTPStatus.OK,
        done: Done | None = None,
    ) -> Response:
        template = self._templates.get_template(shown.template)
        path = request.scope["path"]
        # The links have the secret path: a browser that is not admitted must get neither it nor the proof.
        is_inside = path.startswith(self._access.root)
        gate = self._site.gate
        navigation = self._navigation if is_inside and (gate is None or gate.is_open) else []
        proof = self._access.proof if is_inside else None
        text = template.render(
            shown.values, path=path, done=done, navigation=navigation, proof=proof
        )
        return HTMLResponse(text, status)

    async def _static(self, request: Request) -> Response:
        # Names come from the folders, so that none leads out of them.
        files = {path.name: path for folder in self._folders for path in folder.iterdir()}
        path = files.get(request.path_params["name"])
        if path is None or path.suffix not in _TYPES:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix])


def _fault_of(error: errors.BrokerError) -> tuple[HTTPStatus, str]:
    """Return the status and the heading of an error's view."""
    return next((status, heading) for kind, status, heading in _FAULTS if isinstance(error, kind))


def _address(request: Request) -> str:
    path, query = request.scope["path"], request.url.query
    return f"{path}?{query}" if query else path


def _is_refresh(request: Request) -> bool:
    """Return whether the script of the page reads a view again, as opposed to a person who opens it."""
    return request.headers.get("sec-fetch-mode", "navigate") != "navigate"


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise `HTTPException` if it is too large or not a form."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The form cannot be decoded.") from None
    return dict(pairs)


def _environment(folder: Path) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _HERE / "templates"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        breakable=_breakable,
        duration=duration,
        short=_short,
        number=_number,
        printable=printable,
        size=_size,
        time=_time,
    )
    return made


def _breakable(text: str) -> Markup:
    """Return a path in which a line may break after each slash."""
    return Markup("/<wbr>").join(text.split("/"))


def _short(text: str) -> Markup:
    """Return a text; of an id only the first digits, with the whole id as its title."""
    try:
        short = uuid.UUID(text).hex[:SHORT_ID]
    except ValueError:
        return Markup.escape(printable(text))
    return Markup('<span class="id" title="{}">{}</span>').format(text, short)


def _size(size: int | None) -> str:
    return "unlimited" if size is None else Size(size).shown()


def _time(time: dt.datetime | None) -> str:
    return "never" if time is None else f"{local(time):%Y-%m-%d %H:%M}"


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"
