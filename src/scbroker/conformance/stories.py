"""Questions about single operations, in the order of short stories.

Each chapter is one story with users of its own. To add a question, add a line to a chapter: its name, the
expected answer, and what came.
"""

# Each question is one or two lines; the formatter would give each argument a line of its own.
# fmt: off

import time
import uuid
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from scbroker.conformance.by_hand import Answer, Box, Request, StoryError, User, clock
from scbroker.conformance.probe import Probe
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import parse_record
from scbroker.records.judge import ALL, Grant
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire import containers, events, parts, users
from scbroker.wire.codec import SignedObject

_SECOND: Final = 1_000_000
_READER: Final = int(Level.Download | Level.Decrypt | Level.ViewAccess)
_UNLISTED: Final = int(Level.Download | Level.Decrypt)


def registering(probe: Probe) -> None:
    """Registration."""
    user = probe.newcomer()
    message = user.registration()
    ask = probe.about("5, POST /v1/users")

    def register(changed: users.Registration) -> Answer:
        return probe.at.post("/v1/users", changed)

    late = probe.newcomer().registration(clock() + 360 * _SECOND)
    ask("key records dated six minutes ahead", "422 clock", register(late))
    early = probe.newcomer().registration(clock() - 360 * _SECOND)
    ask("key records dated six minutes back", "422 clock", register(early))
    first, second = message.keyRecords
    swapped = replace(message, keyRecords=[second, first])
    ask("key records in another order", "422 rejected", register(swapped))
    forged = replace(message, keyRecords=[replace(first, signature=bytes(3373)), second])
    ask("a key record with a wrong signature", "422 rejected", register(forged))
    longer = replace(message, keyRecords=[first, second, second])
    ask("three key records", "400 invalid", register(longer))
    answer = register(message)
    ask("a registration", "201", answer)
    ask("the userId of the answer", user.id, answer.message(users.Registered).userId)
    ask("the same registration again", "201", register(message))
    other = user.registration(clock() - _SECOND)
    ask("the same id with other key records", "409 exists", register(other))


def logging_in(probe: Probe) -> None:
    """Sessions."""
    user, other, at = probe.user(), probe.user(), probe.at

    ask = probe.about("3")

    def begin(message: users.SessionRequest) -> Answer:
        return at.post("/v1/sessions", message)

    spent = at.nonce()
    ask("a log-in", "201", begin(user.log_in_request(nonce=spent)))
    again = begin(user.log_in_request(nonce=spent))
    ask("a log-in with a nonce that was used", "401 challenge", again)
    invented = begin(user.log_in_request(nonce=random_bytes(48)))
    ask("a log-in with an invented nonce", "401 challenge", invented)
    elsewhere = begin(user.log_in_request(origin="https://other.example:443"))
    ask("a log-in that was signed for another origin", "401 challenge", elsewhere)
    borrowed = begin(user.log_in_request(fingerprint=other.name))
    ask("a log-in as a user whose key did not sign it", "401 challenge", borrowed)
    stranger = begin(User(at).log_in_request())
    ask("a log-in of an unknown user", "401 challenge", stranger)
    late = begin(user.log_in_request(keyIndex=1))
    ask("a log-in with a key index that was not published", "401 challenge", late)
    order = user.order("delete-user")
    swapped = users.SessionRequest(statement=order.order, signature=order.signature)
    ask("a log-in with an order in place of a statement", "401 challenge", begin(swapped))
    long = replace(user.log_in_request(), statement=bytes(1025))
    ask("a statement of 1,025 bytes", "400 invalid", begin(long))
    ended = User(at, user.ring).log_in()
    ask = probe.about("5, DELETE /v1/sessions/current")
    ask("a log-out", "204", ended.send("DELETE", "/v1/sessions/current"))
    ask("a log-out again", "401 session", ended.send("DELETE", "/v1/sessions/current"))
    probe.ask("3", "a request in a session that ended", "401 session",
              ended.send("GET", "/v1/key-file"))
    probe.ask("3", "another session of the same user", "200", user.send("GET", "/v1/key-file"))


