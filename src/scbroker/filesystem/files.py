"""Read and write one container as a file."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import scbroker
from scbroker import errors
from scbroker.desk.names import Container
from scbroker.extras import install

if TYPE_CHECKING:  # fsspec has no types: these are the members that are used
    import io

    class AbstractFileSystem:
        blocksize: int

        def __init__(self, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        @classmethod
        def _strip_protocol(cls, path: Any) -> Any: ...
        def open(self, path: str, mode: str, *args: Any, **kwargs: Any) -> Any: ...
        def cat_file(self, path: str, start: int | None, end: int | None, **kwargs: Any) -> Any: ...
        def get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None: ...
        def invalidate_cache(self, path: str | None = None) -> None: ...

    class AbstractBufferedFile:
        fs: Any
        path: str
        mode: str
        size: int
        autocommit: bool
        buffer: io.BytesIO
        cache: Any
        closed: bool
        forced: bool

        def __init__(self, fs: Any, path: str, mode: str, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def flush(self, force: bool = False) -> None: ...
else:
    try:
        from fsspec.spec import AbstractBufferedFile as AbstractBufferedFile
        from fsspec.spec import AbstractFileSystem as AbstractFileSystem
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"scbroker.filesystem needs the package fsspec: run {install('fsspec')}.",
            name=error.name,
        ) from None

Content = bytes | Iterator[bytes]
_POLL_SECONDS: Final = 0.2
_ABANDON_SECONDS: Final = 5.0
_NEVER_CLOSED: Final = "%r was never closed: nothing of it is stored."
_log = logging.getLogger("scbroker")


class Upload:
    """A content that is sent while it is written. At most two blocks are in memory.

    The library reads the content in a thread, which waits for the next block.
    """

    def __init__(
        self, send: Callable[[Iterator[bytes]], scbroker.Promise[scbroker.SecuredContainer]]
    ) -> None:
        self._blocks: queue.Queue[bytes | None] = queue.Queue(1)
        self._is_abandoned = False
        self._promise = send(self._read())

    def write(self, block: bytes | None) -> None:
        """Hand over a block, None at the end; raise the error of an upload that has failed."""
        while not self._promise.done():
            with contextlib.suppress(queue.Full):
                self._blocks.put(block, timeout=_POLL_SECONDS)
                return
        self._promise.result()

    def finish(self) -> scbroker.SecuredContainer:
        """End the content, wait until the container is stored, and return it."""
        self.write(None)
        return self._promise.result()

    def abandon(self) -> None:
        """Have the broker drop what was sent, so that no container changes."""
        self._is_abandoned = True
        with contextlib.suppress(queue.Full):
            self._blocks.put_nowait(None)
        with contextlib.suppress(errors.BrokerError, TimeoutError):
            self._promise.result(_ABANDON_SECONDS)

    def _read(self) -> Iterator[bytes]:
        while True:
            block = self._blocks.get()
            if self._is_abandoned:
                raise errors.OperationCancelledError("The file was discarded before it was closed.")
            if block is None:
                return
            yield block


class ContainerFile(AbstractBufferedFile):
    """A file of a ContainerFileSystem: a content that is read by ranges, or written as a whole.

    A reader has the content as it was when the file was opened. A writer changes the container when it is
    closed, in one version; a container of `scbroker put` gets a version before, without the file's time.
    Until then the container is as before, and so it is if the file is closed because of an error, as by its
    `with` block, or never.
    """

    cache: Any
    closed: bool

    def __init__(
        self,
        fs: Any,
        path: str,
        mode: str,
        *,
        reader: scbroker.ContentReader | None = None,
        target: Container | None = None,
        **options: Any,
    ) -> None:
        self._reader = reader
        self._target = target
        """The container whose content a writer replaces; None if it creates one."""
        self._upload: Upload | None = None
        self._whole: bytes | None = None
        self._error = sys.exception()
        """The error that the program was handling when it opened the file: `close` ignores this one."""
        self._is_dropped = False
        """Whether the program has let go of the file without closing it."""
        self._is_discarded = False
        size = None if mode != "rb" else reader.size if reader is not None else 0
        super().__init__(fs, path, mode, **options, size=size)
        if mode != "rb":
            _unfinished[id(self)] = self
            _discard_at_exit()

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if self._reader is None or end <= start:
            return b""
        with self.fs.translated(self.path):
            found: bytes = self._reader.readRange(start, end - start).result()
        return found

    def _upload_chunk(self, final: bool = False) -> None:
        """Send a block. A content of one block is sent in one request when the file is closed."""
        block = self.buffer.getvalue()
        if self._upload is None and final:
            self._whole = block
        else:
            with self.fs.translated(self.path):
                if self._upload is None:
                    self._target = self.fs.target_now(
                        self.path, self._target, exclusive=self.mode == "xb"
                    )
                    self._upload = Upload(functools.partial(self.fs.send, self.path, self._target))
                self._upload.write(block)
        if final and self.autocommit:
            self.commit()

    def commit(self) -> None:
        """Store the content: at the end of the file, or at the end of its transaction.

        Nothing is stored if the container may not be changed by this path any more. A transaction also
        commits files that were discarded or are still open: nothing of these is stored.
        """
        if self._is_discarded:
            return
        if not self.forced:  # the content has no end yet
            self.discard()
            raise errors.InvalidArgumentError(
                f"{self.path!r} was not closed before its transaction ended: nothing of it is stored."
            )
        _unfinished.pop(id(self), None)
        upload = self._upload
        # A content that was sent to create a container cannot go to one that was created since.
        exclusive = self.mode == "xb" or upload is not None
        try:
            with self.fs.claimed(self.path), self.fs.translated(self.path):
                target = self.fs.target_now(self.path, self._target, exclusive=exclusive)
                if upload is not None:
                    upload.write(b"")  # raises if it has failed: then the container keeps its time
                if target is not None:
                    self.fs.remove_time(target)
                if upload is not None:
                    made = upload.finish()
                else:
                    made = self.fs.send(self.path, target, self._whole or b"").result()
                self.fs.stored(self.path, made)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Store nothing, and leave the container as it is."""
        self.forced = self.closed = self._is_discarded = True
        _unfinished.pop(id(self), None)
        if self._upload is None:
            return
        if self._is_dropped:  # garbage collection: this may be a thread that the upload waits for
            threading.Thread(target=self._upload.abandon, daemon=True).start()
        else:
            self._upload.abandon()

    def close(self) -> None:
        """Store the content of a writer; forget the key of a reader."""
        if self.closed:
            return
        self.cache = None
        if self._reader is not None:
            self._reader.close()
        if self.mode == "rb":
            self.closed = True
        elif self._is_dropped:
            self.discard()
            _log.warning(_NEVER_CLOSED, self.path)
        elif (error := sys.exception()) is not None and error is not self._error:
            # fsspec.open and pandas close a file after an error as well, and do not pass the error to it.
            self.discard()
            _log.warning(
                "%r was closed while a %s was handled: nothing of it is stored.",
                self.path,
                type(error).__name__,
            )
        else:
            self._finish()

    def _finish(self) -> None:
        try:
            if not self.forced:
                self.flush(force=True)
        except BaseException:
            self.discard()
            raise
        self.closed = True

    def _dealloc_warn(self, _: object) -> None:
        """Note that a text file was dropped: io.TextIOWrapper calls this before it closes what it wraps."""
        self._is_dropped = True

    def __del__(self) -> None:
        if not self.closed:
            self._is_dropped = True
            self.close()


_unfinished: Final[weakref.WeakValueDictionary[int, ContainerFile]] = weakref.WeakValueDictionary()
"""Writers by `id`, not in a set: fsspec hashes a file opened with "x" by the details of its path."""


def _discard_all() -> None:
    for each in list(_unfinished.values()):
        each.discard()
        _log.warning(_NEVER_CLOSED, each.path)


@functools.cache
def _discard_at_exit() -> None:
    """Discard unclosed files at exit: otherwise the library would wait for the rest of their contents.

    The hook is private to CPython; atexit would be too late. Hooks run in reverse order of registration: this
    one is registered with the first file, after the hook of the library's I/O thread, and so runs before it.
    """
    getattr(threading, "_register_atexit", atexit.register)(_discard_all)
