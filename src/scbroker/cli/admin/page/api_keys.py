"""Show API keys, and revoke them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from scbroker import errors
from scbroker.cli.web.site import Done, Question, Shown
from scbroker.server.admin import api_keys
from scbroker.server.admin.stores import Stores

_BACK = "/api-keys"


class ApiKeys:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def list(self, request: Request) -> Shown:
        del request
        return Shown("api_keys.html", {"keys": await self._stores.database.read(api_keys.all_keys)})

    async def ask_to_revoke(self, request: Request) -> Shown:
        wanted = request.path_params["id"]
        keys = await self._stores.database.read(api_keys.all_keys)
        key = next((each for each in keys if each.id == wanted), None)
        if key is None:
            raise errors.NotFoundError(f"No API key has the id {wanted!r:.80}.")
        if not key.is_valid:
            raise errors.InvalidArgumentError(
                f"The API key {key.id} was revoked or has expired already."
            )
        others = sum(each.is_valid for each in keys) - 1
        texts = [
            f"From then on the broker refuses programs with the key {key.name} ({key.id}). A revoked key "
            "cannot be restored: create another one."
        ]
        if not others:
            texts.append(
                "It is the only valid key: without another one the broker refuses all programs."
            )
        return Question(
            heading=f"Revoke the API key {key.name}?",
            texts=texts,
            button="Revoke this key",
            is_dangerous=True,
            back=_BACK,
        ).shown()

    async def revoke(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        wanted = request.path_params["id"]
        key, _ = await self._stores.act(
            lambda c, broker_key: api_keys.revoke(c, broker_key, wanted)
        )
        return Done(f"The API key {key.name} ({key.id}) was revoked.", _BACK)
