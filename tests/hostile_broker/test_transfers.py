"""Attacks on the way of a content: by addresses of an object store, by short reads, by files that change.

Attacks 16, 17, 36 and 61 of attacks.toml. A client asks no origin that its caller did not allow, and tells
the ones that it asks nothing of its session.
"""

import gzip
import logging
import mmap
import os
import re
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from scbroker import BrokerError, Header, MemoryTrustStore, ServerProvider
from scbroker.errors import BrokerError as Error
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS, Transfer, Transfers
from tests.hostile_broker.accomplices import Mallory, check_no_file
from tests.hostile_broker.broker import CutError, Exchange
from tests.hostile_broker.protocol import (
    CHUNK,
    FAULT,
    INTEGRITY,
    RECORD,
    SEGMENTS,
    SENT,
    TO_READ,
    TO_SEND,
    VIEW,
)
from tests.kit.brokers import answered
from tests.kit.crypto import random_bytes
from tests.kit.impatience import be_impatient
from tests.kit.limits import lower
from tests.kit.tcp import Answer, BadBroker, cut, hang, http
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

SECRET: Final = "X-Amz-Signature=0123456789abcdef"
CONTENT: Final = random_bytes(70_000)
TWO_CHUNKS: Final = random_bytes(9 * SEGMENT)


def asked_for(exchange: Exchange) -> list[int]:
    """The chunks whose URLs a client asks for."""
    if exchange.method == "POST":
        return list(exchange.message.chunks)
    query = dict(pair.split("=") for pair in exchange.query.split("&"))
    first = int(query["first"])
    return list(range(first, first + int(query["count"])))


@contextmanager
def addressing(mallory: Mallory, address: Callable[[int], str], shift: int = 0) -> Iterator[None]:
    """Has a broker on a folder give this address for each chunk, whichever way it goes."""

    name = f"parts/00/{'0' * 32}-{'0' * 32}"

    def lie(exchange: Exchange) -> None:
        given = [Transfer(index=n + shift, name=name, url=address(n)) for n in asked_for(exchange)]
        exchange.answer = Transfers(transfers=given, seconds=900)

    with mallory.meddling(TO_SEND, after=lie), mallory.meddling(TO_READ, after=lie):
        yield


def device_at(
    mallory: Mallory, *stores: BadBroker, ring: Any = None, **options: Any
) -> ServerProvider:
    origins = [store.url for store in stores]
    return mallory.device(ring or mallory.new_user(), objectStoreOrigins=origins, **options)


WAYS: Final[dict[str, Callable[[str, str], str]]] = {
    "another host": lambda _, other: f"http://{other}/latest/meta-data",
    "a user that looks like a host": lambda own, other: f"http://{own}@{other}/",
    "a user and a password": lambda own, other: f"http://{own}:x@{other}/",
    "a user at the allowed host": lambda own, _: f"http://user:word@{own}/",
    "behind a backslash": lambda own, other: f"http://{own}\\@{other}/",
    "behind a fragment": lambda own, other: f"http://{other}#@{own}/",
    "behind a query": lambda own, other: f"http://{other}?@{own}/",
    "another name of this machine": lambda own, _: f"http://localhost:{own.partition(':')[2]}/",
    "another address of this machine": lambda own, _: f"http://127.0.0.2:{own.partition(':')[2]}/",
    "a short address": lambda _, other: f"http://127.1:{other.partition(':')[2]}/",
    "a number": lambda _, other: f"http://2130706433:{other.partition(':')[2]}/",
    "a name under the allowed one": lambda own, _: f"http://{own.replace(':', '.evil.example:')}/",
    "another scheme": lambda own, _: f"https://{own}/",
    "a file": lambda _, __: "file:///etc/passwd",
    "without a scheme": lambda own, _: f"//{own}/",
    "a second line": lambda own, other: f"http://{own}/ HTTP/1.1\r\nHost: {other}\r\n\r\n",
    "a line's end behind it": lambda own, _: f"http://{own}/\n",
    "a tab in the host": lambda own, other: f"http://{other}\t.{own}/",
    "wide digits": lambda own, _: f"http://{own}/".replace("127", "\uff11\uff12\uff17"),
    "an open bracket": lambda own, _: f"http://[{own}/",
    "nothing": lambda _, __: "x",
}


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS)
def test_an_address_that_the_caller_does_not_allow_is_not_asked(mallory: Mallory, way: str) -> None:
    """The client uses none of the addresses beside it either: everything goes through the broker."""
    with BadBroker([http(200)]) as store, BadBroker([http(200)]) as internal:
        alice = device_at(mallory, store)
        wrong = WAYS[way](store.url[7:], internal.url[7:])
        count, found = len(mallory.heard), None
        with (
            suppress(BrokerError),
            addressing(mallory, lambda chunk: wrong if chunk else f"{store.url}/right"),
        ):
            made = alice.createContainer(TWO_CHUNKS).result(PATIENCE)
            found = alice.getContainerContent(made.id).result(PATIENCE)
        assert internal.requests == []
        assert store.requests == []
        assert found == TWO_CHUNKS
        names = mallory.since(count)
        assert names.count(CHUNK) == names.count(SEGMENTS) == 2
        assert names.count(TO_SEND) == names.count(TO_READ) == 1


