"""What is made here, scbroker reads, and both judge alike.

One of the two modules of this package that know scbroker: `test_through_a_broker` is the other.
"""

import pytest

from scbroker.client.people.link_url import LinkUrl
from scbroker.crypto import seal
from scbroker.errors import BrokerError
from scbroker.keys import KeyRing
from scbroker.records.container_record import AccessList, SaltedEntry
from scbroker.records.judge import Acting, InForce, Known, judge_first, judge_next
from tests.independent import links
from tests.independent.changes import JUDGE, Beginning, Change, Draw, SeenList
from tests.independent.encodings import RefusedError
from tests.independent.key_records import Writer

each_count = pytest.mark.parametrize(
    "draws", [600, pytest.param(3000, marks=pytest.mark.long)], ids=["some", "many"]
)


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


def ring_of(user: Writer) -> KeyRing:
    """A user's keys as scbroker has them."""
    return KeyRing(
        1,
        tuple(seal.SigningKey(key.ed25519, key.ml_dsa) for key in user.signing),
        tuple(seal.DecryptionKey(key.ml_kem, key.x25519) for key in user.encryption),
    )


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
