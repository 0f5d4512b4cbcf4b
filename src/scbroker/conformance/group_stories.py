"""Questions about groups, in the order of short stories, as in `stories`."""

# Each question is one or two lines; the formatter would give each argument a line of its own.
# fmt: off

from typing import Final

from msgspec.structs import replace

from scbroker.client.core.sealing import recipient_of
from scbroker.conformance.by_hand import Answer, Box, User, clock
from scbroker.conformance.probe import Probe
from scbroker.conformance.teams import MANAGER, OWNER, READER, SHARER, WRITER, Team, roster_of
from scbroker.crypto.seal import random_bytes
from scbroker.records.container_record import parse_record
from scbroker.records.judge import ALL
from scbroker.records.roster import parse_member, wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire import containers, events, groups, users

_SECOND: Final = 1_000_000
_READER: Final = int(Level.Download | Level.Decrypt | Level.ViewAccess)
_RECORD: Final = "groups.md, 11, PUT /v1/containers/{containerId}/records/{version}"


def making_groups(probe: Probe) -> None:
    """Groups."""
    owner, member, other, stranger = (probe.user() for _ in range(4))
    unknown = User(probe.at)
    ask = probe.about(_RECORD)
    team = Team(owner)
    first = team.change(members={owner: SHARER, member: WRITER})
    sent = roster_of(first)

    def refused(name: str, expected: str, request: containers.RecordRequest) -> None:
        ask(name, expected, team.put(owner, request))

    refused("a group without its roster", "400 invalid", replace(first, roster=None))
    refused("a group without its type", "400 invalid", replace(first, type=None))
    refused("a group with another type", "422 rejected",
            replace(first, type=replace(first.type, type="another") if first.type else None))
    refused("a group without a wrap for a member", "400 invalid",
            replace(first, roster=replace(sent, wraps=sent.wraps[:1])))
    refused("a group without its info", "400 invalid", replace(first, roster=replace(sent, info=None)))
    refused("a group with another info", "400 invalid",
            replace(first, roster=replace(sent, info=random_bytes(len(sent.info or b"")))))
    refused("a group without a leaf of its roster", "422 rejected",
            replace(first, roster=replace(sent, leaves=sent.leaves[:1])))
    refused("a roster of another group", "422 rejected",
            team.with_roster(owner, first, group=bytes(32)))
    refused("a first roster of epoch 1", "422 rejected", team.with_roster(owner, first, epoch=1))
    refused("a group whose manager is no member", "422 rejected",
            team.change(members={member: WRITER}, managers={owner: OWNER}))
    refused("a group without an owner", "422 rejected",
            team.change(members={owner: SHARER}, managers={owner: MANAGER}))
    refused("a manager with other permissions", "422 rejected",
            team.change(members={owner: SHARER}, managers={owner: OWNER, member: _READER}))
    ask("a group", "201", team.put(owner, first))
    ask("the same group again", "200", team.put(owner, first))

    ask("a record of a group by a member who does not manage it", "404 not-found",
        team.put(member, team.change(member, members={other: WRITER})))
    ask("a record of a group by a stranger", "404 not-found",
        team.put(stranger, team.change(stranger, members={stranger: SHARER})))
    known = {unknown: recipient_of(unknown.own_chain())}
    refused("a member who does not exist", "404 not-found",
            team.change(members={unknown: READER}, recipients=known))
    added, again = (team.change(members={other: WRITER}) for _ in range(2))
    ask("a new member", "201", team.put(owner, added))
    refused("another record of the same version", "409 conflict", again)
    dropped, made = team.change(removed=[other], raises=True), team.state.made.roster
    same = {"publicKey": made.publicKey, "commitment": made.commitment}
    refused("a removal that keeps the epoch", "422 rejected",
            team.with_roster(owner, dropped, epoch=0, **same))
    refused("a removal that keeps the key", "422 rejected", team.with_roster(owner, dropped, **same))
    refused("a removal that leaves an epoch out", "422 rejected",
            team.with_roster(owner, dropped, epoch=2))
    refused("a removal that is dated six minutes ahead", "422 clock",
            team.change(removed=[other], raises=True, time=clock() + 360 * _SECOND))
    ask("a removal", "201", team.put(owner, dropped))
    promoted = team.change(members={member: SHARER}, managers={owner: OWNER, member: MANAGER})
    ask("a new manager", "201", team.put(owner, promoted))
    ask("a change of the managers by a manager", "403 permission",
        team.put(member, team.change(member, managers={member: OWNER})))
    ask("a new member by a manager", "201",
        team.put(member, team.change(member, members={other: READER})))


