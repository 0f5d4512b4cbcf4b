"""Keep the documents of a service's users end-to-end encrypted: the program of a user.

    python client.py http://127.0.0.1:8000 put letter.txt
    python client.py http://127.0.0.1:8000 list

The keys are here. Documents go to the broker, encrypted; the service gets requests and tokens.
"""

import asyncio
import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from scbroker import AccessLevel, BrokerError, ContactCard, ContainerAccessLevel, ServerProvider

TYPE, TOKEN_TYPE = "document", "documents-token"
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
FOR_THE_SERVICE = ContainerAccessLevel.ViewAccess | ContainerAccessLevel.ViewType
"""Without Decrypt, the client wraps no key to the service."""


class Documents:
    """A user's documents: the session at the broker, and the account at the service."""

    def __init__(self, provider: ServerProvider, service: aiohttp.ClientSession) -> None:
        self._provider, self._service = provider, service

    async def log_in(self) -> None:
        """Get a token of the service through a container that only this user and the service can open.

        Raises `untrustedError` if the service names another container: it would get a document's content.
        """
        card = await self._provider.getContactCard("a user")
        account = await self._ask("POST", "/accounts", json={"card": card.text})
        made = await self._provider.getContainerMetadata(account["container"])
        if (made.createdBy, made.type) != ((await self._service_card()).userId, TOKEN_TYPE):
            raise BrokerError.untrustedError(
                f"Container {made.id} is not a token of the service: tell the service's operator."
            )
        token = await self._provider.getContainerContent(made.id)
        self._service.headers["Authorization"] = f"Bearer {(token or b'').decode()}"

    async def put(self, file: Path) -> uuid.UUID:
        """Store a file as a document, and show its metadata to the service."""
        access = [
            AccessLevel(await self._provider.getUserId(), OWNER),
            AccessLevel(await self._service_card(), FOR_THE_SERVICE),
        ]
        return (await self._provider.createContainer(file, {"name": file.name}, access, TYPE)).id

    async def list(self) -> Mapping[str, Any]:
        """Return what the service says of each document, by the name that only this program can read."""
        found = await self._ask("GET", "/documents")
        headers = await asyncio.gather(
            *(self._provider.getContainerHeader(each["id"]) for each in found)
        )
        return {
            header.customHeaderObject["name"]: each
            for header, each in zip(headers, found, strict=True)
            if header is not None
        }

    async def _service_card(self) -> ContactCard:
        return ContactCard.parse((await self._ask("GET", "/card"))["card"])

    async def _ask(self, method: str, path: str, **options: Any) -> Any:
        async with self._service.request(method, path, **options) as answer:
            answer.raise_for_status()
            return await answer.json()


def credentials() -> tuple[str, str]:
    """Return user id and passphrase; end the program if any variable that it needs is missing."""
    names = ("SERVER_URL", "API_KEY", "APPLICATION_NAME", "USER_ID", "PASSPHRASE")
    missing = [f"SCBROKER_{each}" for each in names if not os.environ.get(f"SCBROKER_{each}")]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)} in the environment.")
    return os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]


def printable(name: object) -> str:
    """Escape control characters: other users choose names, and a terminal would obey them."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(name))


async def main(address: str, command: str, *files: str) -> None:
    user, passphrase = credentials()
    async with ServerProvider.fromEnvironment() as provider, aiohttp.ClientSession(address) as http:
        await provider.logIn(user, passphrase=passphrase)
        documents = Documents(provider, http)
        await documents.log_in()
        for file in files:
            print(f"{file}: {await documents.put(Path(file))}")
        if command == "list":
            for name, each in (await documents.list()).items():
                print(f"{printable(name)}: version {each['version']}, {each['members']} members")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