def opening_key_files(probe: Probe) -> None:
    """KeyFiles."""
    user, other = probe.user(), probe.user()
    ask = probe.about("5, POST /v1/users/{userId}/key-file/open")

    def guess(at: User, auth: bytes, device_pass: bytes | None = None) -> Answer:
        message = users.KeyFileOpening(auth=auth, devicePass=device_pass)
        return probe.at.post(f"{at.path}/key-file/open", message)

    right = guess(user, user.auth).message(users.KeyFileAnswer).keyFile
    ask("the KeyFile that was registered", user.key_file.hex(), right.hex())
    ask("the right auth with a device pass", "200", guess(user, user.auth, user.device_pass))
    wrong = guess(user, bytes(32))
    ask("a wrong auth", "401 credentials", wrong)
    stranger = guess(User(probe.at), bytes(32))
    ask("an unknown user gets the same answer", "True", stranger.body == wrong.body)
    ask("a wrong auth with another user's pass", "401 credentials",
        guess(user, bytes(32), other.device_pass))
    unknown = probe.at.send(Request("GET", f"/v1/users/{User(probe.at).id}/reminder"))
    probe.ask("5, GET /v1/users/{userId}/reminder", "the reminder of an unknown user", "",
              unknown.message(users.ReminderAnswer).reminder)

    ask = probe.about("5, PUT /v1/key-file")

    def store(message: users.KeyFileStoring) -> Answer:
        return user.send("PUT", "/v1/key-file", message)

    ask("a KeyFile in place of one that is not stored", "409 conflict",
        store(user.storing(replaces=bytes(32))))
    ask("a KeyFile whose order names another digest", "401 challenge",
        store(replace(user.storing(), auth=bytes(32))))
    ask("a KeyFile with an order for another action", "401 challenge",
        store(replace(user.storing(), authorization=user.order("delete-key-file"))))
    message = user.storing(endOtherSessions=True)
    foreign = replace(message, authorization=other.order("store-key-file", message.digest))
    ask("a KeyFile with another user's order", "401 challenge", store(foreign))
    elsewhere = user.order("store-key-file", message.digest, origin="https://other.example:443")
    ask("a KeyFile with an order for another origin", "401 challenge",
        store(replace(message, authorization=elsewhere)))
    invented = user.order("store-key-file", message.digest, nonce=random_bytes(48))
    ask("a KeyFile with an order over an invented nonce", "401 challenge",
        store(replace(message, authorization=invented)))
    spent = probe.at.nonce()
    probe.at.post("/v1/sessions", user.log_in_request(nonce=spent)).done()
    used = user.order("store-key-file", message.digest, nonce=spent)
    ask("a KeyFile with an order over a nonce that was used", "401 challenge",
        store(replace(message, authorization=used)))
    session = User(probe.at, user.ring).log_in()
    ask("a KeyFile of the next generation", "204", store(message))
    ask("the same KeyFile again", "204", store(message))
    probe.ask("3", "a session that another one ended", "401 session",
              session.send("GET", "/v1/key-file"))
    state = user.send("GET", "/v1/key-file").message(users.KeyFileState)
    probe.ask("5, GET /v1/key-file", "the hash of the KeyFile that is stored",
              sha256(message.keyFile).hex(), (state.hash or b"").hex())
    ask("another KeyFile of the same generation", "409 conflict",
        store(user.storing(generation=state.generation)))
    store(user.storing(generation=state.generation + 5)).done()
    ask("a KeyFile of a lower generation", "409 conflict",
        store(user.storing(generation=state.generation + 4)))

    ask = probe.about("5, POST /v1/key-file/deletion")
    deletion = users.KeyFileDeletion(authorization=user.order("delete-key-file"))
    ask("a deletion of the KeyFile", "204", user.send("POST", "/v1/key-file/deletion", deletion))
    ask("the same deletion again", "204", user.send("POST", "/v1/key-file/deletion", deletion))
    ask("the right auth afterwards", "401 credentials", guess(user, user.auth))


