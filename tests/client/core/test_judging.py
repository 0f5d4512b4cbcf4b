"""What the vectors of views.json do not show: they give the keys of all users."""

import msgspec
import pytest

from scbroker.client.core.judging import Evidence, Mark
from scbroker.errors import IntegrityError
from scbroker.records.key_record import KeyChain
from scbroker.wire.codec import decode
from scbroker.wire.containers import ContainerView
from tests.vectors.cast import cast
from tests.vectors.files import vectors
from tests.vectors.keys_of_people import chains


def evidence(name: str, without: str = "") -> Evidence:
    """The evidence of a vector for a reader without a mark, without the keys of one user."""
    [vector] = (vector for vector in vectors("views", "valid") if vector["id"] == name)
    view = decode(ContainerView, bytes.fromhex(vector["view"]))
    head = None if view.head is None else view.head.signed
    known: dict[bytes, KeyChain] = {
        chain.fingerprint: chain for who, chain in chains().items() if who != without
    }
    reader = cast()[vector["reader"]].fingerprint
    return Evidence(
        bytes.fromhex(vector["containerId"]), reader, view.governing, head, None, known, None,
        vector["now"],
    )  # fmt: skip


@pytest.mark.parametrize("without", ["alice", "bob"], ids=["author", "leaver"])
def test_a_view_is_refused_without_the_keys_of_an_author_or_of_a_user_who_left(
    without: str,
) -> None:
    name = "departure, after a change of type"
    state = evidence(name).judge()
    assert state.governing.left == {cast()["bob"].fingerprint}
    with pytest.raises(IntegrityError, match="did not serve the keys"):
        evidence(name, without).judge()


def test_the_mark_keeps_the_time_of_the_list_and_not_of_a_later_change_of_type() -> None:
    created = evidence("fresh, first record").judge()
    typed = evidence("departure, after a change of type").judge()
    assert typed.governing.record.time > created.record.time
    assert typed.mark.accessTime == created.mark.accessTime == created.record.time
    assert Mark.decode(typed.mark.encode()) == typed.mark


def test_a_mark_from_before_departures_is_decoded() -> None:
    mark = evidence("fresh, first record").judge().mark
    fields = msgspec.structs.astuple(mark)
    old = Mark.decode(msgspec.msgpack.encode(fields[:9]))
    assert (old.left, old.accessTime) == (False, 0)
    assert msgspec.structs.astuple(old)[:9] == fields[:9]
