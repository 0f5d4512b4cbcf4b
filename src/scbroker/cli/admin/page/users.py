"""Show users with their usage; suspend and resume them, and set their quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from scbroker import errors
from scbroker.cli.admin.usage import number_of, size_of
from scbroker.cli.web.site import ask, done, fields, show
from scbroker.server.admin import audit, usage, users
from scbroker.server.admin.stores import Stores

_COUNT: Final = 50
_DIGITS: Final = 9
"""Maximum number of digits of the parameter `after`: how many users the earlier pages show."""
_ACTS: Final = 20
_Quotas = dict[usage.Resource, int | None]


async def _list(request: Request) -> Response:
    stores, query = _stores(request), request.query_params
    order, after = _order(query.get("order", "")), _number(query.get("after", "0"))
    beginning = query.get("id", "").strip()
    found, total, default = await stores.database.read(
        lambda c: (
            users.page(c, stores.settings, order, _COUNT, after, beginning),
            usage.total(c),
            usage.defaults(c),
        ),
        large=True,
    )
    return show(
        request,
        "users.html",
        **found._asdict(),
        total=total,
        default=default,
        chosen=order.value,
        beginning=beginning,
        after=after,
        count=_COUNT,
    )


async def _show(request: Request) -> Response:
    user = await _find(request)
    wanted = audit.Wanted(user=str(user.id))
    acts = await _stores(request).database.read(lambda c: audit.last(c, wanted, _ACTS))
    return show(request, "user.html", user=user, acts=acts)


async def _suspend(request: Request) -> Response:
    user = await _find(request)
    if request.method == "POST":
        reason = fields(request).get("reason", "").strip() or None
        await users.suspend(_stores(request), user.id, reason)
        return done(request, f"User {user.id} is suspended.", _path_of(user))
    return ask(
        request,
        f"Suspend user {user.id}?",
        [
            "The user's sessions end at once, and the broker refuses all requests of the user until you "
            "resume the user. The user's data stays, and other members can read it."
        ],
        "Suspend this user",
        _path_of(user),
        is_dangerous=True,
        field=("reason", "Reason, for operators only"),
    )


async def _resume(request: Request) -> Response:
    user = await _find(request)
    if request.method == "POST":
        await _stores(request).act(lambda c, key: users.resume(c, key, user.id))
        return done(request, f"User {user.id} can log in again.", _path_of(user))
    texts = ["The user can log in again."]
    return ask(request, f"Resume user {user.id}?", texts, "Resume this user", _path_of(user))


async def _set_quota(request: Request) -> Response:
    user = await _find(request)
    if request.method == "GET":
        return show(request, "quota.html", user=user)
    quotas = _quotas(fields(request))
    await _stores(request).act(lambda c, key: usage.change_quotas(c, key, [user.id], quotas))
    return done(request, f"The quota of user {user.id} is set.", _path_of(user))


def _stores(request: Request) -> Stores:
    stores: Stores = request.app.state.stores
    return stores


async def _find(request: Request) -> users.User:
    stores, wanted = _stores(request), request.path_params["id"]
    return await stores.database.read(
        lambda c: users.show(c, stores.settings, users.find(c, wanted))
    )


def _path_of(user: users.User) -> str:
    return f"/users/{user.id}"


def _order(text: str) -> users.Order:
    if text not in ("", *users.Order):
        raise errors.InvalidArgumentError(
            f"The list has no order {text!r:.40}: choose one of {', '.join(users.Order)}."
        )
    return users.Order(text or users.Order.Bytes)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise errors.InvalidArgumentError(f"after must be a number of users, not {text!r:.40}.")
    return int(text)


def _quotas(given: Mapping[str, str]) -> _Quotas:
    """Return the quotas that a form changes. Empty fields change none; `default` removes the user's own."""
    found: _Quotas = {}
    if size := given.get("bytes", "").strip():
        found["bytes"] = None if size.lower() == usage.DEFAULT else size_of(size)
    if number := given.get("containers", "").strip():
        found["containers"] = None if number.lower() == usage.DEFAULT else number_of(number)
    if not found:
        raise errors.InvalidArgumentError("Enter bytes, containers or both.")
    return found


_USER: Final = "/users/{id}"
routes: Final = [
    Route("/users", _list),
    Route(_USER, _show),
    Route(f"{_USER}/suspend", _suspend, methods=["GET", "POST"]),
    Route(f"{_USER}/resume", _resume, methods=["GET", "POST"]),
    Route(f"{_USER}/quota", _set_quota, methods=["GET", "POST"]),
]
