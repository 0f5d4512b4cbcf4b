"""Attacks on what is shown beside the content: of what kind and size it is, from when, and whose.

Attacks 20, 22, 51 and 58 of attacks.toml.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, Container, ContainerEvent, ContainerEventType, SecuredContainer
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import LABEL, Via, bare_body, parse_record
from scbroker.server.broker import Broker, Call
from scbroker.server.containers import views
from scbroker.server.events import log
from scbroker.types import Metadata
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import (
    ContainerView,
    ListView,
    RecordReceipt,
    SignedRecord,
    TypeText,
    ViewQuery,
)
from scbroker.wire.users import SESSION_LABEL
from tests.hostile_broker.accomplices import (
    READS,
    WRITES,
    Cast,
    Mallory,
    fresh_and_marked,
    level,
    verified_marks,
)
from tests.hostile_broker.protocol import EVENTS, FAULT, FORK, INTEGRITY, RECORD
from tests.hostile_broker.served import always, content_of, entries_of, relisted, with_list
from tests.kit.beside import beside
from tests.kit.brokers import clock
from tests.kit.crypto import ED25519_SIGNATURE_SIZE, SIGNATURE_SIZE, SigningKey
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Story, User, session_of


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


def _changed(signed: SignedRecord, changes: dict[str, Any]) -> SignedRecord:
    body = encode_object(replace(parse_record(signed.body), **changes))
    return replace(signed, body=body)


def longer(view: ContainerView) -> ContainerView:
    assert view.head is not None
    part = content_of(view.head)
    return with_head(view, content=replace(part, paddedLength=part.paddedLength + 1))


def with_more_rights(shown: ListView) -> ListView:
    return relisted([replace(entry, permissions=OWNER) for entry in entries_of(shown)])


LIES: dict[str, Callable[[User, ContainerView], ContainerView]] = {
    "id": lambda _, view: with_first(view, containerId=bytes(16)),
    "access": lambda _, view: with_list(view, with_more_rights),
    "version": lambda _, view: with_head(view, version=3),
    "length": lambda _, view: longer(view),
    "createdAt": lambda _, view: with_first(view, time=1),
    "createdBy": lambda _, view: with_first(view, author=bytes(range(32))),
    "modifiedAt": lambda _, view: with_head(view, time=clock()),
    "modifiedBy": lambda eve, view: with_head(view, author=eve.name),
    "modifiedVia": lambda eve, view: with_head(view, via=Via(eve.name, 0, 1, bytes(32))),
    "type": lambda _, view: replace(view, type=TypeText(salt=bytes(32), type="other")),
}
OF_THE_BEGINNING = {"createdAt", "createdBy"}
"""A device with a mark knows another beginning."""
OF_THE_CHAIN = set(LIES) - {"type"}
"""The other fields are looked at after the chain was verified and marked."""


def by_alice_and_carol(who: Cast) -> Story:
    grants = {who.alice: OWNER, who.bob: READER | Level.ViewType, who.carol: WRITER}
    story = Story(who.alice).created(grants, header=b"1", type="t")
    story.tell(who.carol, story.follow(who.carol, content=b"Carol's"))
    return story


@pytest.mark.sampled
@fresh_and_marked
def test_nothing_that_is_shown_of_a_container_is_the_brokers_word(
    mallory: Mallory, marked: bool, who: Cast
) -> None:
    of_groups = {"via", "modifierIsMember"}  # test_through_groups.py
    assert set(LIES) | of_groups == set(Metadata.__dataclass_fields__)
    story = by_alice_and_carol(who)
    device = mallory.victim(who.bob, story, marked=marked)
    device.getPublicKeys(who.eve.ring.userId).result(PATIENCE)
    for field in LIES if marked else OF_THE_CHAIN:
        error = FORK if marked and field in OF_THE_BEGINNING else INTEGRITY
        mallory.check_lie_refused(device, story, partial(LIES[field], who.eve), error, *READS)
    shown = device.getContainerMetadata(story.uuid).result(PATIENCE)
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


@pytest.mark.sampled
@fresh_and_marked
def test_nothing_that_is_handed_out_unopened_is_the_brokers_word(
    mallory: Mallory, marked: bool, who: Cast
) -> None:
    """A mark proves the record, whose signature may be any: it is verified again before it is given."""
    unopened = set(SecuredContainer.__dataclass_fields__) - set(Container.__dataclass_fields__)
    assert set(SECURED) == unopened
    story = by_alice_and_carol(who)
    device = mallory.victim(who.bob, story, marked=marked)
    for field in SECURED if marked else ("record", "signature"):
        mallory.check_lie_refused(device, story, SECURED[field], INTEGRITY, "getSecuredContainer")


def test_what_a_write_gives_back_is_not_the_brokers_word(mallory: Mallory, alice: User) -> None:
    """A receipt for another record than the one that was sent is refused, and not remembered."""
    device = mallory.device_of(alice)
    made = device.createContainer(b"1").result(PATIENCE)
    lies: list[Callable[[RecordReceipt], RecordReceipt]] = [
        lambda receipt: replace(receipt, version=receipt.version + 1),
        lambda receipt: replace(receipt, hash=bytes(32)),
    ]
    for version, lie in enumerate(lies, 2):
        before, count = verified_marks(device), len(mallory.heard)
        with mallory.lying(RECORD, lie), pytest.raises(INTEGRITY):
            device.updateContainerHeader(made.id, 1).result(PATIENCE)
        assert mallory.since(count).count(RECORD) == 1
        assert verified_marks(device) == before
        assert device.getContainerMetadata(made.id).result(PATIENCE).version == version


def brokers_own(body: bytes) -> bytes:
    return SigningKey.generate().sign(LABEL, body)


# Made of the user, the bytes to be signed, and the true signature. With half of the true one it is as if the
# other algorithm held no longer; Alice did sign the bytes of `other_object`, as the statement of a log-in.
SIGNATURES: dict[str, Callable[[User, bytes, bytes], bytes]] = {
    "nothing": lambda *_: bytes(SIGNATURE_SIZE),
    "brokers_own": lambda _, body, __: brokers_own(body),
    "other_object": lambda user, body, _: user.ring.signing[0].sign(SESSION_LABEL, body),
    "first_half_broken": lambda _, body, true: (
        true[:ED25519_SIGNATURE_SIZE] + brokers_own(body)[ED25519_SIGNATURE_SIZE:]
    ),
    "second_half_broken": lambda _, body, true: (
        brokers_own(body)[:ED25519_SIGNATURE_SIZE] + true[ED25519_SIGNATURE_SIZE:]
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("sign", SIGNATURES)
def test_no_container_is_shown_as_a_users_own_that_they_did_not_sign_for(
    mallory: Mallory, sign: str, alice: User
) -> None:
    """All else is right, down to the wrap: with Alice's own signature it is hers."""
    story = Story(alice)
    request = story.begin(content=b"planted")
    message = bare_body(request.record.body)
    signature = SIGNATURES[sign](alice, message, request.record.signature)
    mallory.plant(story, replace(request, record=replace(request.record, signature=signature)))
    device = mallory.device_of(alice)
    mallory.check_refused(device, story, INTEGRITY, *READS, *WRITES)
    mallory.plant(story, request)
    shown = device.getContainer(story.uuid).result(PATIENCE)
    assert (shown.createdBy, shown.content) == (alice.ring.userId, b"planted")


