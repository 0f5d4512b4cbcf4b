"""What an honest broker serves of a container, and what a vector of a view says of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import Role, SaltedEntry, bare_body
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.wire.codec import SignedObject, encode
from scbroker.wire.containers import (
    ContainerView,
    Disclosed,
    GoverningView,
    ListView,
    SignedRecord,
    TypeText,
)
from scbroker.wire.users import KeyChainState
from tests.vectors.cast import DAY, START, Person, cast
from tests.vectors.files import INTEGRITY, Vector, invalid, valid
from tests.vectors.story import Container, Made

NOW = START + 40 * DAY
Found = tuple[int, bytes | None, bytes | None, str | None]
"""Version, header, content and type."""


def key_chains() -> list[KeyChainState]:
    return [
        KeyChainState(userId=str(user_id_of(one.fingerprint)), sequence=len(one.records) - 1)
        for one in cast().values()
    ]


def list_view(
    salted: Sequence[SaltedEntry], hidden: Collection[bytes] = (), departures: Sequence[Signed] = ()
) -> ListView:
    """A list without the entries of some users."""
    shown = [
        Disclosed(position=n, salt=item.salt, entry=item.entry)
        for n, item in enumerate(salted)
        if item.entry[3:35] not in hidden
    ]
    return ListView(
        entryHashes=b"".join(item.hash for item in salted),
        disclosed=shown,
        departures=[SignedObject.of(item) for item in departures],
    )


class Served:
    """What an honest broker knows of a container."""

    def __init__(self, box: Container, history: Sequence[Made], texts: dict[int, str]) -> None:
        self.box, self.history, self.texts = box, list(history), texts
        self.departures: dict[int, list[Signed]] = {}
        """By the version of the list."""

    def view(
        self, reader: Person, since: int = 1, hidden: Sequence[str] = (), count: int | None = None
    ) -> ContainerView:
        """The view of the first `count` records; `hidden` are the people whose entries are not disclosed."""
        told = self.history[:count]
        head = told[-1]
        governs = [made for made in told if made.record.governing is not None]
        start = max(made.record.version for made in governs if made.record.version <= since)
        served = [made for made in governs if made.record.version >= start]
        listed, views = 0, []
        for made in served:
            governing = made.record.governing
            assert governing is not None
            shown = None
            if governing.accessVersion != listed:
                listed = governing.accessVersion
                shown = self._list(listed, hidden)
            body = bare_body(made.signed.body) if head.record.tombstone else made.signed.body
            views.append(
                GoverningView(record=SignedRecord(body=body, signature=made.signed.signature),
                              accessList=shown)
            )  # fmt: skip
        versions = {made.record.version for made in (*served, head)}
        skipped = [made.signed.body for made in told
                   if since <= made.record.version and made.record.version not in versions]  # fmt: skip
        whole = ContainerView(
            governing=views,
            lastGoverning=governs[-1].record.version,
            head=None if head is governs[-1] else SignedRecord.of(head.signed),
            skipped=skipped if since > 1 else [],
            wrap=self.history[listed - 1].listed.wraps.get(reader.name),
            type=self._type(reader, governs[-1].record.version),
            header=self._sealed(told, Role.Header),
            content=self._sealed(told, Role.Content),
            keyChains=key_chains(),
        )
        if head.record.tombstone:
            return replace(whole, skipped=[], wrap=None, type=None, header=None, content=None)
        return whole

    def _list(self, version: int, hidden: Sequence[str]) -> ListView:
        salted = self.history[version - 1].listed.salted
        names = [one for one, name in self.names().items() if name in hidden]
        return list_view(salted, names, self.departures.get(version, []))

    def names(self) -> dict[bytes, str]:
        """Those of the entries of lists."""
        return {one.fingerprint: one.name for one in cast().values()}

    def after(self, version: int, *departures: Signed) -> Served:
        """The same container after users left a list."""
        left = Served(self.box, self.history, self.texts)
        left.departures = {**self.departures, version: list(departures)}
        return left

    def _type(self, reader: Person, version: int) -> TypeText | None:
        if reader.name != "alice":
            return None
        text = self.texts[max(v for v in self.texts if v <= version)]
        return TypeText(salt=self.box.type_salt(text), type=text)

    def _sealed(self, told: Sequence[Made], role: Role) -> bytes | None:
        if told[-1].record.part(role) is None:
            return None
        sealed = [made.sealed.get(role.name.lower()) for made in told]
        return [one for one in sealed if one is not None][-1]

    def mark(self, version: int, **changes: Any) -> dict[str, Any]:
        made = self.history[version - 1]
        governs = [m for m in self.history[:version] if m.record.governing is not None][-1]
        first = self.history[0].record
        changed = self.history[governing_of(governs.record).accessVersion - 1]
        return {
            "version": version, "hash": made.hash, "governingVersion": governs.record.version,
            "governingHash": governs.hash, "complete": True, "createdBy": first.author,
            "createdAt": first.time, "accessTime": changed.record.time, **changes,
        }  # fmt: skip

    def given(
        self, reader: Person, view: ContainerView, mark: dict[str, Any] | None = None, now: int = NOW,
        **_: Any,
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "containerId": self.box.id, "reader": reader.name, "mark": mark, "now": now,
            "view": encode(view),
        }  # fmt: skip

    def reads(
        self, name: str, comment: str, reader: Person, found: Found, view: ContainerView | None = None,
        *, mark: dict[str, Any] | None = None, complete: bool = True, deleted: bool = False,
        group: Mapping[str, Any] = MappingProxyType({}), **of_view: Any,
    ) -> Vector:  # fmt: skip
        """A view that its reader believes, who finds this; it is the honest one unless another is given."""
        view = self.view(reader, **of_view) if view is None else view
        version, header, content, text = found
        shown = {"header": header, "content": content, "type": text}
        fields = {"deleted": True} if deleted else {}
        fields |= self.given(reader, view, mark, **group)
        return valid(name, comment, **fields, version=version, complete=complete, **shown)

    def refused(
        self, name: str, comment: str, reader: Person, view: ContainerView | None = None,
        error: str = INTEGRITY, *, mark: dict[str, Any] | None = None, now: int = NOW,
        group: Mapping[str, Any] = MappingProxyType({}), **of_view: Any,
    ) -> Vector:  # fmt: skip
        view = self.view(reader, **of_view) if view is None else view
        return invalid(name, comment, error, **self.given(reader, view, mark, now, **group))