def reading_key_records(probe: Probe) -> None:
    """Key records."""
    user, other = probe.user(), probe.user()
    ask = probe.about("5, POST /v1/key-records")

    def read(*asked: users.KeyRecordsFrom) -> Answer:
        message = users.KeyRecordsRequest(users=list(asked))
        return user.send("POST", "/v1/key-records", message)

    one, two = (users.KeyRecordsFrom(userId=each.id) for each in (user, other))
    found = read(two, one).message(users.KeyRecords).users
    ask("users in the order of the request", f"{other.id} {user.id}",
        " ".join(each.userId for each in found))
    later = read(users.KeyRecordsFrom(userId=user.id, from_=1)).message(users.KeyRecords).users
    ask("key records from sequence 1 on", "1", len(later[0].keyRecords))
    ask("an unknown user", "404 not-found", read(users.KeyRecordsFrom(userId=User(probe.at).id)))
    ask("a user named twice", "400 invalid", read(one, one))


def blocking(probe: Probe) -> None:
    """Blocked users."""
    owner, reader = probe.user(), probe.user()
    box = Box(owner).created()
    ask = probe.about("5, PUT /v1/blocks/{userId}")
    block = f"/v1/blocks/{owner.id}"
    ask("a block", "204", reader.send("PUT", block))
    ask("the same block again", "204", reader.send("PUT", block))
    ask("a block of oneself", "400 invalid", reader.send("PUT", f"/v1/blocks/{reader.id}"))
    ask("a block of an unknown user", "404 not-found",
        reader.send("PUT", f"/v1/blocks/{User(probe.at).id}"))
    grant = box.draft(grants={owner: ALL, reader: _READER})
    ask("a grant to a user who has blocked the author", "403 blocked", box.put(owner, grant))
    listed = probe.about("5, GET /v1/blocks")
    found = reader.send("GET", "/v1/blocks").message(users.BlockedUsers)
    listed("the blocked users", owner.id, " ".join(found.users))
    ask = probe.about("5, DELETE /v1/blocks/{userId}")
    ask("an unblocking", "204", reader.send("DELETE", block))
    ask("the same unblocking again", "204", reader.send("DELETE", block))
    ask("a grant after the block was removed", "201", box.put(owner, grant))
    reader.send("PUT", block).done()
    ask("a block leaves the access that there is", "200", reader.send("GET", box.path))


def usage(probe: Probe) -> None:
    """Usage."""
    user = probe.user()
    ask = probe.about("5, GET /v1/usage")

    def read() -> users.Usage:
        return user.send("GET", "/v1/usage").message(users.Usage)

    ask("the usage of a new user", "0 0", f"{read().bytes} {read().containers}")
    Box(user).created()
    ask("a container counts for its creator", "1", str(read().containers))
    ask("its records and parts count", "True", str(read().bytes > 0))


def leaving(probe: Probe) -> None:
    """Departures."""
    owner, reader, other = probe.user(), probe.user(), probe.user()
    box = Box(owner).created({owner: ALL, reader: _READER, other: _READER})
    ask = probe.about("5, POST /v1/containers/{containerId}/departure")
    first = reader.departure(box)

    def leave(user: User, message: containers.DepartureRequest) -> Answer:
        return user.send("POST", f"{box.path}/departure", message)

    def view(user: User) -> containers.ListView | None:
        return box.view(user).governing[-1].accessList

    ask("a departure from another list", "409 conflict",
        leave(reader, reader.departure(box, accessVersion=2)))
    ask("a departure from a list of another hash", "409 conflict",
        leave(reader, reader.departure(box, accessList=bytes(32))))
    ask("another user's departure", "403 permission", leave(other, first))
    ask("a departure from another container", "400 invalid",
        leave(reader, reader.departure(Box(owner).created())))
    ask("a departure dated six minutes back", "422 clock",
        leave(reader, reader.departure(box, time=clock() - 360 * _SECOND)))
    forged = replace(first, departure=replace(first.departure, signature=bytes(3373)))
    ask("a departure with a wrong signature", "422 rejected", leave(reader, forged))
    ask("a departure of a user without access", "404 not-found",
        leave(stranger := probe.user(), stranger.departure(box)))
    ask("a departure", "204", leave(reader, first))
    ask("the same departure again", "204", leave(reader, first))
    ask("another departure of a user who left", "404 not-found",
        leave(reader, reader.departure(box)))
    ask("a view for a user who left", "404 not-found", reader.send("GET", box.path))
    served = view(other)
    ask("the departures that others are served", first.departure.body.hex(),
        " ".join(each.body.hex() for each in served.departures) if served else "no list")
    put = probe.about("5, PUT /v1/containers/{containerId}/records/{version}")
    kept = {owner: ALL, other: _READER}
    put("a new list by a writer who has not seen a departure", "409 conflict",
        box.put(owner, box.draft(grants=kept)))
    put("a new content under a key that a user who left has", "422 rejected",
        box.put(owner, replace(box.draft(content=b"x"), departures=1)))
    put("a new list without the user who left", "201",
        box.put(owner, replace(box.draft(content=b"x", grants=kept), departures=1)))
    ask("a departure of another member", "204",
        leave(other, other.departure(box)))
    ask("a departure by a member with ModifyAccess who has not seen another one", "409 conflict",
        leave(owner, owner.departure(box)))
    ask("a departure of the last member", "422 rejected", leave(owner, owner.departure(box, 1)))


