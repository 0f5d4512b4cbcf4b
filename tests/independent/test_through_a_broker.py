"""A real broker between the two: users of this package write, and scbroker reads.

Besides `test_against_scbroker`, the only module of this package that knows scbroker.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel
from scbroker.wire.users import canonical_origin
from tests.hostile_broker.broker import HostileBroker
from tests.independent import (
    access_lists,
    container_records,
    events,
    group_chains,
    key_files,
    key_records,
    orders,
)
from tests.independent.access_lists import (
    DECRYPT,
    DOWNLOAD,
    EVERYTHING,
    UPLOAD,
    VIEW_ACCESS,
    AccessList,
    Salted,
)
from tests.independent.container_records import Judge
from tests.independent.departures import Departure
from tests.independent.encodings import RefusedError, sha256, uuid_text
from tests.independent.ids import user_id_of
from tests.independent.key_records import MINUTE, Signed, Writer
from tests.independent.orders import Order, Storing
from tests.independent.segments import SEGMENT, SealedPart
from tests.independent.sessions import Statement
from tests.independent.test_against_scbroker import ring_of
from tests.independent.writing import Box, Team
from tests.kit.brokers import Wire, clock
from tests.kit.waiting import PATIENCE

SECOND = 1_000_000
PASSWORD, PASSPHRASE = "pass w\N{LATIN SMALL LETTER O WITH DIAERESIS}rd 1", "a passphrase 2"
MEMBER = DOWNLOAD | DECRYPT | UPLOAD | VIEW_ACCESS
LARGE = b"once upon a time " * 61_000
WRITER = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload


pytestmark = pytest.mark.usefixtures("real_argon2id")


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileBroker]:
    """A broker, and an honest layer with the clients of scbroker."""
    with HostileBroker(tmp_path_factory.mktemp("layer")) as broker, broker.scene():
        yield broker


# Ours, taken by a broker and read by scbroker's client


class Ours:
    """A user of this package at a real broker."""

    def __init__(self, origin: str, wire: Wire, writer: Writer) -> None:
        self.origin, self.wire, self.writer = origin, wire, writer
        self.id = uuid_text(user_id_of(writer.fingerprint))
        self.file = b"no KeyFile that anybody opens"

    def register(self, file: bytes, auth: bytes) -> None:
        self.file = file
        records = [signed._asdict() for signed in self.writer.records]
        message = {"keyRecords": records, "keyFile": file, "auth": auth}
        self.wire.call("POST", "/v1/users", message).expect(201)
        statement = Statement(self.origin, self.writer.fingerprint, 0, self.wire.nonce())
        body, signature = statement.signed_by(self.writer.signing[0])
        request = {"statement": body, "signature": signature}
        answer = self.wire.call("POST", "/v1/sessions", request).expect(201)
        session = answer.message(dict[str, Any])
        self.wire.token, self.device_pass = session["token"], session["devicePass"]

    def fetched(self, auth: bytes) -> bytes:
        """The KeyFile as it is fetched by a device that was in before."""
        message = {"auth": auth, "devicePass": self.device_pass}
        answer = self.wire.call("POST", f"/v1/users/{self.id}/key-file/open", message).expect(200)
        return bytes(answer.message(dict[str, Any])["keyFile"])

    def store(self, file: bytes, generation: int, auth: bytes, records: list[Signed]) -> None:
        """Under an order by signing key 0."""
        bodies = [signed.body for signed in records]
        replaces = sha256(self.file)
        digest = Storing(file, generation, auth, "a hint", replaces, False, bodies).digest
        nonce = self.wire.nonce()
        order = Order(self.origin, self.writer.fingerprint, 0, nonce, orders.STORE, digest)
        body, signature = order.signed_by(self.writer.signing[0])
        message = {
            "keyFile": file,
            "generation": generation,
            "auth": auth,
            "reminder": "a hint",
            "replaces": replaces,
            "keyRecords": [signed._asdict() for signed in records],
            "authorization": {"order": body, "signature": signature},
        }
        self.wire.call("PUT", "/v1/key-file", message).expect(204)

    def log(self) -> list[dict[str, Any]]:
        answer = self.wire.call("GET", "/v1/events").expect(200).message(dict[str, Any])
        found: list[dict[str, Any]] = answer["events"]
        return found

    def append(self, box: Box, chunk: SealedPart | None = None) -> None:
        """Send the newest record, after a part that is too large to go with it."""
        path = f"/v1/containers/{uuid_text(box.container_id)}"
        if chunk is not None:
            octets = {"Content-Type": "application/octet-stream"}
            name = f"{path}/parts/{uuid_text(chunk.part.part_id)}/chunks/0"
            self.wire.send("PUT", name, b"".join(chunk.sealed), octets).expect(204)
        version = len(box.requests)
        answer = self.wire.call("PUT", f"{path}/records/{version}", box.requests[-1]).expect(201)
        digest = container_records.record_hash(box.signed(version).body)
        assert answer.message(dict[str, Any])["hash"] == digest


@pytest.fixture
def wires(layer: HostileBroker) -> Iterator[tuple[Wire, Wire]]:
    with Wire(layer.behind) as one, Wire(layer.behind) as other:
        yield one, other


@pytest.mark.long
def test_a_broker_takes_and_scbroker_reads_all_that_is_written_here(
    layer: HostileBroker, wires: tuple[Wire, Wire]
) -> None:
    """Registration, log-in, KeyFile, rotation under an order, and five records of a container."""
    start, origin = clock() - MINUTE, canonical_origin(layer.url)
    ours, other = Writer(start), Writer(start)
    alice, bob = Ours(origin, wires[0], ours), Ours(origin, wires[1], other)
    passphrase_keys = key_files.passphrase_keys(PASSPHRASE, user_id_of(ours.fingerprint))
    alice.register(key_files.seal(key_ring(ours, 1), PASSWORD, PASSPHRASE), passphrase_keys.auth)
    bob.register(bob.file, bytes(32))
    box = Box(ours)
    container_id = uuid.UUID(bytes=box.container_id)
    theirs = layer.device(ring_of(other))
    own, readings = (ours, EVERYTHING, None), []
    box.create(
        start + SECOND, [own, (other, MEMBER, clock() + 60 * MINUTE)], b'{"name":"own"}', "first"
    )
    alice.append(box)
    readings.append(theirs.getContainer(container_id).result(PATIENCE))
    box.edit(other, start + 2 * SECOND, LARGE, SEGMENT + 1)
    bob.append(box, box.content)
    readings.append(theirs.getContainer(container_id).result(PATIENCE))
    box.retype(start + 3 * SECOND, "second \N{SNOWMAN}")
    alice.append(box)
    readings.append(theirs.getContainer(container_id).result(PATIENCE))
    assert [reading.version for reading in readings] == [1, 2, 3]
    assert [reading.content for reading in readings] == [b"", LARGE, LARGE]

    ours.rotate(start + 4 * SECOND, clock() + 450 * SECOND)
    file = key_files.seal(key_ring(ours, 2), PASSWORD, PASSPHRASE)
    alice.store(file, 2, passphrase_keys.auth, ours.records[2:])
    assert alice.fetched(passphrase_keys.auth) == file
    box.share(start + 6 * SECOND, [own])
    alice.append(box)
    with pytest.raises(BrokerError.notFoundError):
        theirs.getContainer(container_id).result(PATIENCE)
    hers = layer.device()
    hers.logIn(uuid.UUID(alice.id), passphrase=PASSPHRASE).result(PATIENCE)
    last = hers.getContainer(container_id).result(PATIENCE)
    assert (last.version, last.content, last.type) == (4, LARGE, "second \N{SNOWMAN}")
    assert last.header is not None
    assert last.header.customHeaderObject == {"name": "own"}
    logs = [one.log() for one in (alice, bob)]
    box.delete(start + 7 * SECOND)
    alice.append(box)
    with pytest.raises(BrokerError.deletedError):
        hers.getContainer(container_id).result(PATIENCE)
    check_deletion(alice, bob, box)
    for log, emptied in zip(logs, [alice.log(), bob.log()], strict=True):
        assert events.digest(emptied[: len(log)]) == events.digest(log)
        assert [events.is_empty(event) for event in emptied[: len(log)]] == [True] * len(log)
        assert not any(map(events.is_empty, [*log, *emptied[len(log) :]]))
        with pytest.raises(RefusedError):
            events.digest([{**emptied[0], "applicationName": "x"}])


def test_a_broker_takes_a_departure_and_scbroker_reads_the_list_without_its_user(
    layer: HostileBroker, wires: tuple[Wire, Wire]
) -> None:
    """Bob, of this package, leaves Alice's container."""
    start, origin = clock() - MINUTE, canonical_origin(layer.url)
    alice, bob = (Ours(origin, wire, Writer(start)) for wire in wires)
    for user in (alice, bob):
        user.register(user.file, bytes(32))
    box = Box(alice.writer)
    grants = [(alice.writer, EVERYTHING, None), (bob.writer, MEMBER, clock() + 60 * MINUTE)]
    box.create(start + SECOND, grants, b"{}", "first")
    alice.append(box)
    listed = (box.container_id, 1, box.governing.access_list)
    departure = Departure(*listed, bob.writer.fingerprint, 0, clock())
    path = f"/v1/containers/{uuid_text(box.container_id)}/departure"
    message = {"departure": departure.signed_by(bob.writer.signing[0])._asdict()}
    for _ in range(2):
        bob.wire.call("POST", path, message).expect(204)
    hers = layer.device(ring_of(alice.writer))
    found = hers.getContainerMetadata(uuid.UUID(bytes=box.container_id))
    assert [str(level.userId) for level in found.result(PATIENCE).access or ()] == [alice.id]


