"""A broker's requests to an S3 over a link that cuts some of them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import obstore
import pytest

from assurance.cluster.ceph import ObjectGateway
from assurance.faults.proxy import Link
from scbroker.crypto.seal import random_bytes
from scbroker.server.storage.blobs import Blobs, new_blob_name, open_blobs
from scbroker.wire.parts import MAX_CHUNK

pytestmark = pytest.mark.cluster("ceph")
ALWAYS = 1000


@contextmanager
def _linked(
    gateway: ObjectGateway, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Link, Blobs, str]]:
    """Open a new bucket as a broker does, behind a link."""
    bucket = gateway.new_bucket()
    with Link(int(gateway.endpoint.rpartition(":")[2])) as link:
        for name, value in gateway.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{link.port}")
        yield link, open_blobs(f"s3://{bucket}"), bucket


def test_a_full_chunk_is_stored_in_one_request_and_not_as_a_multipart_upload(
    gateway: ObjectGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    octets, name = random_bytes(MAX_CHUNK), new_blob_name(random_bytes(16))
    with _linked(gateway, monkeypatch) as (link, store, bucket):
        link.cut_once(b"uploads", answered=False, times=ALWAYS)
        asyncio.run(store.put(name, octets))
        assert link.cuts == 0
        assert obstore.get(gateway.store(bucket), name).bytes() == octets


def test_an_object_that_cannot_be_deleted_does_not_stop_the_deletion_of_others(
    gateway: ObjectGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, stuck, last = sorted(new_blob_name(random_bytes(16)) for _ in range(3))
    with _linked(gateway, monkeypatch) as (link, store, bucket):
        for name in (first, stuck, last):
            obstore.put(gateway.store(bucket), name, b"x")
        link.cut_once(stuck.encode(), answered=False, times=ALWAYS)
        tried = asyncio.run(store.remove([first, stuck, last]))
        assert link.cuts > 1
        assert tried == {first: True, stuck: False, last: True}
        left = [item["path"] for page in obstore.list(gateway.store(bucket)) for item in page]
        assert left == [stuck]
