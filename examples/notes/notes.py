"""Keep encrypted notes in a Tk window, with callbacks: the window never waits for the broker.

python notes.py
"""

import os
import tkinter
import uuid
from tkinter import ttk
from typing import Any

from scbroker import BrokerError, Container, ServerProvider, Stream, mainQueue

TYPE = "note"


class NotesWindow:
    """A list of titles, a text, and a line that says what has happened."""

    def __init__(self, root: tkinter.Tk, provider: ServerProvider) -> None:
        self.root, self._provider = root, provider
        self._own_id = provider.getUserId().result()
        self._ids: list[uuid.UUID] = []
        self._shown: uuid.UUID | None = None
        self._listing: Stream[Container[Any] | BrokerError] | None = None

        root.title("Notes")
        self.titles = tkinter.Listbox(root, width=24, exportselection=False)
        self.title = ttk.Entry(root)
        self.text = tkinter.Text(root, width=48, height=12)
        self.save = ttk.Button(root, text="Save", command=self._save)
        self.new = ttk.Button(root, text="New", command=self._clear)
        self.status = ttk.Label(root)
        self.titles.grid(row=0, column=0, rowspan=2, sticky="nsew", padx=6, pady=6)
        self.title.grid(row=0, column=1, columnspan=2, sticky="ew", padx=6, pady=6)
        self.text.grid(row=1, column=1, columnspan=2, sticky="nsew", padx=6)
        self.status.grid(row=2, column=0, sticky="ew", padx=6)
        self.new.grid(row=2, column=1, sticky="w", padx=6, pady=6)
        self.save.grid(row=2, column=2, sticky="e", padx=6, pady=6)
        root.columnconfigure(1, weight=1)
        root.rowconfigure(1, weight=1)
        self.titles.bind("<<ListboxSelect>>", lambda _: self._open())

        root.bind("<Destroy>", self._close)
        self._run_handlers()
        self.load()

    def load(self) -> None:
        """Fill the list; each entry arrives through a callback."""
        if self._listing is not None:
            self._listing.close()
        self._ids.clear()
        self.titles.delete(0, "end")
        self._listing = self._provider.iterContainers(
            TYPE, eventHandler=self._add, errorHandler=self._failed
        )

    def _run_handlers(self) -> None:
        """Run what has arrived on this thread, which is the only one that may change the window."""
        self._timer = self.root.after(20, self._run_handlers)
        mainQueue.run(0)

    def _close(self, event: "tkinter.Event[tkinter.Misc]") -> None:
        """Stop what would still change the window; its parts are destroyed before it."""
        if event.widget is self.root and self._listing is not None:
            self._listing.close()
            self.root.after_cancel(self._timer)

    def _add(self, note: Container[Any] | BrokerError) -> None:
        if isinstance(note, BrokerError):
            self._failed(note)
        elif note.header is not None and note.id not in self._ids:  # listed twice at once
            self._ids.append(note.id)
            title = note.header.customHeaderObject["title"]
            # Anybody can share a note of any title, and reads what is saved in it.
            by = "" if note.createdBy == self._own_id else f" (by {note.createdBy})"
            self.titles.insert("end", f"{title}{by}")

    def _open(self) -> None:
        if chosen := self.titles.curselection():  # type: ignore[no-untyped-call]
            self.status["text"] = "Opening..."
            self._provider.getContainer(
                self._ids[chosen[0]], completionHandler=self._show, errorHandler=self._failed
            )

    def _show(self, note: Container[Any]) -> None:
        self._clear()
        self._shown = note.id
        if note.header is not None:
            self.title.insert(0, note.header.customHeaderObject["title"])
        self.text.insert("1.0", (note.content or b"").decode())
        self.status["text"] = f"Version {note.version}"

    def _clear(self) -> None:
        self._shown = None
        self.title.delete(0, "end")
        self.text.delete("1.0", "end")

    def _save(self) -> None:
        content, header = self.text.get("1.0", "end-1c").encode(), {"title": self.title.get()}
        self.status["text"] = "Saving..."
        if self._shown is None:
            self._provider.createContainer(
                content, header, type=TYPE,
                completionHandler=self._saved, errorHandler=self._failed,
            )  # fmt: skip
        else:
            # Not updateContainer: it replaces the access list as well, and would unshare the note.
            self._provider.updateContainerHeader(
                self._shown, header, errorHandler=self._failed,
                completionHandler=lambda note: self._provider.updateContainerContent(
                    note.id, content, completionHandler=self._saved, errorHandler=self._failed
                ),
            )  # fmt: skip

    def _saved(self, note: Any) -> None:
        self._shown = note.id
        self.status["text"] = f"Saved version {note.version}"
        self.load()

    def _failed(self, error: BrokerError) -> None:
        self.status["text"] = error.message


def credentials() -> tuple[str, str]:
    """Return user id and passphrase; end the program if any variable that it needs is missing."""
    names = ("SERVER_URL", "API_KEY", "APPLICATION_NAME", "USER_ID", "PASSPHRASE")
    missing = [f"SCBROKER_{each}" for each in names if not os.environ.get(f"SCBROKER_{each}")]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)} in the environment.")
    return os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]


def main() -> None:
    user, passphrase = credentials()
    with ServerProvider.fromEnvironment() as provider:
        provider.logIn(user, passphrase=passphrase).result()
        NotesWindow(tkinter.Tk(), provider).root.mainloop()
        mainQueue.run(1)  # the window is closed: let the list that was under way end


if __name__ == "__main__":
    main()
