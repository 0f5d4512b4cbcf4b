"""Write docs/images/operators-page.png: the operator's page of a real broker, in chromium.

    python -m tools.screenshot [FOLDER]

With a folder, all views are written there instead: in light and dark, for a wide screen and for a phone.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from PIL import Image
from playwright.sync_api import sync_playwright

from scbroker import BrokerError, KeyRing, MemoryTrustStore, ServerProvider
from tests.kit.brokers import BrokerProcess
from tests.kit.operators import admin
from tests.kit.pages import OperatorsPage

if TYPE_CHECKING:
    from uuid import UUID

    from playwright.sync_api import Browser, StorageState, ViewportSize

TARGET: Final = Path(__file__).parents[1] / "docs" / "images" / "operators-page.png"
_WIDE: Final[ViewportSize] = {"width": 1120, "height": 600}
_PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
_USERS: Final = 8
_COLORS: Final = 64
"""Colours of the picture, so that it is small."""
_QUOTA: Final = 400_000


def main(folder: Path | None) -> None:
    """Take the picture of the guide, or all pictures into a folder."""
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(BrokerProcess(temporary / "scbroker"))
        rings = [broker.new_user() for _ in range(_USERS)]
        users = [ring.userId for ring in rings]
        sessions = [stack.enter_context(_session(broker, ring)) for ring in rings]
        _administer(broker, users)
        _store(sessions)
        page = stack.enter_context(OperatorsPage(broker))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with browser.new_context() as context:
            tab = context.new_page()
            tab.goto(page.printed["url"])
            tab.wait_for_url("**/overview")
            root = tab.url.removesuffix("/overview")
            state = context.storage_state()
        if folder is None:
            _take(browser, state, f"{root}/users", TARGET, "light", _WIDE, whole=False)
            with Image.open(TARGET) as picture:
                picture.quantize(_COLORS).save(TARGET, optimize=True)
            return
        looks: list[tuple[Literal["light", "dark"], ViewportSize]] = [
            ("light", _WIDE), ("dark", _WIDE), ("light", _PHONE)
        ]  # fmt: skip
        views = ("/overview", "/users", f"/users/{users[0]}", f"/users/{users[0]}/suspend",
                 f"/users/{users[0]}/quota", "/api-keys", "/audit")  # fmt: skip
        for number, view in enumerate(views):
            for scheme, size in looks:
                file = folder / f"{number}-{scheme}-{size['width']}.png"
                _take(browser, state, root + view, file, scheme, size, whole=True)


def _take(
    browser: Browser,
    state: StorageState,
    url: str,
    file: Path,
    scheme: Literal["light", "dark"],
    size: ViewportSize,
    *,
    whole: bool,
) -> None:
    with browser.new_context(storage_state=state, color_scheme=scheme, viewport=size) as context:
        tab = context.new_page()
        tab.goto(url)
        tab.screenshot(path=file, full_page=whole)


def _session(broker: BrokerProcess, ring: KeyRing) -> ServerProvider:
    store = MemoryTrustStore()
    provider = ServerProvider(broker.api_key, broker.url, "photos", trustStore=store)
    provider.logIn(ring, ring.userId).result(30)
    return provider


def _administer(broker: BrokerProcess, users: Sequence[UUID]) -> None:
    for command in (
        ["api-keys", "create", "photos on phones"],
        ["api-keys", "create", "the archive", "--expires", "90d"],
        ["quota", "set", "default", "--bytes", str(_QUOTA)],
        ["users", "suspend", str(users[-1]), "--reason", "asked by phone"],
    ):
        admin(broker, *command).expect(0)


def _store(sessions: Sequence[ServerProvider]) -> None:
    chosen = random.Random(0)  # the same picture each time
    for session in sessions:
        for _ in range(chosen.randrange(1, 20)):
            with contextlib.suppress(BrokerError):  # one user is suspended
                session.createContainer(bytes(chosen.randrange(200, 30_000))).result(30)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
