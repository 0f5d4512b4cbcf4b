"""Attacks on public keys: whose they are, when they end, and what a client does without them.

Attacks 1, 2, 4 to 7, 12, 47 and 63 of attacks.toml. Whatever the broker answers, keys are verified from the
user id on, and nothing is wrapped or sent before they were.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, FileTrustStore, KeyRing
from scbroker.client.users import directory
from scbroker.records import canonical
from scbroker.records.canonical import encode_object, user_id_of
from scbroker.records.container_record import parse_entry, parse_record, wrap_info
from scbroker.records.key_record import ACTIVE, RETIRED, KeyRecord, Signed, parse_key_record
from scbroker.records.key_record import LABEL as KEY_LABEL
from scbroker.vocabulary import KeyType
from scbroker.wire import codec
from scbroker.wire.codec import Message, SignedObject
from scbroker.wire.containers import RecordRequest
from scbroker.wire.users import KeyRecords, UserKeyRecords
from tests.hostile_broker.accomplices import WRITES, Mallory, fresh_and_marked, level, records_of
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import (
    DECRYPTION,
    FAULT,
    FORK,
    INTEGRITY,
    KEYS,
    RECORD,
    ROLLBACK,
    SUBSTITUTION,
    VIEW,
)
from tests.hostile_broker.served import governing_of, instead, opened, same, wrapped_key
from tests.kit.brokers import Answer, BrokerProcess, Wire, clock
from tests.kit.crypto import (
    MLKEM_KEY_SIZE,
    DecryptionKey,
    SigningKey,
    labelled_hash,
    random_bytes,
    wrap_key,
)
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    MINUTE,
    OWNER,
    READER,
    WRITER,
    Grant,
    Grants,
    Step,
    Story,
    User,
    authorized,
    chain_of,
    closing,
    delete_user,
    deletion,
    key_records,
    rotate,
    store,
    storing,
)


def forged_key(of: User, by: User) -> Signed:
    """Another user's encryption key as if it were the next one of this user's."""
    chain = chain_of(of)
    record = KeyRecord(
        of.name, len(chain.records), KeyType.Encryption, 1, by.ring.encryption[0].public, ACTIVE,
        clock(), chain.hashes[-1],
    )  # fmt: skip
    body = encode_object(record)
    return Signed(body, by.ring.signing[0].sign(KEY_LABEL, body))


def test_keys_of_somebody_else_are_refused_at_the_first_contact_and_nothing_is_wrapped(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    device = mallory.device_of(alice)
    mine, both = device.createContainer(b"mine").result(PATIENCE), [level(alice), level(bob)]
    hers = records_of(eve)
    mallory.check_keys_refused(device, bob, hers, SUBSTITUTION)
    with mallory.serving_keys(bob, hers), mallory.refused(device, SUBSTITUTION) as attempt:
        attempt(device.createContainer(b"secret", accessLevels=both))
        attempt(device.updateContainerAccessLevels(mine.id, both))
    assert wrapped_key(mallory.sent_record(), alice)
    assert len(mallory.sent_record().accessList or ()) == 1


def test_no_large_content_is_uploaded_for_a_recipient_whose_keys_are_somebody_elses(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    device, both, hers = mallory.device_of(alice), [level(alice), level(bob)], records_of(eve)
    with mallory.serving_keys(bob, hers), mallory.refused(device, SUBSTITUTION) as attempt:
        attempt(device.createContainer(bytes(70_000), accessLevels=both))


def test_keys_that_change_after_the_first_contact_are_refused_also_after_a_restart(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    known, both, store = records_of(bob), [level(alice), level(bob)], mallory.new_store()
    device = mallory.device_of(alice, bob, store=store)
    mine = device.createContainer(b"mine").result(PATIENCE)
    for served, error in (
        ([*known, forged_key(bob, eve)], INTEGRITY),
        (records_of(eve), SUBSTITUTION),
        ([known[0], records_of(eve)[1]], INTEGRITY),
    ):
        fresh = mallory.device(alice.ring, FileTrustStore(store.directory))
        with mallory.serving_keys(bob, served), mallory.refused(fresh, error) as attempt:
            attempt(fresh.createContainer(b"secret", accessLevels=both))
            attempt(fresh.updateContainerAccessLevels(mine.id, both))
    with (
        mallory.serving_keys(bob, [forged_key(bob, eve)], again=True),
        mallory.refused(device, INTEGRITY) as attempt,
    ):
        attempt(device.createContainer(b"secret", accessLevels=both))


def test_who_saw_a_key_retired_is_not_brought_to_use_it_again(
    mallory: Mallory, alice: User, bob: User
) -> None:
    before = records_of(bob)
    bob = rotate(mallory.behind.database_url, bob, (KeyType.Encryption, 0), encryption=1)
    device = mallory.restarted(mallory.device_of(alice, bob, store=mallory.new_store()))
    mallory.check_keys_refused(device, bob, before, ROLLBACK)


def by_the_broker(alice: User, eve: User, nonce: bytes) -> tuple[Story, Any]:
    twin = Story(alice, nonce=nonce)
    return twin, twin.begin({eve: OWNER, alice: OWNER}, author=eve, content=b"forged")


def in_the_victims_name(alice: User, eve: User, nonce: bytes) -> tuple[Story, Any]:
    twin = Story(alice, nonce=nonce)
    return twin, twin.altered(eve, twin.begin({alice: OWNER}, content=b"forged"))


@pytest.mark.sampled
@pytest.mark.parametrize("forge", [by_the_broker, in_the_victims_name], ids=lambda f: f.__name__)
@fresh_and_marked
def test_a_container_under_the_brokers_key_is_neither_read_nor_written_to(
    mallory: Mallory, forge: Callable[..., Any], marked: bool, alice: User, eve: User
) -> None:
    story = Story(alice).created({alice: OWNER})
    device = mallory.restarted_device_of(alice, story) if marked else mallory.device_of(alice, eve)
    mallory.plant(*forge(alice, eve, story.nonce))
    error = FORK if marked else INTEGRITY
    mallory.check_refused(device, story, error, "getContainer", *WRITES)


def test_a_wrap_of_the_brokers_key_is_not_opened_and_nothing_is_sealed_under_it(
    mallory: Mallory, alice: User
) -> None:
    story = Story(alice).created({alice: OWNER})
    device = mallory.device_of(alice)
    device.getContainer(story.uuid).result(PATIENCE)
    info = wrap_info(story.id, governing_of(story.requests[0]), alice.name, 0)
    theirs = wrap_key(alice.ring.encryption[0].public, info, bytes(32))
    with mallory.lying(VIEW, instead(wrap=theirs)):
        mallory.check_refused(device, story, INTEGRITY, "getContainer")
        mallory.check_refused(device, story, DECRYPTION, *WRITES[:2])


def test_a_thief_who_adds_keys_to_an_account_does_not_go_unnoticed_at_the_next_log_in(
    mallory: Mallory, alice: User
) -> None:
    """Signing key 0 was stolen: the account is lost, and its owner is told so instead of joined."""
    theirs, owns = (
        KeyRing(2, alice.ring.signing, (*alice.ring.encryption, DecryptionKey.generate()))
        for _ in range(2)
    )
    added = key_records(theirs, chain_of(alice), Step(KeyType.Encryption, 1))
    with mallory.serving_keys(alice, [*records_of(alice), *added]):
        for ring, error in ((alice.ring, ROLLBACK), (owns, SUBSTITUTION)):
            device = mallory.device()
            with pytest.raises(error):
                device.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
            with pytest.raises(BrokerError.notAuthenticatedError):
                device.createContainer(b"secret").result(PATIENCE)


def test_nobody_registers_other_keys_under_an_id_that_is_known_or_was_deleted(
    mallory: Mallory, bob: User, eve: User
) -> None:
    own, others = records_of(bob), eve.ring.first_records(clock())
    claimed: list[Signed] = []
    for record in others:  # all of it Eve's but the name
        previous = labelled_hash(KEY_LABEL, claimed[0].body) if claimed else None
        theirs = replace(parse_key_record(record), fingerprint=bob.name, previous=previous)
        body = encode_object(theirs)
        claimed.append(Signed(body, eve.ring.signing[0].sign(KEY_LABEL, body)))
    mallory.register(*claimed).expect(422, "rejected")
    mallory.register(own[0], others[1]).expect(422, "rejected")
    again = KeyRing(1, bob.ring.signing, (DecryptionKey.generate(),))
    mallory.register(*again.first_records(clock())).expect(409, "exists")
    delete_user(bob).expect(204)
    mallory.register(*again.first_records(clock())).expect(409, "exists")
    mallory.register(*own).expect(409, "exists")


def test_a_user_who_was_deleted_gets_no_key_any_more_of_a_device_that_has_seen_it(
    mallory: Mallory, tmp_path: Path, alice: User, bob: User
) -> None:
    """The broker hides the record that closed the chain, or Bob, in league with it, signs another key."""
    Story(bob).created({bob: OWNER, alice: OWNER})  # so that his keys are still needed
    leaving = deletion(bob)
    delete_user(bob, leaving).expect(204)
    with mallory.device_of(alice, store=FileTrustStore(tmp_path)) as before:
        assert not any(k.active for k in before.getPublicKeys(bob.ring.userId).result(PATIENCE))
    url, his = mallory.behind.database_url, bob.ring.userId.bytes
    forged = KeyRecord(
        bob.name, 3, KeyType.Encryption, 1, DecryptionKey.generate().public, ACTIVE, clock(),
        leaving.digest,
    )  # fmt: skip
    body = encode_object(forged)
    later = (body, bob.ring.signing[0].sign(KEY_LABEL, body))
    for length, statement, values, error in (
        (4, "INSERT INTO key_records (body, signature, user_id, sequence) VALUES (?, ?, ?, 3)",
         (*later, his), INTEGRITY),
        (2, "DELETE FROM key_records WHERE user_id = ? AND sequence > 1", (his,),
         ROLLBACK),
    ):  # fmt: skip
        query(url, statement, *values)
        lie = "UPDATE users SET deleted = false, chain_length = ? WHERE id = ?"
        query(url, lie, length, his)
        device = mallory.device(alice.ring, FileTrustStore(tmp_path))
        with mallory.refused(device, error) as attempt:
            attempt(device.getPublicKeys(bob.ring.userId))
            attempt(device.createContainer(b"secret", accessLevels=[level(alice), level(bob)]))
        device.close()


def test_even_two_keys_of_one_user_id_are_told_apart_by_the_pin_and_the_mark(
    mallory: Mallory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch makes a collision, which takes 2^61 work: Eve's first key gives Bob's user id as well."""
    alice, bob, eve = mallory.people(3)
    with mallory.device_of(alice, bob, store=FileTrustStore(tmp_path)):
        pass
    again = KeyRing(1, bob.ring.signing, (DecryptionKey.generate(),))
    for module in (directory, canonical):
        decreed = {eve.name: bob.ring.userId}
        monkeypatch.setattr(
            module, "user_id_of", lambda name, d=decreed: d.get(name) or user_id_of(name)
        )
    for served, error in ((records_of(eve), SUBSTITUTION), (again.first_records(clock()), FORK)):
        device = mallory.device(alice.ring, FileTrustStore(tmp_path))
        mallory.check_keys_refused(device, bob, served, error)