def test_a_broker_takes_and_scbroker_opens_a_group_that_is_written_here(
    layer: HostileBroker, wires: tuple[Wire, Wire]
) -> None:
    """Alice, of this package, creates a group, adds Bob, and removes him; both read it by scbroker."""
    start, origin = clock() - MINUTE, canonical_origin(layer.url)
    ours, other = (Ours(origin, wire, Writer(start)) for wire in wires)
    team, bob = Team(ours.writer), other.writer
    for user in (ours, other):
        user.register(user.file, bytes(32))
    group_id = uuid.UUID(bytes=team.container_id)
    theirs, hers = layer.device(ring_of(bob)), layer.device(ring_of(ours.writer))
    team.found(start + SECOND)
    ours.append(team)
    team.add(bob, start + 2 * SECOND)
    ours.append(team)
    [offered] = theirs.getGroups().result(PATIENCE)
    assert not isinstance(offered, BrokerError)
    assert (offered.id, offered.name, offered.accepted) == (group_id, "team", False)
    theirs.acceptGroup(group_id).result(PATIENCE)
    levels = [AccessLevel(uuid.UUID(ours.id), ContainerAccessLevel.DefaultOwnerPermissions)]
    levels.append(AccessLevel(group_id, WRITER))
    box = hers.createContainer(b"for the group", accessLevels=levels).result(PATIENCE).id
    assert theirs.getContainer(box).result(PATIENCE).content == b"for the group"
    theirs.updateContainerContent(box, b"by a member").result(PATIENCE)
    assert hers.getContainer(box).result(PATIENCE).modifiedVia == group_id
    team.remove(bob, [ours.writer], clock())
    ours.append(team)
    assert theirs.getGroups().result(PATIENCE) == []
    [kept] = hers.getGroups().result(PATIENCE)
    assert not isinstance(kept, BrokerError)
    assert (kept.epoch, kept.memberCount, kept.name) == (1, 1, "team")
    keys = key_records.judge(ours.writer.records, clock())
    judge = Judge(clock(), {keys.fingerprint: keys})
    chain = group_chains.judge(judge, [team.served(version) for version in (1, 2, 3)])
    assert (chain.name, chain.roster.epoch) == (team.name, 1)


