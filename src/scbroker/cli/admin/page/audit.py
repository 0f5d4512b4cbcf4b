"""Show the last entries of the audit log."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from scbroker.cli.web.site import Shown
from scbroker.server.admin import audit
from scbroker.server.admin.stores import Stores

_COUNT: Final = 200


class AuditLog:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def show(self, request: Request) -> Shown:
        del request
        wanted = audit.Wanted()
        acts = await self._stores.database.read(lambda c: audit.last(c, wanted, _COUNT))
        return Shown("audit.html", {"acts": acts, "count": _COUNT})
