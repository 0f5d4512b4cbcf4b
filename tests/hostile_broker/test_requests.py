"""Attacks on what a broker reads: spellings that some parsers take, and requests that ask for memory.

Attack 40 of `catalogue`, as far as a broker reads: what anybody sends who has a session.
"""

import contextlib
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scbroker.wire import codec
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.catalogue import all_mount, attack
from tests.hostile_broker.test_parsers import ID, MIB, SPELLINGS
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story, User

all_mount(__name__, 40, "parser ambiguity and bombs")
pytestmark = pytest.mark.process


@pytest.fixture
def eve(mallory: Mallory) -> Iterator[User]:
    """Has a session, and sends what no client sends; the broker is there still, and notes no fault."""
    [eve] = mallory.people(1)
    log = mallory.behind.log
    with broker_takes_little_memory(mallory, 96 * MIB):
        yield eve
    assert mallory.behind.log == log
    eve.wire.call("GET", "/v1/key-file").expect(200)


@contextmanager
def broker_takes_little_memory(mallory: Mallory, most: int) -> Iterator[None]:
    """The kernel counts the highest resident size; a system without /proc proves nothing."""
    process = Path(f"/proc/{mallory.behind.pid}")
    if not process.exists():  # pragma: no cover - systems without /proc
        yield
        return

    def resident(name: str) -> int:
        [line] = [at for at in (process / "status").read_text().splitlines() if at.startswith(name)]
        return int(line.split()[1]) * 1024

    (process / "clear_refs").write_text("5")
    before = resident("VmRSS")
    yield
    assert resident("VmHWM") - before < most


def test_an_id_that_is_sent_in_another_spelling_is_refused(mallory: Mallory, eve: User) -> None:
    story = Story(eve).created()
    for spell in SPELLINGS.values():
        name, user = spell(str(story.uuid)), spell(eve.id)
        quoted = urllib.parse.quote(name, safe="")
        eve.wire.call("GET", f"/v1/containers/{quoted}").expect(400, "invalid")
        eve.wire.call("GET", f"/v1/events?containerId={quoted}").expect(400, "invalid")
        eve.wire.call("POST", "/v1/key-records", {"users": [{"userId": user}]}).expect(400)
        path = f"/v1/users/{urllib.parse.quote(user, safe='')}/reminder"
        eve.wire.call("GET", path).expect(400, "invalid")
        key = spell(str(mallory.behind.api_key))
        if key.isascii() and key.isprintable() and key == key.strip():
            eve.wire.call("GET", "/v1/key-file", Scbroker_Api_Key=key).expect(401, "api-key")


def test_a_number_that_is_sent_in_another_spelling_or_without_end_is_refused(eve: User) -> None:
    story = Story(eve).created()
    for number in (
        "1" * 5000,
        "01",
        "+1",
        "-1",
        "1.0",
        "1e3",
        "0x1",
        "1_0",
        "%EF%BC%91",
        "NaN",
        str(2**53),
    ):
        for path in (f"{story.path}/records/{number}", f"{story.path}/parts/{ID}/chunks/{number}"):
            body = b"x" if "chunks" in path else b"\x80"
            kind = codec.OCTETS if "chunks" in path else codec.MESSAGE
            answer = eve.wire.send("PUT", path, body, {"Content-Type": kind})
            assert 400 <= answer.status < 500, (number, answer)
        for query in (
            f"{story.path}?since={number}",
            f"/v1/events?startId={number}&endId={number}",
        ):
            eve.wire.call("GET", query).expect(400, "invalid")
    for query in ("since=1&since=1", "since=1&since=2", "Since=1", "since=1;header=1"):
        eve.wire.call("GET", f"{story.path}?{query}").expect(400, "invalid")


@attack(167, "long head through a proxy")
def test_a_head_that_is_too_long_is_answered(mallory: Mallory) -> None:
    """tests/deploy sends some through the proxies."""
    with socket.create_connection(("127.0.0.1", mallory.behind.port), timeout=PATIENCE) as raw:
        answer = b""
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"x" * 200_000)
        with contextlib.suppress(ConnectionResetError):
            answer = raw.recv(4096)
    assert answer.startswith(b"HTTP/1.1 431 ")
