"""The views of sharing in a real browser: how they move, and who can use them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from scbroker import AccessLevel, ServerProvider
from tests.kit.browsers import FAINT, IN_CHROMIUM, UNUSABLE, press
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, team, with_access
from tests.kit.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = IN_CHROMIUM
CUT_OFF = """
[...document.querySelectorAll("textarea")].filter(e => e.scrollHeight > e.clientHeight).map(e => e.id)
"""
"""The text areas of a view that do not show the whole of their text."""
READ_BOTH = """(before) => {
  const after = document.getElementById("timeline").dataset.after.split(";");
  return before.split(";").every((each, at) => each !== after[at]);
}"""
"""Whether the view has read events of both logs since it had read so much."""


def entered(page: UsersPage, tab: Page) -> str:
    """Open the page as the command prints it; return the address below which its views are."""
    tab.goto(page.printed["url"])
    tab.wait_for_url("**/containers")
    return tab.url.removesuffix("/containers")


def complaints_of(tab: Page) -> list[str]:
    """Return the list to which the browser's complaints are added, such as one about the policy."""
    found: list[str] = []
    tab.on("console", lambda each: found.append(each.text))
    tab.on("pageerror", lambda each: found.append(str(each)))
    return found


def test_the_history_moves_while_another_person_writes(
    alice: Person, session: ServerProvider, bob: Person, view: Page
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"1", accessLevels=with_access(session, user, 511))
    with UsersPage(alice) as page, bob.session() as his:
        root = entered(page, view)
        view.goto(f"{root}/containers/{made}/history")
        changes = view.locator("#timeline > li", has_text="changed content")
        for number, content in enumerate((b"2", b"3")):
            assert changes.count() == number
            his.updateContainerContent(made, content).result()
            changes.nth(number).wait_for(timeout=PATIENCE * 1000)
        view.goto("about:blank")  # before the page ends: the browser complains of a failed request


def test_two_people_compare_on_two_screens_and_share(
    alice: Person, bob: Person, browser: Browser
) -> None:
    with (
        UsersPage(alice) as hers,
        UsersPage(bob) as his,
        browser.new_context() as one,
        browser.new_context() as other,
    ):
        tabs = [one.new_page(), other.new_page()]
        complaints = [complaints_of(tab) for tab in tabs]
        roots = [entered(page, tab) for page, tab in zip((hers, his), tabs, strict=True)]
        cards = []
        for tab, root in zip(tabs, roots, strict=True):
            tab.goto(f"{root}/contacts")
            cards.append(tab.get_by_label("Card of").input_value())
        for tab, root, card in zip(tabs, roots, reversed(cards), strict=True):
            tab.goto(f"{root}/contacts/add")
            tab.get_by_label("Contact card").fill(card)
            tab.get_by_role("button", name="Add").click()
            tab.wait_for_url("**/compare")
        blocks = [tab.locator("ol.fingerprint").all_inner_texts() for tab in tabs]
        assert blocks[0] == blocks[1]
        tabs[0].get_by_label("We compared all 16 groups").check()
        tabs[0].get_by_role("button", name="Mark as verified").click()
        tabs[0].get_by_text("Bob is verified").wait_for()
        with alice.session() as session:
            made = put(session, "plan.txt", b"the plan")
        tabs[0].goto(f"{roots[0]}/containers/{made}/people")
        tabs[0].get_by_role("button", name="Share…").click()
        tabs[0].get_by_role("button", name="Share", exact=True).click()
        tabs[0].get_by_text("Bob has access").wait_for()
        tabs[1].goto(f"{roots[1]}/containers")
        tabs[1].get_by_text("plan.txt").wait_for()
        assert complaints == [[], []]


def test_a_group_is_made_and_shared_with_on_one_screen_and_accepted_on_another(
    alice: Person, session: ServerProvider, bob: Person, browser: Browser
) -> None:
    befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"the plan")
    with (
        UsersPage(alice) as hers,
        UsersPage(bob) as his,
        browser.new_context() as one,
        browser.new_context() as other,
    ):
        tabs = [one.new_page(), other.new_page()]
        complaints = [complaints_of(tab) for tab in tabs]
        roots = [entered(page, tab) for page, tab in zip((hers, his), tabs, strict=True)]
        first, second = tabs
        press(first, "Groups")
        first.wait_for_url("**/groups")
        press(first, "Make a group…")
        first.wait_for_url("**/groups/new")
        first.get_by_label("Name").fill("Team")
        first.get_by_label("Description").fill("We\ntwo")
        first.get_by_role("button", name="Make the group").click()
        first.get_by_text("The group 'Team' is made").wait_for()
        first.get_by_label("Role", exact=True).select_option("reader")
        first.get_by_role("button", name="Add…").click()
        first.get_by_role("button", name="Add", exact=True).click()
        first.get_by_text("The group is offered to Bob, as a reader").wait_for()
        first.goto(f"{roots[0]}/containers/{made}/people")
        first.get_by_label("Person or group").select_option("Team")
        first.get_by_role("button", name="Share…").click()
        first.get_by_role("button", name="Share", exact=True).click()
        first.get_by_text("The group Team has access").wait_for()
        second.goto(f"{roots[1]}/containers")
        second.get_by_role("link", name="accept or decline it").click()
        second.get_by_role("link", name="Accept the group Team").click()
        second.get_by_role("button", name="Accept").click()
        second.get_by_text("You are a reader of the group 'Team' now").wait_for()
        second.goto(f"{roots[1]}/containers")
        second.get_by_role("link", name="plan.txt").click()
        second.get_by_text("the plan").wait_for()
        first.goto(f"{roots[0]}/groups")
        first.get_by_role("link", name="Team").click()
        first.get_by_role("link", name="Remove Bob from the group").click()
        first.get_by_role("button", name="Remove from the group").click()
        first.get_by_text("Bob is not in the group any more").wait_for()
        second.goto(f"{roots[1]}/containers")
        second.get_by_text("You have no containers yet").wait_for()
        assert complaints == [[], []]


