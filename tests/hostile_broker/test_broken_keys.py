"""Attacks with keys that are missing, empty or of a kind that proves nothing.

Numbers and names are those of `catalogue`. A client neither makes up what it was not given nor trusts a
key whose signatures anybody can make.
"""

import copy
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from scbroker import AccessLevel, BrokerError, KeyRing
from scbroker.crypto.seal import DecryptionKey, SigningKey, random_bytes
from scbroker.crypto.verify import MLKEM_KEY_SIZE
from scbroker.vocabulary import KeyType
from scbroker.wire import codec
from scbroker.wire.codec import Message, SignedObject
from scbroker.wire.users import KeyRecords, UserKeyRecords
from tests.hostile_broker.accomplices import (
    KEYS,
    VIEW,
    begun,
    device_of,
    editing,
    id_of,
    level,
    people,
    records_of,
    register,
    serving_keys,
)
from tests.hostile_broker.broker import PATIENCE, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.brokers import clock
from tests.kit.writers import OWNER, READER, WRITER, Step, Story, chain_of, key_records

FAULT = BrokerError.brokerFaultError
INTEGRITY = BrokerError.integrityError
SUBSTITUTION = BrokerError.keySubstitutionError


# 4


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
                yield path, how, BrokerError.brokerFaultError
            else:
                yield path, how, INTEGRITY


# What a view needs not have: bodies between, where there are none; how long the authors' chains are, which a
# client finds out by itself; which governing record is the last, which the head says as well.
NEEDLESS = {
    ("skipped",),
    ("keyChains",),
    ("keyChains", 0),
    ("keyChains", 0, "sequence"),
    ("lastGoverning",),
}


@attack(4, "empty key list")
def test_no_missing_field_of_a_container_makes_a_client_read_or_write_without_it(
    mallory: HostileBroker,
) -> None:
    """Each absent, null and empty. In the list's first place is whoever comes first, Alice or Bob."""
    alice, bob = people(mallory, 2)
    story = begun(alice, {alice: OWNER, bob: WRITER}, content=b"0", type="t")
    story.tell(bob, story.follow(bob, content=b"truth", header=b"1"))
    device = device_of(mallory, alice, bob)
    with mallory.lying(VIEW, lambda view: view) as told:
        device.getContainer(id_of(story)).result(PATIENCE)
    tried = 0
    for path, how, error in spoiled(told[0]):
        if path in NEEDLESS and error is INTEGRITY:
            continue
        found = BrokerError.rollbackError if (path, how) == (("head",), "null") else error
        with (
            editing(mallory, VIEW, functools.partial(spoil, path=path, how=how)),
            refused(mallory, device, found) as attempt,
        ):
            attempt(device.getContainer(id_of(story)))
            if path[0] not in ("content", "header", "wrap"):
                attempt(device.updateContainerContent(id_of(story), b"secret"))
        tried += 1
    assert tried > 60
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"truth"


@attack(4, "empty key list")
def test_no_key_is_invented_for_a_container_whose_wrap_is_missing(mallory: HostileBroker) -> None:
    """The wrap of a member is withheld: nothing is sealed, by nobody's key, and nothing is carried over."""
    alice, bob = people(mallory, 2)
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = device_of(mallory, alice, bob)
    device.getContainer(id_of(story)).result(PATIENCE)
    both = [level(alice), level(bob, READER)]
    for missing, error in (
        ("null", BrokerError.decryptionError),
        ("absent", FAULT),
        ("empty", FAULT),
    ):
        with (
            editing(mallory, VIEW, functools.partial(spoil, path=("wrap",), how=missing)),
            refused(mallory, device, error) as attempt,
        ):
            attempt(device.updateContainerContent(id_of(story), b"secret"))
            attempt(device.updateContainerHeader(id_of(story), {"secret": 1}))
            attempt(device.updateContainerAccessLevels(id_of(story), both))


@attack(4, "empty key list")
def test_no_missing_field_of_a_users_keys_makes_a_client_share_without_them(
    mallory: HostileBroker,
) -> None:
    alice, bob = people(mallory, 2)
    device = device_of(mallory, alice)
    with mallory.lying(KEYS, lambda keys: keys) as told:
        device_of(mallory, alice, bob)
    tried = 0
    for path, how, error in spoiled(told[-1]):
        found = FAULT if path in {("users",), ("users", 0), ("users", 0, "userId")} else error
        with (
            editing(mallory, KEYS, functools.partial(spoil, path=path, how=how)),
            refused(mallory, device, found) as attempt,
        ):
            attempt(device.getPublicKeys(bob.ring.userId))
            attempt(device.createContainer(b"secret", accessLevels=[level(bob)]))
        tried += 1
    assert tried > 15
    with (
        serving_keys(mallory, bob, records_of(bob)[:1]),
        refused(mallory, device, INTEGRITY) as attempt,
    ):
        attempt(device.getPublicKeys(bob.ring.userId))
        attempt(device.createContainer(b"secret", accessLevels=[level(bob)]))


# 7

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


@attack(7, "keys that verify everything")
def test_nobody_registers_with_a_key_that_verifies_everything(mallory: HostileBroker) -> None:
    for message in (b"one", b"another"):  # what makes it an attack: this library takes such keys
        Ed25519PublicKey.from_public_bytes(IDENTITY).verify(IDENTITY + bytes(32), message)
    for point in SMALL_ORDER:
        ring = KeyRing(1, (HollowKey(point),), (DecryptionKey.generate(),))
        register(mallory, *ring.first_records(clock())).expect(422, "rejected")
    for u in LOW_U:
        ring = KeyRing(1, (SigningKey.generate(),), (HollowDecryptionKey(u),))
        register(mallory, *ring.first_records(clock())).expect(422, "rejected")


@attack(7, "keys that verify everything")
@pytest.mark.parametrize("place", ["first", "later"])
def test_a_key_that_verifies_everything_is_refused_wherever_it_stands_in_a_chain(
    mallory: HostileBroker, place: str
) -> None:
    """The broker serves what it would never take: an accomplice's chain with such a key in it."""
    alice, bob = people(mallory, 2)
    device = device_of(mallory, alice)
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
            refused(mallory, device, INTEGRITY) as attempt,
        ):
            attempt(device.getPublicKeys(ring.userId))
            attempt(device.createContainer(b"x", accessLevels=[AccessLevel(ring.userId)]))
