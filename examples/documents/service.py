"""Keep the documents of a service's users end-to-end encrypted: the FastAPI service.

    uvicorn examples.documents.service:app

The users' keys are in their own programs (client.py), and never here. A user gives the service permissions
that show the metadata of a document, without Decrypt. So the service knows the documents of each user, their
times and members, and could count, bill or expire them. It cannot read them.
"""

import datetime as dt
import hashlib
import os
import secrets
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from scbroker import AccessLevel, BrokerError, ContactCard, Container, ServerProvider

TYPE = "document"


def credentials() -> tuple[str, str]:
    """Return user id and passphrase; end the program if any variable that it needs is missing."""
    names = ("SERVER_URL", "API_KEY", "APPLICATION_NAME", "USER_ID", "PASSPHRASE")
    missing = [f"SCBROKER_{each}" for each in names if not os.environ.get(f"SCBROKER_{each}")]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)} in the environment.")
    return os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Log in as the service's own user, which is a user of the broker like any other."""
    user, passphrase = credentials()
    async with ServerProvider.fromEnvironment() as provider:
        await provider.logIn(user, passphrase=passphrase)
        app.state.provider = provider
        app.state.owners = {}  # a database, in a real service
        yield


app = FastAPI(title="Documents", lifespan=lifespan)


def provider_of(request: Request) -> ServerProvider:
    return cast(ServerProvider, request.app.state.provider)


def owners_of(request: Request) -> dict[bytes, uuid.UUID]:
    return cast(dict[bytes, uuid.UUID], request.app.state.owners)


Provider = Annotated[ServerProvider, Depends(provider_of)]
Owners = Annotated[dict[bytes, uuid.UUID], Depends(owners_of)]
Bearer = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


def caller(bearer: Bearer, owners: Owners) -> uuid.UUID:
    owner = owners.get(hashlib.sha256(bearer.credentials.encode()).digest())
    if owner is None:
        raise HTTPException(401, "Unknown token: post your contact card to /accounts.")
    return owner


class Card(BaseModel):
    card: str


class Token(BaseModel):
    """Where the token is: in a container that only the holder of the card's keys can open."""

    container: uuid.UUID


class Document(BaseModel):
    """What the service can tell of a document, by the signed records that it verified."""

    id: uuid.UUID
    version: int
    modified_at: dt.datetime
    members: int


@app.get("/card")
async def service_card(provider: Provider) -> Card:
    """Return the service's contact card; users give it ViewAccess and ViewType."""
    return Card(card=(await provider.getContactCard("Documents")).text)


@app.post("/accounts", status_code=201)
async def create_account(card: Card, provider: Provider, owners: Owners) -> Token:
    """Make a token for the user of a contact card, and send it through the broker, encrypted to them.

    Cards are public. A caller with somebody else's card gets an id, and cannot open the container.
    """
    try:
        user = ContactCard.parse(card.card)
        access = [
            AccessLevel(await provider.getUserId(), "DefaultOwnerPermissions"),
            AccessLevel(user),
        ]
        token = secrets.token_urlsafe(32)
        made = await provider.createContainer(token.encode(), access, "documents-token")
    except (BrokerError.invalidArgumentError, BrokerError.notFoundError) as error:
        raise HTTPException(422, str(error)) from None
    owners[hashlib.sha256(token.encode()).digest()] = user.userId
    return Token(container=made.id)


@app.get("/documents")
async def documents(
    provider: Provider, owner: Annotated[uuid.UUID, Depends(caller)]
) -> list[Document]:
    """List the documents that the caller created and shows to the service."""
    return [
        Document(
            id=each.id,
            version=each.version,
            modified_at=each.modifiedAt,
            members=len(each.access or ()),
        )
        async for each in provider.iterContainers(TYPE, headers=False)
        if isinstance(each, Container) and each.createdBy == owner
    ]
