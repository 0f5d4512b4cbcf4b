"""The user's page in a real browser: what a person does with it, how it looks, and what hostile files do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from PIL import Image

from tests.kit.browsers import FAINT, IN_CHROMIUM, UNUSABLE
from tests.kit.pages import UsersPage
from tests.kit.people import Person

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
    shown.wait_for()
    assert shown.evaluate("(image) => image.naturalWidth") == 320
    with view.expect_download() as saved:
        view.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "zoo.png"
    assert Path(saved.value.path()).read_bytes() == file.read_bytes()
    view.get_by_role("link", name="Rename…").click()
    view.get_by_label("New name").fill("the zoo.png")
    view.get_by_role("button", name="Rename").click()
    view.get_by_role("status").filter(has_text="the zoo.png").wait_for()


def test_a_dropped_file_is_stored_and_a_refused_one_says_why(opened: UsersPage, view: Page) -> None:
    entered(opened, view)
    view.evaluate(DROP, ["letter.txt", "Dear Bob"])
    view.get_by_role("link", name="letter.txt").wait_for()
    opened_tab = view.context.new_page()  # a status of 409 is a complaint of the browser
    opened_tab.goto(view.url)
    opened_tab.evaluate(DROP, ["letter.txt", "another"])
    opened_tab.get_by_text("You have a container named").wait_for()


def test_a_view_that_stays_open_is_left_when_the_page_is_locked(
    opened: UsersPage, view: Page
) -> None:
    root = entered(opened, view)
    other = view.context.new_page()
    other.goto(f"{root}/containers")
    other.get_by_role("button", name="Lock").click()
    view.wait_for_url("**/start", timeout=15_000)
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
        for path in ("/start", "/register", "/log-in"):
            tab.goto(root + path)
            assert tab.evaluate(FAINT) == [], path
            assert tab.evaluate(UNUSABLE) == [], path
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.svg", '<svg xmlns="http://www.w3.org/2000/svg" onload="window.ran = 1"/>'),
        ("b.html", "<script>opener.ran = window.ran = 1</script>"),
        ("c.pdf", "%PDF-1.7\n<script>window.ran = 1</script>"),
    ],
)
def test_nothing_of_a_hostile_file_runs_in_the_page(
    opened: UsersPage, browser: Browser, name: str, content: str
) -> None:
    with browser.new_context() as context:
        tab = context.new_page()
        entered(opened, tab)
        tab.evaluate(DROP, [name, content])
        tab.get_by_role("link", name=name).click()
        tab.wait_for_url("**/containers/*")
        assert tab.evaluate("() => window.ran") is None
        place = tab.url
        for view in ("image", "pdf"):
            tab.goto(f"{place}/{view}")
            assert tab.evaluate("() => window.ran") is None
