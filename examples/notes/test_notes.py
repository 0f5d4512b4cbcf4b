"""The window on a virtual display, with a real broker: `scbroker_broker` of the pytest plugin."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from scbroker import AccessLevel, ServerProvider
from scbroker.testing import LocalBroker
from tests.kit.displays import screen

pytest.importorskip("tkinter", reason="tkinter is not installed: see CONTRIBUTING.md")
import tkinter

from examples.notes.notes import NotesWindow


@pytest.fixture
def root() -> Iterator[tkinter.Tk]:
    with screen() as environment:
        window = tkinter.Tk(screenName=environment["DISPLAY"])
        yield window
        with contextlib.suppress(tkinter.TclError):
            window.destroy()


@pytest.fixture
def alice(scbroker_broker: LocalBroker) -> ServerProvider:
    return scbroker_broker.new_user()


def until(root: tkinter.Tk, holds: Callable[[], bool]) -> None:
    """Run the window's event loop until something holds."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        root.update()
        time.sleep(0.005)


def test_a_note_is_written_listed_opened_and_changed_and_stays_shared(
    root: tkinter.Tk, alice: ServerProvider, scbroker_broker: LocalBroker
) -> None:
    window = NotesWindow(root, alice)
    window.title.insert(0, "Plan")
    window.text.insert("1.0", "Go to the lake")
    window.save.invoke()
    until(root, lambda: window.titles.get(0, "end") == ("Plan",))
    assert window.status["text"] == "Saved version 1"

    [note] = alice.listContainers("note").result().containers
    bob = scbroker_broker.new_user()
    alice.grantAccess(note.id, AccessLevel(bob.getUserId().result())).result()

    window.new.invoke()
    window.titles.selection_set(0)
    window.titles.event_generate("<<ListboxSelect>>")
    until(root, lambda: window.text.get("1.0", "end-1c") == "Go to the lake")
    window.text.insert("end", ", at last")
    window.save.invoke()
    until(root, lambda: str(window.status["text"]) == "Saved version 4")
    assert bob.getContainerContent(note.id).result() == b"Go to the lake, at last"


def test_an_error_is_shown_in_the_window(root: tkinter.Tk, alice: ServerProvider) -> None:
    window = NotesWindow(root, alice)
    alice.logout().result()
    window.save.invoke()
    until(root, lambda: "log in" in str(window.status["text"]).lower())
