"""Every view is judged as views.json says, by the client's own reader (docs/spec/container.md, section 8)."""

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scbroker.client.containers import fetching, opening
from scbroker.client.containers.opening import Fetched
from scbroker.client.core.judging import Mark, open_type
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.errors import BrokerError, DeletedError
from scbroker.records.container_record import Role
from scbroker.wire.codec import decode
from scbroker.wire.containers import Bodies, ContainerView, GoverningPage
from tests.vectors.cast import cast, decryption_key
from tests.vectors.files import Vector, vectors
from tests.vectors.keys_of_people import chains

MORE = {Bodies: Bodies(bodies=[]), GoverningPage: GoverningPage(governing=[])}


class Session:
    """A reader's, whose broker answers with one view and has no more records."""

    def __init__(self, vector: Vector) -> None:
        name = vector["reader"]
        self.fingerprint = cast()[name].fingerprint
        self.keys = SimpleNamespace(
            unwrap=lambda index, wrap, info: decryption_key(name, index).unwrap(wrap, info)
        )
        self.directory = self
        self.marks = MemoryTrustStore().open(uuid.UUID(int=0), b"")
        self.id = uuid.UUID(vector["containerId"])
        self._view = bytes.fromhex(vector["view"])
        if vector["mark"] is not None:
            mark = msgspec.convert(_raw(vector["mark"]), dict[str, Any])
            stored = Mark(**mark).encode()
            assert self.marks.swap(fetching.KIND, self.id.bytes, None, stored)

    async def call(self, method: str, path: str, kind: Any, **rest: object) -> Any:
        del method, path, rest
        return decode(ContainerView, self._view) if kind is ContainerView else MORE[kind]

    async def at_least(self, users: dict[uuid.UUID, int]) -> dict[uuid.UUID, Any]:
        return {chain.userId: chain for chain in chains().values() if chain.userId in users}

    async def settled(self, outcomes: Any) -> Any:
        return outcomes

    async def check_key_indices(self, access: object) -> None:
        del access  # the chains that a view is judged by have all keys

    @property
    def mark(self) -> Mark | None:
        stored = self.marks.get(fetching.KIND, self.id.bytes)
        return None if stored is None else Mark.decode(stored)


def _raw(mark: dict[str, Any]) -> dict[str, Any]:
    names = ("hash", "governingHash", "createdBy")
    return {**mark, **{name: bytes.fromhex(mark[name]) for name in names}}


def fetch(session: Any) -> Fetched:
    return asyncio.run(fetching.fetch(session, session.id, header=True, content=True))


def opened(session: Any, fetched: Fetched) -> dict[str, Any]:
    found = opening.open_fetched(session, fetched)
    parts = {role: opening.read_part(session, found, role) for role in Role}
    return {
        "version": found.state.record.version,
        "complete": found.state.complete,
        "header": _hex(parts[Role.Header]),
        "content": _hex(parts[Role.Content]),
        "type": open_type(found.state, found.view.type, session.fingerprint),
    }


def _hex(octets: bytes | None) -> str | None:
    return None if octets is None else octets.hex()


@pytest.fixture(autouse=True)
def _clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = request.node.callspec.params["vector"]
    monkeypatch.setattr(fetching, "now", lambda: vector["now"])


@pytest.mark.parametrize("vector", vectors("views", "valid"), ids=lambda v: v["id"])
def test_a_valid_view_is_opened_to_what_its_vector_says(vector: Vector) -> None:
    session = Session(vector)
    if vector.get("deleted"):
        with pytest.raises(DeletedError):
            fetch(session)
        mark = session.mark
        assert mark is not None
        assert (mark.version, mark.complete) == (vector["version"], vector["complete"])
        return
    found = opened(session, fetch(session))
    assert found == {name: vector[name] for name in found}


@pytest.mark.parametrize("vector", vectors("views", "invalid"), ids=lambda v: v["id"])
def test_an_invalid_view_is_refused_with_the_error_of_its_vector(vector: Vector) -> None:
    session = Session(vector)
    with pytest.raises(BrokerError) as caught:
        opened(session, fetch(session))
    assert caught.value.code == vector["error"]
