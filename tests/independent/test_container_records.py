"""container_records.json and types.json: docs/spec/container.md, 2, 5, 7 and 8."""

from dataclasses import replace

import pytest

from tests.independent import (
    access_lists,
    container_records,
    group_chains,
    rosters,
    segments,
    wraps,
)
from tests.independent.access_lists import AccessList
from tests.independent.container_records import Acting, InForce, Judge, Judged
from tests.independent.encodings import RefusedError, sha256
from tests.independent.group_chains import GroupChain
from tests.independent.segments import CONTENT, HEADER
from tests.independent.test_group_chains import served
from tests.independent.test_rosters import proof_of
from tests.independent.vectors import (
    Vector,
    cases,
    chains,
    expect,
    load,
    octets,
    people,
    salted,
    signed,
)

STORY = ["create", "edit", "change type", "share", "renew", "delete"]


def records() -> dict[str, Vector]:
    stored: dict[str, Vector] = load("container_records")["given"]["records"]
    return stored


@cases("container_records")
def test_chains_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """Rules 1 to 5 give the verdicts of container_records.json on the last record of each chain."""
    _chain(vector["records"][:-1], vector)
    expect(vector, lambda: read(vector))


def read(vector: Vector) -> Judged | InForce:
    """The last record, after those before it."""
    *before, last = vector["records"]
    return _next(last, vector, _chain(before, vector))


@cases("container_records", "valid")
def test_a_fresh_reader_finds_the_same(vector: Vector) -> None:
    """The governing records and the head alone lead to what the whole chain leads to."""
    *before, last = vector["records"]
    judged = _chain(before, vector)
    head = _next(last, vector, judged)
    governing = [
        (signed(records()[name]), _access(name, vector))
        for name, record in zip(vector["records"], [*judged, head], strict=True)
        if isinstance(record, InForce)
    ]
    newest = None if isinstance(head, InForce) else signed(records()[last])
    if "left" not in vector:  # departures come with views only
        assert _judge(vector).fresh(governing, newest, _all_acting(vector)) == head


@cases("container_records", "valid")
def test_records_are_written_as_they_were_read(vector: Vector) -> None:
    """What was read of a record is all that it says: writing it gives the same bytes."""
    for name in vector["records"]:
        body = octets(records()[name]["body"])
        if "deleted" in vector and container_records.bare(body) == body:
            continue  # nothing is said of parts but their hashes
        assert container_records.parse(body).stored() == body


@cases("types")
def test_types_have_the_hashes_of_the_vectors(vector: Vector) -> None:
    """A type's hash is over id, salt and the type in MessagePack; what is not a type has none."""
    expect(vector, lambda: check_type(vector))


def check_type(vector: Vector) -> None:
    container_id, salt = octets(vector["containerId"]), octets(vector["salt"])
    if "roster" in vector:
        rosters.check_type(vector["type"], octets(vector["roster"]))
    else:
        container_records.check_ordinary(vector["type"])
    digest = container_records.type_hash(container_id, salt, vector["type"])
    assert digest == octets(vector["hash"])


def test_a_type_of_more_than_256_bytes_is_refused() -> None:
    """256 bytes of UTF-8 are the most."""
    with pytest.raises(RefusedError):
        container_records.type_hash(bytes(16), bytes(32), "\N{SNOWMAN}" * 86)


def test_the_secrets_open_all_that_the_story_sealed() -> None:
    """Every wrap of the story opens to the committed key, and that key opens header and content."""
    given = load("container_records")["given"]
    container_id, secrets = octets(given["containerId"]), given["secrets"]
    opened = 0
    key = b""
    for name in STORY[:-1]:
        record = container_records.parse(octets(records()[name]["body"]))
        version = str(record.version)
        if record.governing is not None and record.changes_access:
            key = octets(secrets["containerKeys"][version])
            commitment = record.governing.key_commitment
            wraps.check_commitment(container_id, key, commitment)
            access = _access(name, {})
            assert access is not None
            for person, wrap in secrets["wraps"][version].items():
                assert _unwrap(record.version, record.author, person, wrap, access) == key
                opened += 1
        for role, part in ((HEADER, record.header), (CONTENT, record.content)):
            assert part is not None
            sealed = _newest(secrets["sealed"], record.version, role)
            plaintext = _newest(secrets["plaintexts"], record.version, role)
            hashes = sha256(sealed)
            found = segments.open_part(container_id, role, part, key, hashes, [sealed])
            assert found == plaintext
            opened += 1
    assert opened == 13 + 10


