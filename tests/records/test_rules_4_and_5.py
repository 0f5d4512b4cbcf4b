"""Rules 4 and 5 against a model written from the words of docs/spec/container.md, section 7."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker.errors import IntegrityError
from scbroker.records.canonical import container_id_of, encode_object
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    Entry,
    Governing,
    Link,
    SaltedEntry,
    encode_entry,
    list_hash,
    record_hash,
)
from scbroker.records.judge import InForce, Known, judge_first, judge_next
from tests.kit.cases import in_one_case
from tests.vectors.cast import chosen

DECRYPT, UPLOAD, VIEW_ACCESS, MODIFY_ACCESS, MODIFY_TYPE = 2, 4, 8, 16, 32
BEFORE, NOW = 50, 100
BOX = bytes(16)
USERS = sorted(chosen("model", n) for n in range(5))
TYPE, OTHER_TYPE = chosen("a type"), chosen("another type")


@dataclass(frozen=True)
class Row:
    """A user's entry, in the model's terms."""

    index: int
    permissions: int
    end: int | None


List = dict[int, Row]


@dataclass(frozen=True)
class Change:
    """A list in force, who made it, and what somebody would put in its place."""

    before: List
    access_author: int
    author: int
    after: List
    changes_type: bool
    left: frozenset[int]
    """Users whose departure from the list in force is at hand."""


def spec_allows(change: Change) -> bool:
    """Section 7, rule 2 (author), rule 4 and rule 5, sentence by sentence."""
    in_force = {user: row for user, row in change.before.items() if not expired(row)}
    if change.author not in in_force:
        return False
    author = in_force[change.author]
    if not author.permissions & UPLOAD:
        return False
    if change.changes_type and not author.permissions & MODIFY_TYPE:
        return False
    if not well_formed(change.after) or any(expired(row) for row in change.after.values()):
        return False
    for user, row in change.after.items():
        if (
            user != change.author
            and user in change.before
            and row.index < change.before[user].index
        ):
            return False
    if author.permissions & MODIFY_ACCESS:
        users = in_force.keys() | change.after.keys()
        return all(
            rule_4(in_force.get(user), change.after.get(user), author)
            or (user in change.left and rule_4(None, change.after.get(user), author))
            for user in users
        )
    return rule_5(change, in_force)


def rule_4(old: Row | None, new: Row | None, author: Row) -> bool:
    old_bits = old.permissions if old else 0
    new_bits = new.permissions if new else 0
    for bit in (1 << n for n in range(9)):
        differs = bool(old_bits & bit) != bool(new_bits & bit)
        if differs and not author.permissions & bit:
            return False
        moved = old is not None and new is not None and old.end != new.end
        if moved and (old_bits | new_bits) & bit and not author.permissions & bit:
            return False
    added = new_bits & ~old_bits != 0
    later = old is not None and new is not None and infinite(new.end) > infinite(old.end)
    if new is not None and (added or later):
        return infinite(new.end) <= infinite(author.end)
    return True


def rule_5(change: Change, in_force: List) -> bool:
    absent = in_force.keys() - change.after.keys()
    if change.changes_type or change.after.keys() - in_force.keys() or absent - change.left:
        return False
    for user, row in change.after.items():
        if (row.permissions, row.end) != (in_force[user].permissions, in_force[user].end):
            return False
    if any(expired(row) for row in change.before.values()):
        return True
    if any(row.index > change.before[user].index for user, row in change.after.items()):
        return True
    if any(change.before[user].permissions & DECRYPT for user in change.left):
        return True
    maker = in_force.get(change.access_author)
    return maker is None or not maker.permissions & DECRYPT


def well_formed(rows: List) -> bool:
    for row in rows.values():
        bits = row.permissions
        if bits & UPLOAD and not (bits & DECRYPT and bits & VIEW_ACCESS):
            return False
        if bits & (MODIFY_TYPE | MODIFY_ACCESS) and not bits & UPLOAD:
            return False
    return len(rows) >= 1


def expired(row: Row) -> bool:
    return row.end is not None and row.end <= NOW


def infinite(end: int | None) -> float:
    return float("inf") if end is None else end


ALLOWED = [bits for bits in range(1, 512) if well_formed({0: Row(0, bits, None)})]
TYPICAL = [511, 10, 14, 11, 15, 31, 47, 63, 1, 256, 15 | 64, 31 | 256, 11 | 128, 479]
bits_allowed = st.one_of(st.sampled_from(TYPICAL), st.sampled_from(ALLOWED))
ends = st.sampled_from([None, None, NOW - 40, NOW, NOW + 1, NOW + 100, NOW + 200])
rows = st.builds(Row, st.integers(0, 2), bits_allowed, ends)
users = st.sampled_from(range(5))
writing = st.sampled_from([14, 30, 30 | 64, 15, 31, 47, 63, 15 | 64, 31 | 256, 511, 479, 31 | 64])
LATER = [None, NOW + 1, NOW + 100, NOW + 200]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Mostly small changes of what is in force: the border is near there."""
    before = draw(st.dictionaries(users, rows, min_size=1, max_size=5))
    author = draw(users)
    if draw(st.integers(0, 7)):
        before[author] = Row(draw(st.integers(0, 2)), draw(writing), draw(st.sampled_from(LATER)))
    in_force = {user: row for user, row in before.items() if not expired(row)}
    after = dict(in_force)
    for _ in range(draw(st.integers(0, 2))):
        user = draw(users)
        old = after.get(user, Row(0, 11, None))
        kind = draw(st.sampled_from(["drop", "bits", "end", "index", "row", "any bits"]))
        if kind == "drop":
            after.pop(user, None)
        elif kind == "bits":
            after[user] = Row(old.index, draw(bits_allowed), old.end)
        elif kind == "any bits":
            after[user] = Row(old.index, draw(st.integers(1, 511)), old.end)
        elif kind == "end":
            after[user] = Row(old.index, old.permissions, draw(ends))
        elif kind == "index":
            after[user] = Row(draw(st.integers(0, 3)), old.permissions, old.end)
        else:
            after[user] = draw(rows)
    left = frozenset(draw(st.sets(users))) & before.keys() if draw(st.booleans()) else frozenset()
    for user in sorted(left & after.keys()):
        if draw(st.booleans()):
            del after[user]
    changes_type = draw(st.sampled_from([False] * 4 + [True]))
    return Change(before, draw(users), author, after, changes_type, left)