def writing(probe: Probe) -> None:
    """Records."""
    owner, reader, stranger = probe.user(), probe.user(), probe.user()
    ask = probe.about("5, PUT /v1/containers/{containerId}/records/{version}")
    box, nobody = Box(owner), User(probe.at)
    first = box.draft(grants={owner: ALL, reader: _READER})
    ask("a first record", "201", box.put(owner, first))
    ask("the same record again", "200", box.put(owner, first))
    ask("another first record", "409 exists", box.put(owner, Box(owner, box.nonce).draft()))

    def refused(name: str, expected: str, request: containers.RecordRequest) -> None:
        ask(name, expected, box.put(owner, request))

    second = box.draft(content=b"second")
    body = parse_record(second.record.body)
    forged = replace(second, record=replace(second.record, signature=bytes(3373)))
    refused("a record with a wrong signature", "422 rejected", forged)
    refused("a record dated six minutes ahead", "422 clock", box.draft(time=clock() + 360 * _SECOND))
    refused("a record with another parent", "409 conflict", box.draft(parent=bytes(32)))
    refused("a record that leaves a version out", "409 conflict", box.draft(version=4))
    refused("a new content without its sealed segment", "400 invalid",
            replace(second, content=None))
    refused("a type that the record does not name", "422 rejected",
            replace(second, type=containers.TypeText(salt=bytes(32), type="type")))
    refused("an access list that the record does not name", "400 invalid",
            replace(second, accessList=first.accessList))
    refused("a change of access without its list", "400 invalid",
            replace(box.draft(grants={owner: ALL}), accessList=None))
    refused("a recipient who does not exist", "404 not-found",
            box.draft(grants={owner: ALL, nobody: _READER}, chains={nobody: nobody.own_chain()}))
    astray = owner.send("PUT", f"{Box(owner).path}/records/2", second)
    ask("a record at another container's path", "400 invalid", astray)
    ask("a record sent by another user than its author", "403 permission", box.put(reader, second))
    ask("a record by a member without Upload", "403 permission",
        box.put(reader, box.draft(reader, content=b"x")))
    ask("a record by a user without access", "404 not-found",
        box.put(stranger, box.draft(stranger, content=b"x")))
    unknown = Box(owner).created()
    unknown.nonce = random_bytes(32)
    ask("a second record of an unknown container", "404 not-found",
        unknown.put(owner, unknown.draft()))
    ask("a second record", "201", box.put(owner, second))
    refused("another second record", "409 conflict",
            replace(second, record=owner.sign(replace(body, time=body.time + 1))))
    old = reader.chain()
    renewed = reader.ring.next(2, fresh=True)
    signed = [SignedObject.of(each) for each in renewed.next_records(old, clock())]
    reader.send("PUT", "/v1/key-file", reader.storing(keyRecords=signed)).done()
    reader.ring = renewed
    refused("a wrap for a key that was retired", "409 stale-keys",
            box.draft(grants={owner: ALL, reader: _READER}, chains={reader: old}))

    def append(requests: list[containers.RecordRequest]) -> str:
        """Return the error of each record, or that it was stored."""
        message = containers.RecordsRequest(records=requests)
        answer = owner.send("POST", "/v1/batches/records", message)
        outcomes = answer.message(containers.RecordsAnswer).records
        return " ".join(each.problem.code if each.problem else "stored" for each in outcomes)

    batch = probe.about("5, POST /v1/batches/records")
    good, bad = Box(owner).draft(), box.draft(parent=bytes(32))
    batch("a record that is refused beside one that is stored", "conflict stored",
          append([bad, good]))
    one, two, three = owner.sign_together([Box(owner).draft() for _ in range(3)])
    batch("a record of a batch without the others of the batch", "stored",
          append([two]))
    moved = replace(three, record=replace(three.record, signature=one.record.signature))
    batch("a record with the signature of another one of its batch", "stored rejected",
          append([one, moved]))
    spoilt = three.record.signature[:-1] + bytes([three.record.signature[-1] ^ 1])
    batch("a record with a changed path", "rejected",
          append([replace(three, record=replace(three.record, signature=spoilt))]))
    batch("the same record with its own path", "stored", append([three]))
    empty = containers.RecordsRequest(records=[])
    batch("a batch without records", "400 invalid",
          owner.send("POST", "/v1/batches/records", empty))
    many = containers.RecordsRequest(records=[good] * 65)
    batch("a batch of 65 records", "400 invalid", owner.send("POST", "/v1/batches/records", many))


