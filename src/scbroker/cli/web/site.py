"""Answer the requests of a page with templates.

A view answers a GET and changes nothing. A form is posted to the path of its view: it changes something, and
redirects to a view of the result.
"""

import datetime as dt
import hmac
import mimetypes
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import UnionType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import jinja2
import segno
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp, Receive, Scope, Send

from scbroker import errors
from scbroker.cli.output import SHORT_ID, Size, local, printable
from scbroker.cli.web.access import ENTER, STATE, STATIC, Access, Guard, refuse

_OWN: Final = "scbroker.cli.web"
"""The package with the folders of common templates and static files."""
_FORM_HEADER: Final = "x-page-form"
"""The header in which the page's script sends the CSRF secret of forms. Another site cannot set it."""
_MAX_FORM: Final = 8192
_MAX_FIELDS: Final = 16
_FAILED: Final = "This did not work"
_FAULTS: Final[tuple[tuple[type[errors.BrokerError] | UnionType, int, str], ...]] = (
    (errors.InvalidArgumentError, 400, _FAILED),
    (errors.NotFoundError, 404, "Not found"),
    (errors.DeletedError, 410, "Deleted"),
    (errors.NotAuthenticatedError, 403, "Log in again"),
    (errors.CredentialsError | errors.SuspendedError | errors.ApiKeyError, 403, _FAILED),
    (errors.PermissionDeniedError, 403, "Not permitted"),
    (errors.AlreadyExistsError | errors.ConflictError, 409, _FAILED),
    (errors.TooLargeError, 413, "Too large"),
    (errors.QuotaExceededError, 507, "No space is left"),
    (errors.BrokerUnavailableError, 503, "The broker does not answer"),
    (errors.UntrustedError, 502, "This cannot be trusted"),
    (errors.BrokerError, 500, _FAILED),
)
"""The status and the heading of an error's view, by the first class that fits."""
_OF_FORMS: Final = (errors.InvalidArgumentError, errors.AlreadyExistsError, errors.ConflictError)
"""Errors that other values in the form may avoid: their view leads back to the form."""
Handler = Callable[[Request, Any], Awaitable[Response]]


class Done(NamedTuple):
    """The result of a form."""

    text: str
    is_fault: bool
    """True if the action failed; the text says why."""


