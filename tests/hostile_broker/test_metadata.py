"""Attacks on what is shown beside the content: of what kind and size it is, from when, and whose.

Attacks 20 and 22 of `catalogue`.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import (
    BrokerError,
    Container,
    ContainerEvent,
    ContainerEventType,
    Promise,
    SecuredContainer,
    ServerProvider,
)
from scbroker.crypto.seal import SigningKey
from scbroker.crypto.verify import ED25519_SIGNATURE_SIZE, SIGNATURE_SIZE
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import LABEL, parse_record
from scbroker.types import Metadata
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import ContainerView, RecordReceipt, TypeText
from scbroker.wire.users import SESSION_LABEL
from tests.hostile_broker.accomplices import (
    RECORD,
    VIEW,
    Cast,
    begun,
    cast,
    device_of,
    entries_of,
    fresh_and_marked,
    id_of,
    people,
    plant,
    relisted,
    serve_also,
    take_back,
    twin,
    victim,
    with_list,
)
from tests.hostile_broker.broker import PATIENCE, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import marks, refused
from tests.kit.brokers import clock
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Story, User

FORK = BrokerError.forkError
INTEGRITY = BrokerError.integrityError
EVENTS = "GET /v1/events"
READS: dict[str, Callable[[ServerProvider, uuid.UUID], Promise[Any]]] = {
    "getContainer": lambda device, it: device.getContainer(it),
    "getContainerMetadata": lambda device, it: device.getContainerMetadata(it),
    "getSecuredContainer": lambda device, it: device.getSecuredContainer(it),
}


# 20


def flipped(data: bytes | None, at: int = -1) -> bytes:
    assert data is not None
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def with_first(view: ContainerView, **changes: Any) -> ContainerView:
    """The view with its first record changed, under the signature that it had."""
    first = view.governing[0]
    forged = _changed(first.record, changes)
    return replace(view, governing=[replace(first, record=forged), *view.governing[1:]])


def with_head(view: ContainerView, **changes: Any) -> ContainerView:
    assert view.head is not None
    return replace(view, head=_changed(view.head, changes))


def _changed(signed: SignedObject, changes: dict[str, Any]) -> SignedObject:
    body = encode_object(replace(parse_record(signed.body), **changes))
    return replace(signed, body=body)


def longer(view: ContainerView) -> ContainerView:
    assert view.head is not None
    part = parse_record(view.head.body).content
    assert part is not None
    return with_head(view, content=replace(part, paddedLength=part.paddedLength + 1))


def more_rights(view: ContainerView) -> ContainerView:
    return with_list(
        view, lambda shown: relisted([replace(e, permissions=OWNER) for e in entries_of(shown)])
    )


A_STRANGER = bytes(range(32))
Lie = Callable[[ContainerView, User], ContainerView]
LIES: dict[str, Lie] = {
    "id": lambda view, _: with_first(view, containerId=bytes(16)),
    "access": lambda view, _: more_rights(view),
    "version": lambda view, _: with_head(view, version=3),
    "length": lambda view, _: longer(view),
    "createdAt": lambda view, _: with_first(view, time=1),
    "createdBy": lambda view, _: with_first(view, author=A_STRANGER),
    "modifiedAt": lambda view, _: with_head(view, time=clock()),
    "modifiedBy": lambda view, eve: with_head(view, author=eve.name),
    "type": lambda view, _: replace(view, type=TypeText(salt=bytes(32), type="other")),
}
OF_THE_BEGINNING = {"createdAt", "createdBy"}
"""A device with a mark knows another beginning."""
OF_THE_CHAIN = set(LIES) - {"type"}
"""Of the rest a device hears once it has verified, and marked, the chain."""


def by_alice_and_carol(who: Cast) -> Story:
    grants = {who.alice: OWNER, who.bob: READER | Level.ViewType, who.carol: WRITER}
    story = Story(who.alice).created(grants, header=b"1", type="t")
    story.tell(who.carol, story.follow(who.carol, content=b"Carol's"))
    return story


def told_with(eve: User, lie: Lie) -> Callable[[ContainerView], ContainerView]:
    return lambda view: lie(view, eve)


@attack(20, "metadata changed")
@fresh_and_marked
def test_nothing_that_is_shown_of_a_container_is_the_brokers_word(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    assert set(LIES) == set(Metadata.__dataclass_fields__)
    who = cast(mallory)
    story = by_alice_and_carol(who)
    device = victim(mallory, who.bob, story, tmp_path, marked=marked)
    device.getPublicKeys(who.eve.ring.userId).result(PATIENCE)
    for field in LIES if marked else OF_THE_CHAIN:
        error = FORK if marked and field in OF_THE_BEGINNING else INTEGRITY
        with (
            mallory.lying(VIEW, told_with(who.eve, LIES[field])),
            refused(mallory, device, error) as attempt,
        ):
            for read in READS.values():
                attempt(read(device, id_of(story)))
    shown = device.getContainerMetadata(id_of(story)).result(PATIENCE)
    assert (shown.type, shown.version, shown.length) == ("t", 2, 7)
    assert (shown.createdBy, shown.modifiedBy) == (who.alice.ring.userId, who.carol.ring.userId)


def with_signature(view: ContainerView, at: int) -> ContainerView:
    assert view.head is not None
    forged = flipped(view.head.signature, at)
    return replace(view, head=replace(view.head, signature=forged))


SECURED: dict[str, Callable[[ContainerView], ContainerView]] = {
    "record": lambda view: with_head(view, keyIndex=1),
    "signature": lambda view: with_signature(view, 0),
    "wrap": lambda view: replace(view, wrap=flipped(view.wrap)),
    "sealedHeader": lambda view: replace(view, header=flipped(view.header)),
    "sealedContent": lambda view: replace(view, content=flipped(view.content)),
}


@attack(20, "metadata changed")
@fresh_and_marked
def test_nothing_that_is_handed_out_unopened_is_the_brokers_word(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """A mark proves the record, whose signature may be any: it is verified again before it is given."""
    unopened = set(SecuredContainer.__dataclass_fields__) - set(Container.__dataclass_fields__)
    assert set(SECURED) == unopened
    who = cast(mallory)
    story = by_alice_and_carol(who)
    device = victim(mallory, who.bob, story, tmp_path, marked=marked)
    for field in SECURED if marked else ("record", "signature"):
        with mallory.lying(VIEW, SECURED[field]), refused(mallory, device, INTEGRITY) as attempt:
            attempt(device.getSecuredContainer(id_of(story)))


@attack(20, "metadata changed")
def test_what_a_write_gives_back_is_not_the_brokers_word(mallory: HostileBroker) -> None:
    """A receipt for another record than the one that was sent is refused, and not remembered."""
    [alice] = people(mallory, 1)
    device = device_of(mallory, alice)
    made = device.createContainer(b"1").result(PATIENCE)
    lies: list[Callable[[RecordReceipt], RecordReceipt]] = [
        lambda receipt: replace(receipt, version=receipt.version + 1),
        lambda receipt: replace(receipt, hash=bytes(32)),
    ]
    for version, lie in enumerate(lies, 2):
        before, count = marks(device), len(mallory.heard)
        with mallory.lying(RECORD, lie), pytest.raises(INTEGRITY):
            device.updateContainerHeader(made.id, 1).result(PATIENCE)
        assert mallory.since(count).count(RECORD) == 1
        assert marks(device) == before
        assert device.getContainerMetadata(made.id).result(PATIENCE).version == version


@attack(20, "metadata changed")
def test_a_time_that_an_author_chose_is_the_limit(mallory: HostileBroker) -> None:
    """It is their clock, not before the record that it follows; the broker may let any such time pass."""
    alice, bob = people(mallory, 2)
    story = begun(alice, {alice: OWNER, bob: WRITER}, time=clock() - 2 * MINUTE)
    plant(mallory, story, story.follow(bob, content=b"Bob's", time=story.head.time))
    shown = device_of(mallory, alice, bob).getContainerMetadata(id_of(story)).result(PATIENCE)
    assert shown.modifiedAt == shown.createdAt


@attack(20, "metadata changed")
def test_what_an_event_says_is_the_brokers_word_and_moves_no_container_which_is_the_limit(
    mallory: HostileBroker,
) -> None:
    who = cast(mallory)
    story, bob = by_alice_and_carol(who), who.bob
    device = device_of(mallory, bob)

    def lie(page: Any) -> Any:
        changes = {"version": 9, "relatedUserId": bob.id, "containerType": "other", "date": 1}
        return replace(page, events=[replace(event, **changes) for event in page.events])

    with mallory.lying(EVENTS, lie):
        events = device.getEvents(ContainerEventType.Updated).result(PATIENCE)
    assert [(e.version, e.relatedUserId) for e in events] == [(9, bob.ring.userId)]
    assert "broker's word" in (ContainerEvent.__doc__ or "")
    shown = device.getContainerMetadata(id_of(story)).result(PATIENCE)
    assert (shown.version, shown.type) == (2, "t")
    assert (shown.createdBy, shown.modifiedBy) == (who.alice.ring.userId, who.carol.ring.userId)


# 22


def other_object(user: User, body: bytes, _: bytes) -> bytes:
    """Alice did sign these bytes: as the statement of a log-in."""
    return user.ring.signing[0].sign(SESSION_LABEL, body)


def nothing(_: User, __: bytes, ___: bytes) -> bytes:
    return bytes(SIGNATURE_SIZE)


def brokers_own(_: User, body: bytes, __: bytes) -> bytes:
    return SigningKey.generate().sign(LABEL, body)


def first_half_broken(_: User, body: bytes, true: bytes) -> bytes:
    """As if Ed25519 held no longer: what it gives is right, and the other half is not."""
    return true[:ED25519_SIGNATURE_SIZE] + brokers_own(_, body, true)[ED25519_SIGNATURE_SIZE:]


def second_half_broken(_: User, body: bytes, true: bytes) -> bytes:
    return brokers_own(_, body, true)[:ED25519_SIGNATURE_SIZE] + true[ED25519_SIGNATURE_SIZE:]


@attack(22, "container injected")
@pytest.mark.parametrize(
    "sign",
    [nothing, brokers_own, other_object, first_half_broken, second_half_broken],
    ids=lambda sign: sign.__name__,
)
def test_no_container_is_shown_as_a_users_own_that_they_did_not_sign_for(
    mallory: HostileBroker, sign: Callable[[User, bytes, bytes], bytes]
) -> None:
    """All else is right, down to the wrap: with Alice's own signature it is hers."""
    [alice] = people(mallory, 1)
    story = Story(alice)
    request = story.begin(content=b"planted")
    signature = sign(alice, request.record.body, request.record.signature)
    plant(mallory, story, replace(request, record=replace(request.record, signature=signature)))
    device = device_of(mallory, alice)
    with refused(mallory, device, INTEGRITY) as attempt:
        for read in READS.values():
            attempt(read(device, id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))
    plant(mallory, story, request)
    shown = device.getContainer(id_of(story)).result(PATIENCE)
    assert (shown.createdBy, shown.content) == (alice.ring.userId, b"planted")


