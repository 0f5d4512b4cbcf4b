"""Attacks by somebody who was removed from a group, with a broker that takes what they date back.

Attacks 129, 130, 134 and 135 of attacks.toml. Records through a group are judged by the group's history: the
epoch in which they were made, its beginning and its end, and the role that the author had.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, FileTrustStore, GroupRenewal, ServerProvider
from scbroker.wire.containers import ContainerView, RecordRequest
from tests.hostile_broker.accomplices import Mallory, fresh_and_marked
from tests.hostile_broker.protocol import DECRYPTION, INTEGRITY, LIST, ROLLBACK
from tests.hostile_broker.served import opened, same, wrapped_key
from tests.hostile_broker.teams import Lie, Stage, everything, fork, member_device, opened_by
from tests.kit.brokers import clock
from tests.kit.groups import SHARER, WRITER, Group
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, Grant, Grants, Story, User
from tests.kit.writers import WRITER as MAY_WRITE

UNSETTLED = BrokerError.unsettledAccessError
QUARTER = 15 * MINUTE


@dataclass
class Removal:
    """Alice's group with Bob, and without him; a container of Alice that it can reach; Carol is a member."""

    mallory: Mallory
    alice: User
    bob: User
    carol: User
    before: Group
    after: Group
    story: Story
    at: int
    """When Alice removed Bob."""
    others: Sequence[User] = ()
    """Further users whom Carol's device has met."""

    @classmethod
    def of(
        cls, mallory: Mallory, alice: User, bob: User, carol: User, role: int = SHARER
    ) -> "Removal":
        begun = clock() - 4 * MINUTE
        at = begun + 2 * MINUTE
        team = Group(alice)
        team.took(team.begin({alice: SHARER, bob: role, carol: SHARER}, time=begun))
        story = Story(alice)
        story.took(story.begin({alice: OWNER, team: OWNER}, time=begun))
        after = fork(team)
        after.took(after.follow(alice, remove=[bob], time=at))
        return cls(mallory, alice, bob, carol, team, after, story, at)

    @property
    def earlier(self) -> int:
        """A moment at which Bob was a member."""
        return self.at - MINUTE

    @property
    def grants(self) -> Grants:
        return {self.alice: OWNER, self.after: OWNER}

    @property
    def old_grants(self) -> Grants:
        """The same list as somebody would make it who has not seen the removal."""
        return {self.alice: OWNER, self.before: OWNER}

    def by_bob(self, **changes: Any) -> RecordRequest:
        """What Bob signs as the member that he was, after the last record of the container."""
        made = {"via": self.before, "time": self.earlier, **changes}
        return self.story.follow(self.bob, **made)

    def tell(self, author: User, **changes: Any) -> None:
        self.story.took(self.story.follow(author, **changes))

    def victim(self, *, marked: bool, group: Group | None = None) -> ServerProvider:
        """Carol's device; a marked one knows the container, and the group without Bob."""
        team = group or self.after
        if marked:
            return member_device(self.mallory, self.carol, team, self.story, known=self.others)
        device = self.mallory.device_of(self.carol, self.alice, self.bob, *self.others)
        with Stage(self.mallory, self.carol, [], [team]):
            opened_by(device, team)
        return device

    def stage(self, group: Group | None = None, *, view: Lie = same) -> Stage:
        """What Carol is served: the group without Bob unless another one is given, and the container."""
        team = group or self.after
        hidden = [each for each in (self.before, self.after) if each is not team]
        return Stage(
            self.mallory, self.carol, [self.story], [team], hidden, through=team, view=view
        )

    def check_refused(self, device: ServerProvider) -> None:
        with self.stage():
            self.mallory.check_refused(device, self.story, INTEGRITY)


@pytest.fixture
def removal(mallory: Mallory, alice: User, bob: User, carol: User, eve: User) -> Removal:
    found = Removal.of(mallory, alice, bob, carol)
    found.others = [eve]
    return found


class Forgery(NamedTuple):
    """A record that breaks the rules, and an honest member's act before it; Eve has an entry or joins."""

    forge: Callable[[Removal, User], RecordRequest]
    before: Callable[[Removal, User], object] = lambda *_: None
    marked: Sequence[bool] = (False, True)


def _listed(it: Removal, eve: User, index: int = 1, rights: int = OWNER) -> Grants:
    """The list of the container with Eve, and the group in this epoch."""
    return {it.alice: OWNER, eve: rights, it.after: Grant(OWNER, key_index=index)}


def _renew(it: Removal, eve: User) -> None:
    it.tell(it.alice, grants=_listed(it, eve), time=it.at)