def reading_groups(probe: Probe) -> None:
    """The answers about groups."""
    owner, member, stranger = (probe.user() for _ in range(3))
    team = Team(owner).founded({owner: SHARER, member: WRITER})
    team.put(owner, team.change(raises=True)).done()
    ask = probe.about("groups.md, 12, POST /v1/groups/views")

    def views(*asked: groups.GroupViewRequest) -> Answer:
        return member.send("POST", "/v1/groups/views", groups.GroupViewsRequest(groups=list(asked)))

    def shown(reader: User, since: int = 1) -> str:
        found = team.read(reader, since=since)
        versions = " ".join(str(parse_record(each.record.body).version) for each in found.records)
        seen = found.membership
        return f"{versions} of {found.last}, " + (
            "no member" if seen is None else f"{len(seen.leaves)} leaves, {len(seen.owed)} owed"
        )

    one = groups.GroupViewRequest(groupId=str(team.id))
    ask("a group for a member", "1 2 of 2, 2 leaves, 0 owed", shown(member))
    ask("a group for a stranger", "1 2 of 2, no member", shown(stranger))
    ask("a group since its head", "2 of 2, 2 leaves, 0 owed", shown(member, 2))
    ask("a group since a version above its head", "2 of 2, 2 leaves, 0 owed", shown(member, 9))
    ask("a group named twice", "400 invalid", views(one, one))
    lost = groups.GroupViewRequest(groupId=str(Team(owner).id))
    [found, missing] = views(one, lost).message(groups.GroupViews).groups
    ask("a group and an id of none", "a view, not-found",
        f"{'a view' if found.view else 'no view'}, {missing.problem.code if missing.problem else ''}")
    mine = team.read(member).membership
    wrap = mine.wrap if mine else None
    secret = b"" if wrap is None else _opened(team, member, wrap)
    ask("the wrap of the newest epoch", team.state.secrets[-1].hex(), secret.hex())
    ask("the info of the newest epoch", team.state.made.sealed_info.hex(), mine.info.hex() if mine else "")

    ask = probe.about("groups.md, 12, PUT /v1/groups/{groupId}/acceptance")
    path = f"/v1/groups/{team.id}/acceptance"

    def listed(reader: User) -> str:
        answer = reader.send("GET", "/v1/groups").message(groups.GroupList)
        return " ".join(f"{each.groupId} {each.version} {each.accepted}" for each in answer.groups)

    ask("a group that is offered", f"{team.id} 2 False", listed(member))
    ask("an acceptance", "204", member.send("PUT", path))
    ask("the same acceptance again", "204", member.send("PUT", path))
    ask("a group that is accepted", f"{team.id} 2 True", listed(member))
    ask("an acceptance by a stranger", "404 not-found", stranger.send("PUT", path))
    ask("the groups of a stranger", "", listed(stranger))
    probe.ask("5", "a group's id as a container's", "404 not-found", owner.send("GET", team.path))
    asked = users.KeyRecordsRequest(users=[users.KeyRecordsFrom(userId=str(team.id))])
    probe.ask("5, POST /v1/key-records", "a group's id as a user's", "404 not-found",
              member.send("POST", "/v1/key-records", asked))


def _opened(team: Team, member: User, wrap: bytes) -> bytes:
    made = team.state.made
    info = wrap_info(team.name, team.epoch, made.roster.commitment, member.name, 0)
    return member.ring.encryption[0].unwrap(wrap, info)


