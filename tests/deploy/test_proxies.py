"""The proxies of deploy/proxy before real brokers: users, the throttle's addresses, fail-over."""

import re
import socket
import ssl
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from scbroker import KeyRing, MemoryTrustStore, ServerProvider
from scbroker.server.operations import OPERATIONS
from scbroker.wire.parts import MAX_CHUNK
from tests.deploy.proxies import FILES, PROXIES, Nginx, Proxy, Through, missing
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.process

on_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


class Behind(Protocol):
    """Starts brokers on one database, and the proxy before them."""

    def __call__(self, brokers: int = 1, **settings: Any) -> list[BrokerProcess]: ...


@pytest.fixture(params=PROXIES, ids=lambda each: each.program)
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    if reason := missing(request.param):
        pytest.skip(reason)
    with request.param(uuid.uuid4()) as started:
        yield started


@pytest.fixture
def behind(proxy: Proxy, start_broker: StartBroker) -> Behind:
    def start(brokers: int = 1, **settings: Any) -> list[BrokerProcess]:
        shared: dict[str, Any] = {
            "api_key": proxy.api_key,
            "origins": proxy.url,
            "trusted_proxies": "127.0.0.1",
        }
        started = [start_broker(**(shared | settings)) for _ in range(brokers)]
        proxy.start([each.port for each in started])
        return started

    return start


@pytest.fixture
def provider(proxy: Proxy) -> Iterator[ServerProvider]:
    """A provider without a session, whose broker is the proxy."""
    with ServerProvider(
        proxy.api_key, proxy.url, "tests", ssl=proxy.authority, trustStore=MemoryTrustStore()
    ) as made:
        yield made


def log_in(proxy: Proxy, provider: ServerProvider) -> None:
    """Register a user by hand, which costs no Argon2id, and log in."""
    ring = KeyRing.generate()
    with Through(proxy) as wire:
        wire.register(ring).expect(201)
    provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)


@pytest.mark.long
@on_sqlite
def test_a_user_stores_a_large_content_reads_it_and_follows_events(
    proxy: Proxy, behind: Behind, provider: ServerProvider
) -> None:
    behind()
    log_in(proxy, provider)
    content = bytes(64 * 1_048_576)
    with provider.followEvents(startId=1) as events:
        made = provider.createContainer(content).result(PATIENCE)
        assert next(iter(events)).containerId == made.id
        assert provider.getContainerContent(made.id).result(PATIENCE) == content
        provider.updateContainerHeader(made.id, {"title": "new"}).result(PATIENCE)
        assert str(next(iter(events)).eventType).endswith("Updated")


@pytest.mark.long
@on_sqlite
def test_the_throttle_counts_the_clients_address_whatever_the_client_claims(
    proxy: Proxy, behind: Behind
) -> None:
    behind(registrations_address=2)

    def register(source: str, claimed: str) -> int:
        with Through(proxy, source=source, claimed=claimed) as wire:
            return wire.register(KeyRing.generate()).status

    assert [register("127.0.0.1", f"203.0.113.{n}") for n in range(3)] == [201, 201, 429]
    assert register("127.0.0.2", "127.0.0.1") == 201


@pytest.mark.long
@on_sqlite
def test_a_client_chooses_no_request_id(proxy: Proxy, behind: Behind) -> None:
    """The broker logs a request under the proxy's id, and answers with it."""
    behind()
    with Through(proxy) as wire:
        given = {"X-Request-Id": "an-id-of-the-clients-choice"}
        ids = {wire.send("GET", "/", headers=given).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert "an-id-of-the-clients-choice" not in ids


@pytest.mark.long
@on_postgresql
def test_after_a_head_of_any_length_the_broker_still_gets_requests(
    proxy: Proxy, behind: Behind
) -> None:
    """A broker that cut the connection of a long head would be taken for one that has failed."""
    behind(2)
    for lines in (1, 2, 4, 6, 8, 9, 10, 12, 16, 60):
        head = {f"X-Long-{number}": "x" * 3_500 for number in range(lines)}
        with Through(proxy) as wire:
            assert wire.send("GET", "/", headers=head).status in (200, 400, 431)
        for _ in range(2):
            with Through(proxy) as wire:
                wire.send("GET", "/").expect(200)


@pytest.mark.long
@on_sqlite
def test_only_tls_1_3_and_the_paths_of_the_protocol_are_open(proxy: Proxy, behind: Behind) -> None:
    behind()
    with Through(proxy) as wire:
        for path in ("/metrics", "/health/live", "/health/ready", "/openapi.json", "/v1", "/a"):
            assert wire.send("GET", path).status == 404, path
        assert b"scbroker open" in wire.send("GET", "/").expect(200).body
        answer = wire.call("POST", "/v1/session-challenges", {}).expect(200)
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
    old = ssl.create_default_context(cadata=None)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError), Through(proxy, authority=old) as wire:
        wire.send("GET", "/")
    new = ssl.create_default_context()
    new.check_hostname, new.verify_mode = False, ssl.CERT_NONE
    new.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", proxy.port)) as plain,
        new.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert (secure.version(), secure.selected_alpn_protocol()) == ("TLSv1.3", "h2")


@pytest.mark.long
@on_postgresql
def test_no_operation_fails_when_one_of_two_brokers_is_killed(
    proxy: Proxy, behind: Behind, provider: ServerProvider
) -> None:
    first, _second = behind(2)
    log_in(proxy, provider)
    contents = [str(n).encode() for n in range(30)]
    made = []
    for n, content in enumerate(contents):
        if n == 10:
            first.kill()
        made.append(provider.createContainer(content).result(PATIENCE))
    assert [provider.getContainerContent(each.id).result(PATIENCE) for each in made] == contents


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("proxy", [Nginx], indirect=True, ids=["nginx"])
def test_an_address_with_too_many_connections_is_refused_and_others_are_not(
    proxy: Proxy, behind: Behind
) -> None:
    behind()
    head = b"POST /v1/session-challenges HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(200):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            secure = proxy.authority.wrap_socket(plain, server_hostname="localhost")
            stack.enter_context(secure).sendall(head)
        with Through(proxy) as wire:
            assert wire.call("POST", "/v1/session-challenges", {}).status == 503
        with Through(proxy, source="127.0.0.2") as wire:
            wire.call("POST", "/v1/session-challenges", {}).expect(200)


def test_the_proxies_admit_the_largest_body_of_an_operation() -> None:
    largest = max(MAX_CHUNK, *(operation.limit for operation in OPERATIONS))
    deploy = FILES.parent
    for path in (FILES / "Caddyfile", FILES / "nginx.conf", deploy / "kubernetes" / "ingress.yaml"):
        text = path.read_text("utf-8")
        (size,) = re.findall(r"(?:max_size|max_body_size|proxy-body-size:) (\d+)", text)
        assert largest < int(size) * 1_048_576 < largest + 1_048_576