def reading(probe: Probe) -> None:
    """Views."""
    owner, reader, stranger = probe.user(), probe.user(), probe.user()
    ask = probe.about("5, GET /v1/containers/{containerId}")
    records = probe.about("5, GET /v1/containers/{containerId}/records")
    blind = probe.user()
    everybody = {owner: ALL, reader: _UNLISTED, blind: int(Level.ViewAccess)}
    box = Box(owner).created(everybody, type="label")
    box.put(owner, box.draft(content=b"second")).done()
    box.put(owner, box.draft(content=b"third")).done()

    def read(query: str, user: User = owner) -> containers.ContainerView:
        return box.view(user, query)

    fresh, marked = read(""), read("since=2")
    ask("the records for a fresh reader", "governing 1, head 3, skipped 0", _shape(fresh))
    ask("the records since version 1", "governing 1, head 3, skipped 1", _shape(read("since=1")))
    ask("the records since version 2", "governing 1, head 3, skipped 1", _shape(marked))
    ask("the records since a version above the head", "governing 1, head 3, skipped 0",
        _shape(read("since=9")))
    ask("since=0", "400 invalid", owner.send("GET", f"{box.path}?since=0"))
    ask("content=2", "400 invalid", owner.send("GET", f"{box.path}?content=2"))
    ask("a content that was not asked for", "None", fresh.content)
    ask("a content that was asked for", "True", read("content=1").content is not None)
    ask("a content for a member without Download", "None", read("content=1", blind).content)
    ask("the type for a member with ViewType", "label", fresh.type and fresh.type.type)
    ask("the type for a member without ViewType", "None", read("", reader).type)
    ask("the wrap for a member without Decrypt", "None", read("", blind).wrap)
    probe.ask("5 (container.md, 4)", "the entries for a member with ViewAccess", "3",
              _disclosed(fresh))
    probe.ask("5 (container.md, 4)", "the entries for a member without ViewAccess", "2",
              _disclosed(read("", reader)))
    ask("a view for a user without access", "404 not-found", stranger.send("GET", box.path))
    ask("a view of an unknown container", "404 not-found", owner.send("GET", Box(owner).path))
    bodies = owner.send("GET", f"{box.path}/records?from=2&count=5").message(containers.Bodies)
    records("the bodies from version 2 on", "2 3",
            " ".join(str(parse_record(body).version) for body in bodies.bodies))
    records("count=0", "400 invalid", owner.send("GET", f"{box.path}/records?from=1&count=0"))
    records("bodies for a user without access", "404 not-found",
            stranger.send("GET", f"{box.path}/records?from=1&count=1"))
    page = owner.send("GET", f"{box.path}/governing?from=1&to=3").message(containers.GoverningPage)
    probe.ask("5, GET /v1/containers/{containerId}/governing", "the governing records", "1",
              len(page.governing))
    items = [containers.ViewRequest(containerId=str(each)) for each in (Box(owner).id, box.id)]
    answer = owner.send("POST", "/v1/batches/views", containers.ViewsRequest(views=items))
    probe.ask(
        "5, POST /v1/batches/views",
        "an unknown container beside a known one",
        "not-found view",
        " ".join(
            item.problem.code if item.problem else "view"
            for item in answer.message(containers.ViewsAnswer).views
        ),
    )
    _list(probe, owner, box)
    ask("a list without the container for a user without access", "False",
        str(box.id) in _listed(stranger))

    soon = Grant(_READER, clock() + _SECOND)
    box.put(owner, box.draft(grants={owner: ALL, stranger: soon})).done()
    ask("a view for a new member", "200", stranger.send("GET", box.path))
    ask("a view for a member who was removed", "404 not-found", reader.send("GET", box.path))
    time.sleep(1.1)
    ask("a view for a member whose entry expired", "404 not-found", stranger.send("GET", box.path))
    ask("a list without the container for a member whose entry expired", "False",
        str(box.id) in _listed(stranger))


