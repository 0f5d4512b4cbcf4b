"""Every view is judged as views.json says, by the client's own reader (docs/spec/container.md, section 8)."""

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from scbroker.client.containers import fetching
from scbroker.client.containers.fetching import Fetched
from scbroker.client.core.judging import Mark, open_type
from scbroker.client.groups import directory as group_directory
from scbroker.client.groups.directory import GroupDirectory
from scbroker.client.users import directory
from scbroker.client.users.directory import Directory
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.errors import BrokerError, DeletedError
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import Role
from scbroker.wire.codec import decode
from scbroker.wire.containers import Bodies, ContainerView, GoverningPage
from scbroker.wire.groups import GroupOutcome, GroupView, GroupViewRequest, GroupViews
from scbroker.wire.problems import ItemProblem
from scbroker.wire.users import KeyRecords, UserKeyRecords
from tests.vectors.cast import cast, decryption_key
from tests.vectors.files import Vector, load, vectors
from tests.vectors.keys_of_people import chains

GROUPS: dict[str, str] = load("views")["given"]["groups"]
MORE = {Bodies: Bodies(bodies=[]), GoverningPage: GoverningPage(governing=[])}


class Session:
    """A reader's, whose broker answers with one view and has no more records."""

    def __init__(self, vector: Vector) -> None:
        name = vector["reader"]
        self.fingerprint = cast()[name].fingerprint
        self.keys = SimpleNamespace(
            unwrap=lambda index, wrap, info: decryption_key(name, index).unwrap(wrap, info),
            unwrap_by=lambda key, wrap, info: key.unwrap(wrap, info),
        )
        self.marks = MemoryTrustStore().open(uuid.UUID(int=0), b"")
        self.directory = Directory(self.call, self.marks, user_id_of(self.fingerprint))
        self.directory._chains = {chain.userId: chain for chain in chains().values()}
        self.groups = GroupDirectory(
            self.call, self.marks, self.directory, self.fingerprint, self.keys.unwrap
        )
        self.id = uuid.UUID(vector["containerId"])
        self._view = bytes.fromhex(vector["view"])
        self._groups = {
            group: decode(GroupView, bytes.fromhex(GROUPS[served]))
            for group, served in vector.get("groups", {}).items()
        }
        if vector["mark"] is not None:
            mark = msgspec.convert(_raw(vector["mark"]), dict[str, Any])
            stored = Mark(**mark).encode()
            assert self.marks.swap(fetching.KIND, self.id.bytes, None, stored)

    async def call(self, method: str, path: str, kind: Any, **rest: Any) -> Any:
        del method, path
        if kind is GroupViews:
            return GroupViews(groups=[self._group(each) for each in rest["message"].groups])
        if kind is KeyRecords:
            users = [each.userId for each in rest["message"].users]
            return KeyRecords(
                users=[UserKeyRecords(userId=each, keyRecords=[], deleted=False) for each in users]
            )
        return decode(ContainerView, self._view) if kind is ContainerView else MORE[kind]

    def _group(self, asked: GroupViewRequest) -> GroupOutcome:
        view = self._groups.get(asked.groupId)
        if view is None:
            problem = ItemProblem(code="not-found", detail="No group has this id.")
            return GroupOutcome(view=None, problem=problem)
        records = view.records[min(asked.since, view.last) - 1 :]
        return GroupOutcome(view=replace(view, records=records), problem=None)

    async def settled(self, outcomes: Any) -> Any:
        return outcomes

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
    found = fetching.open_fetched(session, fetched)
    parts = {role: fetching.read_part(found, role) for role in Role}
    return {
        "version": found.state.record.version,
        "complete": found.state.complete,
        "header": _hex(parts[Role.Header]),
        "content": _hex(parts[Role.Content]),
        "type": open_type(found.state, found.view.type),
        "unsettled": None if (unsettled := found.state.unsettled) is None else unsettled.version,
    }


def _hex(octets: bytes | None) -> str | None:
    return None if octets is None else octets.hex()


@pytest.fixture(autouse=True)
def _clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = request.node.callspec.params["vector"]
    for module in (fetching, directory, group_directory):
        monkeypatch.setattr(module, "now", lambda: vector["now"])


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
    try:
        found = opened(session, fetch(session))
    except BrokerError as error:
        raise AssertionError("the vector is valid") from error
    assert found == {name: vector.get(name) for name in found}


@pytest.mark.sampled
@pytest.mark.parametrize("vector", vectors("views", "invalid"), ids=lambda v: v["id"])
def test_an_invalid_view_is_refused_with_the_error_of_its_vector(vector: Vector) -> None:
    session = Session(vector)
    with pytest.raises(BrokerError) as caught:
        opened(session, fetch(session))
    assert caught.value.code == vector["error"]
