"""Attacks with data that asks to be obeyed: what was decrypted is for the caller, and for nobody else.

Attack 43 of `catalogue`.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from scbroker import BrokerError, Promise
from scbroker.wire.problems import Problem
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.accounts import STATE, file_of
from tests.hostile_broker.catalogue import all_mount
from tests.kit.tcp import BadBroker, http
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

all_mount(__name__, 43, "decrypted data as a command")


def commands(folder: Path, address: str) -> dict[str, bytes]:
    """Headers that a member can seal, each of which some program somewhere has obeyed."""
    out = folder / "out"
    return {
        "a path": msgspec.json.encode({"fileName": "../../x", "name": str(out), "path": "~/x"}),
        "an address": msgspec.json.encode(
            {"url": address, "$ref": address, "@context": address, "href": f"file://{out}"}
        ),
        "an object": msgspec.json.encode({"py/object": "os.system", "__class__": "pathlib.Path"}),
        "a program": f"__import__('pathlib').Path({str(out)!r}).write_text('x')".encode(),
        "a pickle": b"cpathlib\nPath\n(V" + str(out).encode() + b"\ntR.",
        "a document": f"!!python/object/apply:os.system ['touch {out}']".encode(),
        "entities": f'<!DOCTYPE x [<!ENTITY e SYSTEM "{address}">]><x>&e;</x>'.encode(),
    }


def test_nothing_that_was_decrypted_touches_a_file_or_an_address(
    mallory: Mallory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alice: User, bob: User
) -> None:
    (work := tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(work)
    device = mallory.device_of(alice, bob)
    with BadBroker([http(200, b"{}")]) as internal:
        for what, header in commands(tmp_path, f"{internal.url}/x").items():
            grants = {bob: OWNER, alice: OWNER}
            story = Story(bob).created(grants, header=header, content=header, type="../../x")
            for read in (device.getContainer, device.getContainerHeader):
                read_or_refused(read(story.uuid), what)
            assert device.getContainerContent(story.uuid).result(PATIENCE) == header
        device.getEvents(containerType="../../x").result(PATIENCE)
        assert internal.requests == []
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", work]


def read_or_refused(promise: Promise[Any], what: str) -> None:
    if what in ("a path", "an address", "an object"):
        assert promise.result(PATIENCE)
    else:
        with pytest.raises(BrokerError.invalidArgumentError, match="The header is not"):
            promise.result(PATIENCE)


def test_what_a_broker_says_of_an_error_moves_no_cursor_and_ends_no_line(mallory: Mallory) -> None:
    """It is printed to terminals and into logs."""
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    said = "no\x1b]0;owned\x07\x1b[2J\r\n2026 INFO all is well\x9b31m\u202e\u2028" + "x" * 9000
    with (
        mallory.failing(STATE, Problem(title="x", status=409, detail=said[:2000], code="conflict")),
        pytest.raises(BrokerError.conflictError) as caught,
    ):
        device.needToSyncAccount(
            alice.ring.userId, file_of([alice.name, bytes(32), b"p", b"p"])
        ).result(PATIENCE)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 500