class Site:
    """The state that a page's endpoints share. `package` has the folders of templates and static files."""

    def __init__(
        self,
        access: Access,
        package: str,
        navigation: Mapping[str, str],
        ends: dt.datetime,
        *,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self.title: Final = "scbroker"
        self.access: Final = access
        self.ends: Final = ends
        """The time at which the command ends."""
        self.styles: Sequence[str] = ()
        self.modules: Sequence[str] = ()
        """Further styles and scripts of every view, in the package's folder `static`."""
        self.sessions: int = 0
        """The number of sessions that have begun or ended: the result of another one's form is dropped."""
        self.navigation: Mapping[str, str] = navigation
        self.is_open: Callable[[], bool] = is_open
        self._package = package
        self.done: Done | None = None
        self.templates: Final = Jinja2Templates(env=_environment(package))
        self.templates.env.globals.update(
            site=self, root=access.root, form_secret=access.form, static=STATIC
        )

    def application(
        self,
        routes: Sequence[BaseRoute],
        middleware: Sequence[Middleware] = (),
        handlers: Mapping[type[Exception], Handler] = {},
        **state: object,
    ) -> ASGIApp:
        """Return the application that serves these routes to the browser that `access` admits.

        `state` is what endpoints find as `request.app.state`.
        """
        mimetypes.add_type("text/javascript", ".js")  # Windows may map it to another type
        packages = [_OWN, *([self._package] if self.styles else [])]
        found: dict[Any, Any] = {errors.BrokerError: _failed, HTTPException: self._refused}
        app = Starlette(
            routes=[
                Route("/", self._entrance),
                Route(ENTER, self._enter, methods=["POST"]),
                Mount(STATIC, StaticFiles(packages=[(each, "static") for each in packages])),
                Mount(
                    self.access.root,
                    routes=[Route(STATE, self._state), *routes],
                    middleware=[*middleware, Middleware(_Forms, site=self)],
                ),
            ],
            exception_handlers=found | dict(handlers),
        )
        app.state = State({"site": self, **state})
        return Guard(app, self.access)

    def keep(self, done: Done, session: int) -> None:
        """Keep the result of a form for the next view, unless its session has ended meanwhile."""
        if session == self.sessions:
            self.done = done

    def forget(self) -> None:
        """Drop the result of the last form, at the beginning and the end of a session."""
        self.done = None
        self.sessions += 1

    async def _entrance(self, request: Request) -> Response:
        return show(request, "entrance.html")

    async def _enter(self, request: Request) -> Response:
        cookie = self.access.exchange((await _read(request)).get("code", ""))
        if cookie is None:
            return refuse(403, "This code is wrong or was used before: start the command again.")
        first = self.access.root + next(iter(self.navigation))
        return RedirectResponse(first, HTTPStatus.SEE_OTHER, {"Set-Cookie": cookie})

    async def _state(self, request: Request) -> Response:
        """Answer whether the page is open or locked, with a proof for the view's script."""
        state = "open" if self.is_open() else "locked"
        proof = self.access.prove(request.query_params.get("nonce", ""), state)
        return PlainTextResponse(state, headers={"X-Page-Proof": proof})

    async def _refused(self, request: Request, error: HTTPException) -> Response:
        text, heading = error.detail, _FAILED
        if error.status_code == HTTPStatus.NOT_FOUND:
            text, heading = "This page does not exist.", "Not found"
        values = {"text": text, "heading": heading, "again": None}
        return show(request, "error.html", error.status_code, **values)


class _Forms:
    """ASGI middleware against CSRF: answer 403 to a POST without the page's secret.

    A form has the secret in a field, so its body is parsed here. The page's script sends the secret in a
    header: then the endpoint reads the body itself.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            request.state.session, request.state.fields = self._site.sessions, {}
            secret = request.headers.get(_FORM_HEADER)
            if secret is None:
                request.state.fields = await _read(request)
                secret = request.state.fields.pop("form", "")
            if not hmac.compare_digest(secret.encode(), self._site.access.form.encode()):
                await refuse(403, "This was not sent by this page.")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def show(request: Request, template: str, status: int = 200, /, **values: object) -> Response:
    """Return a view; one that a person opens has the result of the last form."""
    site, path = _site_of(request), request.scope["path"]
    # The links have the secret path: a browser that is not admitted must get neither it nor the proof.
    is_inside = path.startswith(site.access.root)
    done = None
    if is_inside and status == HTTPStatus.OK and not is_refresh(request):
        done, site.done = site.done, None
    navigation = site.navigation if is_inside and site.is_open() else {}
    common = {
        "path": path,
        "done": done,
        "navigation": [(site.access.root + to, title) for to, title in navigation.items()],
        "proof": site.access.proof if is_inside else None,
    }
    return site.templates.TemplateResponse(request, template, values | common, status)


def ask(
    request: Request, heading: str, texts: Sequence[str], button: str, back: str, **more: object
) -> Response:
    """Return a view that asks for confirmation: its form is sent to the view's path.

    `back` is the path, below the root, of the view to return to. `more` may have `is_dangerous`; `link`, the
    path and the words of a view that helps to decide; `field`, the name and the label of a text field; and
    `hidden` fields.
    """
    asked = {"heading": heading, "texts": texts, "button": button, "back": back, **more}
    return show(request, "question.html", **asked)


def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form, without the secret."""
    found: dict[str, str] = request.state.fields
    return found


def done(
    request: Request, text: str, path: str, *, is_fault: bool = False, in_new_session: bool = False
) -> Response:
    """Redirect to the view at a path below the root, which shows the result of a form."""
    site = _site_of(request)
    site.keep(Done(text, is_fault), site.sessions if in_new_session else request.state.session)
    return go(request, path)


def go(request: Request, path: str) -> Response:
    """Redirect to the view at a path below the root."""
    return RedirectResponse(_site_of(request).access.root + path, HTTPStatus.SEE_OTHER)


def fault(request: Request, error: errors.BrokerError, path: str) -> Response:
    """Redirect to the view at a path below the root, which shows an error."""
    if is_by_script(request):
        return refuse(_fault_of(error)[0], error.message)
    tell(request, error.message)
    return go(request, path)


def tell(request: Request, text: str) -> None:
    """Have the next view say that something failed."""
    site = _site_of(request)
    site.keep(Done(text, is_fault=True), site.sessions)


def is_by_script(request: Request) -> bool:
    """Return whether the page's script sent this in place of a form: it cannot follow a redirect."""
    return _FORM_HEADER in request.headers


def is_refresh(request: Request) -> bool:
    """Return whether the script of the page reads a view again, as opposed to a person who opens it."""
    return request.headers.get("sec-fetch-mode", "navigate") != "navigate"


async def _failed(request: Request, error: errors.BrokerError) -> Response:
    status, heading = _fault_of(error)
    if is_by_script(request):
        return refuse(status, error.message)
    path, query = request.scope["path"], request.url.query
    # A form is posted to the path of its view, so that a GET of it shows the form again.
    can_repeat = (request.method == "POST" and isinstance(error, _OF_FORMS)) or error.retryable
    again = (f"{path}?{query}" if query else path) if can_repeat else None
    return show(request, "error.html", status, text=error.message, heading=heading, again=again)


def _site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def _fault_of(error: errors.BrokerError) -> tuple[int, str]:
    """Return the status and the heading of an error's view."""
    return next((status, heading) for kind, status, heading in _FAULTS if isinstance(error, kind))


async def _read(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise `HTTPException` if it is too large or not a form.

    `Request.form` needs one more package, and reads bodies of any size.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
    try:
        text = body.decode("ascii")
        return dict(
            parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        )
    except ValueError:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The form cannot be decoded.") from None


def _environment(package: str) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader(_OWN)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        breakable=lambda text: Markup("/<wbr>").join(
            text.split("/")
        ),  # allow a line break after a slash
        short=_short,
        number=lambda number: "-" if number is None else f"{number:,.0f}",
        printable=printable,
        size=lambda size: "unlimited" if size is None else Size(size).shown(),
        time=lambda time: "never" if time is None else f"{local(time):%Y-%m-%d %H:%M}",
    )
    return made


def _short(text: str) -> Markup:
    """Return a text; of an id only the first digits, with the whole id as its title."""
    try:
        short = uuid.UUID(text).hex[:SHORT_ID]
    except ValueError:
        return Markup.escape(printable(text))
    return Markup('<span class="id" title="{}">{}</span>').format(text, short)


def qr_code(text: str, label: str) -> Markup:
    """Return the QR code of a text, dark on light in every theme; the label is for screen readers."""
    drawn = segno.make_qr(text, error="m").svg_inline(
        scale=1, border=4, dark="#000", light="#fff", svgclass="qr", lineclass=None, omitsize=True
    )
    # No escaping: the drawing has numbers and colours only, and the text in none of its attributes.
    return Markup('<svg role="img" aria-label="{}" ').format(label) + Markup(  # noqa: S704
        drawn.removeprefix("<svg ")
    )
