"""Write docs/images/example-notes.png: the window of examples/notes with a real broker, on a virtual display.

python -m tools.notes_screenshot
"""

from __future__ import annotations

import time
import tkinter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from PIL import ImageGrab

from examples.notes.notes import NotesWindow
from scbroker import NewContainer, mainQueue
from scbroker.testing import LocalBroker
from tests.kit.displays import screen

TARGET: Final = Path(__file__).parents[1] / "docs" / "images" / "example-notes.png"
_SECONDS: Final = 30.0
_COLORS: Final = 64


def main() -> None:
    with LocalBroker() as broker, screen("800x400") as display:
        alice = broker.new_user()
        packing = NewContainer(b"Tent, map, lamp", {"title": "Packing"}, type="note")
        alice.createContainers([packing]).result()
        root = tkinter.Tk(screenName=display["DISPLAY"])
        root.geometry("+0+0")
        window = NotesWindow(root, alice)
        window.title.insert(0, "Plan")
        window.text.insert("1.0", "Go to the lake.\nBring the tent.")
        window.save.invoke()
        _until(root, lambda: window.titles.size() == 2)
        chosen = window.titles.get(0, "end").index("Plan")
        window.titles.selection_set(chosen)
        root.update()
        box = (0, 0, root.winfo_width(), root.winfo_height())
        picture = ImageGrab.grab(box, xdisplay=display["DISPLAY"])
        picture.quantize(_COLORS).save(TARGET, optimize=True)
        root.destroy()
        mainQueue.run(1)


def _until(root: tkinter.Tk, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not holds() and time.monotonic() < end:
        root.update()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
