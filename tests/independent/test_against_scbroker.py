"""What is made here, scbroker reads, and both judge alike.

One of the two modules of this package that know scbroker: `test_through_a_broker` is the other.
"""

import uuid

import pytest

from scbroker.client.core.judging import Evidence, State, open_container_key, open_type
from scbroker.client.core.sealing import OpenPart
from scbroker.client.people.link_url import LinkUrl
from scbroker.crypto import seal
from scbroker.crypto.seal import DecryptionKey
from scbroker.crypto.verify import VerifyingKey
from scbroker.errors import BrokerError
from scbroker.keys import KeyRing
from scbroker.records import key_record as theirs
from scbroker.records.container_record import AccessList, Role, SaltedEntry
from scbroker.records.judge import Acting, InForce, Known, judge_first, judge_next
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import Disclosed, GoverningView, ListView, SignedRecord, TypeText
from scbroker.wire.users import Authorization, KeyFileStoring, parse_order, parse_statement
from tests.independent import container_records, key_files, links, orders
from tests.independent.changes import JUDGE, Beginning, Change, Draw, SeenList
from tests.independent.encodings import RefusedError
from tests.independent.ids import user_id_of
from tests.independent.key_records import Signed, Writer
from tests.independent.orders import Order, Storing
from tests.independent.sessions import Statement
from tests.independent.story import NOW, Story, Told, key_ring

pytestmark = pytest.mark.usefixtures("real_argon2id")

BROKER = "https://broker.example:443"
NONCE = bytes(range(48))
each_count = pytest.mark.parametrize(
    "draws", [600, pytest.param(3000, marks=pytest.mark.long)], ids=["some", "many"]
)


@pytest.fixture(scope="module")
def story() -> Story:
    return Story().tell()


def chain(user: Writer) -> theirs.KeyChain:
    return theirs.KeyChain.verify([theirs.Signed(*_both(signed)) for signed in user.records], NOW)


def read(story: Story, count: int, reader: Writer) -> State:
    """The container as a fresh reader finds it after so many records."""
    told = story.told[:count]
    governs = [container_records.parse(one.signed.body).governing is not None for one in told]
    views = [_view(one) for one, governing in zip(told, governs, strict=True) if governing]
    head = None if governs[-1] else theirs.Signed(*_both(told[-1].signed))
    chains = {user.fingerprint: chain(user) for user in (story.alice, story.bob)}
    return Evidence(
        story.container_id, reader.fingerprint, views, head, None, chains, None, NOW
    ).judge()


def test_key_chains_of_our_making_are_valid(story: Story) -> None:
    """scbroker finds the same keys, the same user, and the same mark in a rotated chain."""
    found = chain(story.alice)
    assert found.fingerprint == story.alice.fingerprint
    assert found.userId.bytes == user_id_of(story.alice.fingerprint)
    latest = found.latest(KeyType.Signing)
    assert (latest.index, latest.public) == (1, story.alice.signing[1].public)
    assert found.sequence == 5


