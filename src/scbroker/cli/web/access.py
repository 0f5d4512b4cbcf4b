"""Admit to a page only the browser of the person who started its command.

The page listens on a loopback address. Others reach it there as well: users of the same machine, and sites in
the person's browser. After the command has ended, another user's server may listen at the address. So the
script of a view has the server prove, by a MAC, that it knows the secret in the view. docs/security.md has
the controls.
"""

import hmac
import secrets
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ENTER: Final = "/enter"
STATIC: Final = "/static/"
STATE: Final = "/state"
_POLICY: Final = "Content-Security-Policy"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    _POLICY: (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: browsers would send the forms of the page with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Access:
    """The secrets that admit one browser to a page while its command runs.

    The code is in the fragment of the printed URL, and is valid once. The browser exchanges it for a cookie
    below a secret path. So a server on another port of the address, to which the browser sends cookies as
    well, never gets this one: it does not know the path.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host: Final = f"{host}:{port}"
        self.origin: Final = f"http://{self.host}"
        self.root: Final = f"/{secrets.token_urlsafe()}"
        """The path below which everything lies that needs the cookie."""
        self.form: Final = secrets.token_urlsafe()
        """The value of the hidden field in each form."""
        self.proof: Final = secrets.token_urlsafe()
        """The secret in each view by which its script knows the command's answers."""
        self._code: str | None = secrets.token_urlsafe()
        # A server on another port can set cookies for all ports, but cannot replace one of a random name.
        self._name = f"scbroker-page-{secrets.token_hex(8)}"
        self._cookie = secrets.token_urlsafe()
        self.url: Final = f"{self.origin}/#{self._code}"

    def __repr__(self) -> str:
        return f"Access({self.origin})"

    def exchange(self, code: str) -> str | None:
        """Return the Set-Cookie header for the right code, which is void from then on, or else None."""
        if self._code is None or not _equal(code, self._code):
            return None
        self._code = None
        return f"{self._name}={self._cookie}; Path={self.root}; HttpOnly; SameSite=Strict"

    def prove(self, nonce: str, state: str) -> str:
        """Return a MAC over state and nonce: it proves to a view's script that this command answered."""
        return hmac.digest(self.proof.encode(), f"{nonce} {state}".encode(), "sha256").hex()

    def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is refused, or None if it is admitted."""
        headers, path = request.headers, str(request.scope["path"])
        # Starlette sends HEAD to GET routes, whose endpoints would treat it as a form.
        if request.method not in ("GET", "POST"):
            return refuse(405, "A page has views and forms alone.")
        # Refuse DNS rebinding: an attacker's name that resolves to the loopback address.
        if headers.getlist("host") != [self.host]:
            return refuse(421, f"This page is at {self.origin} alone.")
        if path != "/" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return refuse(403, "Another site asked for this page.")
        if request.method == "POST" and headers.getlist("origin") != [self.origin]:
            return refuse(403, "Another site sent this form.")
        if path in ("/", ENTER) or path.startswith(STATIC):
            return None
        # One answer for a wrong path and a wrong cookie, so that nobody can search for the path.
        cookie = request.cookies.get(self._name, "")
        is_below = _equal(path[: len(self.root)], self.root)
        if not _equal(cookie, self._cookie) or not is_below:
            return refuse(
                403,
                "This browser is not admitted. Only the browser that used the command's URL first is: "
                "end the command and start it again.",
            )
        return None


def refuse(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


class Guard:
    """An ASGI application that passes on the requests which `Access` admits, and sets security headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # A response with other users' content sets a stricter policy itself.
                policy = headers.get(_POLICY, _HEADERS[_POLICY])
                headers.update({**_HEADERS, _POLICY: policy})
            await send(message)

        refused = self._access.refusal(Request(scope))
        await (refused or self._app)(scope, receive, send_with_headers)