@pytest.mark.sampled
@fresh_and_marked
def test_no_container_is_shown_in_the_place_of_another_or_to_who_is_not_in_its_list(
    mallory: Mallory, marked: bool, alice: User, eve: User
) -> None:
    own = Story(alice).created(content=b"Alice's")
    given = Story(eve).created({eve: OWNER, alice: OWNER}, content=b"planted")
    kept = Story(eve).created(content=b"Eve's")
    mallory.serve_also(kept.uuid, alice, None)
    device = mallory.victim(alice, own, marked=marked)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    other = alice.view(given, "header=1&content=1")
    mallory.check_lie_refused(device, own, always(other), INTEGRITY, *READS, *WRITES)
    mallory.check_refused(device, kept, INTEGRITY, *READS, *WRITES)


# Lists and logs of other users: types of containers, and fetches.


UNPRINTABLE = {
    "a line feed at the end": "note\n",
    "C0": "no\x1b[2Jte",
    "C1": "no\x9b2Jte",
    "an override of direction": "no\u202ete",
    "a line separator": "no\u2028te",
}
unprintable = pytest.mark.parametrize("text", UNPRINTABLE.values(), ids=UNPRINTABLE)


@pytest.mark.sampled
@unprintable
def test_a_member_gives_a_container_no_type_that_forges_lines_in_listings(
    mallory: Mallory, text: str, alice: User, bob: User
) -> None:
    """Neither with this program, nor with another one at an honest broker, nor past the broker."""
    device, his = mallory.device_of(alice), mallory.device_of(bob)
    story = Story(bob).created({alice: OWNER, bob: OWNER}, type="note")
    count = len(mallory.heard)
    for make in (
        lambda: his.createContainer(b"", accessLevels=[level(bob)], type=text),
        lambda: his.updateContainerType(story.uuid, text),
    ):
        with pytest.raises(BrokerError.invalidArgumentError, match=r"type must be printable"):
            make().result(PATIENCE)
    assert mallory.since(count) == []
    forged = story.follow(bob, type=text)
    mallory.force(story, bob, forged, 400, "invalid")
    mallory.check_refused(device, story, FAULT)


