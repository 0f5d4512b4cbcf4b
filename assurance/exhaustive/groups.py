"""Compare the judge with an oracle for every small history of a container in whose list a group stands.

Every history of a group is combined with every history of a container. Each act of each user is tried by
the user's own entry and through every version of the group, and each kind of act with every lie about the
group. V1 to V7 are those of docs/spec/groups.md, section 6. A reader may have verified a part of the
group's history only: that part is a history of its own here.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from assurance.exhaustive import acts, chains, rosters
from assurance.exhaustive.acts import FOREVER, SHARER, WRITER, Act, Alphabet, Group
from assurance.exhaustive.chains import Count, History
from assurance.exhaustive.rosters import GroupAlphabet
from scbroker.errors import BrokerError
from scbroker.records import roster
from scbroker.records.container_record import AccessList, ContainerRecord, Via
from scbroker.records.judge import Acting
from scbroker.records.roster import MembershipProof, SaltedMember

Forged = tuple[ContainerRecord, MembershipProof | None]
"""A record, and the proof that is served with it."""


class Reader:
    """A reader who has verified a group's history: judges records that were made through it."""

    def __init__(self, history: rosters.History) -> None:
        line = history.line()
        self.chain = history.chain
        self.groups = [each.group for each in line]
        self._leaves = [each.sorted_leaves for each in line]
        self._acting: dict[tuple[int, int], Acting | None] = {}

    def via(self, version: int) -> Via:
        """Return how an honest author names a version of the group."""
        moment = self.chain.moments.get(version)
        if moment is None:  # the tombstone
            return Via(chains.GROUP, self.chain.roster.epoch, version, self.chain.head.hash)
        return Via(chains.GROUP, moment.epoch, version, moment.hash)

    def proof(self, version: int, author: int) -> MembershipProof | None:
        """Return the proof of a membership; None if the user is not a member."""
        leaves = self._leaves[version - 1]
        names = [roster.parse_member(each.member).fingerprint for each in leaves]
        if chains.NAMES[author] not in names:
            return None
        return roster.prove(leaves, [names.index(chains.NAMES[author])])[0]

    def acting(self, act: Act) -> Acting | None:
        """Return for whom an honest author acts; None if they act alone, or were not a member."""
        if act.version is None:
            return None
        if (act.version, act.author) not in self._acting:
            proof, name = self.proof(act.version, act.author), chains.NAMES[act.author]
            self._acting[act.version, act.author] = self._acts(self.via(act.version), name, proof)
        return self._acting[act.version, act.author]

    def _acts(self, via: Via, author: bytes, proof: MembershipProof | None) -> Acting | None:
        try:
            return self.chain.acting(via, author, proof)
        except BrokerError:
            return None

    def about(self, history: History, act: Act) -> object:
        """Return all that may decide whether a lie about the group in an act is noticed."""
        listed = history.world.rights[acts.GROUP]
        return replace(act, time=0), history.world.epoch, listed and listed.index

    def lie(self, count: Count, history: History, act: Act) -> None:
        """Check that no lie about the group is accepted."""
        record, access = chains.drafted(history, act, self)
        for name, false in (
            {} if record.via is None else self._lies(act, record, record.via)
        ).items():
            if false is not None:
                count.lies += 1
                accepted = self._accepts(history, false, access)
                assert not accepted, f"{name}: {self.groups}: {history.world}: {act}"

    def _accepts(self, history: History, forged: Forged, access: AccessList | None) -> bool:
        record, proof = forged
        if record.via is None:
            return chains.accepted(history, record, access)
        acting = self._acts(record.via, record.author, proof)
        return acting is not None and chains.accepted(history, record, access, acting)

    def _lies(self, act: Act, record: ContainerRecord, via: Via) -> Mapping[str, Forged | None]:
        """Return what can be false in an act through a group; None where a lie would change nothing."""
        version = via.version
        honest, moments = self.proof(version, act.author), self.chain.moments
        assert honest is not None
        others = (self.proof(version, user) for user in range(acts.GROUP) if user != act.author)
        another_member = next((each for each in others if each is not None), None)
        older = (
            found
            for other, moment in moments.items()
            if (found := self.proof(other, act.author)) is not None
            and moment.members != moments[version].members
        )
        another_version, named = next(older, None), next((n for n in moments if n != version), None)

        def by(**changes: object) -> Forged:
            return structs.replace(record, via=structs.replace(via, **changes)), honest

        def made_by(group: bytes | None) -> Forged | None:
            if record.governing is None:
                return None
            governing = structs.replace(record.governing, accessVia=group)
            return structs.replace(record, governing=governing), honest

        raised = roster.parse_member(honest.leaf.member)
        raised = structs.replace(raised, role=(raised.role + 1) % 3)
        salted = SaltedMember(b"?" * 32, honest.leaf.member)
        accessed = record.governing and record.governing.accessVia
        return {
            "another record of the group": by(hash=bytes(32)),
            "a version that is not served": by(version=99),
            "a later epoch": by(epoch=via.epoch + 1),
            "an earlier epoch": by(epoch=via.epoch - 1) if via.epoch else None,
            "another group": by(group=bytes(32)),
            "another version's hash": None if named is None else by(version=named),
            "no proof": (record, None),
            "another salt": (record, honest._replace(leaf=salted)),
            "another position": (record, honest._replace(position=honest.position + 1)),
            "a longer path": (record, honest._replace(path=honest.path + bytes(32))),
            "another role": (record, honest._replace(leaf=rosters.leaf(raised))),
            "another member's proof": another_member and (record, another_member),
            "a proof of another version": another_version and (record, another_version),
            "access by nobody's group": made_by(bytes(32)),
            "access through the group, or not": made_by(None if accessed else chains.GROUP),
        }


