"""Objects of our own making: users, a KeyFile, and a container with two members.

Alice creates, Bob edits, Alice changes the type, rotates her keys and removes Bob, and deletes.
"""

import secrets
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.independent import access_lists, container_records, segments, wraps
from tests.independent.access_lists import Entry, Salted
from tests.independent.container_records import ContainerRecord, Governing
from tests.independent.ids import container_id_of
from tests.independent.key_files import KeyRing
from tests.independent.key_records import MINUTE, Signed, Writer
from tests.independent.segments import CONTENT, HEADER, SealedPart

START = 1_800_000_000_000_000
HOUR = 60 * MINUTE
NOW = START + 24 * HOUR

MEMBER = access_lists.DOWNLOAD | access_lists.DECRYPT | access_lists.UPLOAD
MEMBER |= access_lists.VIEW_ACCESS


class Told(NamedTuple):
    """One record with what goes with it."""

    signed: Signed
    entries: list[Salted] | None
    """Of a change of access."""
    wraps: dict[bytes, bytes]
    container_key: bytes
    header: SealedPart | None
    content: SealedPart | None


@dataclass
class Story:
    start: int = START
    step: int = HOUR
    """From one record to the next."""
    retirement: int = START + 5 * HOUR
    end: int = NOW
    """Of Bob's access."""
    alice: Writer = field(init=False)
    bob: Writer = field(init=False)
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    told: list[Told] = field(default_factory=list)
    type_salts: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alice, self.bob = Writer(self.start), Writer(self.start)

    @property
    def container_id(self) -> bytes:
        return container_id_of(self.alice.fingerprint, self.nonce)

    def tell(self) -> "Story":
        self._create()
        self._edit()
        self._change_type()
        self.alice.rotate(self.start + 4 * self.step, self.retirement)
        self._remove_bob()
        self._delete()
        return self

    def _create(self) -> None:
        key = secrets.token_bytes(32)
        header = self._part(HEADER, self.alice, key, b'{"name":"own"}', 16)
        content = self._part(CONTENT, self.alice, key, b"", 0)
        entries, sealed = self._list(1, key, [self.alice, self.bob])
        governing = Governing(
            1,
            self.alice.fingerprint,
            access_lists.whole(self.container_id, 1, entries).hash,
            wraps.key_commitment(self.container_id, key),
            self._type("first"),
        )
        first = ContainerRecord(
            self.container_id,
            self.nonce,
            1,
            None,
            self.alice.fingerprint,
            0,
            self.start + self.step,
            None,
            governing,
            header.part,
            content.part,
            tombstone=False,
        )
        signed = first.signed_by(self.alice.signing[0])
        self.told.append(Told(signed, entries, sealed, key, header, content))

    def _edit(self) -> None:
        """Bob's content has two segments, the last of them of one byte."""
        key, header = self.told[-1].container_key, self.told[-1].header
        text = b"once upon a time " * 61_000
        content = self._part(CONTENT, self.bob, key, text, segments.SEGMENT + 1)
        edit = replace(self._following(self.bob, 2), content=content.part)
        self._append(edit, self.bob, None, {}, key, header, content)

    def _change_type(self) -> None:
        latest = self._governing()
        last = self.told[-1]
        change = replace(
            self._following(self.alice, 3),
            governing=replace(latest, type=self._type("second \N{SNOWMAN}")),
        )
        self._append(change, self.alice, None, {}, last.container_key, last.header, last.content)

    def _remove_bob(self) -> None:
        key, last = secrets.token_bytes(32), self.told[-1]
        entries, sealed = self._list(4, key, [self.alice])
        governing = replace(
            self._governing(),
            access_version=4,
            access_author=self.alice.fingerprint,
            access_list=access_lists.whole(self.container_id, 4, entries).hash,
            key_commitment=wraps.key_commitment(self.container_id, key),
        )
        assert last.header is not None
        assert last.content is not None
        header = segments.sealed_again(self.container_id, HEADER, last.header, key)
        content = segments.sealed_again(self.container_id, CONTENT, last.content, key)
        removal = replace(
            self._following(self.alice, 6),
            governing=governing,
            header=header.part,
            content=content.part,
        )
        self._append(removal, self.alice, entries, sealed, key, header, content)

    def _delete(self) -> None:
        following = self._following(self.alice, 7)
        tombstone = replace(following, header=None, content=None, tombstone=True)
        self._append(tombstone, self.alice, None, {}, b"", None, None)

    def _append(
        self,
        record: ContainerRecord,
        author: Writer,
        entries: list[Salted] | None,
        sealed: dict[bytes, bytes],
        key: bytes,
        header: SealedPart | None,
        content: SealedPart | None,
    ) -> None:
        signed = record.signed_by(author.signing[record.key_index])
        self.told.append(Told(signed, entries, sealed, key, header, content))

    def _following(self, author: Writer, steps: int) -> ContainerRecord:
        """The next record of an author, that changes nothing yet."""
        body = self.told[-1].signed.body
        parent, digest = container_records.parse(body), container_records.record_hash(body)
        return replace(
            parent,
            nonce=None,
            version=parent.version + 1,
            parent=digest,
            author=author.fingerprint,
            key_index=len(author.signing) - 1,
            time=self.start + steps * self.step,
            link=parent.link if parent.governing is None else (parent.version, digest),
            governing=None,
        )

    def _governing(self) -> Governing:
        records = [container_records.parse(told.signed.body) for told in self.told]
        return [record.governing for record in records if record.governing is not None][-1]

    def _part(
        self, role: int, author: Writer, key: bytes, plaintext: bytes, padded_length: int
    ) -> SealedPart:
        fingerprint = author.fingerprint
        return segments.make_part(
            self.container_id, role, fingerprint, key, plaintext, padded_length
        )

    def _type(self, container_type: str) -> bytes:
        salt = self.type_salts.setdefault(container_type, secrets.token_bytes(32))
        return container_records.type_hash(self.container_id, salt, container_type)

    def _list(
        self, version: int, key: bytes, users: list[Writer]
    ) -> tuple[list[Salted], dict[bytes, bytes]]:
        """Alice may do everything, others may read and write; all get the key."""
        entries, sealed = [], {}
        for user in sorted(users, key=lambda user: user.fingerprint):
            index = len(user.encryption) - 1
            author, reader = self.alice.fingerprint, user.fingerprint
            info = wraps.WrapInfo(self.container_id, version, author, reader, index)
            wrap = wraps.wrap_key(user.encryption[index].public, info, key)
            may = access_lists.EVERYTHING if user is self.alice else MEMBER
            expires_at = None if user is self.alice else self.end
            entry = Entry(reader, index, may, expires_at, wraps.wrap_hash(wrap))
            entries.append(Salted(secrets.token_bytes(32), entry.stored()))
            sealed[reader] = wrap
        return entries, sealed


def key_ring(user: Writer, generation: int) -> KeyRing:
    return KeyRing(generation, tuple(user.signing), tuple(user.encryption))
