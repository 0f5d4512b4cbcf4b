"""Mirror containers into a folder as an asyncio service: compare once, then follow the changes.

    python mirror.py FOLDER

Runs until SIGTERM or Ctrl-C. A file is named by its container's id. Restart it whenever you like: it compares
everything at each start, and fetches what has changed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import uuid
from pathlib import Path

from scbroker import BrokerError, Container, ServerProvider

log = logging.getLogger("mirror")
GONE = (BrokerError.notFoundError, BrokerError.deletedError)
AT_ONCE = 8


class Mirror:
    """Keeps a folder equal to the containers that the provider's user has access to."""

    def __init__(self, provider: ServerProvider, folder: Path) -> None:
        self._provider, self._folder = provider, folder
        self._versions: dict[uuid.UUID, int] = {}
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
                if uuid.UUID(file.name) not in found:
                    file.unlink()

    async def _fetch(self, container: uuid.UUID) -> None:
        """Make the file of a container that of its newest version; remove it if there is none."""
        path = self._folder / str(container)
        async with self._slots:
            try:
                version = (await self._provider.getContainerMetadata(container)).version
                # Saves into a temporary file, and renames it once every byte is verified.
                size = await self._provider.saveContainerContent(container, path)
            except GONE:
                size = None
                version = 0
            except BrokerError.untrustedError as error:
                log.error("%s was not mirrored: %s", container, error)
                return
        if size is None:
            path.unlink(missing_ok=True)
        self._versions[container] = version
        log.info("%s: %s", container, "removed" if size is None else f"{size} bytes")


async def main(folder: Path) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with ServerProvider.fromEnvironment() as provider:
        user, passphrase = os.environ["SCBROKER_USER_ID"], os.environ["SCBROKER_PASSPHRASE"]
        await provider.logIn(user, passphrase=passphrase)
        await Mirror(provider, folder).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(main(Path(sys.argv[1])))
