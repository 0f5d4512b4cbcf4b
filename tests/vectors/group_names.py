"""Names of groups, and the proof that a name is a group's or a user's: docs/spec/groups.md, 1."""

from dataclasses import dataclass
from typing import Any

from scbroker.records.canonical import container_id_of, group_name_of, show_fingerprint, user_id_of
from tests.vectors.cast import DAY, MINUTE, START, cast, chosen
from tests.vectors.files import Vector, flipped, invalid, store, valid
from tests.vectors.groups import Group, Step, Team, shown_step
from tests.vectors.story import Container

INTEGRITY, SUBSTITUTION = "integrity", "key-substitution"


@dataclass(frozen=True)
class _TakenBox(Container):
    taken: bytes

    @property
    def id(self) -> bytes:
        return self.taken


@dataclass(frozen=True)
class _Impostor(Group):
    """A group whose records have the id of another one."""

    taken: bytes

    @property
    def box(self) -> Container:
        return _TakenBox(self.name, self.creator, self.taken)


def make() -> None:
    team = Team()
    taken, other = team.group.box.id, Group("others", team.alice)

    def begun(group: Group) -> Step:
        return group.create(START + DAY, team.owner, team.steps[0].seats)

    steps = {
        "team": team.steps[0],
        "another creator": begun(_Impostor("team", team.bob, taken)),  # with Alice's nonce
        "another nonce": begun(_Impostor("others", team.alice, taken)),
    }
    store(
        "group_names",
        "docs/spec/groups.md, 1. kind `name`: groupName and groupId of a creator and a nonce. kind `group`: "
        "a device asks for the group with the id `asked`, has pinned `pin` or nothing, and is served the "
        "first record of a group in `given`; `name` is the name that it proves. kind `user`: it asks for "
        "the user with the id `asked`, and is served the key records of a user of people.json.",
        [*_names(), *_groups(team, other), *_users(team)],
        now=START + DAY + MINUTE,
        records={name: shown_step(step, signature=True) for name, step in steps.items()},
    )


def _names() -> list[Vector]:
    found = list[Vector]()
    for creator, nonce, comment in (
        ("alice", chosen("team", "nonce"), "Alice's."),
        ("alice", chosen("others", "nonce"), "Another nonce."),
        ("bob", chosen("team", "nonce"), "Another creator."),
    ):
        fingerprint = cast()[creator].fingerprint
        name = group_name_of(fingerprint, nonce)
        found.append(valid(
            f"name {len(found) + 1}", comment, kind="name", creator=fingerprint, nonce=nonce, name=name,
            groupId=str(container_id_of(fingerprint, nonce)), shown=show_fingerprint(name),
        ))  # fmt: skip
    return found


def id_of(name: bytes) -> str:
    return str(user_id_of(name))


def _groups(team: Team, other: Group) -> list[Vector]:
    name = team.group.fingerprint

    def asked(record: str, own: bytes = name, pin: bytes | None = None) -> dict[str, Any]:
        return {"kind": "group", "asked": id_of(own), "pin": pin, "record": record}

    return [
        valid("a group", "For the first time.", **asked("team"), name=name),
        valid("a pinned group", "The pin is its name.", **asked("team", pin=name), name=name),
        invalid("another creator", "Bob's record, with the id of Alice's group.", INTEGRITY,
                **asked("another creator")),
        invalid("another nonce", "Alice's record, with the id of another group of hers.", INTEGRITY,
                **asked("another nonce")),
        invalid("another group", "The id is that of another one.", INTEGRITY,
                **asked("team", own=other.fingerprint)),
        invalid("R's record 1 for a user's name", "Alice's fingerprint is no group's name.", INTEGRITY,
                **asked("team", own=team.alice.fingerprint)),
        invalid("another group for a pinned id", "The pin differs in its last bit.", SUBSTITUTION,
                **asked("team", pin=flipped(name, 31))),
    ]  # fmt: skip


def _users(team: Team) -> list[Vector]:
    def asked(own: bytes) -> dict[str, Any]:
        return {"kind": "user", "asked": id_of(own), "user": "alice"}

    alice = team.alice.fingerprint
    return [
        valid("a user", "The key chain proves it.", **asked(alice), name=alice),
        invalid("a user's chain for a group's name", "Alice's, for the name of her group.", SUBSTITUTION,
                **asked(team.group.fingerprint)),
    ]  # fmt: skip