def _list(probe: Probe, owner: User, box: Box) -> None:
    """Ask for a list of containers, whole and by pages."""
    ask = probe.about("5, POST /v1/containers/list")
    every = _listed(owner)
    ask("the container in its owner's list", "True", str(box.id) in every)
    ask("each container once, by id", str(sorted(set(every))), str(every))
    ask("the same by pages of one", str(every), str(_listed(owner, limit=1)))
    ask("a list of a type that no container has", "[]", str(_listed(owner, type="no such type")))
    ask("a list behind the last id", "[]", str(_listed(owner, after=every[-1])))
    known = [containers.KnownContainer(containerId=str(box.id), since=2)]
    [item] = [
        item for item in _page(owner, known=known).containers if item.containerId == str(box.id)
    ]
    alone = owner.send("GET", f"{box.path}?since=2").message(containers.ContainerView)
    ask("a known container as it is served alone", "True", item.view == alone)


def _listed(user: User, **asked: Any) -> list[str]:
    """Return the ids of a user's containers, over as many pages as it takes."""
    found: list[str] = []
    while True:
        page = _page(user, **asked)
        found += [item.containerId for item in page.containers]
        if page.next is None:
            return found
        asked["after"] = page.next


def _page(user: User, **asked: Any) -> containers.ContainerList:
    answer = user.send("POST", "/v1/containers/list", containers.ListRequest(**asked))
    found: containers.ContainerList = answer.message(containers.ContainerList)
    return found


def _shape(view: containers.ContainerView) -> str:
    head = view.head or view.governing[-1].record
    return (
        f"governing {', '.join(str(parse_record(item.record.body).version) for item in view.governing)}"
        f", head {parse_record(head.body).version}, skipped {len(view.skipped)}"
    )


def _disclosed(view: containers.ContainerView) -> int:
    shown = view.governing[-1].accessList
    if shown is None:
        raise StoryError("A view lacks its access list.")
    return len(shown.verified().entries)


