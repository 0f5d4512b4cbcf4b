"""Large contents go directly to a real S3, are verified all the same, and leave no stray objects."""

import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import obstore
import pytest
from msgspec.structs import replace

from assurance.cluster.ceph import ObjectGateway
from scbroker import BrokerError, FileTrustStore, ServerProvider
from scbroker.records.container_record import SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK, Transfers
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.hostile_broker.broker import Exchange, HostileBroker
from tests.kit.brokers import BrokerProcess
from tests.kit.scripts import run_script
from tests.kit.tables import count_rows, query
from tests.kit.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.cluster("ceph")

CHUNK: Final = CHUNK_SEGMENTS * SEGMENT
SIZE: Final = 40 * SEGMENT + 12_345
CHUNKS: Final = 6
PART: Final = "/v1/containers/{containerId}/parts/{partId}"
TRANSFERS: Final = f"POST {PART}/transfers"
ADDRESSES: Final = f"GET {PART}/transfers"
SENT: Final = f"POST {PART}/chunks"
PUT: Final = f"PUT {PART}/chunks/{{index}}"
SEGMENTS: Final = f"GET {PART}/segments"
HOUR: Final = 3_600_000_000


class Scene:
    """A broker on a bucket of its own, behind a relay that records requests and answers."""

    def __init__(self, gateway: ObjectGateway, folder: Path, **settings: Any) -> None:
        self.gateway = gateway
        bucket = gateway.new_bucket()
        self.bucket = gateway.store(bucket)
        url = f"s3://{bucket}/prefix"
        self.broker = HostileBroker(
            folder, BrokerProcess, object_store_url=url, variables=gateway.environment, **settings
        )

    def device(self, *, origins: bool = True, **options: Any) -> ServerProvider:
        """Return a device of a new user, or without a user if a trust store is given."""
        stores = [self.gateway.endpoint] if origins else []
        ring = None if "store" in options else self.broker.new_user()
        return self.broker.device(ring, objectStoreOrigins=stores, **options)

    def objects(self) -> dict[str, int]:
        """Return names and sizes of the chunks in the bucket."""
        return {
            item["path"]: item["size"]
            for page in obstore.list(self.bucket)
            for item in page
            if not item["path"].endswith("/check")
        }

    def carried(self, since: int) -> int:
        """Return the number of bytes that went through the broker in both directions."""
        return sum(len(e.body) + len(e.answer_body) for e in self.broker.heard[since:])

    def expired(self, answer: Transfers, method: Literal["GET", "PUT"]) -> Transfers:
        """Return the answer with presigned URLs of the same objects that have expired."""
        brief = timedelta(seconds=1)
        paths = [urlsplit(each.url).path.split("/", 2)[2] for each in answer.transfers]
        urls = [obstore.sign(self.bucket, method, path, brief) for path in paths]
        last = obstore.sign(self.bucket, "GET", "never-stored", brief)
        wait_until(lambda: _status(last) == 403)
        given = zip(answer.transfers, urls, strict=True)
        return replace(answer, transfers=[replace(each, url=url) for each, url in given])

    def sweep(self) -> None:
        """Run a sweep: each deletion does, and otherwise once a minute."""
        device = self.device()
        device.deleteContainer(device.createContainer(b"x").result(PATIENCE).id).result(PATIENCE)


