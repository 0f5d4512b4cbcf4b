"""Wraps, sealed part keys and segments in another place than the one that they were made for.

Twice: moved by a broker, which the hashes in the signed records show; and moved by a member who signs
records in which every hash fits, so that nothing but what each sealing is bound to stands in the way. A
broker cannot look inside and takes the latter. Attack 11 of `catalogue`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as with_fields
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, KeyRing
from scbroker.client.core.sealing import NewPart
from scbroker.crypto.seal import SigningKey
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT, Part, Role
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import (
    VIEW,
    Cast,
    altered,
    cast,
    device_of,
    id_of,
    instead,
    people,
    person,
    take,
    with_wrap,
    wrap_of,
)
from tests.hostile_broker.broker import PATIENCE, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.writers import OWNER, READER, WRITER, Story, User, rotate

DECRYPTION = BrokerError.decryptionError
INTEGRITY = BrokerError.integrityError
HASHES = "GET /v1/containers/{containerId}/parts/{partId}/hashes"
SEGMENTS = "GET /v1/containers/{containerId}/parts/{partId}/segments"

# By the broker.


@attack(11, "replayed wraps and parts")
def test_no_wrap_or_part_is_taken_from_another_user_container_version_or_role(
    mallory: HostileBroker,
) -> None:
    alice, bob, _, _ = cast(mallory)
    grants = {alice: OWNER, bob: OWNER}
    story, other = Story(bob), Story(bob)
    first = story.begin(grants, header=b'"1"', content=b"one")
    second_of = other.begin(grants, header=b'"9"', content=b"two")
    take(story, bob, first)
    take(other, bob, second_of)
    second = story.follow(bob, grants=grants, header=b'"2"', content=b"new")
    take(story, bob, second)
    device = device_of(mallory, alice, bob)
    device.getContainer(id_of(story)).result(PATIENCE)
    for moved in (wrap_of(second, bob), wrap_of(second_of, alice), wrap_of(first, alice)):
        with mallory.lying(VIEW, instead(wrap=moved)):
            with refused(mallory, device, INTEGRITY) as attempt:
                attempt(device.getContainer(id_of(story)))
            with refused(mallory, device, DECRYPTION) as attempt:
                attempt(device.updateContainerContent(id_of(story), b"secret"))
    for header, content in (
        (second.content, second.header),
        (second_of.header, second_of.content),
        (first.header, first.content),
    ):
        with (
            mallory.lying(VIEW, instead(header=header)),
            refused(mallory, device, INTEGRITY) as attempt,
        ):
            attempt(device.getContainerHeader(id_of(story)))
        with (
            mallory.lying(VIEW, instead(content=content)),
            refused(mallory, device, INTEGRITY) as attempt,
        ):
            attempt(device.getContainerContent(id_of(story)))


@attack(11, "replayed wraps and parts")
def test_no_segment_is_taken_from_another_index_part_or_version(mallory: HostileBroker) -> None:
    """A content of three segments; what is moved comes with the hashes that are its own."""
    [alice] = people(mallory, 1)
    device = device_of(mallory, alice)
    made = device.createContainer(bytes(2 * SEGMENT + 9)).result(PATIENCE)
    with (
        mallory.lying(HASHES, lambda data: data) as hashes,
        mallory.lying(SEGMENTS, lambda data: data) as segments,
    ):
        device.getContainerContent(made.id).result(PATIENCE)
        device.updateContainerContent(made.id, bytes(2 * SEGMENT + 9)).result(PATIENCE)
        device.getContainerContent(made.id).result(PATIENCE)
    old, now = segments
    size = SEALED_SEGMENT
    swapped = now[size : 2 * size] + now[:size] + now[2 * size :]
    mixed = old[:size] + now[size:]

    def served(octets: bytes) -> Callable[[bytes], bytes]:
        return lambda _: octets

    def hashed(data: bytes) -> bytes:
        return b"".join(sha256(data[at : at + size]) for at in range(0, len(data), size))

    for moved in (swapped, mixed, old):
        with mallory.lying(SEGMENTS, served(moved)):
            with refused(mallory, device, INTEGRITY) as attempt:
                attempt(device.getContainerContent(made.id))
            with (
                mallory.lying(HASHES, served(hashed(moved))),
                refused(mallory, device, INTEGRITY) as attempt,
            ):
                attempt(device.getContainerContent(made.id))
    assert hashed(now) == hashes[1]


# By a member who signs for it. Eve is the owner, and Alice reads.


def from_another_user(who: Cast) -> Story:
    """Bob published Alice's encryption key as his own: the wrap is to the very same key."""
    alice, bob, _, eve = who
    story = Story(eve)
    request = story.begin({eve: OWNER, alice: WRITER, bob: READER})
    take(story, eve, with_wrap(story, eve, request, alice, wrap_of(request, bob)))
    return story


def from_another_container(who: Cast) -> Story:
    other, story = Story(who.eve), Story(who.eve)
    story.key = other.key
    grants = {who.eve: OWNER, who.alice: WRITER}
    wrap = wrap_of(other.begin(grants), who.alice)
    take(story, who.eve, with_wrap(story, who.eve, story.begin(grants), who.alice, wrap))
    return story


def from_another_version(who: Cast) -> Story:
    """The first key comes into force again, with the first wrap."""
    grants = {who.eve: OWNER, who.alice: WRITER}
    story = Story(who.eve)
    first = story.begin(grants, content=None)
    take(story, who.eve, first)
    key = story.key
    take(story, who.eve, story.follow(who.eve, grants=grants))
    request = rekeyed(story, who.eve, grants, key)
    take(story, who.eve, with_wrap(story, who.eve, request, who.alice, wrap_of(first, who.alice)))
    return story