@pytest.mark.long
def test_an_object_store_is_told_nothing_of_who_asks(mallory: Mallory) -> None:
    """No header names the user, no cookie comes back, and the bytes are sealed."""
    with BadBroker([http(200, headers=b"Set-Cookie: it=1\r\n")]) as store:
        alice = device_at(mallory, store)
        made = alice.createContainer(CONTENT).result(PATIENCE)
        with addressing(mallory, lambda n: f"{store.url}/bucket/{n}?{SECRET}"):
            with (
                mallory.answering(SENT, b"", 204),
                pytest.raises(BrokerError.incompleteUploadError),
            ):
                alice.createContainer(TWO_CHUNKS).result(PATIENCE)
            with pytest.raises(BrokerError.unreachableError):
                alice.getContainerContent(made.id).result(PATIENCE)
        host, methods = store.url[7:], set()
        for request in store.requests:
            method, target, _ = request.head.split(b"\r\n")[0].split()
            methods.add(method)
            assert target in {f"/bucket/{n}?{SECRET}".encode() for n in (0, 1)}
            if method == b"PUT":
                length = str(len(request.body))
                assert request.headers == {"host": host, "content-length": length}
                assert TWO_CHUNKS[:64] not in request.body
            else:
                asked = f"bytes=0-{SEALED_SEGMENT - 1}"
                assert request.headers == {"host": host, "range": asked}
        assert methods == {b"PUT", b"GET"}


def sealed_of(mallory: Mallory, device: ServerProvider) -> tuple[Any, bytes]:
    """A content, and its sealed bytes as the broker gives them to anybody who may download."""
    made = device.createContainer(CONTENT).result(PATIENCE)
    before = len(mallory.heard)
    device.getContainerContent(made.id).result(PATIENCE)
    [sealed] = [e.answer_body for e in mallory.heard[before:] if e.name == SEGMENTS]
    return made.id, sealed


@pytest.mark.long
def test_what_an_object_store_serves_is_verified_as_if_the_broker_had(mallory: Mallory) -> None:
    ring = mallory.new_user()
    it, sealed = sealed_of(mallory, mallory.device(ring))
    flipped = sealed[:5000] + bytes([sealed[5000] ^ 1]) + sealed[5001:]
    zipped = gzip.compress(sealed)
    encoded = b"Content-Encoding: gzip\r\n"
    lies: dict[str, Answer] = {
        "flipped": http(206, flipped),
        "cut": http(206, sealed[:-1]),
        "empty": http(206, b""),
        "longer": http(206, sealed + b"x"),
        "without an end": _endless,
        "encoded": http(206, zipped, headers=encoded),
    }
    for name, answer in lies.items():
        with BadBroker([answer]) as store:
            device = device_at(mallory, store, ring=ring)
            with addressing(mallory, lambda _, url=store.url: url):  # type: ignore[misc]
                with pytest.raises(INTEGRITY):
                    device.getContainerContent(it).result(PATIENCE)
                assert len(store.requests) == 1, name
    with BadBroker([http(206, sealed)]) as store:
        device = device_at(mallory, store, ring=ring)
        with addressing(mallory, lambda _: store.url):
            assert device.getContainerContent(it).result(PATIENCE) == CONTENT


