"""The user's page in a real browser: what a person does with it, how it looks, and what hostile files do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from PIL import Image

from tests.kit.brokers import BrokerProcess
from tests.kit.browsers import FAINT, IN_CHROMIUM, UNUSABLE, press
from tests.kit.objects import damage
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put
from tests.kit.waiting import PATIENCE

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


def test_dropped_files_are_stored_and_a_refused_one_says_why(
    opened: UsersPage, view: Page, tmp_path: Path
) -> None:
    entered(opened, view)
    view.evaluate(DROP, ["letter.txt", "Dear Bob"])
    view.get_by_role("link", name="letter.txt").wait_for()
    tab = view.context.new_page()  # a status of 409 is a complaint of the browser
    tab.goto(view.url)
    other = tmp_path / "letter.txt", tmp_path / "b"
    for file in other:
        file.write_bytes(bytes(3_000_000))
    tab.get_by_label("Drop files here").set_input_files(other)
    tab.get_by_text("is named 'letter.txt' already").wait_for()
    tab.get_by_role("status").filter(has_text="1 of 2 stored").wait_for()
    tab.get_by_role("link", name="Show the list with them").click()
    tab.get_by_role("link", name="b", exact=True).wait_for()


def test_a_download_that_fails_in_the_middle_is_a_failure_for_the_browser(
    opened: UsersPage, view: Page, broker: BrokerProcess
) -> None:
    root = entered(opened, view)
    with opened.person.session() as session:
        made = put(session, "backup.bin", bytes(10_485_760))  # in two objects
    damage(broker)
    view.goto(f"{root}/containers/{made}")
    with view.expect_download() as saved:
        view.get_by_role("link", name="Download").click()
    assert saved.value.failure() is not None


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


def test_a_view_that_stays_open_is_left_when_the_page_is_locked(
    opened: UsersPage, view: Page
) -> None:
    root = entered(opened, view)
    other = view.context.new_page()
    other.goto(f"{root}/containers")
    other.get_by_role("button", name="Lock").click()
    view.wait_for_url("**/start", timeout=PATIENCE * 1000)
    assert "Log in as Alice" in view.inner_text("main")


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


@pytest.mark.parametrize("scheme, width", [("light", 1120), ("dark", 1120), ("light", 360)])
def test_every_view_is_readable_and_usable_for_all(
    alice: Person, browser: Browser, tmp_path: Path, scheme: Any, width: int
) -> None:
    alice.run("put", picture(tmp_path), "--type", "photo")
    letter = tmp_path / f"{'a long name ' * 8}.txt"
    letter.write_text("Dear Bob,\n" * 40)
    alice.run("put", letter)
    ids = [each["id"] for each in alice.json("ls")]
    size: Any = {"width": width, "height": 800}
    with (
        UsersPage(alice) as page,
        browser.new_context(color_scheme=scheme, viewport=size) as context,
    ):
        tab = context.new_page()
        root = entered(page, tab)
        paths = ["/containers", "/containers?show=gallery", "/containers?q=none", "/log-out"]
        paths += [f"/containers/{id}{each}" for id in ids for each in ("", "/rename", "/delete")]
        for path in paths:
            tab.goto(root + path)
            assert tab.evaluate(FAINT) == [], path
            assert tab.evaluate(UNUSABLE) == [], path
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
        tab.get_by_role("button", name="Lock").click()
        tab.wait_for_url("**/start")
        for path in ("/start", "/register", "/log-in"):
            tab.goto(root + path)
            assert tab.evaluate(FAINT) == [], path
            assert tab.evaluate(UNUSABLE) == [], path
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, path


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
