"""One complete exchange in bytes, between two users and a broker: docs/spec/overview.md."""

import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from scbroker import AccessLevel, ContainerAccessLevel, KeyRing
from tests.hostile_broker.broker import HostileBroker
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.waiting import PATIENCE
from tests.vectors.cast import cast
from tests.vectors.files import Vector, store, valid

HEADERS: Final = ("authorization", "content-type", "retry-after")
READER: Final = (
    ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt | ContainerAccessLevel.ViewAccess
)
"""Without ViewType, which the exchange gives later."""
WRITER: Final = READER | ContainerAccessLevel.Upload | ContainerAccessLevel.ViewType
SECRETS: Final = {
    "alice": ("the Password of alice 1", "a Passphrase that alice knows, 1"),
    "bob": ("the Password of bob 2", "a Passphrase that bob knows, 2"),
}


def make() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        HostileBroker(Path(folder), BrokerProcess) as layer,
        layer.scene(),
    ):
        vectors, given = _Play(layer).run()
    store(
        "exchange",
        "One complete exchange: every request of two clients and every answer of a broker, in the "
        "order in which they were sent (docs/spec/overview.md). Keys are those of people.json.",
        vectors,
        **given,
    )


class _Play:
    """Two clients, and what the layer in front of their broker heard in each act."""

    def __init__(self, layer: HostileBroker) -> None:
        self._layer = layer
        self._vectors: list[Vector] = []
        self._clients = {name: layer.device() for name in SECRETS}

    def run(self) -> tuple[list[Vector], dict[str, Any]]:
        alice, bob = self._clients.values()
        for name, client in self._clients.items():
            with mock.patch.object(KeyRing, "generate", cast()[name].ring):
                self._act(name, "register", client.register, *SECRETS[name])
        ids = {name: client.getUserId().result(PATIENCE) for name, client in self._clients.items()}
        for name, client in self._clients.items():
            self._act(name, "log out", client.logout)
            self._act(name, "log in", client.logIn, ids[name], *SECRETS[name])
        levels = [
            AccessLevel(ids["alice"], ContainerAccessLevel.DefaultOwnerPermissions),
            AccessLevel(ids["bob"], READER),
        ]
        made = self._act(
            "alice", "create", alice.createContainer, b"first", {"title": "note"}, levels, "text",
        )  # fmt: skip
        self._act("bob", "read for the first time", bob.getContainer, made.id)
        self._act("alice", "update", alice.updateContainerContent, made.id, b"second")
        self._act("bob", "read with a mark", bob.getContainer, made.id)
        levels[1] = AccessLevel(ids["bob"], READER | ContainerAccessLevel.ViewType)
        self._act("alice", "change access", alice.updateContainerAccessLevels, made.id, levels)
        self._act("bob", "read under the new list", bob.getContainer, made.id)
        group, shared = self._groups(ids)
        return self._vectors, {
            "origin": self._layer.origin,
            "apiKey": str(self._layer.behind.api_key),
            "now": clock(),
            "containerId": str(made.id),
            "groupId": str(group),
            "sharedId": str(shared),
            "users": {
                name: {"userId": str(ids[name]), "password": password, "passphrase": passphrase}
                for name, (password, passphrase) in SECRETS.items()
            },
        }

    def _groups(self, ids: dict[str, uuid.UUID]) -> tuple[uuid.UUID, uuid.UUID]:
        """A group from its creation to its deletion; return its id, and that of a container of its own."""
        alice, bob = self._clients.values()
        team = self._act("alice", "create a group", alice.createGroup, "team", None, "For all.")
        self._act("alice", "add a member", alice.addGroupMembers, team, ids["bob"])
        self._act("bob", "accept the group", bob.acceptGroup, team.id)
        levels = [AccessLevel(each, WRITER) for each in (ids["alice"], team)]
        levels[0] = AccessLevel(ids["alice"], ContainerAccessLevel.DefaultOwnerPermissions)
        made = self._act("alice", "create for the group", alice.createContainer, b"for all", levels)
        self._act("bob", "read through the group", bob.getContainer, made.id)
        self._act("bob", "write through the group", bob.updateContainerContent, made.id, b"by bob")
        self._act("alice", "remove the member", alice.removeGroupMembers, team, ids["bob"])
        self._act("alice", "renew the containers", alice.renewGroup, team)
        self._act("alice", "add the member again", alice.addGroupMembers, team, ids["bob"])
        self._act("bob", "accept the group again", bob.acceptGroup, team.id)
        self._act("bob", "leave the group", bob.leaveGroup, team.id)
        self._act("alice", "delete the group", alice.deleteGroup, team)
        return team.id, made.id

    def _act(
        self, who: str, act: str, operation: Callable[..., Any], *args: Any, **rest: Any
    ) -> Any:
        count = len(self._layer.heard)
        result = operation(*args, **rest).result(PATIENCE)
        for exchange in self._layer.heard[count:]:
            number = len(self._vectors) + 1
            self._vectors.append(
                valid(
                    f"{number:02} {exchange.name}",
                    f"{who}: {act}",
                    who=who,
                    act=act,
                    operation=exchange.name,
                    method=exchange.method,
                    path=exchange.path,
                    query=exchange.query,
                    headers=_protocol_headers(exchange.headers),
                    request=exchange.body,
                    status=exchange.status,
                    answerHeaders=_protocol_headers(exchange.answer_headers),
                    answer=exchange.answer_body,
                )
            )
        return result


def _protocol_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return those of docs/spec/protocol.md, 1."""
    return {
        name.lower(): value
        for name, value in sorted(headers.items())
        if name.lower() in HEADERS or name.lower().startswith("scbroker-")
    }