def _status(url: str) -> int:
    try:
        with urlopen(url, timeout=PATIENCE) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def _shared(gateway: ObjectGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(gateway, tmp_path_factory.mktemp("broker"))
    with scene.broker:
        yield scene


@pytest.fixture
def scene(_shared: Scene) -> Iterator[Scene]:
    with _shared.broker.scene():
        yield _shared


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "large"
    path.write_bytes(os.urandom(SIZE))
    return path


def test_forty_mebibytes_are_stored_and_read_without_passing_through_the_broker(
    scene: Scene, file: Path
) -> None:
    alice = scene.device()
    before = len(scene.broker.heard)
    there = set(scene.objects())
    steps: list[int] = []
    made = alice.createContainer(file, progress=lambda done, _: steps.append(done)).result(PATIENCE)
    assert steps[-1] == SIZE
    new = {name: size for name, size in scene.objects().items() if name not in there}
    assert sorted(new.values())[1:] == [MAX_CHUNK] * (CHUNKS - 1)
    assert sum(new.values()) > SIZE
    assert scene.carried(before) < 40_000
    assert scene.broker.since(before).count(SENT) == CHUNKS
    assert scene.broker.since(before).count(TRANSFERS) == 1
    before = len(scene.broker.heard)
    assert alice.getContainerContent(made.id).result(PATIENCE) == file.read_bytes()
    assert scene.carried(before) < 40_000
    assert scene.broker.since(before).count(ADDRESSES) == 1
    assert SEGMENTS not in scene.broker.since(before)


def test_a_range_across_chunks_is_fetched_and_no_more_than_its_segments(
    scene: Scene, file: Path
) -> None:
    alice = scene.device()
    made = alice.createContainer(file).result(PATIENCE)
    content = file.read_bytes()
    before = len(scene.broker.heard)
    opened = alice.openContainerContent(made.id).result(PATIENCE)
    assert opened is not None
    with opened as reader:
        for start, length in ((CHUNK - 5, 10), (0, 1), (3 * SEGMENT, 7 * SEGMENT), (SIZE - 3, 9)):
            found = reader.readRange(start, length).result(PATIENCE)
            assert found == content[start : start + length], (start, length)
    assert SEGMENTS not in scene.broker.since(before)


@pytest.mark.usefixtures("real_argon2id")  # the KeyFile is made in another process
def test_an_upload_of_a_killed_client_is_resumed_by_another_process(
    scene: Scene, file: Path, tmp_path: Path
) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        from scbroker import FileTrustStore, ServerProvider
        from scbroker.client.parts import Meter
        key, url, store, file, folder, password, passphrase = sys.argv[1:]
        provider = ServerProvider(
            key, url, "first", trustStore=FileTrustStore(folder), objectStoreOrigins=[store]
        )
        provider.register(password, passphrase).result()
        print(provider.getUserId().result(), flush=True)

        acknowledged = []

        def count(meter, chunk, length):
            acknowledged.append(chunk)
            if len(acknowledged) == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        Meter.complete = count  # called once a chunk is acknowledged
        provider.createContainer(Path(file)).result()
    """
    folder, broker = tmp_path / "device", scene.broker
    words = [str(broker.behind.api_key), broker.url, scene.gateway.endpoint, str(file)]
    before = count_rows(broker.behind.database_url, "chunks")
    ended = run_script(script, *words, str(folder), PASSWORD, PASSPHRASE)
    assert ended.returncode == -9, ended.stderr
    assert count_rows(broker.behind.database_url, "chunks") - before >= CHUNKS // 2
    again = scene.device(store=FileTrustStore(folder))
    again.logIn(uuid.UUID(ended.stdout.strip()), passphrase=PASSPHRASE).result(PATIENCE)
    before = len(broker.heard)
    made = again.createContainer(file).result(PATIENCE)
    assert 1 <= broker.since(before).count(SENT) <= CHUNKS // 2
    assert PUT not in broker.since(before)
    assert again.getContainerContent(made.id).result(PATIENCE) == file.read_bytes()


def test_an_expired_presigned_url_is_requested_again(scene: Scene, file: Path) -> None:
    """The first URLs claim to be valid, and have expired when they arrive."""
    alice = scene.device()
    made = None
    methods: dict[str, Literal["GET", "PUT"]] = {TRANSFERS: "PUT", ADDRESSES: "GET"}
    for name in list(methods):

        def expire(answer: Transfers, name: str = name) -> Transfers:
            method = methods.pop(name, None)
            return answer if method is None else scene.expired(answer, method)

        before = len(scene.broker.heard)
        with scene.broker.lying(name, expire):
            if made is None:
                made = alice.createContainer(file).result(PATIENCE)
            else:
                found = alice.getContainerContent(made.id).result(PATIENCE)
                assert found == file.read_bytes()
        assert scene.broker.since(before).count(name) > 1
        assert {PUT, SEGMENTS}.isdisjoint(scene.broker.since(before))


def test_an_object_store_that_does_not_answer_is_unreachable_and_works_again_later(
    scene: Scene, file: Path
) -> None:
    alice = scene.device()
    made = alice.createContainer(b"x" * 100_000).result(PATIENCE)
    scene.gateway.stop_gateway()
    try:
        with pytest.raises(BrokerError.unreachableError, match="object store"):
            alice.createContainer(file).result(PATIENCE)
        with pytest.raises(BrokerError.unreachableError, match="object store"):
            alice.getContainerContent(made.id).result(PATIENCE)
    finally:
        scene.gateway.start_gateway()
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"x" * 100_000


def test_an_object_that_was_never_reported_is_swept_an_hour_after_its_url_expired(
    scene: Scene, file: Path
) -> None:
    alice = scene.device()
    there = set(scene.objects())

    def deny(exchange: Exchange) -> None:
        exchange.status, exchange.answer_headers = 403, {"content-type": "application/problem+json"}
        exchange.answer_body = (
            b'{"type":"about:blank","title":"x","status":403,"detail":"x","code":"permission"}'
        )

    with scene.broker.meddling(SENT, before=deny), pytest.raises(BrokerError.permissionDeniedError):
        alice.createContainer(file).result(PATIENCE)
    orphans = set(scene.objects()) - there
    assert orphans
    scene.sweep()
    assert orphans <= set(scene.objects()), "swept although their URLs are still valid"
    query(scene.broker.behind.database_url, "UPDATE pending_blobs SET since = since - ?", 2 * HOUR)
    scene.sweep()
    wait_until(lambda: orphans.isdisjoint(scene.objects()))  # while another sweep runs, it goes on


def test_an_object_stored_again_after_a_deletion_is_swept_too(scene: Scene, file: Path) -> None:
    alice = scene.device()
    there = set(scene.objects())
    urls: list[str] = []

    def listen(exchange: Exchange) -> None:
        urls.extend(transfer.url for transfer in exchange.answer.transfers)

    with scene.broker.meddling(TRANSFERS, after=listen):
        made = alice.createContainer(file).result(PATIENCE)
    names = set(scene.objects()) - there
    alice.deleteContainer(made.id).result(PATIENCE)
    assert names.isdisjoint(scene.objects())
    obstore.put(scene.bucket, min(names), b"again, by a URL that is still valid")
    scene.sweep()
    assert min(names) in scene.objects()
    later = "UPDATE pending_blobs SET since = since - ?"
    query(scene.broker.behind.database_url, later, 2 * HOUR)
    scene.sweep()
    wait_until(lambda: min(names) not in scene.objects())
    assert len(urls) == CHUNKS


def test_acknowledged_objects_survive_a_kill_of_the_osd(file: Path, tmp_path: Path) -> None:
    with ObjectGateway(durable=True) as gateway:
        scene = Scene(gateway, tmp_path)
        with scene.broker, scene.broker.scene():
            alice = scene.device()
            made = alice.createContainer(file).result(PATIENCE)
            gateway.crash_osd()
            gateway.start_osd()
            assert alice.getContainerContent(made.id).result(PATIENCE) == file.read_bytes()
