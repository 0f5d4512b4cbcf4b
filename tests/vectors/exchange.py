"""One complete exchange in bytes, between two users and a broker: docs/spec/overview.md."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from scbroker import AccessLevel, ContainerAccessLevel, KeyRing
from tests.hostile_broker.broker import HostileBroker
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.vectors.cast import cast
from tests.vectors.files import Vector, store, valid

HEADERS: Final = ("authorization", "content-type", "retry-after")
READER: Final = (
    ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt | ContainerAccessLevel.ViewAccess
)
"""Without ViewType, which the exchange gives later."""
SECRETS: Final = {
    "alice": ("the Password of alice 1", "a Passphrase that alice knows, 1"),
    "bob": ("the Password of bob 2", "a Passphrase that bob knows, 2"),
}


def make() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        HostileBroker(Path(folder)) as layer,
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
        return self._vectors, {
            "origin": self._layer.origin,
            "apiKey": str(self._layer.behind.api_key),
            "now": clock(),
            "containerId": str(made.id),
            "users": {
                name: {"userId": str(ids[name]), "password": password, "passphrase": passphrase}
                for name, (password, passphrase) in SECRETS.items()
            },
        }

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