def salted(rows: List) -> list[SaltedEntry]:
    return [
        SaltedEntry(
            chosen("salt", user),
            encode_entry(Entry(USERS[user], row.index, row.permissions, row.end, None)),
        )
        for user, row in sorted(rows.items())
    ]


def record_of(
    version: int, author: int, items: list[SaltedEntry], kind: bytes, **fields: object
) -> ContainerRecord:
    hashes = b"".join(item.hash for item in items)
    governing = Governing(
        version, USERS[author], list_hash(BOX, version, hashes), chosen("key", version), kind
    )
    values: dict[str, object] = {
        "containerId": BOX, "nonce": None, "version": version, "parent": None,
        "author": USERS[author], "keyIndex": 0, "time": BEFORE, "link": None,
        "governing": governing, "header": None, "content": None, "tombstone": False, **fields,
    }  # fmt: skip
    return ContainerRecord(**values)  # type: ignore[arg-type]


def known(record: ContainerRecord) -> Known:
    return Known(record, record_hash(encode_object(record)))


def in_force_before(change: Change, shown: set[int] | None = None) -> InForce:
    items = salted(change.before)
    record = record_of(2, change.access_author, items, TYPE, parent=bytes(32),
                       link=Link(1, bytes(32)))  # fmt: skip
    left = change.left if shown is None else change.left & shown
    return InForce(
        known(record),
        listed(items, change.before, shown),
        record.time,
        frozenset(USERS[user] for user in left),
    )


def listed(items: list[SaltedEntry], rows: List, shown: set[int] | None) -> AccessList:
    if shown is None:
        return AccessList.whole(items)
    hashes = b"".join(item.hash for item in items)
    picked = [(n, items[n]) for n, user in enumerate(sorted(rows)) if user in shown]
    return AccessList.disclosed(hashes, picked)


def judged(change: Change, before: set[int] | None = None, after: set[int] | None = None) -> bool:
    """Return whether the judge accepts the change; whatever else it raises is a failure."""
    governing = in_force_before(change, before)
    items = salted(change.after)
    record = record_of(
        3, change.author, items, OTHER_TYPE if change.changes_type else TYPE, time=NOW,
        parent=governing.known.hash, link=Link(2, governing.known.hash),
    )  # fmt: skip
    try:
        result = judge_next(known(record), governing, listed(items, change.after, after), None, NOW)
    except IntegrityError:
        return False
    assert result.record is record
    return True


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(changes())
def test_the_judge_allows_exactly_the_changes_of_access_of_the_spec(change: Change) -> None:
    assert judged(change) == spec_allows(change)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(changes(), st.sets(users))
def test_who_sees_less_never_refuses_what_the_spec_allows(change: Change, own: set[int]) -> None:
    """Disclosed: a reader's own and the authors' entries, in both lists where there are any."""
    shown = own | {change.author}
    if spec_allows(change):
        assert judged(change, shown, shown)
        assert judged(change, set(change.before), shown)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(changes(), users)
def test_who_sees_less_refuses_what_is_given_to_one_who_is_seen(change: Change, own: int) -> None:
    """What an entry in both views shows is judged, whoever else is hidden."""
    author = change.before.get(change.author)
    if author is None or expired(author) or not author.permissions & MODIFY_ACCESS:
        return
    old, new = change.before.get(own), change.after.get(own)
    old = None if old is not None and expired(old) else old
    olds = [old, None] if own in change.left else [old]
    if new is not None and not any(rule_4(one, new, author) for one in olds):
        assert not judged(change, {own, change.author}, {own, change.author})


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(users, st.dictionaries(users, rows, min_size=0, max_size=5))
def test_a_first_list_may_be_any_that_is_well_formed_and_not_expired(
    author: int, listed_rows: List
) -> None:
    """Rule 1: the creator holds everything, for ever."""
    nonce = chosen("nonce")
    box = container_id_of(USERS[author], nonce).bytes
    items = salted(listed_rows)
    hashes = b"".join(item.hash for item in items)
    record = record_of(1, author, items, TYPE, time=NOW, nonce=nonce, containerId=box)
    governing = Governing(1, USERS[author], list_hash(box, 1, hashes), bytes(32), TYPE)
    record = record_of(1, author, items, TYPE, time=NOW, nonce=nonce, containerId=box,
                       governing=governing)  # fmt: skip
    good = bool(listed_rows) and not any(expired(row) for row in listed_rows.values())
    try:
        judge_first(known(record), AccessList.whole(items), NOW)
        accepted = True
    except IntegrityError:
        accepted = False
    assert accepted == good


@in_one_case("bits", range(1, 512))
def test_every_combination_of_permissions_is_allowed_or_not_as_the_spec_says(bits: int) -> None:
    rows = {0: Row(0, bits, None)}
    try:
        AccessList.whole(salted(rows))
        allowed = True
    except IntegrityError:
        allowed = False
    assert allowed == well_formed(rows)