FORGERIES: Mapping[str, Forgery] = {
    "into a container that was renewed": Forgery(
        lambda it, _: it.by_bob(content=b"forged", time=it.at), _renew
    ),
    "behind a record of a later epoch": Forgery(
        lambda it, _: it.by_bob(content=b"forged", time=it.at),
        lambda it, _: it.tell(it.carol, content=b"new", via=it.after, time=it.at),
        (True,),
    ),
    # Only an author's own entry may go back to an older key.
    "with an older epoch by a user of the list": Forgery(
        lambda it, eve: it.story.follow(eve, grants=_listed(it, eve, 0)), _renew
    ),
    # Eve writes by an entry of her own. A higher index would be a reason to renew, and never end.
    "with an epoch that does not exist": Forgery(
        lambda it, eve: it.story.follow(eve, grants=_listed(it, eve, 7, MAY_WRITE)),
        lambda it, eve: it.tell(it.alice, grants=_listed(it, eve, 1, MAY_WRITE), time=it.at),
    ),
}


@pytest.mark.parametrize(
    "row, marked", [(name, marked) for name, row in FORGERIES.items() for marked in row.marked]
)
def test_no_record_is_dated_back_or_goes_back_to_another_epoch(
    row: str, marked: bool, removal: Removal, eve: User
) -> None:
    forge, before, _ = FORGERIES[row]
    before(removal, eve)
    device = removal.victim(marked=marked)
    removal.story.took(forge(removal, eve))
    removal.check_refused(device)


