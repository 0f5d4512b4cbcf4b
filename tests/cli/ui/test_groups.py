"""Groups on the page: made, offered, accepted, changed, left, deleted, and shared with."""

from __future__ import annotations

import re
import uuid
from urllib.parse import urlencode

import pytest

from scbroker import AccessLevel, Group, ServerProvider
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, team
from tests.kit.waiting import PATIENCE


def group_id(reply_text: str) -> uuid.UUID:
    found = re.search(r"/groups/([0-9a-f-]{36})/", reply_text)
    assert found is not None
    return uuid.UUID(found[1])


def shared(session: ServerProvider, group: Group, name: str) -> uuid.UUID:
    """Make a container of the user's own that a group can do everything with."""
    levels = [AccessLevel(session.getUserId().result(PATIENCE), 511), AccessLevel(group, 511)]
    return put(session, name, b"ours", accessLevels=levels)


@pytest.mark.long
def test_a_group_is_made_a_member_added_and_what_the_member_can_do_changed(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    assert "You are in no group yet" in page.get("/groups").expect(200).words
    made = page.post("/groups/new", {"name": "Team", "description": "We\r\ntwo"}).expect(200)
    assert "The group 'Team' is made, and you own it" in made.words
    assert "We<br>two" in made.text
    id = group_id(made.text)
    asked = page.get(f"/groups/{id}/add?{urlencode({'person': user, 'role': 'reader'})}").words
    assert "Add Bob to the group Team?" in asked
    assert "Bob is not verified" in asked
    done = page.post(f"/groups/{id}/add?{urlencode({'person': user, 'role': 'reader'})}")
    assert "The group is offered to Bob, as a reader." in done.expect(200).words
    [offered] = bob.json("groups", "ls")
    assert (offered["name"], offered["role"], offered["accepted"]) == ("Team", "Reader", False)
    changed = page.post(f"/groups/{id}/member?user={user}", {"role": "sharer", "place": "owner"})
    assert "Bob is a sharer, and an owner of the group now." in changed.expect(200).words
    [offered] = bob.json("groups", "ls")
    assert (offered["role"], offered["isOwner"]) == ("Sharer", True)
    removed = page.post(f"/groups/{id}/remove?user={user}").expect(200)
    assert "Bob is not in the group any more" in removed.words
    assert bob.json("groups", "ls") == []


@pytest.mark.long
def test_an_offer_is_announced_shown_and_accepted_or_declined(
    page: UsersPage, session: ServerProvider, alice: Person, bob: Person
) -> None:
    befriend(session, bob, "Bob")
    assert "offered to you" not in page.get("/containers").words
    first = team(bob, "Team", alice, accepted=False)
    assert "A group is offered to you: accept or decline it" in page.get("/containers").words
    second = team(bob, "Choir", alice, accepted=False)
    assert "2 groups are offered to you" in page.get("/containers").words
    listed = page.get("/groups").words
    assert "Team created by Bob not verified , 2 members, you as a writer" in listed
    shown = page.get(f"/groups/{first.id}").expect(200)
    assert "This group is offered to you" in shown.words
    assert "/remove?" not in shown.text
    done = page.post(f"/groups/{first.id}/accept").expect(200).words
    assert "You are a writer of the group 'Team' now" in done
    assert "You have declined the group" in page.post(f"/groups/{second.id}/decline").words
    assert "offered to you" not in page.get("/containers").words
    assert alice.json("groups", "ls")[0]["accepted"] is True


@pytest.mark.long
def test_a_container_is_shared_with_a_group_and_says_who_wrote_it_through_which(
    page: UsersPage, session: ServerProvider, alice: Person, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    group = team(alice, "Team", bob)
    made = put(session, "plan.txt", b"the plan")
    people = f"/containers/{made}/people"
    assert '<optgroup label="Groups">' in page.get(people).text
    share = (
        f"/containers/{made}/share?{urlencode({'person': group.id, 'can': 'write', 'until': ''})}"
    )
    asked = page.get(share).words
    assert "The group Team has 2 members. Each can then read, and replace content and name" in asked
    assert "not verified" not in asked
    assert "The group Team has access: write" in page.post(share).expect(200).words
    (bob.home / "new").write_text("Bob's")
    bob.run("put", "new", "--into", "plan.txt", "-y")
    shown = page.get(f"/containers/{made}").words
    assert "by Bob not verified through Team group" in shown
    assert "not a member any more" not in shown
    assert "Team group write" in page.get(people).words
    sees = page.get(f"/containers/{made}/broker").words
    assert f"through the group {group.id}" in sees
    assert f"the group {group.id} : write" in sees
    session.removeGroupMembers(group, user).result(PATIENCE)
    assert "not a member any more" in page.get(f"/containers/{made}").words
    session.addGroupMembers(group, user).result(PATIENCE)
    session.grantAccess(made, AccessLevel(user)).result(PATIENCE)
    revoke = page.get(f"/containers/{made}/revoke?user={user}").words
    assert "Bob is in the group Team, which keeps its access." in revoke
    done = page.post(f"/containers/{made}/revoke?user={group.id}").words
    assert "Revoked: the group Team has no access any more" in done


@pytest.mark.long
def test_the_history_has_the_events_of_groups_once(
    page: UsersPage, session: ServerProvider, alice: Person, bob: Person
) -> None:
    befriend(session, bob, "Bob")
    group = team(bob, "Team", alice)
    with bob.session() as his:
        made = shared(his, group, "ours.txt")
        own = shared(session, group, "mine.txt")
        history = page.get("/history").expect(200)
        assert "Bob not verified added you to the group" in history.words
        assert "gave the group access in Team group" in history.words
        assert history.text.count(f'title="{own}"') == 1
        his.updateContainerContent(made, b"2").result(PATIENCE)
        assert "changed content in Team group" in page.get("/history").expect(200).words
        assert "changed content" in page.get(f"/containers/{made}/history").words


@pytest.mark.long
def test_a_group_is_renamed_renewed_left_and_deleted(
    page: UsersPage, session: ServerProvider, alice: Person, bob: Person
) -> None:
    group = team(alice, "Team", bob)
    shared(session, group, "ours.txt")
    renamed = page.post(f"/groups/{group.id}/rename", {"name": "Blue", "description": ""})
    assert "The group is named 'Blue' now" in renamed.expect(200).words
    other = team(alice, "Other")
    page.post(f"/groups/{group.id}/rename", {"name": "Other"}).expect(409)
    page.post("/groups/new", {"name": "Blue"}).expect(409)
    page.post("/groups/new", {"name": " "}).expect(400)
    session.removeGroupMembers(group, bob.ring.userId).result(PATIENCE)
    assert "1 container has a new key." in page.post(f"/groups/{group.id}/renew").words
    assert "delete it with" in page.post(f"/groups/{group.id}/leave").expect(400).words
    assert "The group is deleted" in page.post(f"/groups/{group.id}/delete").expect(200).words
    page.get(f"/groups/{group.id}").expect(404)
    mine = team(bob, "Bobs", alice)
    assert "You are not in the group any more" in page.post(f"/groups/{mine.id}/leave").words
    assert [each["id"] for each in alice.json("groups", "ls")] == [str(other.id)]


@pytest.mark.long
def test_an_access_by_a_former_member_is_confirmed_on_the_page(
    alice: Person, bob: Person, carol: Person
) -> None:
    group = team(alice, "Team", bob, carol, role="Sharer")
    with alice.session() as session:
        made = shared(session, group, "plan.txt")
    bob.run("cat", "plan.txt")
    with carol.session() as hers, alice.session() as session:
        hers.grantAccess(made, AccessLevel(bob.ring.userId)).result(PATIENCE)
        session.removeGroupMembers(group, carol.ring.userId).result(PATIENCE)
    with UsersPage(bob) as page:
        page.enter().expect(200)
        led = page.post(f"/containers/{made}/rename", {"name": "other.txt"}).expect(200)
        assert "Confirm who has access" in led.words
        assert "A former member of a group may have changed access" in led.words
        forged = page.post(f"/containers/{made}/people", {"head": f"2:{'0' * 64}"})
        assert forged.status == 409
        page.post(f"/containers/{made}/people", {"head": "x"}).expect(400)
        done = page.post(f"/containers/{made}/people").expect(200)
        assert "The change of access is accepted." in done.words
        assert "Confirm who has access" not in done.words
        renamed = page.post(f"/containers/{made}/rename", {"name": "other.txt"}).expect(200)
        assert "named 'other.txt' now" in renamed.words