INJECTED: dict[str, Callable[[User], dict[str, Any]]] = {
    "content": lambda _: {"content": b"planted"},
    "header": lambda _: {"header": b'"planted"'},
    "nothing": lambda _: {},
    "access": lambda eve: {"grants": {eve: OWNER}},
    "type": lambda _: {"type": "planted"},
    "deletion": lambda _: {"tombstone": True},
}


@attack(22, "container injected")
@fresh_and_marked
def test_nothing_is_shown_in_a_container_by_who_never_had_access(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """Eve has every key of it, from wherever."""
    alice, bob, _, eve = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: READER})
    devices = [victim(mallory, user, story, tmp_path, marked=marked) for user in (alice, bob)]
    for device in devices:
        device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    for changes in INJECTED.values():
        lie = twin(story)
        forged = lie.follow(eve, **changes(eve))
        lie.send(eve, forged).expect(404, "not-found")
        plant(mallory, lie, forged)
        for device in devices:
            with refused(mallory, device, INTEGRITY) as attempt:
                attempt(device.getContainer(id_of(story)))
                attempt(device.getContainerMetadata(id_of(story)))
                attempt(device.updateContainerContent(id_of(story), b"secret"))
        take_back(mallory, story)


@attack(22, "container injected")
def test_what_a_stranger_gives_to_a_user_is_shown_as_the_strangers(mallory: HostileBroker) -> None:
    """The broker says in its events that it is Alice's own; anybody may give her something."""
    alice, _, _, eve = cast(mallory)
    story = Story(eve).created({eve: OWNER, alice: OWNER}, content=b"planted")
    device = device_of(mallory, alice)

    def lie(page: Any) -> Any:
        return replace(page, events=[replace(e, relatedUserId=alice.id) for e in page.events])

    with mallory.lying(EVENTS, lie):
        [event] = device.getEvents(ContainerEventType.Added).result(PATIENCE)
    assert (event.containerId, event.relatedUserId) == (id_of(story), alice.ring.userId)
    for read in READS.values():
        shown = read(device, id_of(story)).result(PATIENCE)
        assert (shown.createdBy, shown.modifiedBy) == (eve.ring.userId, eve.ring.userId)


@attack(22, "container injected")
@fresh_and_marked
def test_no_container_is_shown_in_the_place_of_another_or_to_who_is_not_in_its_list(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    alice, _, _, eve = cast(mallory)
    own = Story(alice).created(content=b"Alice's")
    given = Story(eve).created({eve: OWNER, alice: OWNER}, content=b"planted")
    kept = Story(eve).created(content=b"Eve's")
    serve_also(mallory, id_of(kept), alice, None)
    device = victim(mallory, alice, own, tmp_path, marked=marked)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    other = alice.view(given, "header=1&content=1")
    with mallory.lying(VIEW, lambda _: other), refused(mallory, device, INTEGRITY) as attempt:
        for read in READS.values():
            attempt(read(device, id_of(own)))
        attempt(device.updateContainerContent(id_of(own), b"secret"))
    with refused(mallory, device, INTEGRITY) as attempt:
        for read in READS.values():
            attempt(read(device, id_of(kept)))
        attempt(device.updateContainerContent(id_of(kept), b"secret"))