def test_the_part_keys_and_types_of_the_story_are_those_given() -> None:
    """Each sealed key opens to the part key, and each type hash is that of its text and salt."""
    given = load("container_records")["given"]
    container_id, secrets = octets(given["containerId"]), given["secrets"]
    keys = {octets(part["partId"]): octets(part["key"]) for part in secrets["partKeys"].values()}
    key, types = b"", set()
    for name in STORY[:-1]:
        record = container_records.parse(octets(records()[name]["body"]))
        if record.governing is not None:
            types.add(record.governing.type)
        if record.changes_access:
            key = octets(secrets["containerKeys"][str(record.version)])
        for role, part in ((HEADER, record.header), (CONTENT, record.content)):
            assert part is not None
            place = segments.Place(container_id, part.part_id, role, part.author)
            opened, _ = segments.open_part_key(key, place, part.padded_length, part.sealed_key)
            assert opened == keys[part.part_id]
    assert types == {
        container_records.type_hash(container_id, octets(salt), container_type)
        for container_type, salt in secrets["types"].items()
    }


def _unwrap(version: int, author: bytes, name: str, wrap: str, access: AccessList) -> bytes:
    container_id = octets(load("container_records")["given"]["containerId"])
    person = people()[name]
    entry = access.entries[person.fingerprint]
    assert wraps.wrap_hash(octets(wrap)) == entry.wrap_hash
    info = wraps.WrapInfo(container_id, version, author, person.fingerprint, entry.key_index)
    return wraps.unwrap_key(person.encryption[entry.key_index], info, octets(wrap))


def _newest(by_version: dict[str, dict[str, str]], version: int, role: int) -> bytes:
    """What the newest of the versions up to this one has of a role."""
    name = "header" if role == HEADER else "content"
    having = [int(v) for v in by_version if int(v) <= version and name in by_version[v]]
    return octets(by_version[str(max(having))][name])


def _judge(vector: Vector) -> Judge:
    return Judge(vector["now"], chains(), vector.get("deleted", False))


def _chain(names: list[str], vector: Vector) -> list[Judged | InForce]:
    judged: list[Judged | InForce] = []
    for name in names:
        judged.append(_next(name, {**vector, "parent": True}, judged))
    return judged


def _next(name: str, vector: Vector, before: list[Judged | InForce]) -> Judged | InForce:
    found = _judged(name, vector, before)
    left = vector.get("left", {}).get(name)
    if left is None or not isinstance(found, InForce):
        return found
    return replace(found, left=frozenset(people()[user].fingerprint for user in left))


def _judged(name: str, vector: Vector, before: list[Judged | InForce]) -> Judged | InForce:
    judge, access = _judge(vector), _access(name, vector)
    stored = signed(records()[name])
    if not before:
        assert access is not None
        return judge.first(stored, access)
    read = container_records.parse_bare if judge.deleted else container_records.parse
    record = read(stored.body)
    governing = [record for record in before if isinstance(record, InForce)]
    linked = [g for g in governing if (g.record.version, g.hash) == record.link]
    parent = before[-1] if vector.get("parent", True) else None
    if judge.deleted and record.version > before[-1].record.version + 1:
        parent = None
    acting = _acting(record, records()[name], vector)
    return judge.next(stored, (linked or governing)[-1], access, parent, acting)


def _acting(
    record: container_records.ContainerRecord, stored: Vector, vector: Vector
) -> Acting | None:
    """What the reader knows of the group of a record's via."""
    if record.via is None:
        return None
    [chain] = [one for one in _groups(vector) if one.name == record.via.group]
    return group_chains.acting(chain, record, proof_of(stored["membership"]))


def _all_acting(vector: Vector) -> dict[bytes, Acting]:
    """What the reader knows of the groups of all records with a via, by body."""
    found = {}
    for name in vector["records"]:
        body = octets(records()[name]["body"])
        acting = _acting(container_records.parse_bare(body), records()[name], vector)
        if acting is not None:
            found[body] = acting
    return found


def _groups(vector: Vector) -> list[GroupChain]:
    """The groups of a vector, each as far as the reader has it."""
    given, judge = load("container_records")["given"]["groups"], Judge(vector["now"], chains())
    return [
        group_chains.judge(judge, [served(one) for one in given[name][:count]])
        for name, count in vector["groups"].items()
    ]


def _access(name: str, vector: Vector) -> AccessList | None:
    """The list of a record as the vector's reader sees it."""
    stored = records()[name]
    if "accessList" not in stored:
        return None
    read = container_records.parse_bare if "deleted" in vector else container_records.parse
    record = read(octets(stored["body"]))
    version = record.version if record.governing is None else record.governing.access_version
    entries = [salted(one) for one in stored["accessList"]]
    positions = vector.get("disclosed", {}).get(name, range(len(entries)))
    return access_lists.disclosed(
        record.container_id,
        version,
        b"".join(entry.hash for entry in entries),
        [(position, entries[position]) for position in positions],
    )