def transferring(probe: Probe) -> None:
    """Large contents."""
    owner, member, stranger = probe.user(), probe.user(), probe.user()
    box = Box(owner)
    part, sealed = box.large(owner)
    path = f"{box.path}/parts/{uuid.UUID(bytes=part.partId)}"
    grants = {owner: ALL, member: int(Level.ViewAccess)}
    ask = probe.about("5, PUT /v1/containers/{containerId}/parts/{partId}/chunks/{index}")
    record = box.draft(grants=grants, content=part)
    put = probe.about("5, PUT /v1/containers/{containerId}/records/{version}")
    put("a record whose chunks were not sent", "422 incomplete", box.put(owner, record))
    ask("a chunk", "204", owner.send("PUT", f"{path}/chunks/0", sealed))
    ask("the same chunk again", "204", owner.send("PUT", f"{path}/chunks/0", sealed))
    listed = owner.send("GET", f"{path}/chunks").message(parts.Chunks).chunks
    probe.ask(
        "5, GET /v1/containers/{containerId}/parts/{partId}/chunks",
        "the hash of a stored chunk",
        sha256(sha256(sealed)).hex(),
        " ".join(each.hash.hex() for each in listed),
    )
    put("a record whose chunks were sent", "201", box.put(owner, record))
    other = owner.send("PUT", f"{path}/chunks/0", sealed[:-1] + bytes([sealed[-1] ^ 1]))
    ask("other bytes for a chunk that a record names", "409 exists", other)
    segments = probe.about("5, GET /v1/containers/{containerId}/parts/{partId}/segments")
    segment = owner.send("GET", f"{path}/segments?first=0&count=1")
    segments("the bytes of the segment", "True", segment.body == sealed)
    hashes = owner.send("GET", f"{path}/hashes")
    probe.ask("5, GET /v1/containers/{containerId}/parts/{partId}/hashes",
              "the hash of the segment", sha256(sealed).hex(), hashes.body.hex())
    segments("count=9", "400 invalid", owner.send("GET", f"{path}/segments?first=0&count=9"))
    segments("segments for a member without Download", "403 permission",
             member.send("GET", f"{path}/segments?first=0&count=1"))
    probe.ask(
        "5, GET /v1/containers/{containerId}/parts/{partId}/hashes",
        "hashes for a member without Download",
        "403 permission",
        member.send("GET", f"{path}/hashes"),
    )
    segments("segments for a user without access", "404 not-found",
             stranger.send("GET", f"{path}/segments?first=0&count=1"))
    box.put(owner, box.draft(content=b"small")).done()
    segments("segments of a part that was just replaced", "200",
             owner.send("GET", f"{path}/segments?first=0&count=1"))


def listing_events(probe: Probe) -> None:
    """Events and deletion of a container."""
    owner, reader = probe.user(), probe.user()
    ask = probe.about("5, GET /v1/events")
    everybody = {owner: ALL, reader: _READER | int(Level.ReceiveAccessEvents)}
    box, other = Box(owner).created(everybody, type="label"), Box(owner).created({owner: ALL})
    box.put(owner, box.draft(content=b"second")).done()
    other.put(owner, other.draft(type="other")).done()

    def listed(user: User, query: str = "") -> list[events.Event]:
        return user.send("GET", f"/v1/events?{query}").message(events.Events).events

    log = listed(owner)
    ask("the ids and kinds of a log", "1 Added, 2 Added, 3 Updated content, 4 Updated type",
        _log(log))
    ask("the log of a member", "1 Added, 2 Updated content", _log(listed(reader)))
    ask("the type for a member without ViewType", "None", listed(reader)[0].containerType)
    found = listed(owner, f"containerId={other.id}&eventType=Updated")
    ask("the events of one container and kind", "4", " ".join(str(e.id) for e in found))
    found = listed(owner, "containerType=label")
    ask("the events of one type", "1 3", " ".join(str(e.id) for e in found))
    found = listed(owner, "startId=2&endId=3")
    ask("the events from 2 to 3", "2 3", " ".join(str(e.id) for e in found))
    found = listed(owner, "limit=1")
    ask("one event", "1", " ".join(str(e.id) for e in found))
    ask("limit=0", "400 invalid", owner.send("GET", "/v1/events?limit=0"))
    ask("limit=1001", "400 invalid", owner.send("GET", "/v1/events?limit=1001"))
    ask("wait without startId", "400 invalid", owner.send("GET", "/v1/events?wait=1"))
    ask("wait with a criterion", "400 invalid", owner.send("GET", "/v1/events?startId=5&endId=5&wait=1"))
    ask("wait=601", "400 invalid", owner.send("GET", "/v1/events?startId=5&wait=601"))
    ask("a wait for an event that exists", "4 Updated type", _log(listed(owner, "startId=4&wait=60")))
    ask("a wait from an id that is not the next", "", _log(listed(owner, "startId=6&wait=60")))
    ended = owner.send("GET", "/v1/events?startId=5&wait=1")
    ask("a wait that its time ends", "200 ''", f"{ended} {ended.body.strip(events.HEARTBEAT).decode()!r}")
    ends = owner.send("GET", "/v1/events").message(events.Events)
    ask("firstId and lastId", "1 4", f"{ends.firstId} {ends.lastId}")
    box.view(reader, "content=1")
    deadline = time.monotonic() + 5
    while len(listed(owner)) < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
    ask("a fetch by another member is listed within seconds", "5 Accessed",
        _log(listed(owner, "startId=5")))

    before = _digest(listed(owner))
    put = probe.about("5, PUT /v1/containers/{containerId}/records/{version}")
    by_reader = box.draft(reader, content=None, tombstone=True)
    put("a tombstone by a member without Delete", "403 permission",
        box.put(reader, by_reader))
    put("a tombstone by a member with Delete", "201", box.put(owner, box.draft(content=None, tombstone=True)))
    view = box.view(reader)
    deleted = view.head is not None and parse_record(view.head.body).tombstone
    probe.ask("5, After deletion", "a view of a deleted container has the tombstone",
              "True None None", f"{deleted} {view.wrap!r} {view.content!r}")
    probe.ask("5, After deletion", "bodies of a deleted container", "409 conflict",
              reader.send("GET", f"{box.path}/records?from=1&count=1"))
    probe.ask("5, After deletion", "a record after the tombstone", "410 deleted",
              box.put(owner, box.draft(content=b"x", tombstone=False)))
    put("the id of a deleted container", "409 exists",
        box.put(owner, Box(owner, box.nonce).draft()))
    log = listed(owner)
    ask("the log with a deletion", "6 Deleted", _log(log[5:]))
    probe.ask("5, Deletion", "the digest of the events before it", before.hex(),
              _digest(log[:5]).hex())
    emptied = [e for e in log[:5] if e.containerId == str(box.id) and (e.salt or e.changes)]
    probe.ask("5, Deletion", "events of the deleted container that are not empty", "0",
              len(emptied))