def histories(alphabet: GroupAlphabet, length: int) -> list[rosters.History]:
    """Return all histories of a group that differ in what concerns records made through it."""
    found = dict[tuple[Group, ...], rosters.History]()
    layer: list[rosters.History | None] = [None]
    for depth in range(length):
        after = dict[tuple[Group, ...], rosters.History]()
        for history in layer:
            for act in alphabet.next() if depth else alphabet.first():
                then = rosters.rightful(history.group if history else None, act)
                if then is None:
                    continue
                line = (*(each.group for each in (history.line() if history else ())), then)
                if line not in after:
                    made = rosters.followed(history, rosters.proposed(history, act), then)
                    assert made is not None, (history, act)
                    after[line] = made
        found |= after
        layer = list(after.values())
    return list(found.values())


@dataclass(frozen=True)
class Kept:
    """A search: the histories of the group, up to so many records, and the acts on the container."""

    group: GroupAlphabet
    versions: int
    box: Alphabet


def search(kept: Kept, length: int) -> Count:
    """Try all histories; raise `AssertionError` where judge and oracle differ."""
    count, started = Count(), time.monotonic()  # about time
    with rosters.small_times():
        for history in histories(kept.group, kept.versions):
            chains.try_all(count, kept.box, length, Reader(history))
    count.seconds = time.monotonic() - started  # about time
    return count


_ROLES_THAT_WRITE: Final = (WRITER, SHARER)
_SHARE: Final = acts.ROLES[WRITER] | acts.MODIFY_ACCESS
_OWNER: Final = ((acts.EVERYTHING,),)
KEPT: Final[Mapping[str, Kept]] = {
    "short": Kept(
        GroupAlphabet(users=2, roles=_ROLES_THAT_WRITE, times=(1,), is_owned_by_first=True),
        2,
        Alphabet((_SHARE, acts.EVERYTHING), indices=(0, 1), times=(0, 1, 2), users=2, own=_OWNER),
    ),
    "two users": Kept(
        GroupAlphabet(users=2, is_owned_by_first=True),
        3,
        Alphabet(
            (_SHARE, acts.EVERYTHING), (FOREVER, 2), (0, 1), (0, 1, 2, 3), users=2, own=_OWNER
        ),
    ),
    "three users": Kept(
        GroupAlphabet(roles=_ROLES_THAT_WRITE, times=(1,), is_owned_by_first=True),
        2,
        Alphabet((acts.EVERYTHING,), indices=(0, 1), times=(0, 1, 2), own=_OWNER),
    ),
}