# Keys that are missing, empty or of a kind that proves nothing. A client neither makes up what it was not
# given nor trusts a key whose signatures anybody can make.


def places(answer: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of a message, and the first element of every list."""
    inside = answer.items() if isinstance(answer, dict) else enumerate(answer[:1])
    for name, value in inside:
        yield (*path, name)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, name))


def spoil(answer: Any, path: tuple[Any, ...], how: str) -> None:
    """Takes a field away, or sets it to nil or to the emptiest value of its kind."""
    *above, name = path
    for step in above:
        answer = answer[step]
    if how == "absent":
        del answer[name]
    else:
        answer[name] = None if how == "null" else type(answer[name])()


def spoiled(answer: Message) -> Iterator[tuple[tuple[Any, ...], str, type[BrokerError]]]:
    """Every field absent, null and empty, where that changes it, and the error that it deserves."""
    plain = msgspec.msgpack.decode(codec.encode(answer))
    for path in places(plain):
        for how in ("absent", "null", "empty"):
            edited = copy.deepcopy(plain)
            spoil(edited, path, how)
            if edited == plain:
                continue
            try:
                codec.decode(type(answer), msgspec.msgpack.encode(edited))
            except BrokerError.invalidArgumentError:
                yield path, how, FAULT
            else:
                yield path, how, INTEGRITY


# Fields that a view can lack: skipped bodies, departures and recipients with newer keys, where none exist;
# the lengths of the authors' chains, which a client finds out by itself; the number of the last governing
# record, which the head has as well; and all about groups, where the list has none.
NEEDLESS = {
    ("via",),
    ("headMembership",),
    ("groupChains",),
    ("groups",),
    ("groupRecipients",),
    ("governing", 0, "membership"),
    ("governing", 0, "standing"),
    ("skipped",),
    ("recipients",),
    ("governing", 0, "accessList", "departures"),
    ("keyChains",),
    ("keyChains", 0),
    ("keyChains", 0, "sequence"),
    ("lastGoverning",),
}


@pytest.mark.long
def test_no_missing_field_of_a_container_makes_a_client_read_or_write_without_it(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Each absent, null and empty. The first entry of the list is Alice's or Bob's."""
    story = Story(alice).created({alice: OWNER, bob: WRITER}, content=b"0", type="t")
    story.tell(bob, story.follow(bob, content=b"truth", header=b"1"))
    device = mallory.device_of(alice, bob)
    with mallory.lying(VIEW, same) as told:
        device.getContainer(story.uuid).result(PATIENCE)
    tried = 0
    for path, how, error in spoiled(told[0]):
        if path in NEEDLESS and error is INTEGRITY:
            continue
        found = ROLLBACK if (path, how) == (("head",), "null") else error
        needed_by_writers = path[0] not in ("content", "header", "wrap")
        names = ("getContainer", *WRITES[:1] * needed_by_writers)
        with mallory.editing(VIEW, partial(spoil, path=path, how=how)):
            mallory.check_refused(device, story, found, *names)
        tried += 1
    assert tried > 60
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"truth"


def test_no_key_is_invented_for_a_container_whose_wrap_is_missing(mallory: Mallory) -> None:
    """The wrap of a member is withheld: nothing is sealed, by nobody's key, and nothing is carried over."""
    alice, bob = mallory.people(2)
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = mallory.device_of(alice, bob)
    device.getContainer(story.uuid).result(PATIENCE)
    both = [level(alice), level(bob, READER)]
    for missing, error in (("null", DECRYPTION), ("absent", FAULT), ("empty", FAULT)):
        with mallory.editing(VIEW, partial(spoil, path=("wrap",), how=missing)):
            mallory.check_refused(device, story, error, *WRITES)
            with mallory.refused(device, error) as attempt:
                attempt(device.updateContainerAccessLevels(story.uuid, both))


def test_no_missing_field_of_a_users_keys_makes_a_client_share_without_them(
    mallory: Mallory, alice: User, bob: User
) -> None:
    device = mallory.device_of(alice)
    with mallory.lying(KEYS, same) as told:
        mallory.device_of(alice, bob)
    tried = 0
    for path, how, error in spoiled(told[-1]):
        found = FAULT if path in {("users",), ("users", 0), ("users", 0, "userId")} else error
        with (
            mallory.editing(KEYS, partial(spoil, path=path, how=how)),
            mallory.refused(device, found) as attempt,
        ):
            attempt(device.getPublicKeys(bob.ring.userId))
            attempt(device.createContainer(b"secret", accessLevels=[level(bob)]))
        tried += 1
    assert tried > 15
    mallory.check_keys_refused(device, bob, records_of(bob)[:1], INTEGRITY)


IDENTITY = b"\1" + bytes(31)


# Every encoding of a point of small order, the last six not canonical.
SMALL_ORDER = [
    bytes.fromhex(text)
    for text in (
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "00" * 32,
        "00" * 31 + "80",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "01" + "00" * 30 + "80",
        "ec" + "ff" * 31,
        "ee" + "ff" * 30 + "7f",
        "ee" + "ff" * 31,
        "ed" + "ff" * 30 + "7f",
        "ed" + "ff" * 31,
    )
]
LOW_U = [bytes(32), IDENTITY, bytes.fromhex("ec" + "ff" * 30 + "7f"), b"\xff" * 32]


class HollowKey(SigningKey):
    """A signing key whose Ed25519 half is a point of small order, and needs no private key to sign."""

    __slots__ = ()

    def __init__(self, point: bytes) -> None:
        super().__init__(random_bytes(32), random_bytes(32))
        self.public = point + self.public[32:]

    def sign(self, name: str, signed: bytes) -> bytes:
        return IDENTITY + bytes(32) + super().sign(name, signed)[64:]


class HollowDecryptionKey(DecryptionKey):
    """An encryption key whose X25519 half agrees on zero with everybody."""

    __slots__ = ()

    def __init__(self, u: bytes) -> None:
        super().__init__(random_bytes(64), random_bytes(32))
        self.public = self.public[:MLKEM_KEY_SIZE] + u


def with_key(ring: KeyRing, key: SigningKey | DecryptionKey, *, first: bool) -> KeyRing:
    """The KeyRing with this key as the first of its type, or as one more."""
    if isinstance(key, SigningKey):
        return KeyRing(1, (key,) if first else (*ring.signing, key), ring.encryption)
    return KeyRing(1, ring.signing, (key,) if first else (*ring.encryption, key))


@pytest.mark.sampled
@pytest.mark.parametrize("place", ["first", "later"])
def test_a_key_that_verifies_everything_is_refused_wherever_it_stands_in_a_chain(
    mallory: Mallory, place: str, alice: User, bob: User
) -> None:
    """The broker serves what it would never take: an accomplice's chain with such a key in it."""
    device = mallory.device_of(alice)
    hollow: Iterator[tuple[KeyType, SigningKey | DecryptionKey]] = itertools.chain(
        ((KeyType.Signing, HollowKey(point)) for point in SMALL_ORDER),
        ((KeyType.Encryption, HollowDecryptionKey(u)) for u in LOW_U),
    )
    for kind, key in hollow:
        ring = with_key(bob.ring, key, first=place == "first")
        if place == "first":
            records = ring.first_records(clock())
        else:
            records = [*records_of(bob), *key_records(ring, chain_of(bob), Step(kind, 1))]
        name = UserKeyRecords(
            userId=str(ring.userId), keyRecords=list(map(SignedObject.of, records)), deleted=False
        )
        with (
            mallory.answering(KEYS, KeyRecords(users=[name])),
            mallory.refused(device, INTEGRITY) as attempt,
        ):
            attempt(device.getPublicKeys(ring.userId))
            attempt(device.createContainer(b"x", accessLevels=[AccessLevel(ring.userId)]))


# A thief of an encryption key that its user has replaced, with a broker that helps. The thief has every key
# and every record of the time before; what is written from then on has to stay closed.


SECRETS = "A password 1", "A passphrase 1"
NEW_SECRETS = "A password 2", "A passphrase 2"


def check_closed_to(thief: User, request: RecordRequest, old_key: bytes) -> None:
    """The new parts of a record open neither with the old container key nor with the thief's keys."""
    with pytest.raises(DECRYPTION):
        opened(request, old_key)
    indices = {
        entry.fingerprint: entry.keyIndex
        for entry in (parse_entry(item.entry) for item in request.accessList or ())
    }
    assert indices[thief.name] == 1
    with pytest.raises(DECRYPTION):
        wrapped_key(request, thief)


@pytest.mark.sampled
@pytest.mark.parametrize("field", ["content", "header"])
def test_what_is_written_after_a_change_of_keys_opens_by_none_of_the_keys_before(
    mallory: Mallory, bob: User, field: str
) -> None:
    """Bob has Upload alone, and his device has not heard of the change before."""
    device = mallory.device()
    device.register(*SECRETS).result(PATIENCE)
    thief = mallory.accomplice(device.getKeyRing().result(PATIENCE))
    his = mallory.device_of(bob, thief)
    levels = [level(thief), level(bob, WRITER)]
    made = device.createContainer(b"before", accessLevels=levels).result(PATIENCE)
    old_key = wrapped_key(mallory.sent_record(), thief)
    his.getContainer(made.id).result(PATIENCE)
    device.changeCredentials(*NEW_SECRETS, compromised=True).result(PATIENCE)
    if field == "content":
        his.updateContainerContent(made.id, b"secret").result(PATIENCE)
        check_closed_to(thief, mallory.sent_record(), old_key)
    else:
        his.updateContainerHeader(made.id, "secret").result(PATIENCE)
        assert parse_record(mallory.sent_record().record.body).changes_access
    assert device.getContainer(made.id).result(PATIENCE).access == made.access
    count = len(mallory.heard)
    his.updateContainerContent(made.id, b"secret again").result(PATIENCE)
    assert mallory.sent_record().accessList is None, "one renewal is enough"
    assert mallory.since(count) == [VIEW, RECORD], "and no keys are looked up"


def test_a_device_that_knows_the_new_key_renews_whatever_the_broker_says(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    his = mallory.device_of(bob, alice)
    rotate(mallory.behind.database_url, alice, (KeyType.Encryption, 0), encryption=1)
    his.getPublicKeys(alice.ring.userId).result(PATIENCE)
    count = len(mallory.heard)
    with mallory.lying(VIEW, instead(recipients=[])):
        his.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    assert mallory.since(count).count(RECORD) == 1
    check_closed_to(alice, mallory.sent_record(), story.key)


def test_the_broker_takes_nothing_new_under_a_key_that_is_wrapped_to_a_replaced_one(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """A member with Upload alone may renew for this reason; a record that seals nothing new is taken."""
    story = Story(alice).created({alice: OWNER, bob: WRITER}, header=b"{}")
    story.tell(bob, story.follow(bob, content=b"before"))
    alices = rotate(mallory.behind.database_url, alice, (KeyType.Encryption, 0), encryption=1)
    changes: list[dict[str, Any]] = [{"content": b"secret"}, {"header": b'"secret"'}]
    for change in changes:
        story.send(bob, story.follow(bob, **change)).expect(409, "stale-keys")
    stale: Grants = {alice: Grant(OWNER, key_index=0), bob: WRITER}
    story.send(bob, story.follow(bob, grants=stale)).expect(422, "rejected")
    story.tell(bob, story.follow(bob, content=None))
    moved = [(item.userId, item.sequence) for item in bob.view(story, "recipients=1").recipients]
    assert moved == [(alice.id, 3)]
    story.tell(bob, story.follow(bob, grants={alices: OWNER, bob: WRITER}, content=b"secret"))
    assert bob.view(story, "recipients=1").recipients == []
    story.send(bob, story.follow(bob, grants={alices: OWNER, bob: WRITER})).expect(422, "rejected")


@pytest.mark.sampled
@pytest.mark.parametrize("index", [1, 255])
def test_a_list_that_names_a_key_which_does_not_exist_is_refused_by_who_knows_its_user(
    mallory: Mallory, index: int, alice: User, bob: User, carol: User
) -> None:
    """Bob, with Upload alone, and the broker would make a reason to renew, and shut Alice out."""
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: WRITER})
    fresh, marked, hers = (mallory.device_of(user, alice, bob) for user in (carol, carol, alice))
    for device in (marked, hers):
        device.getContainerMetadata(story.uuid).result(PATIENCE)
    grants: Grants = {alice: Grant(OWNER, key_index=index), bob: WRITER, carol: WRITER}
    mallory.force(story, bob, story.follow(bob, grants=grants), 409, "stale-keys")
    for device in (fresh, marked, hers):
        mallory.check_refused(device, story, INTEGRITY)
    everybody = [level(alice), level(bob, WRITER), level(carol, WRITER)]
    hers.updateContainer(story.uuid, b"anew", None, everybody, None).result(PATIENCE)
    for device in (fresh, marked, hers):
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"anew"


# Clocks of brokers that differ, or that are set back. The broker is started again with another clock, in
# place of a second broker on the same database.


SECOND = 1_000_000


@contextmanager
def at(broker: BrokerProcess, ring: KeyRing) -> Iterator[User]:
    """The user with a session, as long as the broker has its present clock."""
    with Wire(broker) as wire:
        yield User(ring, wire.log_in(ring))


def change_clock(broker: BrokerProcess, ahead: int) -> None:
    broker.stop()
    broker.clock_ahead = ahead
    broker.start()


def retire(user: User, time: int) -> Answer:
    """The broker's answer to further signing keys and the retirement of the first, dated so."""
    ring = user.ring.next(user.ring.generation + 1, fresh=True)
    steps = Step(KeyType.Signing, 1), Step(KeyType.Signing, 0, RETIRED, time)
    records = key_records(KeyRing(ring.generation, ring.signing, user.ring.encryption),
                          chain_of(user), *steps)  # fmt: skip
    return store(user, authorized(user, storing(user, keyRecords=records)))


@pytest.mark.long
def test_brokers_whose_clocks_differ_by_a_minute_take_no_retirement_before_a_record(
    tmp_path: Path,
) -> None:
    """Bob dates a record as late, and its key's retirement as early, as the two brokers allow."""
    with BrokerProcess(tmp_path) as broker:
        alice, bob = broker.new_user(), broker.new_user()
        change_clock(broker, 60)
        with at(broker, alice) as owner, at(broker, bob) as writer:
            story = Story(owner).created({owner: OWNER, writer: WRITER})
            late = story.follow(writer, content=b"late", time=clock() + 60 * SECOND + 299 * SECOND)
            story.tell(writer, late)
        change_clock(broker, 0)
        with at(broker, alice) as owner, at(broker, bob) as writer:
            for ahead in (301, 359, 415):
                retire(writer, clock() + ahead * SECOND).expect(422, "clock")
            retire(writer, clock() + 425 * SECOND).expect(204)
            key = chain_of(writer).keys[KeyType.Signing, 0]
            assert key.is_good_at(story.head.time + MINUTE)
            story.tell(owner, story.follow(owner, tombstone=True, time=story.head.time))


@pytest.mark.long
def test_after_a_clock_was_set_back_no_key_is_retired_before_what_it_signed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        bob = broker.new_user()
        change_clock(broker, 15 * 60)
        with at(broker, bob) as writer:
            Story(writer).created(time=clock() + 15 * MINUTE)
        change_clock(broker, 0)
        with at(broker, bob) as writer:
            before = chain_of(writer)
            retire(writer, clock() + 10 * MINUTE).expect(422, "clock")
            delete_user(writer, deletion(writer, closing(writer))).expect(422, "clock")
            assert chain_of(writer).records == before.records


# Limits


def test_a_withheld_retirement_is_the_limit_of_a_fresh_device(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    before, url = records_of(bob), mallory.behind.database_url
    rotate(url, bob, (KeyType.Encryption, 0), encryption=1)
    query(url, "UPDATE users SET encryption_index = 0 WHERE id = ?", bob.ring.userId.bytes)
    device = mallory.device_of(alice)
    with mallory.serving_keys(bob, before):
        device.createContainer(b"x", accessLevels=[level(alice), level(bob)]).result(PATIENCE)
    # It went to the retired key, which is Bob's own all the same.
    assert wrapped_key(mallory.sent_record(), bob) == wrapped_key(mallory.sent_record(), alice)


def test_a_user_id_that_the_attacker_handed_over_is_the_limit_and_its_fingerprint_tells(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    said_to_be_bobs = eve.ring.userId
    device = mallory.device_of(alice)
    found = device.getPublicKeys(said_to_be_bobs).result(PATIENCE)
    assert [key.hasFingerprint(bob.ring.fingerprint) for key in found] == [False, False]
    assert found[0].hasFingerprint(eve.ring.fingerprint)


def test_that_a_member_was_deleted_is_the_brokers_word_and_the_limit_is_that_they_get_no_wrap(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Nobody else gets one in their place, and the next change of access mends it."""
    device, both = mallory.device_of(alice), [level(alice), level(bob, WRITER)]
    made = device.createContainer(b"x", accessLevels=both).result(PATIENCE)
    url = mallory.behind.database_url
    for deleted, wrapped in ((True, 1), (False, 2)):
        query(url, "UPDATE users SET deleted = ? WHERE id = ?", deleted, bob.ring.userId.bytes)
        device.updateContainerAccessLevels(made.id, both).result(PATIENCE)
        sent = mallory.sent_record()
        assert sum(item.wrap is not None for item in sent.accessList or ()) == wrapped
        assert wrapped_key(sent, alice)
    assert wrapped_key(mallory.sent_record(), bob) == wrapped_key(mallory.sent_record(), alice)
    mallory.device_of(bob).updateContainerContent(made.id, b"later").result(PATIENCE)
    assert device.getContainerContent(made.id).result(PATIENCE) == b"later"


def test_a_write_that_is_tried_again_over_a_change_of_keys_uses_nothing_that_the_thief_has(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Alice replaces her key while Bob's record is on its way; the thief and the broker keep that record."""
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    his = mallory.device_of(bob, alice)
    his.getContainer(story.uuid).result(PATIENCE)
    sent: list[Any] = []

    def replace_key(exchange: Exchange) -> None:
        sent.append(exchange.message)
        if len(sent) == 1:
            rotate(mallory.behind.database_url, alice, (KeyType.Encryption, 0), encryption=1)

    with mallory.meddling(RECORD, before=replace_key):
        his.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    first, second = sent
    # Nobody renewed in between: the head has this container key also when Bob reads it again.
    assert opened(first, story.key) == b"secret"
    check_closed_to(alice, second, story.key)
    with pytest.raises(DECRYPTION):
        opened(second, story.key, key_of=first)


def test_a_change_of_keys_that_is_hidden_from_a_device_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """His device needs no keys, for it has judged the list before. The broker behind refuses the record."""
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    his = mallory.victim(bob, story, marked=True)
    rotate(mallory.behind.database_url, alice, (KeyType.Encryption, 0), encryption=1)
    with mallory.lying(VIEW, instead(recipients=[])), pytest.raises(Exception, match="newer keys"):
        his.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    assert opened(mallory.sent_record(), story.key) == b"secret"
