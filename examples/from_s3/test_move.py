"""The move out of a bucket, with a real broker: `scbroker_broker` of scbroker's pytest plugin."""

from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, ObjectStore

from examples.from_s3.move import TYPE, Move, MovedObject
from scbroker import AccessLevel, Container, ContainerAccessLevel, ServerProvider
from scbroker.testing import LocalBroker

OBJECTS = {"2025/report.pdf": b"the report", "film.mkv": bytes(range(256)) * 12_000, "empty": b""}


@pytest.fixture
def alice(scbroker_broker: LocalBroker) -> ServerProvider:
    return scbroker_broker.new_user()


def filled(bucket: ObjectStore) -> ObjectStore:
    for key, content in OBJECTS.items():
        obstore.put(bucket, key, content)
    return bucket


def contents(provider: ServerProvider) -> dict[str, Any]:
    return {
        each.header.customHeaderObject.key: provider.getContainerContent(each.id).result()
        for each in provider.listContainers(TYPE, headerType=MovedObject).result().containers
        if isinstance(each, Container) and each.header is not None
    }


def check(bucket: ObjectStore, provider: ServerProvider) -> None:
    """Copy, copy again, delete: the containers have every byte, and each object has one container."""
    assert len(list(Move(filled(bucket), provider).run())) == len(OBJECTS)
    assert contents(provider) == OBJECTS
    again = list(Move(bucket, provider, delete=True).run())
    assert all(line.endswith("was moved before") for line in again)
    assert contents(provider) == OBJECTS
    assert len(provider.listContainers(TYPE).result().containers) == len(OBJECTS)
    assert [item for page in obstore.list(bucket) for item in page] == []


def test_objects_of_a_folder_become_containers_once_each(
    alice: ServerProvider, tmp_path: Path
) -> None:
    check(LocalStore(tmp_path), alice)


def test_an_object_that_changed_in_the_bucket_is_moved_again(
    alice: ServerProvider, tmp_path: Path
) -> None:
    bucket = filled(LocalStore(tmp_path))
    list(Move(bucket, alice).run())
    obstore.put(bucket, "empty", b"not any more")
    lines = list(Move(bucket, alice).run())
    assert [line.partition(":")[0] for line in lines if "before" not in line] == ["empty"]


def test_a_container_of_somebody_else_never_counts_as_the_copy_of_an_object(
    scbroker_broker: LocalBroker, alice: ServerProvider, tmp_path: Path
) -> None:
    bucket = filled(LocalStore(tmp_path))
    mallory = scbroker_broker.new_user()
    owner = ContainerAccessLevel.DefaultOwnerPermissions
    both = [AccessLevel(each.getUserId().result(), owner) for each in (mallory, alice)]
    for item in Move(bucket, mallory)._objects():
        mallory.createContainer(b"", item, both, TYPE).result()
    assert not any("before" in line for line in Move(bucket, alice, delete=True).run())
    own = alice.getUserId().result()
    found = alice.listContainers(TYPE).result().containers
    copies = [each for each in found if isinstance(each, Container) and each.createdBy == own]
    assert len(copies) == len(OBJECTS)


def test_a_copy_that_another_member_has_changed_is_made_again(
    scbroker_broker: LocalBroker, alice: ServerProvider, tmp_path: Path
) -> None:
    bucket = filled(LocalStore(tmp_path))
    mallory = scbroker_broker.new_user()
    list(Move(bucket, alice).run())
    [copy, *_] = [
        each
        for each in alice.listContainers(TYPE).result().containers
        if isinstance(each, Container)
    ]
    writer = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload
    alice.grantAccess(copy.id, AccessLevel(mallory.getUserId().result(), writer)).result()
    assert all("before" in line for line in Move(bucket, alice).run())
    mallory.updateContainerContent(copy.id, b"not the object").result()
    again = [line for line in Move(bucket, alice, delete=True).run() if "before" not in line]
    assert len(again) == 1
