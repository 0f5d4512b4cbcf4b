"""Write the pictures of `scbroker ui` in docs/images, users-page.png and broker-sees.png, in chromium.

    python -m tools.screenshot_ui [FOLDER]

With a folder, all views are written there instead: in light and dark, for a wide screen and for a phone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

from scbroker import AccessLevel, ContainerAccessLevel
from tests.kit.brokers import BrokerProcess
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
_WIDE: Final = {"width": 1120, "height": 720}
_PHONE: Final = {"width": 390, "height": 844}
_COLORS: Final = 64
"""Colours of the picture, so that it is small."""


def main(folder: Path | None) -> None:
    """Take the picture of the guide, or all pictures into a folder."""
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(BrokerProcess(temporary / "scbroker"))
        alice, bob = Person(temporary / "alice", broker), Person(temporary / "bob", broker)
        alice.join("Alice")
        bob.join("Bob")
        link = _store(alice, bob, temporary)
        ids = {each["name"]: each["id"] for each in alice.json("ls")}
        page = stack.enter_context(UsersPage(alice))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with browser.new_context() as context:
            tab = context.new_page()
            tab.goto(page.printed["url"])
            tab.wait_for_url("**/containers")
            root = tab.url.removesuffix("/containers")
            state = context.storage_state()
        if folder is None:
            for name, view in (
                ("users-page", ""),
                ("broker-sees", f"/{ids['report 2026.md']}/broker"),
            ):
                target = IMAGES / f"{name}.png"
                _take(
                    browser, state, f"{root}/containers{view}", target, "light", _WIDE, whole=False
                )
                with Image.open(target) as picture:
                    picture.quantize(_COLORS).save(target, optimize=True)
            return
        with bob.session() as session:
            session.createGroup("Choir", alice.ring.userId).result(30)
        picture_id, text_id = ids["photos/zoo.png"], ids["report 2026.md"]
        groups = {each["name"]: each["id"] for each in alice.json("groups", "ls")}
        family, choir = (f"/groups/{groups[name]}" for name in ("Family", "Choir"))
        views = ("/containers", "/containers?show=gallery", f"/containers/{picture_id}",
                 f"/containers/{text_id}", f"/containers/{text_id}/rename",
                 f"/containers/{text_id}/delete", f"/containers/{text_id}/people",
                 f"/containers/{text_id}/link", f"/containers/{text_id}/history",
                 f"/containers/{text_id}/broker", "/contacts", f"/contacts/{bob.ring.userId}",
                 f"/contacts/{bob.ring.userId}/compare", "/links", f"/links/{link}",
                 "/history", "/groups", "/groups/new", family, f"{family}/add?person=", choir,
                 f"{family}/member?user={bob.ring.userId}", f"{family}/rename",
                 f"{family}/remove?user={bob.ring.userId}", f"{choir}/accept",
                 f"/containers/{picture_id}/people")  # fmt: skip
        for number, view in enumerate(views):
            for scheme, size in (("light", _WIDE), ("dark", _WIDE), ("light", _PHONE)):
                file = folder / f"{number}-{scheme}-{size['width']}.png"
                _take(browser, state, root + view, file, scheme, size, whole=True)


def _take(
    browser: Browser, state: Any, url: str, file: Path, scheme: Any, size: Any, *, whole: bool
) -> None:
    with browser.new_context(storage_state=state, color_scheme=scheme, viewport=size) as context:
        tab = context.new_page()
        tab.goto(url)
        # A history waits for events all the time.
        tab.wait_for_load_state("load" if url.endswith("/history") else "networkidle")
        tab.screenshot(path=file, full_page=whole)


def _store(alice: Person, bob: Person, folder: Path) -> uuid.UUID:
    """Store the containers; return the id of a link's user."""
    with alice.session() as session:
        befriend(session, bob, "Bob")
        own = session.getUserId().result(30)
        owner = ContainerAccessLevel.DefaultOwnerPermissions
        family = session.createGroup("Family", bob.ring.userId, "Photos of all of us").result(30)
        shared = [AccessLevel(own, owner), AccessLevel(bob.ring.userId)]
        of_all = [AccessLevel(own, owner), AccessLevel(family, owner)]
        for name, color in (("zoo", "#2f7d5b"), ("lake", "#2d6ea8"), ("roof", "#a8552d")):
            file = folder / f"{name}.png"
            _draw(file, color)
            header = {"name": f"photos/{name}.png", "mediaType": "image/png"}
            access = of_all if name == "zoo" else None
            session.createContainer(file, header, access, "photo").result(30)
        report = "# Report 2026\n\nThe broker stored 1,204 containers and could read none.\n"
        made = session.createContainer(
            report.encode() * 12, {"name": "report 2026.md"}, shared, "report"
        ).result(30)
        for name in ("contract.pdf", "letters/to Bob.txt", "letters/to Carol.txt", "notes.txt"):
            content = b"%PDF-1.7\n" if name.endswith("pdf") else b"Dear Bob,\n"
            session.createContainer(content * 900, {"name": name}).result(30)
        end = dt.datetime.now(dt.UTC) + dt.timedelta(days=7)
        link = session.createLink(made.id, expiresAt=end, name="For the bank").result(30)
    with bob.session() as session:
        session.getContainerContent(made.id).result(30)
        session.acceptGroup(family).result(30)
    return link.userId


def _draw(file: Path, color: str) -> None:
    picture = Image.new("RGB", (640, 400), color)
    pen = ImageDraw.Draw(picture)
    pen.ellipse((420, 60, 540, 180), fill="#f6d365")
    pen.polygon([(0, 400), (200, 180), (330, 300), (460, 210), (640, 400)], fill="#1d2b36")
    picture.save(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