@pytest.mark.sampled
@pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])
def test_what_a_writer_dates_back_into_an_untouched_container_is_the_limit(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """Towards a malicious broker, a removal binds a container from the next write on."""
    removal = Removal.of(mallory, alice, bob, carol, WRITER)
    device = removal.victim(marked=marked)
    removal.story.took(removal.by_bob(content=b"late"))
    with removal.stage():
        assert device.getContainerContent(removal.story.uuid).result(PATIENCE) == b"late"
    acts: list[dict[str, Any]] = [{"grants": removal.grants}, {"tombstone": True}]
    for act in acts:
        removal.story.took(removal.by_bob(**act))
        removal.check_refused(device)
        removal.story.records.pop()
        removal.story.requests.pop()


@pytest.mark.sampled
@fresh_and_marked
def test_a_tombstone_that_a_sharer_dates_back_is_the_limit(marked: bool, removal: Removal) -> None:
    device = removal.victim(marked=marked)
    removal.story.took(removal.by_bob(tombstone=True))
    with removal.stage(), pytest.raises(BrokerError.deletedError):
        device.getContainer(removal.story.uuid).result(PATIENCE)


def test_a_fresh_device_that_takes_over_what_a_former_sharer_added_is_the_limit(
    removal: Removal,
) -> None:
    """Without a mark of the container, it believes that the change was made before the removal."""
    device, story = removal.victim(marked=False), removal.story
    story.took(removal.by_bob(grants={**removal.old_grants, removal.bob: OWNER}))
    with removal.stage():
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    sent = removal.mallory.sent_record()
    assert opened(sent, wrapped_key(sent, removal.bob)) == b"secret"


def test_what_a_device_seals_that_has_not_seen_the_removal_is_the_limit(removal: Removal) -> None:
    """The broker serves the device the group with Bob. The first record of a later epoch ends that."""
    device = removal.victim(marked=False, group=removal.before)
    story, key = removal.story, removal.story.key
    with removal.stage(removal.before):
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    assert opened(removal.mallory.sent_record(), key) == b"secret"
    story.took(story.follow(removal.alice, content=b"new", via=removal.after))
    device = removal.victim(marked=False, group=removal.before)
    with removal.stage(removal.before):
        removal.mallory.check_refused(device, story, ROLLBACK)


def test_access_changed_before_a_device_hears_of_the_removal_is_settled_which_is_the_limit(
    removal: Removal,
) -> None:
    """The broker hides the removal until the device has read the change by the former member."""
    device = removal.victim(marked=True, group=removal.before)
    story = removal.story
    story.took(removal.by_bob(grants={**removal.old_grants, removal.bob: OWNER}))
    with removal.stage(removal.before):
        device.getContainer(story.uuid).result(PATIENCE)
    with removal.stage():
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    sent = removal.mallory.sent_record()
    assert opened(sent, wrapped_key(sent, removal.bob)) == b"secret"


def test_a_container_that_a_broker_leaves_out_of_a_renewal_is_the_limit_until_its_next_write(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """The list of a group's containers is the broker's word; the number of those renewed shows it."""
    device, user = mallory.device_of(alice, bob), bob.ring.userId
    team, other = (device.createGroup(name, [user]).result(PATIENCE) for name in ("one", "other"))
    levels = [AccessLevel(alice.ring.userId, OWNER), AccessLevel(team, OWNER)]
    box = device.createContainer(b"1", accessLevels=levels).result(PATIENCE)
    with mallory.lying(LIST, lambda answer: replace(answer, containers=[], next=None)):
        removed = device.removeGroupMembers(team, [user], renew=True).result(PATIENCE)
        moved = device.replaceGroup(team, other).result(PATIENCE)
    assert removed.renewal == moved == GroupRenewal(0, [])
    found = device.getSecuredContainer(box.id).result(PATIENCE)
    assert (found.version, found.wrap) == (1, box.wrap)
    assert team.id in {each.userId for each in found.access or ()}
    written = device.updateContainerContent(box.id, b"2").result(PATIENCE)
    assert written.wrap != box.wrap, "a new key, which the former member does not get"
    assert device.renewGroup(team).result(PATIENCE).renewed == 0


def test_a_device_that_knows_the_removal_seals_nothing_that_the_former_member_opens(
    removal: Removal,
) -> None:
    """The broker does not say that the list is old: it hides that the group has a later epoch."""
    device, story, key = removal.victim(marked=True), removal.story, removal.story.key
    with removal.stage(view=lambda view: replace(view, groupRecipients=[])):
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    sent = removal.mallory.sent_record()
    with pytest.raises(DECRYPTION):
        opened(sent, key)
    with pytest.raises(DECRYPTION):
        wrapped_key(sent, removal.after, 0)
    assert opened(sent, wrapped_key(sent, removal.after, 1)) == b"secret"


def test_a_device_that_knows_the_removal_renews_what_it_reaches_without_the_group(
    removal: Removal,
) -> None:
    """Its program was started again and has not read the group: the broker does not even name it."""
    story = Story(removal.alice)
    grants = {removal.alice: OWNER, removal.carol: OWNER, removal.before: OWNER}
    story.took(story.begin(grants, time=removal.earlier))
    device = removal.victim(marked=True)

    def hidden(view: ContainerView) -> ContainerView:
        return replace(view, groups=[], groupChains=[], groupRecipients=[])

    with Stage(removal.mallory, removal.carol, [story], [removal.after], view=hidden):
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    sent = removal.mallory.sent_record()
    with pytest.raises(DECRYPTION):
        opened(sent, story.key)
    assert opened(sent, wrapped_key(sent, removal.after, 1)) == b"secret"


def test_a_removal_that_one_program_has_seen_counts_for_the_others_of_the_device(
    removal: Removal,
) -> None:
    """The other one runs on, with the group and the container as they were before."""
    mallory, carol, story = removal.mallory, removal.carol, removal.story
    store = mallory.new_store()
    programs = [
        mallory.device_of(carol, removal.alice, removal.bob, store=FileTrustStore(store.directory))
        for _ in range(2)
    ]
    with removal.stage(removal.before):
        programs[0].getContainer(story.uuid).result(PATIENCE)
    with removal.stage():
        opened_by(programs[1], removal.after)
    story.took(removal.by_bob(content=b"forged", time=removal.at + QUARTER))
    with removal.stage(removal.before):
        mallory.check_refused(programs[0], story, ROLLBACK)
    with removal.stage():
        mallory.check_refused(programs[0], story, INTEGRITY)


def test_a_list_with_an_epoch_that_does_not_exist_heals_by_two_changes_which_is_the_limit(
    removal: Removal, eve: User
) -> None:
    """The members cannot act in it until somebody with ModifyAccess removes the group and adds it again."""
    story, team, alice = removal.story, removal.after, removal.alice
    listed: Grants = {alice: OWNER, eve: MAY_WRITE, team: Grant(OWNER, key_index=1)}
    story.took(story.follow(alice, grants=listed, time=removal.at))
    story.took(story.follow(eve, grants={**listed, team: Grant(OWNER, key_index=7)}))
    device = removal.mallory.device_of(alice, removal.bob, removal.carol, eve)
    stage = Stage(removal.mallory, alice, [story], [team])
    with stage:
        opened_by(device, team)
        removal.mallory.check_refused(device, story, INTEGRITY)
        levels = [everything(alice), everything(team)]
        with pytest.raises(BrokerError.permissionDeniedError):
            device.updateContainerAccessLevels(story.uuid, levels).result(PATIENCE)
        device.updateContainerAccessLevels(story.uuid, levels[:1]).result(PATIENCE)
    sent = removal.mallory.sent_record()
    assert len(sent.accessList or ()) == 1