def acting_through_groups(probe: Probe) -> None:
    """Reading and writing through groups."""
    owner, writer, reader, other, stranger = (probe.user() for _ in range(5))
    members = {owner: SHARER, writer: WRITER, reader: READER, other: WRITER}
    team = Team(owner).founded(members)
    for each in members:
        each.send("PUT", f"/v1/groups/{team.id}/acceptance").done()
    box = Box(owner).created({owner: ALL, team: ALL})
    through, path = f"via={team.id}", box.path
    ask = probe.about("groups.md, 12, GET /v1/containers/{containerId}")
    ask("a container through a group", "200", writer.send("GET", f"{path}?{through}"))
    chosen = box.view(writer)
    ask("a container through the group that the broker chooses", str(team.id), chosen.via)
    ask("the groups of a list", str(team.id), " ".join(chosen.groups))
    ask("a container through a group of others", "404 not-found",
        stranger.send("GET", f"{path}?{through}"))
    ask("a container through a group that it does not name", "404 not-found",
        owner.send("GET", f"{Box(owner).created().path}?{through}"))
    message = containers.ListRequest(via=str(team.id))
    answer = reader.send("POST", "/v1/containers/list", message).message(containers.ContainerList)
    probe.ask("groups.md, 12, POST /v1/containers/list", "the containers of a group", str(box.id),
              " ".join(each.containerId for each in answer.containers))

    put = probe.about(_RECORD)
    put("a record through a group by a reader", "403 permission",
        box.put(reader, box.draft(reader, content=b"x", via=team.via)))
    put("a record through a group by a stranger", "404 not-found",
        box.put(stranger, box.draft(stranger, content=b"x", via=team.via)))
    put("a record without via by a member", "404 not-found",
        box.put(writer, box.draft(writer, content=b"x")))
    put("a record through a group of another hash", "422 rejected",
        box.put(writer, box.draft(writer, content=b"x", via=replace(team.via, hash=bytes(32)))))
    put("a record through a version that does not exist", "422 rejected",
        box.put(writer, box.draft(writer, content=b"x", via=replace(team.via, version=9))))
    put("a record through a group", "201",
        box.put(writer, box.draft(writer, content=b"x", via=team.via)))
    seen = box.view(owner)
    leaf = seen.headMembership
    ask("the membership of the head's author", writer.name.hex(),
        parse_member(leaf.member).fingerprint.hex() if leaf else "none")
    ask("the group of the head", f"{team.id} 1 0",
        " ".join(f"{each.groupId} {each.version} {each.epoch}" for each in seen.groupChains))
    old = team.via
    team.put(owner, team.change(removed=[other], raises=True)).done()
    ask("a container for a removed member", "404 not-found", other.send("GET", f"{path}?{through}"))
    put("a record by a removed member", "404 not-found",
        box.put(other, box.draft(other, content=b"x", via=old)))
    put("a record through an ended epoch", "409 stale-keys",
        box.put(writer, box.draft(writer, content=b"x", via=old)))
    put("a new content under the key of an ended epoch", "409 stale-keys",
        box.put(writer, box.draft(writer, content=b"x", via=team.via)))
    stale = containers.ListRequest(via=str(team.id), stale=True)
    answer = reader.send("POST", "/v1/containers/list", stale).message(containers.ContainerList)
    probe.ask("groups.md, 12, POST /v1/containers/list", "the containers under an ended epoch",
              str(box.id),
              " ".join(each.containerId for each in answer.containers if each.view is None))
    put("a list with the new epoch", "201",
        box.put(owner, box.draft(content=b"x", grants={owner: ALL, team: ALL})))
    log = writer.send("GET", f"/v1/events?{through}").message(events.Events).events
    ask = probe.about("groups.md, 13")
    ask("the log of a group", "Added, Updated content, Updated type, Updated access content",
        ", ".join(" ".join([each.eventType, *sorted(each.changes)]) for each in log))
    ask("the log of a group for a removed member", "404 not-found",
        other.send("GET", f"/v1/events?{through}"))
    mine = other.send("GET", "/v1/events").message(events.Events).events
    ask("the memberships in a user's own log", "Added Deleted",
        " ".join(each.eventType for each in mine if each.containerId == str(team.id)))


def leaving_groups(probe: Probe) -> None:
    """Departures from groups, and their deletion."""
    owner, member, other = (probe.user() for _ in range(3))
    team = Team(owner).founded({owner: SHARER, member: WRITER, other: WRITER})
    box = Box(owner).created({team: ALL})
    ask = probe.about("groups.md, 12, POST /v1/groups/{groupId}/departure")

    def leave(user: User, message: groups.GroupDepartureRequest) -> Answer:
        return user.send("POST", f"/v1/groups/{team.id}/departure", message)

    ask("another user's departure", "403 permission", leave(other, team.departure(member)))
    ask("a departure from another membership", "409 conflict",
        leave(member, team.departure(member, version=2)))
    ask("a departure from another group", "400 invalid",
        leave(member, team.departure(member, group=bytes(32))))
    ask("a departure dated six minutes ahead", "422 clock",
        leave(member, team.departure(member, time=clock() + 360 * _SECOND)))
    ask("the departure of an owner who has not seen the group's version", "409 conflict",
        leave(owner, replace(team.departure(owner), last=0)))
    said = team.departure(member)
    forged = replace(said, departure=replace(said.departure, signature=bytes(3373)))
    ask("a departure with a wrong signature", "422 rejected", leave(member, forged))
    ask("a departure", "204", leave(member, said))
    ask("the same departure again", "204", leave(member, said))
    ask("a container for a member who left", "404 not-found",
        member.send("GET", f"{box.path}?via={team.id}"))
    served = team.read(owner).membership
    ask("departure and owed key that a manager is served", f"{said.departure.body.hex()} {member.id}",
        " ".join([each.body.hex() for each in served.departures]
                 + [each.userId for each in served.owed]) if served else "")
    put = probe.about(_RECORD)
    put("a change by a manager who has not seen a departure", "409 conflict",
        team.put(owner, team.change(removed=[member], raises=True)))
    put("a change that leaves an epoch owed", "409 stale-keys",
        team.put(owner, replace(team.change(members={other: SHARER}), departures=1)))
    put("a change that drops the user who left", "201",
        team.put(owner, replace(team.change(removed=[member], raises=True), departures=1)))

    put("the deletion of a group with members", "422 rejected",
        team.put(owner, team.change(tombstone=True)))
    team.put(owner, team.change(removed=[other], raises=True)).done()
    put("the deletion of a group that alone can reach a container", "422 rejected",
        team.put(owner, team.change(tombstone=True)))
    box.put(owner, box.draft(content=None, tombstone=True, via=team.via)).done()
    put("the deletion of a group", "201", team.put(owner, team.change(tombstone=True)))
    put("a record of a deleted group", "410 deleted", team.put(owner, team.change(raises=True)))
    listed = owner.send("GET", "/v1/groups").message(groups.GroupList).groups
    probe.ask("groups.md, 12, GET /v1/groups", "the groups of the last member", "0", len(listed))