def key_ring(user: Writer, generation: int) -> key_files.KeyRing:
    return key_files.KeyRing(generation, tuple(user.signing), tuple(user.encryption))


def check_deletion(alice: Ours, bob: Ours, box: Box) -> None:
    """What the broker serves of the deleted container proves who deleted it, and has no part."""
    container_id = box.container_id
    path = f"/v1/containers/{uuid_text(container_id)}"
    view = alice.wire.call("GET", path).expect(200).message(dict[str, Any])
    governing: list[tuple[Signed, AccessList | None]] = []
    for served in view["governing"]:
        record = signed_of(served["record"])
        assert container_records.bare(record.body) == record.body
        governing.append((record, shown_list(container_id, record, served["accessList"])))
    original = [box.signed(version) for version in (1, 3, 4)]
    assert [record for record, _ in governing] == [
        Signed(container_records.bare(signed.body), signed.signature) for signed in original
    ]
    chains = {
        user.writer.fingerprint: key_records.judge(user.writer.records, clock())
        for user in (alice, bob)
    }
    head = signed_of(view["head"])
    judged = Judge(clock(), chains, deleted=True).fresh(governing, head)
    assert judged.record.tombstone
    assert judged.record.author == alice.writer.fingerprint
    for record, chain in ((governing[0][0], chains), (head, {})):
        with pytest.raises(RefusedError):
            Judge(clock(), chain, deleted=not chain).fresh([(record, governing[0][1])], None)
    with pytest.raises(RefusedError):
        Judge(clock(), chains, deleted=True).fresh(governing[:-1], head)


def signed_of(served: dict[str, Any]) -> Signed:
    return Signed(served["body"], served["signature"])


def shown_list(
    container_id: bytes, signed: Signed, shown: dict[str, Any] | None
) -> AccessList | None:
    if shown is None:
        return None
    record = container_records.parse_bare(signed.body)
    assert record.governing is not None
    disclosed = [(e["position"], Salted(e["salt"], e["entry"])) for e in shown["disclosed"]]
    version = record.governing.access_version
    return access_lists.disclosed(container_id, version, shown["entryHashes"], disclosed)
