"""The user's page in a real browser: what a person does with it, how it looks, and what hostile files do."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from PIL import Image

from scbroker import AccessLevel, ServerProvider
from tests.kit.browsers import IN_CHROMIUM, check_views, press
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, team

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = IN_CHROMIUM
# A file that is dropped on the page, as the browser gives it to the page's script.
DROP: Final = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def opened(alice: Person) -> Any:
    """Alice's page, whose URL no browser has used."""
    with UsersPage(alice) as page:
        yield page


def entered(page: UsersPage, view: Page) -> str:
    view.goto(page.printed["url"])
    view.wait_for_url("**/containers")
    return view.url.removesuffix("/containers")


def complaints_of(tab: Page) -> list[str]:
    """Return the list to which the browser's complaints are added, such as one about the policy."""
    found: list[str] = []
    tab.on("console", lambda each: found.append(each.text))
    tab.on("pageerror", lambda each: found.append(str(each)))
    return found


def picture(folder: Path) -> Path:
    file = folder / "zoo.png"
    Image.new("RGB", (320, 200), "#3a7").save(file)
    return file


def test_a_person_stores_sees_renames_and_saves_a_picture(
    opened: UsersPage, view: Page, tmp_path: Path
) -> None:
    entered(opened, view)
    file = picture(tmp_path)
    view.get_by_label("Drop files here").set_input_files(file)
    view.get_by_role("link", name="zoo.png").click()
    shown = view.get_by_alt_text("The picture in this container")
    assert shown.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 320
    with view.expect_download() as saved:
        view.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "zoo.png"
    assert Path(saved.value.path()).read_bytes() == file.read_bytes()
    view.get_by_role("link", name="Rename…").click()
    view.get_by_label("New name").fill("the zoo.png")
    view.get_by_role("button", name="Rename").click()
    view.get_by_role("status").filter(has_text="the zoo.png").wait_for()


def test_a_container_is_found_renamed_and_shared_by_keyboard_alone(
    opened: UsersPage, bob: Person, view: Page
) -> None:
    with opened.person.session() as session:
        befriend(session, bob, "Bob")
        put(session, "draft", b"Dear Bob")
    entered(opened, view)
    press(view, "draft")
    view.wait_for_url("**/containers/*")
    press(view, "Rename…")
    view.get_by_label("New name").fill("letter.txt")
    press(view, "Rename")
    view.get_by_role("status").filter(has_text="letter.txt").wait_for()
    press(view, "Share…")
    view.wait_for_url("**/people")
    press(view, "Share…")
    view.wait_for_url("**/share?*")
    press(view, "Share")
    view.get_by_role("status").filter(has_text="Bob has access: read").wait_for()
    press(view, "Log out")
    view.wait_for_url("**/log-out")


def test_a_view_that_stays_open_shows_nothing_after_the_command_has_ended(
    alice: Person, browser: Browser
) -> None:
    """Nobody could say any more that the page is locked."""
    with UsersPage(alice) as page, browser.new_context() as context:
        tab = context.new_page()
        entered(page, tab)
        tab.evaluate(DROP, ["letter.txt", "Dear Bob"])
        name = tab.get_by_role("link", name="letter.txt")
        name.wait_for()
        tab.wait_for_load_state()
        page.stop()
        tab.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        name.wait_for(state="hidden")
        tab.get_by_text("The page does not answer any more").wait_for()


@pytest.mark.parametrize("scheme, width", [("light", 360), ("dark", 1120)])
def test_every_view_is_readable_usable_and_fits_a_phone(
    alice: Person, bob: Person, session: ServerProvider, browser: Browser, tmp_path: Path,
    scheme: Any, width: int,
) -> None:  # fmt: skip
    alice.run("put", picture(tmp_path), "--type", "photo")
    user = befriend(session, bob, "Bob")
    name = "A team with a name so long that no phone has space for it: " + "x" * 60
    group, offered = team(alice, name, bob), team(bob, name, alice, accepted=False)
    levels = [AccessLevel(alice.ring.userId, 511), AccessLevel(user), AccessLevel(group, 511)]
    letter = f"{'a long name ' * 8}.txt"
    made = put(session, letter, b"Dear Bob,\n" * 40, accessLevels=levels)
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=7)
    link = session.createLink(made, expiresAt=end, name="For the bank").result()
    paths = ["/containers?show=gallery", "/containers?q=none", "/groups", "/groups/new"]
    paths += ["/contacts", "/contacts/add", "/links", f"/links/{link.userId}", "/history"]
    paths += [f"/containers/{each['id']}" for each in alice.json("ls")]
    container, contact, own = f"/containers/{made}", f"/contacts/{user}", f"/groups/{group.id}"
    of_container = ("rename", "delete", "people", "link", "history", "broker")
    paths += [f"{container}/{each}" for each in of_container]
    paths += [f"{container}/share?person={each}&can=read&until=" for each in (user, group.id)]
    paths += [f"{container}/revoke?user={each}" for each in (user, group.id)]
    paths += [f"{contact}{each}" for each in ("", "/compare", "/different", "/rename", "/remove")]
    paths += [f"{own}{each}" for each in ("", "/rename", "/leave", "/renew", "/delete")]
    paths += [f"{own}/{each}?user={user}" for each in ("member", "remove")]
    paths += [f"/groups/{offered.id}{each}" for each in ("", "/accept", "/decline")]
    size: Any = {"width": width, "height": 800}
    with (
        UsersPage(alice) as page,
        browser.new_context(color_scheme=scheme, viewport=size) as context,
    ):
        tab = context.new_page()
        complaints = complaints_of(tab)
        root = entered(page, tab)
        check_views(tab, [root + path for path in paths], width)
        assert complaints == []
        tab.get_by_role("button", name="Lock").click()
        tab.wait_for_url("**/start")
        check_views(tab, [root + path for path in ("/start", "/register", "/log-in")], width)


def test_nothing_of_a_hostile_file_runs_in_the_page(opened: UsersPage, browser: Browser) -> None:
    files = {
        "a.svg": '<svg xmlns="http://www.w3.org/2000/svg" onload="window.ran = 1"/>',
        "b.html": "<script>opener.ran = window.ran = 1</script>",
        "c.pdf": "%PDF-1.7\n<script>window.ran = 1</script>",
        "<img src=x onerror=ran=1>.txt": "text",
    }
    with browser.new_context() as context:
        tab = context.new_page()
        root = entered(opened, tab)
        for name, content in files.items():
            tab.goto(f"{root}/containers")
            tab.evaluate(DROP, [name, content])
            tab.get_by_role("link", name=name).click()
            tab.wait_for_url("**/containers/*")
            place = tab.url
            for view in ("", "/image", "/pdf", "/people", "/history", "/broker"):
                tab.goto(f"{place}{view}")
                assert tab.evaluate("() => window.ran") is None
