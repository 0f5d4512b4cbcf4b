"""Build the application of a page from its views and acts.

A view answers a GET with a template. An act answers a POST of a form: it changes something, and leads to a
view that says what was done. No view changes anything.
"""

import datetime as dt
import hmac
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qsl

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scbroker import errors
from scbroker.cli.output import SHORT_ID, Size, duration, local, printable
from scbroker.cli.web.access import ENTER, STATIC, Access, Guard, refuse

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_MAX_FORM: Final = 8192
_MAX_FIELDS: Final = 16
_STATUS: Final[tuple[tuple[type[errors.BrokerError], HTTPStatus], ...]] = (
    (errors.InvalidArgumentError, HTTPStatus.BAD_REQUEST),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.BrokerUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class Shown(NamedTuple):
    """What a view shows: a template and its values."""

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
    asks: tuple[str, str] | None = None
    """Name and label of a text field."""
    hidden: Mapping[str, str] = {}
    """Further fields of the form."""

    def shown(self) -> Shown:
        return Shown("question.html", self._asdict())


class Done(NamedTuple):
    """What an act has done, and the path, below the root, of the view that says so."""

    text: str
    path: str


Show = Callable[[Request], Awaitable[Shown]]
Do = Callable[[Request, Mapping[str, str]], Awaitable[Done]]


class View(NamedTuple):
    path: str
    show: Show
    title: str = ""
    """The title in the navigation, which has no view without one."""


class Act(NamedTuple):
    path: str
    do: Do


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

    def application(self, access: Access) -> ASGIApp:
        """Return the application that serves the page to the browser that `access` admits."""
        return _Application(self, access).guarded()


class _Application:
    def __init__(self, site: Site, access: Access) -> None:
        self._site, self._access = site, access
        self._notice = ""
        """What the last act has done; the next view shows it."""
        self._templates = _environment(site.templates)
        self._navigation = [
            (access.root + each.path, each.title) for each in site.views if each.title
        ]
        self._templates.globals.update(
            site=site, root=access.root, form_secret=access.form, static=STATIC
        )

    def guarded(self) -> ASGIApp:
        root = self._access.root
        app = Starlette(
            routes=[
                Route("/", self._entrance, methods=["GET"]),
                Route(ENTER, self._enter, methods=["POST"]),
                Route(STATIC + "{name}", _static, methods=["GET"]),
                *(
                    Route(root + view.path, self._view(view), methods=["GET"])
                    for view in self._site.views
                ),
                *(
                    Route(root + act.path, self._act(act), methods=["POST"])
                    for act in self._site.acts
                ),
            ],
            exception_handlers={errors.BrokerError: self._failed, HTTPException: self._refused},
        )
        app.router.redirect_slashes = False
        return Guard(app, self._access)

    async def _entrance(self, request: Request) -> Response:
        return self._page(request, Shown("entrance.html"))

    async def _enter(self, request: Request) -> Response:
        cookie = self._access.exchange((await _fields(request)).get("code", ""))
        if cookie is None:
            return refuse(403, "This code is wrong or was used before: start the command again.")
        first = self._access.root + self._site.views[0].path
        return RedirectResponse(first, HTTPStatus.SEE_OTHER, {"Set-Cookie": cookie})

    def _view(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            notice = ""
            if not _is_refresh(request):
                notice, self._notice = self._notice, ""
            return self._page(request, await view.show(request), notice=notice)

        return endpoint

    def _act(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            fields = await _fields(request)
            secret = fields.pop("form", "")
            if not hmac.compare_digest(secret.encode(), self._access.form.encode()):
                return refuse(403, "This form was not sent by this page.")
            done = await act.do(request, fields)
            self._notice = done.text
            return RedirectResponse(self._access.root + done.path, HTTPStatus.SEE_OTHER)

        return endpoint

    async def _failed(self, request: Request, error: Exception) -> Response:
        kinds = (status for kind, status in _STATUS if isinstance(error, kind))
        status = next(kinds, HTTPStatus.INTERNAL_SERVER_ERROR)
        text = cast(errors.BrokerError, error).message
        return self._page(request, Shown("error.html", {"text": text}), status)

    async def _refused(self, request: Request, error: Exception) -> Response:
        refused = cast(HTTPException, error)
        shown = Shown("error.html", {"text": refused.detail})
        return self._page(request, shown, HTTPStatus(refused.status_code))

    def _page(
        self, request: Request, shown: Shown, status: HTTPStatus = HTTPStatus.OK, notice: str = ""
    ) -> Response:
        template = self._templates.get_template(shown.template)
        path = request.scope["path"]
        # The links have the secret path, which a browser that is not admitted must not get.
        navigation = self._navigation if path.startswith(self._access.root) else []
        text = template.render(shown.values, path=path, notice=notice, navigation=navigation)
        return HTMLResponse(text, status)


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


async def _static(request: Request) -> Response:
    # Names come from the folder, so that none leads out of it.
    files = {path.name: path for path in (_HERE / "static").iterdir()}
    path = files.get(request.path_params["name"])
    if path is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "This page does not exist.")
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix])


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
