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

from scbroker import KeyRing
from scbroker.client.core.sealing import NewPart
from scbroker.crypto.seal import SigningKey
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import Part, Role
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import WRITES, Cast, Mallory
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import DECRYPTION
from tests.hostile_broker.served import governing_of, with_wrap, wrap_of
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Story, User, rotate

all_mount(__name__, 11, "replayed wraps and parts")

# By the broker.


# By a member who signs for it. Eve is the owner, and Alice reads.


def from_another_user(who: Cast) -> Story:
    """Bob published Alice's encryption key as his own: the wrap is to the very same key."""
    alice, bob, _, eve = who
    story = Story(eve)
    request = story.begin({eve: OWNER, alice: WRITER, bob: READER})
    story.tell(eve, with_wrap(story, eve, request, alice, wrap_of(request, bob)))
    return story


def from_another_container(who: Cast) -> Story:
    other, story = Story(who.eve), Story(who.eve)
    story.key = other.key
    grants = {who.eve: OWNER, who.alice: WRITER}
    wrap = wrap_of(other.begin(grants), who.alice)
    story.tell(who.eve, with_wrap(story, who.eve, story.begin(grants), who.alice, wrap))
    return story


def from_another_version(who: Cast) -> Story:
    """The first key comes into force again, with the first wrap."""
    grants = {who.eve: OWNER, who.alice: WRITER}
    story = Story(who.eve)
    first = story.begin(grants, content=None)
    story.tell(who.eve, first)
    key = story.key
    story.tell(who.eve, story.follow(who.eve, grants=grants))
    request = rekeyed(story, who.eve, grants, key)
    story.tell(who.eve, with_wrap(story, who.eve, request, who.alice, wrap_of(first, who.alice)))
    return story


def from_another_author(who: Cast) -> Story:
    """Two changes of access follow one record, and one has the wrap of the other."""
    grants = {who.eve: OWNER, who.carol: OWNER, who.alice: WRITER}
    story = Story(who.eve)
    story.tell(who.eve, story.begin(grants, content=None))
    key = bytes(range(32))
    wrap = wrap_of(rekeyed(story, who.carol, grants, key), who.alice)
    request = rekeyed(story, who.eve, grants, key)
    story.tell(who.eve, with_wrap(story, who.eve, request, who.alice, wrap))
    return story


def from_another_key(who: Cast) -> Story:
    """The wrap to Alice's first key, under the index of her second."""
    story = Story(who.eve)
    old = User(KeyRing(1, who.alice.ring.signing, who.alice.ring.encryption[:1]), who.alice.wire)
    wrap = wrap_of(story.begin({who.eve: OWNER, old: WRITER}), who.alice)
    request = story.begin({who.eve: OWNER, who.alice: WRITER})
    story.tell(who.eve, with_wrap(story, who.eve, request, who.alice, wrap))
    return story


def rekeyed(story: Story, author: User, grants: dict[User, int], key: bytes) -> RecordRequest:
    """A change of access that puts a given container key in force."""
    request = story.follow(author, grants=grants)
    version = story.head.version + 1
    digest = governing_of(request).type
    governing, entries = story.access(version, author, grants, key, digest)
    changed = story.altered(author, request, governing=governing)
    return replace(changed, accessList=entries)


MOVES = [
    from_another_user, from_another_container, from_another_version, from_another_author,
    from_another_key,
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_a_wrap_opens_in_its_own_place_alone_whoever_signs_for_another(
    mallory: Mallory, move: Callable[[Cast], Story], who: Cast
) -> None:
    if move is from_another_user:
        same = KeyRing(1, (SigningKey.generate(),), who.alice.ring.encryption)
        who = who._replace(bob=mallory.person(same))
    if move is from_another_key:
        newer = rotate(mallory.behind.database_url, who.alice, encryption=1)
        who = who._replace(alice=newer)
    story = move(who)
    device = mallory.device_of(who.alice, who.eve, who.carol)
    with suppress(DECRYPTION):  # the chain is right, and is marked
        device.getContainerMetadata(story.uuid).result(PATIENCE)
    mallory.check_refused(device, story, DECRYPTION, "getContainer", "getContainerMetadata")
    mallory.check_refused(device, story, DECRYPTION, *WRITES[:2])


def one_axis_off(part: NewPart, axis: str, other: User) -> NewPart:
    """A part of the same key in another place."""
    changes: dict[str, dict[str, Any]] = {
        "container": {"container_id": bytes(16)},
        "part": {"part_id": bytes(16)},
        "role": {"role": Role.Header},
        "author": {"author": other.name},
    }
    return with_fields(part, **changes.get(axis, {}))


@pytest.mark.sampled
@pytest.mark.parametrize("axis", ["container", "part", "role", "author", "container key"])
def test_a_sealed_part_key_opens_in_its_own_place_alone_whoever_signs_for_another(
    mallory: Mallory, axis: str, who: Cast
) -> None:
    story = Story(who.eve)
    part = NewPart.begin(story.id, Role.Content, who.eve.name)
    sealed = part.seal_segment(0, True, b"truth")
    key = bytes(32) if axis == "container key" else story.key
    moved = one_axis_off(part, axis, who.carol).finish(key, 5, sha256(sealed))
    check_refused(mallory, who, story, part, moved, sealed)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "axis", ["container", "part", "role", "author", "index", "last", "part key"]
)
def test_a_segment_opens_in_its_own_place_alone_whoever_signs_for_another(
    mallory: Mallory, axis: str, who: Cast
) -> None:
    story = Story(who.eve)
    part = NewPart.begin(story.id, Role.Content, who.eve.name)
    other = one_axis_off(part, axis, who.carol)
    if axis == "part key":
        other = with_fields(part, key=bytes(32))
    moved = other.seal_segment(int(axis == "index"), axis != "last", b"truth")
    check_refused(mallory, who, story, part, part.finish(story.key, 5, sha256(moved)), moved)


def check_refused(
    mallory: Mallory, who: Cast, story: Story, part: NewPart, named: Part, sealed: bytes
) -> None:
    """A moved part does not open; the same content in its own place does."""
    grants = {who.eve: OWNER, who.alice: READER}
    named = replace(named, partId=part.part_id, author=part.author)
    request = story.altered(who.eve, story.begin(grants), content=named)
    story.tell(who.eve, replace(request, content=sealed))
    device = mallory.device_of(who.alice, who.eve)
    with suppress(DECRYPTION):
        device.getContainerMetadata(story.uuid).result(PATIENCE)
    mallory.check_refused(device, story, DECRYPTION, "getContainer", "getContainerContent")
    story.tell(who.eve, story.follow(who.eve, content=b"truth"))
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"truth"