ADDRESSES = [
    "https://a", "HTTPS://a", "https://A.Example", "https://a:99999", "https://a:65535", "https://a:0",
    "https://a:", "https://a:08", "https://bücher.example", "https://xn--bcher-kva.example", "https://a/",
    "https://a/b", "https://a/b/", "https://a//b", "https://a/%41", "https://a/b?c", "https://a?b",
    "https://[::1", "https://[::1]", "http://[::1]:80", "http://[::ffff:127.0.0.1]", "http://127.0.0.1",
    "http://127.1", "http://localhost", "http://localhost.", "http://LOCALHOST", "http://x.localhost",
    "http://localhostx", "http://0.0.0.0", "http://10.0.0.1", "http://127.0.0.1.", "http://0x7f.1",
    "https://0x7f.1", "https://", "https:///a", "https://a b", "https://a\n", "https://a.", "https://.a",
    "https://a..b", "https://-a", "https://a-", "https://a_b", "https://a/./b", "https://a/.",
    "https://a/..b", "https://a/~b_c-d.e", "https://a/é", "https://u:p@a", "https://a/@b", "https://a/b;c",
    "ftp://a", "//a", "", "https://[fe80::1%25eth0]", "https://[1:2]", "https://[::1.2.3.4]",
    "https://[v1.a]", "https://[::1]x", "https://1.2.3.4", "https://256.1.1.1", "https://1.2.3.4.5",
    "https://01.2.3.4", "https://a.1", "https://a.0x1", "https://a:8 0", f"https://{'a' * 64}", "https://_",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_in_a_link_is_judged_alike(address: str) -> None:
    """With a checksum that fits, so that the address alone decides."""
    link = links.Link(address, bytes(32), bytes(range(32)), bytes(16), True)
    url = links.url_of(link)
    assert _by_scbroker(url) == _by_this_package(url)


def _by_this_package(url: str) -> str | links.Link:
    try:
        return links.parse(url)
    except RefusedError as refused:
        return refused.kind


def _by_scbroker(url: str) -> str | links.Link:
    try:
        found = LinkUrl.parse(url)
    except BrokerError as error:
        return error.code
    fields = (found.serverUrl, found.secret, found.fingerprint, found.apiKey.bytes)
    return links.Link(*fields, found.hasPassword)


def test_the_passphrase_of_a_link_is_derived_alike() -> None:
    for password in (None, "p", "\N{LATIN SMALL LIGATURE FI}sh \N{SNOWMAN}", "e\u0301"):
        found = LinkUrl("https://a", uuid.UUID(int=0), bytes(range(32)), bytes(32), False)
        assert found.passphrase(password) == links.passphrase(bytes(32), bytes(range(32)), password)


@pytest.mark.long
def test_key_files_of_our_making_open(story: Story) -> None:
    """scbroker opens them with either secret, in another form of Unicode, to the same keys."""
    ring = key_ring(story.alice, 3)
    file = key_files.seal(ring, "\N{LATIN SMALL LIGATURE FI}sh", "a passphrase")
    user_id = uuid.UUID(bytes=user_id_of(ring.fingerprint))
    for secrets in ({"password": "fish"}, {"passphrase": "a passphrase"}):
        opened = KeyRing.open(file, user_id, **secrets)
        assert opened.rawFingerprint == ring.fingerprint
        assert opened.generation == 3
        assert [key.sign("order", b"")[:64] for key in opened.signing] == [
            key.sign("order", b"")[:64] for key in ring.signing
        ]
        assert len(opened.encryption) == 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_containers_of_our_making_are_valid(story: Story, count: int) -> None:
    """After each record scbroker finds the head that we wrote, with every entry seen."""
    state = read(story, count, story.alice)
    record = container_records.parse(story.told[count - 1].signed.body)
    assert state.head.record.version == record.version == count
    assert state.head.hash == container_records.record_hash(story.told[count - 1].signed.body)
    assert state.complete


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_what_we_sealed_opens(story: Story, count: int) -> None:
    """Wraps, types, sealed keys and segments open, for those who are members after each record."""
    told = story.told[count - 1]
    container_type = "first" if count < 3 else "second \N{SNOWMAN}"
    for user in (story.alice, story.bob)[: 2 if count < 4 else 1]:
        state = read(story, count, user)
        wrap = story.told[0 if count < 4 else 3].wraps[user.fingerprint]
        keys = ring_of(user).encryption

        def unwrap(index: int, *rest: bytes, keys: tuple[DecryptionKey, ...] = keys) -> bytes:
            return keys[index].unwrap(*rest)

        key = open_container_key(state, wrap, unwrap)
        assert key == told.container_key
        if user is story.alice:
            text = TypeText(salt=story.type_salts[container_type], type=container_type)
            assert open_type(state, text) == container_type
        for role, part, sealed in (
            (Role.Header, state.head.record.header, told.header),
            (Role.Content, state.head.record.content, told.content),
        ):
            assert part is not None
            assert sealed is not None
            opening = OpenPart.open(story.container_id, role, part, key)
            last = len(sealed.sealed) - 1
            plaintext = b"".join(
                opening.open_segment(index, segment, sealed.hashes[32 * index : 32 * index + 32])
                for index, segment in enumerate(sealed.sealed)
            )
            assert last == (1 if role is Role.Content and count > 1 else 0)
            assert opening.length == sealed.length
            assert plaintext[: sealed.length] == _text(role, count)


def test_a_removed_member_has_no_entry(story: Story) -> None:
    """Bob's view after his removal is refused: he stands in no list that is in force."""
    state = read(story, 4, story.alice)
    assert list(state.governing.access.entries) == [story.alice.fingerprint]
    assert state.governing.entry_of(story.bob.fingerprint, NOW) is None


def test_statements_of_our_making_hold(story: Story) -> None:
    """scbroker reads the same fields, and the signature verifies under the published key."""
    alice = story.alice
    statement = Statement(BROKER, alice.fingerprint, 1, NONCE)
    body, signature = _both(statement.signed_by(alice.signing[1]))
    found = parse_statement(body)
    assert (found.origin, found.fingerprint) == (BROKER, alice.fingerprint)
    assert (found.keyIndex, found.nonce) == (1, NONCE)
    VerifyingKey(chain(alice).latest(KeyType.Signing).public).verify("session", body, signature)


@pytest.mark.parametrize("reminder", [None, "", "the c\N{LATIN SMALL LETTER A WITH DIAERESIS}t"])
@pytest.mark.parametrize("replaces", [None, bytes(32), bytes(range(32))])
@pytest.mark.parametrize("records", [0, 2])
def test_orders_of_our_making_hold(
    story: Story, reminder: str | None, replaces: bytes | None, records: int
) -> None:
    """scbroker makes the same digest of the same storing, and reads the order that signs it."""
    alice, end_others = story.alice, records > 0
    key_records = alice.records[2 : 2 + records]
    bodies = [signed.body for signed in key_records]
    storing = Storing(b"file", 7, bytes(range(32)), reminder, replaces, end_others, bodies)
    order = Order(BROKER, alice.fingerprint, 1, NONCE, orders.STORE, storing.digest)
    body, signature = _both(order.signed_by(alice.signing[1]))
    message = KeyFileStoring(
        keyFile=b"file",
        generation=7,
        auth=bytes(range(32)),
        reminder=reminder,
        replaces=replaces,
        keyRecords=[SignedObject(body=b, signature=s) for b, s in map(_both, key_records)],
        endOtherSessions=end_others,
        authorization=Authorization(order=body, signature=signature),
    )
    assert parse_order(body).digest == storing.digest == message.digest
    VerifyingKey(alice.signing[1].public).verify("order", body, signature)


def ring_of(user: Writer) -> KeyRing:
    """A user's keys as scbroker has them."""
    return KeyRing(
        1,
        tuple(seal.SigningKey(key.ed25519, key.ml_dsa) for key in user.signing),
        tuple(seal.DecryptionKey(key.ml_kem, key.x25519) for key in user.encryption),
    )


def _view(told: Told) -> GoverningView:
    entries = told.entries or []
    disclosed = [
        Disclosed(position=position, salt=entry.salt, entry=entry.entry)
        for position, entry in enumerate(entries)
    ]
    access = ListView(entryHashes=b"".join(entry.hash for entry in entries), disclosed=disclosed)
    body, signature = _both(told.signed)
    record = SignedRecord(body=body, signature=signature)
    return GoverningView(record=record, accessList=access if entries else None)


def _both(signed: Signed) -> tuple[bytes, bytes]:
    assert signed.signature is not None
    return signed.body, signed.signature


def _text(role: Role, count: int) -> bytes:
    if role is Role.Header:
        return b'{"name":"own"}'
    return b"once upon a time " * 61_000 if count > 1 else b""


@pytest.mark.long
@each_count
def test_both_judge_changes_alike(draws: int) -> None:
    """Rules 2 to 5 and V3 to V7 give one verdict here and there, on lists wholly and partly seen."""
    valid = 0
    for number in range(draws):
        change = Draw(number).change()
        assert _scbroker_takes(change) == change.is_valid(), (number, change)
        valid += change.is_valid()
    assert 0.3 < valid / draws < 0.8, "draws that say little"


@each_count
def test_both_judge_beginnings_alike(draws: int) -> None:
    """Rule 1 gives one verdict here and there."""
    valid = 0
    for number in range(draws // 4):
        beginning = Draw(number).beginning()
        assert _scbroker_begins(beginning) == beginning.is_valid(), (number, beginning)
        valid += beginning.is_valid()
    assert 0.3 < valid / (draws // 4) < 0.8, "draws that say little"


def _scbroker_begins(beginning: Beginning) -> bool:
    known = beginning.record.stored()
    try:
        judge_first(Known.parse(known), _theirs(beginning.access), JUDGE.now)
    except BrokerError:
        return False
    return True


def _scbroker_takes(change: Change) -> bool:
    first = Known.parse(change.first.stored())
    governing = InForce(first, _theirs(change.old), first.record.time, change.left)
    parent = None if change.parent is None else Known.parse(change.parent.stored())
    access = None if change.new is None else _theirs(change.new)
    acting = None
    if change.acting is not None and change.record.via is not None:
        of = change.acting
        acting = Acting(change.record.via.group, of.role, of.since, of.end, of.deleted)
    known = change.record.stored()
    try:
        judge_next(Known.parse(known), governing, access, parent, JUDGE.now, acting)
    except BrokerError:
        return False
    return True


def _theirs(seen: SeenList) -> AccessList:
    shown = [(position, SaltedEntry(*entry)) for position, entry in seen.seen]
    return AccessList.disclosed(seen.hashes, shown)