def _log(listed: Iterable[events.Event]) -> str:
    return ", ".join(" ".join([str(e.id), e.eventType, *e.changes]) for e in listed)


def _digest(listed: Iterable[events.Event]) -> bytes:
    digest = events.NO_EVENTS
    for event in listed:
        digest = events.digest_with(digest, event)
    return digest


def deleting_users(probe: Probe) -> None:
    """Deletion of a user."""
    user, other = probe.user(), probe.user()
    ask = probe.about("5, POST /v1/users/{userId}/deletion")
    box = Box(user).created({user: ALL, other: ALL})

    def delete(message: users.UserDeletion) -> Answer:
        return probe.at.post(f"{user.path}/deletion", message)

    message = user.deletion()
    foreign = replace(message, authorization=other.order("delete-user", message.digest))
    ask("a deletion with another user's order", "401 challenge", delete(foreign))
    action = replace(message, authorization=user.order("delete-key-file", message.digest))
    ask("a deletion with an order for another action", "401 challenge", delete(action))
    ask("a deletion", "204", delete(message))
    ask("the same deletion again", "204", delete(message))
    ask("a request in the deleted user's session", "401 session", user.send("GET", "/v1/key-file"))
    ask("a log-in of the deleted user", "401 challenge",
        probe.at.post("/v1/sessions", user.log_in_request()))
    ask("a registration of the deleted user", "409 exists",
        probe.at.post("/v1/users", user.registration()))
    ask("a container that another member has access to", "200", other.send("GET", box.path))
    asked = users.KeyRecordsRequest(users=[users.KeyRecordsFrom(userId=user.id)])
    [found] = other.send("POST", "/v1/key-records", asked).message(users.KeyRecords).users
    ask(
        "the deleted user's keys",
        "deleted, with 3 key records",
        f"{'deleted' if found.deleted else 'not deleted'}, with {len(found.keyRecords)} key records",
    )
    box.put(other, box.draft(other, content=None, tombstone=True)).done()
