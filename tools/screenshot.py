"""Write docs/images/operators-page.png: the operator's page of a real broker under load, in chromium.

    python -m tools.screenshot [FOLDER]

With a folder, all views are written there instead: in light and dark, for a wide screen and for a phone.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
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
_LOAD_SECONDS: Final = 70
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
        stack.enter_context(_load(sessions))
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
            tab.wait_for_timeout(_LOAD_SECONDS * 1000)
            state = context.storage_state()
        if folder is None:
            _take(browser, state, f"{root}/overview", TARGET, "light", _WIDE, whole=False)
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


@contextlib.contextmanager
def _load(sessions: Sequence[ServerProvider]) -> Iterator[None]:
    """Let the users write and read during the block; one of them is suspended, and is refused."""
    over = threading.Event()
    threads = [
        threading.Thread(target=_use, args=(each, over, number))
        for number, each in enumerate(sessions)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _use(session: ServerProvider, over: threading.Event, seed: int) -> None:
    own: list[UUID] = []
    chosen = random.Random(seed)  # the same picture each time
    while not over.wait(chosen.expovariate(8)):
        with contextlib.suppress(BrokerError):
            if len(own) < 40 and chosen.random() < 0.3:
                content = bytes(chosen.randrange(200, 30_000))
                own.append(session.createContainer(content).result(30).id)
            elif own and chosen.random() < 0.8:
                session.getContainerContent(chosen.choice(own)).result(30)
            else:
                session.getEvents().result(30)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