def from_another_author(who: Cast) -> Story:
    """Of two changes of access that follow one record, one takes the wrap of the other."""
    grants = {who.eve: OWNER, who.carol: OWNER, who.alice: WRITER}
    story = Story(who.eve)
    take(story, who.eve, story.begin(grants, content=None))
    key = bytes(range(32))
    wrap = wrap_of(rekeyed(story, who.carol, grants, key), who.alice)
    request = rekeyed(story, who.eve, grants, key)
    take(story, who.eve, with_wrap(story, who.eve, request, who.alice, wrap))
    return story


def from_another_key(who: Cast) -> Story:
    """The wrap to Alice's first key, under the index of her second."""
    story = Story(who.eve)
    old = User(KeyRing(1, who.alice.ring.signing, who.alice.ring.encryption[:1]), who.alice.wire)
    wrap = wrap_of(story.begin({who.eve: OWNER, old: WRITER}), who.alice)
    request = story.begin({who.eve: OWNER, who.alice: WRITER})
    take(story, who.eve, with_wrap(story, who.eve, request, who.alice, wrap))
    return story


def rekeyed(story: Story, author: User, grants: dict[User, int], key: bytes) -> RecordRequest:
    """A change of access that puts a given container key in force."""
    request = story.follow(author, grants=grants)
    version = story.head.version + 1
    before = story.governing.governing
    assert before is not None
    governing, entries = story.access(version, author, grants, key, before.type)
    changed = altered(story, author, request, governing=governing)
    return replace(changed, accessList=entries)


@attack(11, "replayed wraps and parts")
@pytest.mark.parametrize(
    "move",
    [
        from_another_user,
        from_another_container,
        from_another_version,
        from_another_author,
        from_another_key,
    ],
    ids=lambda move: move.__name__,
)
def test_a_wrap_opens_in_its_own_place_alone_whoever_signs_for_another(
    mallory: HostileBroker, move: Callable[[Cast], Story]
) -> None:
    who = cast(mallory)
    if move is from_another_user:
        same = KeyRing(1, (SigningKey.generate(),), who.alice.ring.encryption)
        who = who._replace(bob=person(mallory, same))
    if move is from_another_key:
        newer = rotate(mallory.behind.database_url, who.alice, encryption=1)
        who = who._replace(alice=newer)
    story = move(who)
    device = device_of(mallory, who.alice, who.eve, who.carol)
    with suppress(BrokerError.decryptionError):  # the chain is right, and is marked
        device.getContainerMetadata(id_of(story)).result(PATIENCE)
    with refused(mallory, device, DECRYPTION) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.getContainerMetadata(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))
        attempt(device.updateContainerHeader(id_of(story), {"secret": 1}))


def one_axis_off(part: NewPart, axis: str, other: User) -> NewPart:
    """A part of the same key in another place."""
    changes: dict[str, dict[str, Any]] = {
        "container": {"container_id": bytes(16)},
        "part": {"part_id": bytes(16)},
        "role": {"role": Role.Header},
        "author": {"author": other.name},
    }
    return with_fields(part, **changes.get(axis, {}))


@attack(11, "replayed wraps and parts")
@pytest.mark.parametrize("axis", ["container", "part", "role", "author", "container key"])
def test_a_sealed_part_key_opens_in_its_own_place_alone_whoever_signs_for_another(
    mallory: HostileBroker, axis: str
) -> None:
    who = cast(mallory)
    story = Story(who.eve)
    part = NewPart.begin(story.id, Role.Content, who.eve.name)
    sealed = part.seal_segment(0, True, b"truth")
    key = bytes(32) if axis == "container key" else story.key
    moved = one_axis_off(part, axis, who.carol).finish(key, 5, sha256(sealed))
    check_refused(mallory, who, story, part, moved, sealed)


@attack(11, "replayed wraps and parts")
@pytest.mark.parametrize(
    "axis", ["container", "part", "role", "author", "index", "last", "part key"]
)
def test_a_segment_opens_in_its_own_place_alone_whoever_signs_for_another(
    mallory: HostileBroker, axis: str
) -> None:
    who = cast(mallory)
    story = Story(who.eve)
    part = NewPart.begin(story.id, Role.Content, who.eve.name)
    other = one_axis_off(part, axis, who.carol)
    if axis == "part key":
        other = with_fields(part, key=bytes(32))
    moved = other.seal_segment(int(axis == "index"), axis != "last", b"truth")
    check_refused(mallory, who, story, part, part.finish(story.key, 5, sha256(moved)), moved)


def check_refused(
    mallory: HostileBroker, who: Cast, story: Story, part: NewPart, named: Part, sealed: bytes
) -> None:
    """What is moved does not open; the same content in its own place does, before and after."""
    grants = {who.eve: OWNER, who.alice: READER}
    named = replace(named, partId=part.part_id, author=part.author)
    request = altered(story, who.eve, story.begin(grants), content=named)
    take(story, who.eve, replace(request, content=sealed))
    device = device_of(mallory, who.alice, who.eve)
    with suppress(BrokerError.decryptionError):
        device.getContainerMetadata(id_of(story)).result(PATIENCE)
    with refused(mallory, device, DECRYPTION) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.getContainerContent(id_of(story)))
    story.tell(who.eve, story.follow(who.eve, content=b"truth"))
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"truth"
