"""The window on a virtual display, with a real broker: `scbroker_broker` of the pytest plugin.

Tk belongs to one thread and one display until the process ends, so each window has a process of its own.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scbroker import AccessLevel, BrokerError, MemoryTrustStore, ServerProvider
from scbroker.testing import PASSPHRASE, PASSWORD, LocalBroker
from tests.kit.displays import screen
from tests.kit.waiting import PATIENCE, wait_until

pytest.importorskip("tkinter", reason="tkinter is not installed: see CONTRIBUTING.md")
import tkinter

from examples.notes.notes import NotesWindow

Check = Callable[[NotesWindow, ServerProvider], None]


def new_user() -> ServerProvider:
    provider = ServerProvider.fromEnvironment(trustStore=MemoryTrustStore())
    provider.register(PASSWORD, PASSPHRASE).result()
    return provider


def until(window: NotesWindow, holds: Callable[[], bool]) -> None:
    """Run the window's event loop until something holds."""

    def updated() -> bool:
        window.root.update()
        return holds()

    wait_until(updated)


def write_share_and_change(window: NotesWindow, alice: ServerProvider) -> None:
    window.title.insert(0, "Plan")
    window.text.insert("1.0", "Go to the lake")
    window.save.invoke()
    until(window, lambda: window.titles.get(0, "end") == ("Plan",))
    assert window.status["text"] == "Saved version 1"

    [note] = alice.listContainers("note").result().containers
    assert not isinstance(note, BrokerError)
    with new_user() as bob:
        alice.grantAccess(note.id, AccessLevel(bob.getUserId().result())).result()

        window.new.invoke()
        window.titles.selection_set(0)
        window.titles.event_generate("<<ListboxSelect>>")
        until(window, lambda: window.text.get("1.0", "end-1c") == "Go to the lake")
        window.text.insert("end", ", at last")
        window.save.invoke()
        until(window, lambda: str(window.status["text"]) == "Saved version 4")
        assert bob.getContainerContent(note.id).result() == b"Go to the lake, at last"

        access = [AccessLevel(each.getUserId().result()) for each in (alice, bob)]
        bob.createContainer(b"", {"title": "Diary"}, access, "note").result()
        window.load()
        until(window, lambda: window.titles.size() == 2)
        assert f"Diary (by {bob.getUserId().result()})" in window.titles.get(0, "end")


def log_out_and_save(window: NotesWindow, alice: ServerProvider) -> None:
    alice.logout().result()
    with pytest.raises(BrokerError.notAuthenticatedError) as refused:
        alice.getUserId().result()
    window.save.invoke()
    until(window, lambda: str(window.status["text"]) == refused.value.message)


def with_window(check: Check, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    with new_user() as alice:
        window = NotesWindow(tkinter.Tk(), alice)
        check(window, alice)
        window.root.destroy()


@pytest.mark.long
@pytest.mark.parametrize(
    "check",
    [write_share_and_change, log_out_and_save],
    ids=["a note is saved, and a shared one stays shared", "an error is shown"],
)
def test_in_the_window(check: Check, scbroker_broker: LocalBroker, tmp_path: Path) -> None:
    with screen() as display:
        environment = {**scbroker_broker.environment, **display, "XDG_STATE_HOME": str(tmp_path)}
        spawned = multiprocessing.get_context("spawn")
        process = spawned.Process(target=with_window, args=(check, environment))
        process.start()
        process.join(PATIENCE)
        process.kill()  # if it goes on
        assert process.exitcode == 0