def _endless(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 206 X\r\n\r\n")
        while True:
            connection.sendall(bytes(SEGMENT))


FAILURES: Final[dict[str, tuple[Any, type[Error], int]]] = {
    "refused": (http(403, b"<Error/>"), Error.unreachableError, 4),
    "busy": (http(503), Error.unreachableError, 4),
    "no such object": (http(404), Error.brokerFaultError, 4),
    "cut": (cut, Error.unreachableError, 4),
    "torn": (http(206, b"x" * 100, length=5000), Error.unreachableError, 4),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n", Error.unreachableError, 4),
    "silent": (hang, Error.unreachableError, 1),
}


@pytest.mark.long
@pytest.mark.parametrize("failure", FAILURES)
def test_a_store_that_fails_is_tried_again_by_a_fresh_address_and_no_address_is_told(
    mallory: Mallory,
    failure: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    answer, error, times = FAILURES[failure]
    ring = mallory.new_user()
    made = mallory.device(ring).createContainer(CONTENT).result(PATIENCE)
    with BadBroker([answer]) as store:
        device = device_at(mallory, store, ring=ring)
        if times == 1:  # an answer that never comes ends by the timeout
            endpoint = replace(device._endpoint, timeout=3.0)
            monkeypatch.setattr(device._requests, "endpoint", endpoint)
        count = len(mallory.heard)
        with addressing(mallory, lambda _: f"{store.url}/it?{SECRET}"):
            for attempt in (
                lambda: device.getContainerContent(made.id),
                lambda: device.createContainer(CONTENT),
            ):
                with pytest.raises(BrokerError) as caught:
                    attempt().result(PATIENCE)
                assert type(caught.value) is error, caught.value
                told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
                assert SECRET not in told
                assert "/it?" not in told
        names = mallory.since(count)
        assert names.count(TO_READ) == times
        assert SEGMENTS not in names
        assert CHUNK not in names
    assert SECRET not in caplog.text


# Networks that give little at a time, or break off: no short read is taken for the end.


_FRAMES: Final = {"connection", "content-length", "transfer-encoding", "keep-alive"}


class Passing(NamedTuple):
    """An answer on its way: to which path, its first lines, its body."""

    path: str
    head: bytes
    body: bytes


Framing = Callable[[bytes, int], tuple[bytes, bytes]]
"""Takes a body and how much of it is to come; gives a header and the bytes that are sent."""
Passage = Callable[[Passing], Iterator[bytes]]


def _chunked(body: bytes, at: int) -> tuple[bytes, bytes]:
    """The chunk says its whole size; what is torn off lacks its end, and the last chunk."""
    sent = b"%x\r\n%s" % (len(body), body[:at])
    whole = sent + b"\r\n0\r\n\r\n" if at >= len(body) else sent
    return b"Transfer-Encoding: chunked\r\n", whole


FRAMINGS: Final[Mapping[str, Framing]] = {
    "with its length": lambda body, at: (b"Content-Length: %d\r\n" % len(body), body[:at]),
    "chunked": _chunked,
    "until the end": lambda body, at: (b"", body[:at]),
}


def _framed(answer: Passing, framing: Framing, at: int) -> bytes:
    header, body = framing(answer.body, at) if answer.body else (b"", b"")  # 204 has none
    return answer.head + header + b"\r\n" + body


def whole(framing: Framing) -> Passage:
    return lambda answer: iter([_framed(answer, framing, len(answer.body))])


def byte_by_byte(framing: Framing) -> Passage:
    def passage(answer: Passing) -> Iterator[bytes]:
        for piece in whole(framing)(answer):
            yield from (piece[at : at + 1] for at in range(len(piece)))

    return passage


def torn(pattern: str, framing: Framing, at: int) -> Passage:
    """Answers for paths of this pattern end after so many bytes; from behind where it is negative."""

    def passage(answer: Passing) -> Iterator[bytes]:
        length = len(answer.body)
        if re.search(pattern, answer.path):
            length = at if at >= 0 else length + at
        yield _framed(answer, framing, length)

    return passage


@contextmanager
def relay(mallory: Mallory, passage: Passage) -> Iterator[BadBroker]:
    """A proxy between a device and the broker: one request a connection, which is then closed."""

    def answer(connection: socket.socket) -> None:
        request = proxy.requests[-1]
        method, url, _ = request.head.decode("latin-1").split("\r\n")[0].split(" ")
        path = url.removeprefix(mallory.url)
        headers = {k: v for k, v in request.headers.items() if k not in _FRAMES}
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = _onward(mallory, method, path, headers, request.body)
        with suppress(OSError):  # the client has heard enough
            for piece in passage(found):
                connection.sendall(piece)

    with BadBroker([answer]) as proxy:
        yield proxy


def _onward(
    mallory: Mallory, method: str, path: str, headers: dict[str, str], body: bytes
) -> Passing:
    answer = answered(mallory, mallory.url + path, method, body or None, headers)
    lines = [f"{k}: {v}\r\n" for k, v in answer.headers.items() if k not in _FRAMES]
    head = f"HTTP/1.1 {answer.status} X\r\nConnection: close\r\n{''.join(lines)}"
    return Passing(path, head.encode("latin-1"), answer.body)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program asks again at once."""
    be_impatient(monkeypatch)


class OneByteAtATime:
    """A file that gives less than it is asked for; and where it is told to, nothing yet."""

    def __init__(self, data: bytes, nothing_at: int | None = None) -> None:
        self._pieces = iter(range(len(data)))
        self._data, self._nothing_at = data, nothing_at

    def read(self, size: int) -> bytes | None:
        assert size > 1
        at = next(self._pieces, len(self._data))
        return None if at == self._nothing_at else self._data[at : at + 1]


@pytest.mark.long
def test_a_network_and_a_file_that_give_one_byte_at_a_time_work(mallory: Mallory) -> None:
    small, large = bytes(range(256)) * 4, bytes(range(256)) * 257
    for framing, content in zip(FRAMINGS.values(), (small, large, small), strict=True):
        with relay(mallory, byte_by_byte(framing)) as proxy:
            device = mallory.device(mallory.new_user(), proxy=proxy.url)
            source: Any = OneByteAtATime(content)
            container = device.createContainer(source, {"h": 1}).result(PATIENCE).id
            found = device.getContainer(container).result(PATIENCE)
            assert (found.content, found.header) == (content, Header({"h": 1}))


@pytest.mark.parametrize("size", [100, 70_000])
def test_a_file_that_has_nothing_yet_is_an_error_and_nothing_is_created(
    mallory: Mallory, size: int
) -> None:
    """A pipe that does not block gives None until there is more: that is no end."""
    device = mallory.device(mallory.new_user())
    source: Any = OneByteAtATime(bytes(size), nothing_at=size // 2)
    with mallory.refused(device, BrokerError.invalidArgumentError) as attempt:
        attempt(device.createContainer(source))


ENDS: dict[str, tuple[str, type[BrokerError]]] = {
    "the view": (r"/containers/[^/]+\?", FAULT),
    "the hashes": ("/hashes$", INTEGRITY),
    "the segments": (r"/segments\?", INTEGRITY),
}


@pytest.mark.long
@pytest.mark.parametrize("what", ENDS)
@pytest.mark.usefixtures("impatient")
def test_an_answer_that_is_torn_off_is_an_error_and_no_file_is_left(
    mallory: Mallory, tmp_path: Path, what: str
) -> None:
    """Where nothing of HTTP says how long it is, what was signed does."""
    ring, content = mallory.new_user(), bytes(70_000)
    container = mallory.device(ring).createContainer(content).result(PATIENCE).id
    store = MemoryTrustStore()
    mallory.device(ring, store).getContainerContent(container).result(PATIENCE)
    pattern, error = ENDS[what]
    for name, framing in FRAMINGS.items():
        kind = error if name == "until the end" else BrokerError.unreachableError
        for at in (0, -1):
            with relay(mallory, torn(pattern, framing, at)) as proxy:
                device = mallory.device(ring, store, proxy=proxy.url)
                mallory.check_refused(device, container, kind, "getContainerContent")
        with relay(mallory, torn(pattern, framing, 31)) as proxy:
            device = mallory.device(ring, store, proxy=proxy.url)
            check_no_file(device, container, tmp_path, kind)
        with relay(mallory, whole(framing)) as proxy:
            device = mallory.device(ring, store, proxy=proxy.url)
            assert device.getContainerContent(container).result(PATIENCE) == content


# Programs that change a file during its upload. Each byte is read once: what is signed is what was sealed.


OLD, NEW = b"o" * SEGMENT, b"n" * SEGMENT
COMPARED = 100_000
TRIES = 50
IN_FILE = 2 * CHUNK_SEGMENTS + 3


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three chunks, of which the last is read after the first was sent."""
    lower(monkeypatch, chunks_at_once=1)
    path = tmp_path / "file"
    path.write_bytes(OLD * IN_FILE)
    return path


def once(change: Callable[[], object]) -> Callable[[Exchange], None]:
    done: list[object] = []

    def before(_: Exchange) -> None:
        if not done:
            done.append(change())

    return before


def by_writing(file: Path) -> None:
    with file.open("r+b") as changed:
        changed.seek(-SEGMENT, 2)
        changed.write(NEW)


def by_replacing(file: Path) -> None:
    other = file.with_suffix(".other")
    other.write_bytes(NEW * IN_FILE)
    other.replace(file)


@pytest.mark.sampled
@pytest.mark.parametrize("change", [by_writing, by_replacing], ids=lambda way: way.__name__)
def test_no_record_is_signed_for_a_file_that_changed_between_its_first_and_last_chunk(
    mallory: Mallory, alice: User, file: Path, change: Callable[[Path], None]
) -> None:
    device, count = mallory.device_of(alice), len(mallory.heard)
    with (
        mallory.meddling(CHUNK, before=once(lambda: change(file))),
        pytest.raises(BrokerError.invalidArgumentError, match="changed while it was read"),
    ):
        device.createContainer(file).result(PATIENCE)
    assert CHUNK in mallory.since(count)
    assert RECORD not in mallory.since(count)


@pytest.mark.long
def test_a_chunk_that_is_sealed_again_after_an_unnoticed_change_shares_no_key_stream(
    mallory: Mallory, alice: User, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer is lost, so that the resumed upload seals that chunk again under the same key.

    The system dates the change if it wrote the mapped pages to disk meanwhile. The upload then starts again
    as another part, and the attack is repeated.
    """
    be_impatient(monkeypatch)
    device, sent = mallory.device_of(alice, store=mallory.new_store()), list[Exchange]()

    def lose(exchange: Exchange) -> None:
        if exchange.path.endswith("/1"):
            sent.append(exchange)
            raise CutError

    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        for _ in range(TRIES):
            sent.clear()
            mapped[:] = OLD * IN_FILE
            mapped.flush()
            for content in (OLD, NEW):
                mapped[:] = content * IN_FILE
                with mallory.meddling(CHUNK, before=lose), suppress(BrokerError):
                    device.createContainer(file).result(PATIENCE)
            if sent[0].path == sent[-1].path:
                break
    pairs = list(zip(sent[0].body[:COMPARED], sent[-1].body[:COMPARED], strict=True))
    for difference in (0, ord("o") ^ ord("n")):
        assert sum(a ^ b == difference for a, b in pairs) < COMPARED / 100


@contextmanager
def pipe_in_place_of(file: Path) -> Iterator[Callable[[], object]]:
    """Yield a function that replaces a file by a pipe without a writer; end the readers that wait for it."""
    pipe = file.with_suffix(".pipe")
    os.mkfifo(pipe)
    yield lambda: pipe.replace(file)
    os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes among files")
@pytest.mark.parametrize("content", [b"", b"old"], ids=["no size", "a size"])
def test_no_upload_waits_at_a_pipe_that_has_taken_the_place_of_its_file(
    mallory: Mallory, alice: User, tmp_path: Path, content: bytes
) -> None:
    device = mallory.device_of(alice)
    made = device.createContainer(b"before").result(PATIENCE)
    (file := tmp_path / "file").write_bytes(content)
    with pipe_in_place_of(file) as replace, mallory.meddling(VIEW, before=once(replace)):
        promise = device.updateContainerContent(made.id, file)
        try:
            promise.result(PATIENCE)
            failed = None
        except (BrokerError, TimeoutError) as error:
            failed = str(error)
    assert failed is not None
    assert "not a regular file any more" in failed
    assert device.getContainerContent(made.id).result(PATIENCE) == b"before"


# Limits


@pytest.mark.long
def test_a_change_through_a_memory_map_is_the_limit_and_readers_get_what_was_sealed(
    mallory: Mallory, alice: User, file: Path
) -> None:
    """The system does not date each write to a page that is mapped and changed already."""
    device = mallory.device_of(alice)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[:] = OLD * IN_FILE

        def change() -> None:
            mapped[:] = NEW * IN_FILE

        made = None
        with (
            mallory.meddling(CHUNK, before=once(change)),
            suppress(BrokerError.invalidArgumentError),
        ):
            made = device.createContainer(file).result(PATIENCE)
    if made is not None:
        found = mallory.device_of(alice).getContainerContent(made.id).result(PATIENCE)
        assert found is not None
        assert len(found) == len(OLD) * IN_FILE
        assert found[:SEGMENT] == OLD
        assert found[-SEGMENT:] == NEW
        assert not found.strip(b"on")


@pytest.mark.long
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_of_an_object_store_is_followed(mallory: Mallory, status: int) -> None:
    with BadBroker([http(200)]) as internal:
        moved = b"Location: %s/latest\r\n" % internal.url.encode()
        with BadBroker([http(status, headers=moved)]) as store:
            alice = device_at(mallory, store)
            made = alice.createContainer(CONTENT).result(PATIENCE)
            with addressing(mallory, lambda _: store.url):
                for started in (alice.createContainer(CONTENT), alice.getContainerContent(made.id)):
                    with pytest.raises(BrokerError) as refused:
                        started.result(PATIENCE)
                    assert refused.value == BrokerError.unreachableError
            assert internal.requests == []
            assert {request.head.split()[0] for request in store.requests} == {b"PUT", b"GET"}