def test_the_history_shows_an_event_once_that_two_logs_have(
    alice: Person, session: ServerProvider, bob: Person, view: Page
) -> None:
    befriend(session, bob, "Bob")
    group = team(alice, "Team", bob)
    levels = [AccessLevel(alice.ring.userId, 511), AccessLevel(group, 511)]
    made = put(session, "plan.txt", b"1", accessLevels=levels)
    with UsersPage(alice) as page, bob.session() as his:
        his.getContainer(made).result()  # the event of his first reading comes before the view
        root = entered(page, view)
        view.goto(f"{root}/history")
        changes = view.locator("#timeline > li", has_text="changed content")
        for number, content in enumerate((b"2", b"3")):
            assert changes.count() == number
            before = view.locator("#timeline").get_attribute("data-after")
            his.updateContainerContent(made, content).result()
            view.wait_for_function(READ_BOTH, arg=before)
            assert changes.count() == number + 1
        view.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_of_groups_is_readable_usable_and_fits_a_phone(
    alice: Person, session: ServerProvider, bob: Person, browser: Browser, scheme: Any
) -> None:
    user = befriend(session, bob, "Bob")
    name = "A team with a name so long that no phone has space for it: " + "x" * 60
    group, offered = team(alice, name, bob), team(bob, name, alice, accepted=False)
    levels = [AccessLevel(alice.ring.userId, 511), AccessLevel(group, 511)]
    made = put(session, "plan.txt", b"1", accessLevels=levels)
    session.createGroup("Empty").result()
    container, path = f"/containers/{made}", f"/groups/{group.id}"
    with bob.session() as his:
        his.updateContainerContent(made, b"2").result()
    paths = ["/groups", "/groups/new", path, f"/groups/{offered.id}", "/containers", "/history"]
    paths += [f"{path}/{each}" for each in ("rename", "leave", "renew", "delete")]
    paths += [f"{path}/{each}?user={user}" for each in ("member", "remove")]
    paths += [f"/groups/{offered.id}/{each}" for each in ("accept", "decline")]
    paths += [f"{container}{each}" for each in ("", "/people", "/history", "/broker")]
    paths += [f"{container}/share?person={group.id}&can=read&until="]
    paths += [f"{container}/revoke?user={group.id}"]
    size: Any = {"width": 360, "height": 740}
    with (
        UsersPage(alice) as page,
        browser.new_context(color_scheme=scheme, viewport=size) as context,
    ):
        tab = context.new_page()
        complaints = complaints_of(tab)
        root = entered(page, tab)
        for each in paths:
            tab.goto(root + each)
            assert tab.evaluate(FAINT) == [], each
            assert tab.evaluate(UNUSABLE) == [], each
            assert tab.evaluate("() => document.documentElement.scrollWidth") <= 360, each
        tab.goto("about:blank")
        assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_of_sharing_is_readable_usable_and_fits_a_phone(
    alice: Person, session: ServerProvider, bob: Person, browser: Browser, scheme: Any
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"1", type="note", accessLevels=with_access(session, user, 511))
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=7)
    link = session.createLink(made, expiresAt=end, name="For the bank").result()
    container, contact = f"/containers/{made}", f"/contacts/{user}"
    paths = [f"{container}{each}" for each in ("", "/people", "/link", "/history", "/broker")]
    paths += [f"{contact}{each}" for each in ("", "/compare", "/different", "/rename", "/remove")]
    paths += ["/contacts", "/contacts/add", "/links", f"/links/{link.userId}", "/history"]
    paths += [f"{container}/share?person={user}&can=read&until=", f"{container}/revoke?user={user}"]
    size: Any = {"width": 360, "height": 740}
    with (
        UsersPage(alice) as page,
        browser.new_context(color_scheme=scheme, viewport=size) as context,
    ):
        tab = context.new_page()
        complaints = complaints_of(tab)
        root = entered(page, tab)
        for path in paths:
            tab.goto(root + path)
            assert tab.evaluate(FAINT) == [], path
            assert tab.evaluate(UNUSABLE) == [], path
            assert tab.evaluate("() => document.documentElement.scrollWidth") <= 360, path
            assert tab.evaluate(CUT_OFF) == [], path
        tab.goto("about:blank")
        assert complaints == []