def test_the_list_in_force_decides_who_hears_of_a_fetch(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch, alice: User, bob: User
) -> None:
    """Bob's device has no mark, and the page that it gets ends at the list that has Bob alone."""
    story = Story(bob).created({bob: OWNER})
    story.tell(bob, story.follow(bob, grants={alice: OWNER, bob: OWNER}))
    monkeypatch.setattr("scbroker.wire.containers.PAGE_BYTES", 1)
    call = Call("tests", "", {"containerId": story.id}, session_of(bob))

    async def read(broker: Broker) -> None:
        view = await views.view(broker, call, ViewQuery(header=1, content=1))
        assert len(view.governing) == 1
        await log.record_accesses(broker)

    beside(mallory.behind, read)
    fetched = [event for event in alice.events() if event.eventType == "Accessed"]
    assert [(event.containerId, event.relatedUserId) for event in fetched] == [
        (str(story.uuid), bob.id)
    ]


# Limits


def test_a_time_that_an_author_chose_is_the_limit(mallory: Mallory, alice: User, bob: User) -> None:
    """It is their clock, not before the record that it follows; the broker may let any such time pass."""
    story = Story(alice).created({alice: OWNER, bob: WRITER}, time=clock() - 2 * MINUTE)
    mallory.plant(story, story.follow(bob, content=b"Bob's", time=story.head.time))
    shown = mallory.device_of(alice, bob).getContainerMetadata(story.uuid).result(PATIENCE)
    assert shown.modifiedAt == shown.createdAt


def test_what_an_event_says_is_the_brokers_word_and_moves_no_container_which_is_the_limit(
    mallory: Mallory, who: Cast
) -> None:
    story, bob = by_alice_and_carol(who), who.bob
    device = mallory.device_of(bob)

    def lie(page: Any) -> Any:
        changes = {"version": 9, "relatedUserId": bob.id, "containerType": "other", "date": 1}
        return replace(page, events=[replace(event, **changes) for event in page.events])

    with mallory.lying(EVENTS, lie):
        events = device.getEvents(ContainerEventType.Updated).result(PATIENCE)
    assert [(e.version, e.relatedUserId) for e in events] == [(9, bob.ring.userId)]
    assert "broker's word" in (ContainerEvent.__doc__ or "")
    shown = device.getContainerMetadata(story.uuid).result(PATIENCE)
    assert (shown.version, shown.type) == (2, "t")
    assert (shown.createdBy, shown.modifiedBy) == (who.alice.ring.userId, who.carol.ring.userId)
