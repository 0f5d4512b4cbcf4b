"""Attacks with keys that are missing, empty or of a kind that proves nothing.

Numbers and names are those of `catalogue`. A client neither makes up what it was not given nor trusts a
key whose signatures anybody can make.
"""

import copy
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from scbroker import AccessLevel, BrokerError, KeyRing
from scbroker.crypto.seal import DecryptionKey, SigningKey, random_bytes
from scbroker.crypto.verify import MLKEM_KEY_SIZE
from scbroker.vocabulary import KeyType
from scbroker.wire import codec
from scbroker.wire.codec import Message, SignedObject
from scbroker.wire.users import KeyRecords, UserKeyRecords
from tests.hostile_broker.accomplices import WRITES, Mallory, level, records_of
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, FAULT, INTEGRITY, KEYS, ROLLBACK, VIEW
from tests.hostile_broker.served import same
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Step, Story, User, chain_of, key_records


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


# What a view needs not have: bodies between, departures, and recipients whose keys moved, where there are
# none; how long the authors' chains are, which a client finds out by itself; which governing record is the
# last, which the head says as well; and what it says of groups, where none is in the list.
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
@attack(4, "empty key list")
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


@attack(4, "empty key list")
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


@attack(4, "empty key list")
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
@attack(7, "keys that verify everything")
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
