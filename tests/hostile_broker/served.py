"""Lies about what is served, and the keys and contents that an accomplice opens."""

from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from scbroker.client.core.sealing import OpenPart
from scbroker.records.canonical import encode_value
from scbroker.records.container_record import (
    Entry,
    Governing,
    Part,
    Role,
    SaltedEntry,
    list_hash,
    parse_entry,
    parse_record,
    wrap_hash,
    wrap_info,
)
from scbroker.wire.containers import ContainerView, ListView, RecordRequest, SignedRecord
from tests.kit.crypto import sha256
from tests.kit.writers import Recipient, Story, User


def instead(**fields: Any) -> Callable[[Any], Any]:
    """Return a lie: the answer with these fields in place of its own."""
    return lambda answer: replace(answer, **fields)


def always(answer: Any) -> Callable[[Any], Any]:
    """Return a lie: this answer in place of any."""
    return lambda _: answer


def same(answer: Any) -> Any:
    """Return the answer as it is, for `lying` that only listens."""
    return answer


def entries_of(shown: ListView) -> list[Entry]:
    return [parse_entry(item.entry) for item in shown.disclosed]


def with_list(view: ContainerView, change: Callable[[ListView], ListView]) -> ContainerView:
    """Return the view with every access list in it changed."""
    views = [
        item if item.accessList is None else replace(item, accessList=change(item.accessList))
        for item in view.governing
    ]
    return replace(view, governing=views)


def relisted(entries: Sequence[Entry]) -> ListView:
    """Return a list of these entries, its hashes made to fit."""
    salted = [
        SaltedEntry(bytes(32), encode_value(entry))
        for entry in sorted(entries, key=lambda entry: entry.fingerprint)
    ]
    return ListView.of(salted, range(len(salted)))


def with_wrap(
    story: Story, signer: User, request: RecordRequest, of: User, wrap: bytes
) -> RecordRequest:
    """Return a change of access in which one user gets another wrap, with all that is signed made to fit."""
    record, entries = parse_record(request.record.body), list(request.accessList or ())
    for position, item in enumerate(entries):
        entry = parse_entry(item.entry)
        if entry.fingerprint == of.name:
            fitting = encode_value(replace(entry, wrapHash=wrap_hash(wrap)))
            entries[position] = replace(item, entry=fitting, wrap=wrap)
    digest = list_hash(story.id, record.version, b"".join(item.salted.hash for item in entries))
    governing = replace(governing_of(request), accessList=digest)
    return replace(story.altered(signer, request, governing=governing), accessList=entries)


def content_of(signed: RecordRequest | SignedRecord) -> Part:
    """Return the content that a record names."""
    record = signed.record if isinstance(signed, RecordRequest) else signed
    content = parse_record(record.body).content
    assert content is not None
    return content


def governing_of(request: RecordRequest) -> Governing:
    """Return what a record says of access, key and type."""
    governing = parse_record(request.record.body).governing
    assert governing is not None
    return governing


def wrap_of(request: RecordRequest, user: Recipient) -> bytes:
    """Return the wrap that a change of access has for a user or a group."""
    entries = request.accessList or ()
    [wrap] = [e.wrap for e in entries if parse_entry(e.entry).fingerprint == user.name]
    assert wrap is not None
    return wrap


def wrapped_key(request: RecordRequest, user: Recipient, index: int = 0) -> bytes:
    """Return the container key that a change of access gives to a user, or to a group in an epoch."""
    container = parse_record(request.record.body).containerId
    info = wrap_info(container, governing_of(request), user.name, index)
    return user.encryption[index].unwrap(wrap_of(request, user), info)


def opened(
    request: RecordRequest,
    container_key: bytes,
    role: Role = Role.Content,
    key_of: RecordRequest | None = None,
) -> bytes:
    """Return the small content or header that a record brought, opened with its container key.

    `key_of` is the record whose part key is tried in place of its own.
    """
    name, record = role.name.lower(), parse_record(request.record.body)
    keyed = getattr(parse_record((key_of or request).record.body), name)
    known = OpenPart.open(record.containerId, role, keyed, container_key)
    sealed = getattr(request, name)
    return replaced(known, part=getattr(record, name)).open_segment(0, sealed, sha256(sealed))
