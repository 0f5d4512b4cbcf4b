"""Keychains for tests: one in memory, and GNOME Keyring as Linux desktops have it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

from tests.kit.waiting import PATIENCE

# Unlocks a login keyring with a password, as a desktop's log-in does, and runs a program beside it.
_BESIDE = 'printf "a password" | gnome-keyring-daemon --unlock --components=secrets >/dev/null && exec "$@"'


class MemoryKeychain(KeyringBackend):
    """A keychain in this process's memory. It is not the operating system's, and it seals nothing."""

    priority = 9

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # it is not typed
        self.entries: dict[tuple[str, str], str] = {}
        self.before: Callable[[str], None] = lambda _: None
        """Called with the name of each access before it takes place; raises what the keychain shall raise."""

    def get_password(self, service: str, username: str) -> str | None:
        self.before("get")
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.before("set")
        self.entries[(service, username)] = password

    def delete_password(self, service: str, username: str) -> None:
        self.before("delete")
        if (service, username) not in self.entries:
            raise PasswordDeleteError("no such entry")
        del self.entries[(service, username)]


@contextmanager
def keychain_in_memory() -> Iterator[MemoryKeychain]:
    """The keychain of this process, until the end of the block."""
    before, mine = keyring.get_keyring(), MemoryKeychain()
    keyring.set_keyring(mine)
    try:
        yield mine
    finally:
        keyring.set_keyring(before)


def run_beside_gnome_keyring(
    folder: Path, script: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a script on a message bus of its own with an unlocked GNOME Keyring; skip if not installed."""
    for program, package in (("dbus-run-session", "dbus"), ("gnome-keyring-daemon",) * 2):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: apt-get install {package}")
    # The daemon keeps its files below these, and finds no other's socket.
    homes = {name: str(folder / name) for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")}
    for home in homes.values():
        Path(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "DBUS_", "GNOME_", "PYTHON_KEYRING"))
    }
    beside = ["dbus-run-session", "--", "sh", "-c", _BESIDE, "sh"]
    return subprocess.run(
        [*beside, sys.executable, "-c", script, *arguments], env={**kept, **homes},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
