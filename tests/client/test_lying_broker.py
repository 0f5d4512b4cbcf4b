"""A broker that lies: every lie about a container or a user's keys is found, and believed by nobody.

The broker is real; what it answers is changed on its way to the reader. After each lie the reader
still reads the truth: nothing of the lie was kept.
"""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, ServerProvider
from scbroker.wire.containers import ListView, SignedRecord
from scbroker.wire.users import KeyRecords
from tests.client.conftest import id_of, refusal
from tests.kit.network import flipped, lying
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions
Lie = Callable[[Any], Any]


def with_record(view: Any, **changes: bytes) -> Any:
    """The view with its newest record changed."""
    if view.head is not None:
        return replace(view, head=replace(view.head, **changes))
    last = view.governing[-1]
    record = replace(last.record, **changes)
    return replace(view, governing=[*view.governing[:-1], replace(last, record=record)])


def newest(view: Any) -> SignedRecord:
    record: SignedRecord = view.head or view.governing[-1].record
    return record


LIES: dict[str, Lie] = {
    "a signature's first half": lambda v: with_record(v, signature=flipped(newest(v).signature, 0)),
    "a signature's second half": lambda v: with_record(v, signature=flipped(newest(v).signature)),
    "a record's body": lambda v: with_record(v, body=flipped(newest(v).body, -40)),
    "a record that is none": lambda v: with_record(v, body=b"\x01\x90"),
    "the wrap": lambda v: replace(v, wrap=flipped(v.wrap)),
    "the wrap withheld": lambda v: replace(v, wrap=None),
    "the type": lambda v: replace(v, type=replace(v.type, type="another")),
    "the type's salt": lambda v: replace(v, type=replace(v.type, salt=bytes(32))),
    "the type withheld": lambda v: replace(v, type=None),
    "the header": lambda v: replace(v, header=flipped(v.header)),
    "the header withheld": lambda v: replace(v, header=None),
    "the header's bytes as content": lambda v: replace(v, content=v.header),
    "the content": lambda v: replace(v, content=flipped(v.content)),
    "the content cut": lambda v: replace(v, content=v.content[:-1]),
    "the content withheld": lambda v: replace(v, content=None),
    "the head withheld": lambda v: replace(v, head=None),
    "an entry hidden": lambda v: hide(v),
    "the list withheld": lambda v: replace(
        v, governing=[replace(v.governing[0], accessList=None), *v.governing[1:]]
    ),
    "governing records withheld": lambda v: replace(
        v, governing=v.governing[-1:], lastGoverning=v.lastGoverning
    ),
    "the last governing record withheld": lambda v: replace(
        v, governing=v.governing[:-1], lastGoverning=v.lastGoverning - 1
    ),
    "a governing record as if it were none": lambda v: replace(
        v, head=v.governing[-1].record, governing=v.governing[:-1], lastGoverning=1
    ),
    "governing records doubled": lambda v: replace(v, governing=v.governing[:1] * 2),
    "no author's keys": lambda v: replace(v, governing=v.governing, keyChains=[]),
}
HARMLESS = {"no author's keys"}


def hide(view: Any) -> Any:
    """Shows one entry fewer of the newest list."""
    shown = view.governing[-1].accessList
    fewer = ListView(entryHashes=shown.entryHashes, disclosed=shown.disclosed[:1])
    last = replace(view.governing[-1], accessList=fewer)
    return replace(view, governing=[*view.governing[:-1], last])


@pytest.fixture
def shared(alice: ServerProvider, bob: ServerProvider) -> uuid.UUID:
    """A container of alice's and bob's with two governing records and a head that is none."""
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), OWNER)]
    made = alice.createContainer(b"c", {"h": 1}, accessLevels=levels, type="t").result(PATIENCE)
    alice.updateContainerAccessLevels(made.id, levels).result(PATIENCE)
    alice.updateContainerContent(made.id, b"truth").result(PATIENCE)
    return made.id


@pytest.mark.sampled
@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_fresh_reader_finds_the_lie_and_then_reads_the_truth(
    bob: ServerProvider, shared: uuid.UUID, lie: str
) -> None:
    with lying(LIES[lie]) as told:
        if lie in HARMLESS:
            bob.getContainer(shared).result(PATIENCE)
        else:
            refusal(bob.getContainer(shared), BrokerError.untrustedError)
        assert told
    found = bob.getContainer(shared).result(PATIENCE)
    assert (found.content, found.type, found.version) == (b"truth", "t", 3)


def test_keys_that_were_cut_or_are_of_another_user_are_refused(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    def cut(keys: Any) -> Any:
        return replace(keys, users=[replace(u, keyRecords=u.keyRecords[:1]) for u in keys.users])

    def of_another(keys: Any) -> Any:
        return replace(keys, users=[replace(keys.users[0], userId=str(uuid.uuid4()))])

    for lie, error in (
        (cut, BrokerError.integrityError),
        (of_another, BrokerError.brokerFaultError),
    ):
        with lying(lie, (KeyRecords,)):
            refusal(alice.getPublicKeys(id_of(bob)), error)
