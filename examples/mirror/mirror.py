"""Mirror containers into a folder as an asyncio service: compare once, then follow the changes.

    python mirror.py FOLDER [--most-bytes N]

Runs until SIGTERM or Ctrl-C. A file is named by its container's id. Restart it whenever you like: it compares
everything at each start, and fetches what has changed.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import uuid
from pathlib import Path

from scbroker import BrokerError, Container, ServerProvider

log = logging.getLogger("mirror")
GONE = (BrokerError.notFoundError, BrokerError.deletedError)
AT_ONCE = 8
MOST_BYTES = 10 * 2**30
"""Bytes of all files together. Anybody who knows the user's id can share containers of any size."""


class Mirror:
    """Keeps a folder equal to the containers that the provider's user has access to.

    Containers that do not fit into `most_bytes` are left out. A folder named like a container stays.
    """

    def __init__(
        self, provider: ServerProvider, folder: Path, most_bytes: int = MOST_BYTES
    ) -> None:
        self._provider, self._folder, self._most_bytes = provider, folder, most_bytes
        self._versions: dict[uuid.UUID, int] = {}
        self._sizes: dict[uuid.UUID, int] = {}
        """Bytes of the files, and of those that are being fetched."""
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Mirror until the task is cancelled."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Followed from before the comparison, so that no change falls between the two.
        async with self._provider.followEvents(await self._next_event()) as events:
            await self._compare()
            log.info("compared: %d containers", len(self._versions))
            async for event in events:
                if event.version != self._versions.get(event.containerId):
                    await self._fetch(event.containerId)

    async def _next_event(self) -> int:
        known = await self._provider.getEvents()
        return known[-1].id + 1 if known else 1

    async def _compare(self) -> None:
        """Fetch all containers, some at once, and remove the files of those that are gone."""
        found = set()
        async with asyncio.TaskGroup() as group:
            async for each in self._provider.iterContainers(headers=False):
                if isinstance(each, Container):
                    found.add(each.id)
                    group.create_task(self._fetch(each.id))
                else:
                    log.warning("%s was not mirrored: %s", each.containerId, each)
        for file in self._folder.iterdir():
            with contextlib.suppress(ValueError):
                if uuid.UUID(file.name) not in found and not _is_folder(file):
                    file.unlink()

    async def _fetch(self, container: uuid.UUID) -> None:
        """Make the file of a container that of its newest version; remove it if there is none."""
        path = self._folder / str(container)
        if _is_folder(path):
            return
        async with self._slots:
            try:
                made = await self._provider.getContainerMetadata(container)
                version = made.version
                if not self._has_space(container, made.length or 0):
                    return
                # Saves into a temporary file, and renames it once every byte is verified.
                size = await self._provider.saveContainerContent(container, path)
                if not self._has_space(container, size or 0):  # a larger one was stored meanwhile
                    path.unlink()
                    return
            except GONE:
                size = None
                version = 0
            except BrokerError.untrustedError as error:
                log.error("%s was not mirrored: %s", container, error)
                return
        if size is None:
            path.unlink(missing_ok=True)
        self._sizes[container] = size or 0
        self._versions[container] = version
        log.info("%s: %s", container, "removed" if size is None else f"{size} bytes")

    def _has_space(self, container: uuid.UUID, size: int) -> bool:
        """Reserve the bytes of a container if they fit; else keep its older file, and log it."""
        others = sum(self._sizes.values()) - self._sizes.get(container, 0)
        if others + size <= self._most_bytes:
            self._sizes[container] = size
            return True
        log.warning("%s was not mirrored: %d bytes are over --most-bytes", container, size)
        return False


def _is_folder(path: Path) -> bool:
    if path.is_dir():
        log.warning("%s is a folder, not a mirrored file: move it away", path)
    return path.is_dir()


def credentials() -> tuple[str, str]:
    """Return user id and passphrase; end the program if any variable that it needs is missing."""
    names = ("SERVER_URL", "API_KEY", "APPLICATION_NAME", "USER_ID", "PASSPHRASE")
    missing = [f"SCBROKER_{each}" for each in names if not os.environ.get(f"SCBROKER_{each}")]
    if missing:
        raise SystemExit(f"Set {', '.join(missing)} in the environment.")
    return os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]


async def main(folder: Path, most_bytes: int) -> None:
    user, passphrase = credentials()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with ServerProvider.fromEnvironment() as provider:
        await provider.logIn(user, passphrase=passphrase)
        await Mirror(provider, folder, most_bytes).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--most-bytes", type=int, default=MOST_BYTES, help="bytes of all files together"
    )
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(main(given.folder, given.most_bytes))
