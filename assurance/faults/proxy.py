"""A TCP link that a test can cut or freeze; until then it forwards every byte.

    with Link(broker.port) as link:
        link.cut_once(b"PUT /v1/containers", answered=True)

It runs between clients and a broker, or between a broker and PostgreSQL.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from tests.kit.waiting import PATIENCE

T = TypeVar("T")
_PIECE: Final = 65_536


@dataclass
class _Cut:
    """Cut a connection when `seen` is sent on it: before it passes, or when its answer comes."""

    seen: bytes
    answered: bool
    times: int


class Link:
    """Listens on `port`, and forwards everything to another port of this machine."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self.cuts = 0
        """Connections that `cut_once` has cut."""
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._rules: list[_Cut] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="link")

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._pass_on, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def cut(self) -> None:
        """Reset all connections, and every new one, until `heal`."""
        self._is_cut = True
        self._run(self._reset_all())

    def freeze(self) -> None:
        """Forward nothing in either direction until `heal`: half-open connections."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def heal(self) -> None:
        """Forward again. Connections that were frozen are reset, and their bytes are lost."""
        self._run(self._reset_all())
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._flows.set)

    def cut_once(self, seen: bytes, *, answered: bool, times: int = 1) -> None:
        """Reset the next connections on which `seen` is sent.

        Unless `answered`, before `seen` passes; else when its answer comes, which does not pass.
        """
        self._rules.append(_Cut(seen, answered, times))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _end(self) -> None:
        self._server.close()
        await self._reset_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reset_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back}
        self._open |= both
        cut_next = asyncio.Event()
        try:
            await asyncio.gather(
                self._forward(reader, back, cut_next, asking=True),
                self._forward(there, writer, cut_next, asking=False),
            )
        finally:
            self._open -= both
            for each in both:
                each.transport.abort()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        cut_next: asyncio.Event,
        *,
        asking: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(_PIECE):
                await self._flows.wait()
                if cut_next.is_set() and not asking:
                    break
                if asking and (rule := self._rule(data)) is not None:
                    self.cuts += 1
                    if not rule.answered:
                        break
                    cut_next.set()
                target.write(data)
                await target.drain()
        # Neither HTTP nor PostgreSQL closes one direction alone: end both.
        await self._finish(target, reset=cut_next.is_set())

    async def _finish(self, target: asyncio.StreamWriter, *, reset: bool) -> None:
        with suppress(OSError):
            if reset:
                target.transport.abort()
            else:
                target.close()

    def _rule(self, data: bytes) -> _Cut | None:
        for rule in self._rules:
            if rule.times and rule.seen in data:
                rule.times -= 1
                return rule
        return None
