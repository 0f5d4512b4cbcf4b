"""Work on a command's items: a few at the same time, with one bar, and a row or an error for each."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import scbroker
from scbroker import errors
from scbroker.cli.command import Run
from scbroker.cli.output import Row

T = TypeVar("T")
Item = TypeVar("Item")
_AT_ONCE: Final = 3
_BATCH: Final = 256
_BATCH_BYTES: Final = 4 * 1_048_576
END_ALL: Final = (
    errors.BrokerUnavailableError,
    errors.DiskFullError,
    errors.NotAuthenticatedError,
    errors.TrustStoreError,
)
"""Errors of one item that every other item would meet as well."""


class Together:
    """Work in a few threads, whose operations are cancelled at the end of the `with` block.

    `show` is called with the sum of what is done of all items.
    """

    def __init__(self, show: Callable[[int], None] = lambda _: None) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(_AT_ONCE)
        self._lock = threading.Lock()
        self._show, self._sum, self._done = show, 0, Counter[object]()
        self._running: set[scbroker.Promise[object]] = set()
        self.is_over: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._lock:
            self.is_over = True
            for promise in self._running:
                promise.cancel()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def wait(self, promise: scbroker.Promise[T]) -> T:
        """Return the result of an operation, which is cancelled if the command ends before it."""
        with self._lock:
            self._running.add(promise)
            if self.is_over:
                promise.cancel()
        try:
            return promise.result()
        finally:
            with self._lock:
                self._running.discard(promise)

    def progress(self, item: object, done: int) -> None:
        """Set how much of an item is done."""
        with self._lock:
            self._sum += done - self._done[item]
            self._done[item] = done
            self._show(self._sum)

    def progress_of(self, item: object) -> Callable[[int, int | None], None]:
        """Return the function to pass as `progress` to the operation that transfers an item."""
        return lambda done, _: self.progress(item, done)

    def each(
        self,
        items: Iterable[Item],
        alone: Callable[[Item], T],
        batch: Callable[[list[Item]], Sequence[T | errors.BrokerError]] = lambda _: (),
        size: Callable[[Item], int | None] = lambda _: None,
        small: int = 0,
    ) -> Iterator[tuple[Item, T | errors.BrokerError]]:
        """Work on items, a few at a time; yield each with its result or its error, as they end.

        `batch` works on many items of at most `small` bytes, before `alone` works on each of the others.
        """
        together, others = list[Item](), list[Item]()
        for item in items:
            length = size(item)
            (together if length is not None and length <= small else others).append(item)

        def work_on(some: list[Item]) -> list[tuple[Item, T | errors.BrokerError]]:
            return list(zip(some, batch(some), strict=True))

        jobs = itertools.chain(
            (partial(work_on, some) for some in batches(together, lambda item: size(item) or 0)),
            (partial(lambda item: [(item, tried(alone, item))], item) for item in others),
        )
        pending: set[concurrent.futures.Future[list[tuple[Item, T | errors.BrokerError]]]] = set()
        for job in jobs:
            pending.add(self._pool.submit(job))
            if len(pending) > _AT_ONCE:
                done, pending = concurrent.futures.wait(
                    pending, return_when=concurrent.futures.FIRST_COMPLETED
                )
                yield from itertools.chain.from_iterable(future.result() for future in done)
        for future in concurrent.futures.as_completed(pending):
            yield from future.result()


def tried(work: Callable[..., T], *arguments: Any) -> T | errors.BrokerError:
    """Return the result of a call, or its error."""
    try:
        return work(*arguments)
    except errors.BrokerError as error:
        return error


def batches(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Cut items into batches of at most 256 items and, unless one item alone has more, 4 MiB.

    Every batch costs requests and turns of threads; several batches are in memory at the same time.
    """
    batch: list[Item] = []
    total = 0
    for item in items:
        if batch and (len(batch) == _BATCH or total + size(item) > _BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def do_each(
    run: Run,
    what: str,
    size: int | None,
    name: Callable[[Item], str],
    columns: Mapping[str, str],
    work: Callable[[Together], Iterable[tuple[Item, Row | errors.BrokerError]]],
    done: Iterable[tuple[Item, Row]] = (),
    *,
    of_bytes: bool = True,
) -> None:
    """Write a row for each item of `done` and of the `work`; rows are counted by their `status`.

    `size` is the sum of the items' bytes; without `of_bytes`, their number.

    An error of one item, which its `name` precedes, does not stop the others. After Ctrl-C, and after an
    error that every other item would meet as well, the rows of what is done are written before the error is
    raised.
    """
    counts: Counter[str] = Counter()
    interrupted: list[BaseException] = []

    def rows(outcomes: Iterable[tuple[Item, Row | errors.BrokerError]]) -> Iterator[Row]:
        try:
            for item, result in outcomes:
                if isinstance(result, END_ALL):
                    raise result
                if isinstance(result, errors.BrokerError):
                    run.failed(name(item), result)
                else:
                    counts[result["status"]] += 1
                    yield result
        except (KeyboardInterrupt, *END_ALL) as error:
            interrupted.append(error)

    with run.out.progress(what, size, of_bytes=of_bytes) as show, Together(show) as together:
        run.out.rows(rows(itertools.chain(done, work(together))), columns)
        counted = ", ".join(f"{number} {status}" for status, number in counts.items())
        if interrupted:
            run.out.say(f"{counted or 'Nothing done'}; the same command goes on with the others.")
            raise interrupted[0]
    if counts.total() > 1:
        run.out.say(f"{counted}.")
