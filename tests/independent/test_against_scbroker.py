"""What is made here, scbroker reads, and both judge alike.

One of the two modules of this package that know scbroker: `test_through_a_broker` is the other.
"""

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pytest

from assurance.exhaustive import acts, chains, groups
from scbroker.client.people.links import LinkUrl
from scbroker.crypto import seal
from scbroker.errors import BrokerError
from scbroker.keys import KeyRing
from scbroker.records import judge
from scbroker.records.canonical import encode_object, encode_value
from scbroker.records.container_record import AccessList
from scbroker.records.judge import Acting, InForce, Known
from tests.independent import access_lists, container_records, links
from tests.independent.container_records import Judge
from tests.independent.encodings import RefusedError
from tests.independent.key_records import (
    ENCRYPTION,
    SIGNING,
    KeyChain,
    PublishedKey,
    Signed,
    Writer,
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


KEY: Final = {SIGNING: [PublishedKey(b"", 0)], ENCRYPTION: list[PublishedKey]()}
JUDGE: Final = Judge(chains.LATE, {user: KeyChain(user, keys=KEY) for user in chains.NAMES})
HIDES: Final = 29
"""One of so many records is also judged by readers who do not see all of a list, or lack the parent."""


class Both:
    """Stands in for scbroker's judge: asks it and the second implementation, and compares."""

    def __init__(self) -> None:
        self.accepted = self.refused = 0
        self._first, self._next = judge.judge_first, judge.judge_next

    def judge_first(self, known: Known, access: AccessList, now: int) -> InForce:
        verdict = _verdict(lambda: JUDGE.first(_signed(known), _list(access, known, 1)))
        return self._compared(lambda: self._first(known, access, now), verdict, known)

    def judge_next(
        self, known: Known, governing: InForce, access: AccessList | None, parent: Known | None, now: int,
        acting: Acting | None = None,
    ) -> InForce:  # fmt: skip
        if (known.record.via is None) != (acting is None):  # V2, which readers check before
            return self._next(known, governing, access, parent, now, acting)
        if (self.accepted + self.refused) % HIDES == 0:
            for hidden, at_hand in itertools.product(chains.LISTED, (parent, None)):
                old = replace(
                    governing,
                    access=_without(governing.access, hidden),
                    left=governing.left - {hidden},
                )
                new = None if access is None else _without(access, hidden)
                with contextlib.suppress(BrokerError):
                    self._judged(known, old, new, at_hand, now, acting)
        return self._judged(known, governing, access, parent, now, acting)

    def _judged(
        self, known: Known, governing: InForce, access: AccessList | None, parent: Known | None, now: int,
        acting: Acting | None,
    ) -> InForce:  # fmt: skip
        def by_the_second() -> object:
            g = _in_force(governing)
            read = None if parent is None else _read(encode_object(parent.record))
            before = g if read is not None and read.hash == g.hash else read
            listed = None if access is None else _list(access, known, known.record.version)
            return JUDGE.next(_signed(known), g, listed, before, _acting(acting))

        def by_scbroker() -> InForce:
            return self._next(known, governing, access, parent, now, acting)

        return self._compared(by_scbroker, _verdict(by_the_second), known)

    def _compared(self, ask: Callable[[], InForce], verdict: str | None, known: Known) -> InForce:
        try:
            found = ask()
        except BrokerError:
            self.refused += 1
            assert verdict is not None, (
                f"accepted by the second implementation alone: {known.record}"
            )
            raise
        self.accepted += 1
        assert verdict is None, (
            f"refused by the second implementation alone: {verdict}: {known.record}"
        )
        return found


def _verdict(ask: Callable[[], object]) -> str | None:
    """Return why the second implementation refuses, or None."""
    try:
        ask()
    except RefusedError as refused:
        return refused.why
    return None


def _signed(known: Known) -> Signed:
    return Signed(encode_object(known.record), None)


@lru_cache(4096)
def _read(body: bytes) -> container_records.Judged:
    return container_records.Judged(
        container_records.parse(body), container_records.record_hash(body)
    )


def _in_force(governing: InForce) -> container_records.InForce:
    read = _read(encode_object(governing.known.record))
    assert read.record.governing is not None
    listed = _list(governing.access, governing.known, governing.governing.accessVersion)
    return container_records.InForce(
        read.record, read.hash, read.record.governing, listed, governing.since, governing.left
    )


def _acting(acting: Acting | None) -> container_records.Acting | None:
    if acting is None:
        return None
    return container_records.Acting(acting.role, acting.since, acting.ended, acting.deleted)


def _list(access: AccessList, known: Known, version: int) -> access_lists.AccessList:
    entries = tuple(map(encode_value, access.entries.values()))
    return _disclosed(known.record.containerId, version, access.entryHashes, entries)


@lru_cache(4096)
def _disclosed(
    container_id: bytes, version: int, hashes: bytes, entries: tuple[bytes, ...]
) -> access_lists.AccessList:
    """The second implementation's list; all salts of the searches are zeros."""
    salted = [access_lists.Salted(bytes(32), entry) for entry in entries]
    every = [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
    seen = [(every.index(one.hash), one) for one in salted]
    return access_lists.disclosed(container_id, version, hashes, seen)


def _without(access: AccessList, hidden: bytes) -> AccessList:
    """The list as it is seen by a reader to whom one entry is not disclosed."""
    entries = {user: entry for user, entry in access.entries.items() if user != hidden}
    return AccessList(entries, access.entryHashes, len(entries) * 32 == len(access.entryHashes))


SEARCHES: Final[dict[str, Callable[[], object]]] = {
    "types and deletions": lambda: chains.search(acts.KEPT["short-types"], 3),
    "records": lambda: chains.search(acts.KEPT["short"], 3),
    "keys": lambda: chains.search(acts.KEPT["short-keys"], 3),
    "departures": lambda: chains.search(acts.KEPT["short-departures"], 3),
    "groups": lambda: groups.search(groups.KEPT["short"], 2),
}


@pytest.mark.sampled
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_both_judge_every_record_of_a_short_search_alike(
    search: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 1 to 5 and V3 to V7, for rightful and wrongful acts and for lies."""
    both = Both()
    monkeypatch.setattr(judge, "judge_first", both.judge_first)
    monkeypatch.setattr(judge, "judge_next", both.judge_next)
    if (
        search is SEARCHES["groups"]
    ):  # whose time is counted in units, and whose readers tolerate one
        monkeypatch.setattr(container_records, "MINUTE", 1 / 15)
    search()
    assert min(both.accepted, both.refused) > 1000
