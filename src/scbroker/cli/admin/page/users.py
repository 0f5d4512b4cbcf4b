"""Show users with their usage; suspend and resume them, and set their quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from scbroker import errors
from scbroker.cli.admin.usage import number_of, size_of
from scbroker.cli.output import Size
from scbroker.cli.web.site import Done, Question, Shown
from scbroker.server.admin import audit, usage, users
from scbroker.server.admin.stores import Stores

_COUNT: Final = 50
_DIGITS: Final = 9
"""Most digits of `after`, the number of users on the pages before."""
_ACTS: Final = 20
_Quotas = dict[usage.Resource, int | None]


class Users:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def list(self, request: Request) -> Shown:
        query = request.query_params
        order, after = _order(query.get("order", "")), _number(query.get("after", "0"))
        beginning = query.get("id", "").strip()
        settings = self._stores.settings
        found, total, default = await self._stores.database.read(
            lambda c: (
                users.page(c, settings, order, _COUNT, after, beginning),
                usage.total(c),
                usage.defaults(c),
            ),
            large=True,
        )
        values = found._asdict() | {
            "total": total,
            "default": default,
            "chosen": order.value,
            "beginning": beginning,
            "after": after,
            "count": _COUNT,
        }
        return Shown("users.html", values)

    async def show(self, request: Request) -> Shown:
        user = await self._find(request)
        wanted = audit.Wanted(user=str(user.id))
        acts = await self._stores.database.read(lambda c: audit.last(c, wanted, _ACTS))
        return Shown("user.html", {"user": user, "acts": acts})

    async def ask_to_suspend(self, request: Request) -> Shown:
        user = await self._find(request)
        return Question(
            heading=f"Suspend user {user.id}?",
            texts=[
                "The user's sessions end at once, and the broker refuses all requests of the user until you "
                "resume the user. The user's data stays, and other members can read it."
            ],
            asks=("reason", "Reason, for operators only"),
            button="Suspend this user",
            is_dangerous=True,
            back=_path_of(user),
        ).shown()

    async def suspend(self, request: Request, fields: Mapping[str, str]) -> Done:
        user = await self._find(request)
        reason = fields.get("reason", "").strip() or None
        await users.suspend(self._stores, user.id, reason)
        return Done(f"User {user.id} is suspended.", _path_of(user))

    async def ask_to_resume(self, request: Request) -> Shown:
        user = await self._find(request)
        return Question(
            heading=f"Resume user {user.id}?",
            texts=["The user can log in again."],
            button="Resume this user",
            back=_path_of(user),
        ).shown()

    async def resume(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        user = await self._find(request)
        await self._stores.act(lambda c, key: users.resume(c, key, user.id))
        return Done(f"User {user.id} can log in again.", _path_of(user))

    async def ask_for_quota(self, request: Request) -> Shown:
        user = await self._find(request)
        return Shown("quota.html", {"user": user})

    async def confirm_quota(self, request: Request) -> Shown:
        user = await self._find(request)
        given = dict(request.query_params)
        texts = []
        for resource, wanted in _quotas(given).items():
            before = _shown(resource, getattr(user, f"quota_{resource}"))
            becomes = "the default" if wanted is None else _shown(resource, wanted)
            now = _shown(resource, getattr(user, resource))
            verb = "are stored" if resource == "bytes" else "exist"
            texts.append(f"{resource.capitalize()}: {before} becomes {becomes}. {now} {verb}.")
        texts.append(
            "If a quota is below what is stored, nothing is deleted: the broker refuses requests that would "
            "store more."
        )
        return Question(
            heading=f"Set the quota of user {user.id}?",
            texts=texts,
            hidden={name: given.get(name, "") for name in ("bytes", "containers")},
            button="Set the quota",
            back=_path_of(user),
        ).shown()

    async def set_quota(self, request: Request, fields: Mapping[str, str]) -> Done:
        user = await self._find(request)
        quotas = _quotas(fields)
        await self._stores.act(lambda c, key: usage.change_quotas(c, key, [user.id], quotas))
        return Done(f"The quota of user {user.id} is set.", _path_of(user))

    async def _find(self, request: Request) -> users.User:
        wanted, settings = request.path_params["id"], self._stores.settings
        return await self._stores.database.read(
            lambda c: users.show(c, settings, users.find(c, wanted))
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
    """Return the quotas that a form sets. An empty field sets none; `default` removes the user's own."""
    found: _Quotas = {}
    if size := given.get("bytes", "").strip():
        found["bytes"] = None if size.lower() == usage.DEFAULT else size_of(size)
    if number := given.get("containers", "").strip():
        found["containers"] = None if number.lower() == usage.DEFAULT else number_of(number)
    if not found:
        raise errors.InvalidArgumentError("Enter bytes, containers or both.")
    return found


def _shown(resource: usage.Resource, value: int | None) -> str:
    if value is None or value == usage.UNLIMITED:
        return "unlimited"
    return Size(value).shown() if resource == "bytes" else f"{value:,}"
