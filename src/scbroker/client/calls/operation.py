"""Make one function of an operation's body that serves both call styles; hand out streams of results.

An operation is an `async def` under `@operation`. The function made here checks the arguments by the types
of the parameters, starts the body, lets it go on on scbroker's thread, and passes its outcome to a `Promise`
or to exactly one of two handlers. For type checkers, `tools/make_stubs.py` writes both styles into the
module's `.pyi`.

Handlers run on the main thread by default: `mainQueue` is the Executor for that. An event loop on the main
thread runs them; in a plain script, `mainQueue.run()` does. The queue owns its jobs and only wakes a loop: no
job is lost when a loop ends, since it waits for the next loop, or for `run`. asyncio has no function that
returns the loop of another thread. So the queue notes the main thread's loop whenever a provider is made or
an operation is called there (docs/adr, 11).

Results that arrive one after another come from an asynchronous generator of pages, which runs on scbroker's
thread. It produces the next page only after the consumer has begun the previous one: at most one page is
prefetched, so memory stays bounded. A consumer takes an item without waiting, and waits for a wake-up only
when none has arrived; so a wait that is cancelled or interrupted loses no item. `Stream` is the consumer's
end. The running generator shares `_Feed` with it and does not reference the stream, so that a stream is
closed when its last reference goes.
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import concurrent.futures
import contextlib
import functools
import inspect
import logging
import os
import threading
import time
import types
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    NotRequired,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    get_type_hints,
)

from scbroker import errors
from scbroker.client.arguments import Check, accepted, check_of
from scbroker.client.calls.tasks import (
    Promise,
    check_process,
    io_thread,
    public_error,
    set_done,
    would_block_loop,
)

P = ParamSpec("P")
S = TypeVar("S", bound="Operations")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
OnError = Callable[[errors.BrokerError], object]
_CALLBACK: Final = ("completionHandler", "errorHandler", "queue")
_EITHER: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NONE: Final = inspect.Parameter.empty
_log = logging.getLogger("scbroker")


class Handlers(TypedDict, Generic[T]):
    """The keywords of callback style (PEP 692): the two handlers, and the executor that runs them."""

    completionHandler: Callable[[T], object]
    errorHandler: OnError
    queue: NotRequired[Executor | None]


class VoidHandlers(TypedDict):
    """The same for an operation without a result: its handler is called without an argument."""

    completionHandler: Callable[[], object]
    errorHandler: OnError
    queue: NotRequired[Executor | None]


Body = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class Operations:
    """The base of a class that has operations."""

    def _perform(self, name: str, body: Callable[..., T], given: dict[str, Any]) -> T:
        """Run the body of an operation with checked arguments. A subclass may run it elsewhere, or refuse."""
        del name
        return body(self, **given)


def operation(body: Body[S, P, T]) -> Callable[Concatenate[S, P], Promise[T]]:
    """Make an operation of its body: a method that serves both call styles.

    The call itself checks the arguments and runs the body up to its first `await`, which is that of
    `Session.hold` or of `called`. The rest runs on scbroker's thread.
    """
    return operation_of_forms(lambda args, kwargs: (args, kwargs))(body)


def operation_of_forms(
    arranged: Callable[[Args, Kwargs], tuple[Args, Kwargs]], **forms: str
) -> Callable[[Body[S, P, T]], Callable[Concatenate[S, P], Promise[T]]]:
    """Make an operation that takes its parameters in several orders.

    `arranged` returns the arguments in the order of the body. `forms` has for each order the parameters, with
    spaces between them, and the result if it is not the body's: "keyRing userId -> None".
    """

    def decorate(body: Body[S, P, T]) -> Callable[Concatenate[S, P], Promise[T]]:
        parameters = Parameters(body, _CALLBACK)
        parameters.is_void |= any(each.endswith("-> None") for each in forms.values())

        @functools.wraps(body)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            def begin() -> Coroutine[Any, Any, Any]:
                given = parameters.checked(*arranged(args, kwargs))
                work: Coroutine[Any, Any, Any] = self._perform(
                    parameters.name, parameters.body, given
                )
                return work

            promise = _call(parameters, begin, self, kwargs)
            return self if promise is None else promise

        call.__signature__ = parameters.signature  # type: ignore[attr-defined] # functions have it all the same
        call.parameters, call.forms = parameters, forms  # type: ignore[attr-defined] # as above
        return call

    return decorate


def function_operation(body: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Promise[T]]:
    """Make an operation of a function that belongs to no provider. In callback style it returns None."""
    parameters = Parameters(body, _CALLBACK, is_method=False)

    @functools.wraps(body)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _call(
            parameters, lambda: parameters.body(**parameters.checked(args, kwargs)), None, kwargs
        )

    call.__signature__ = parameters.signature  # type: ignore[attr-defined] # functions have it all the same
    return call


def _call(
    parameters: Parameters,
    begin: Callable[[], Coroutine[Any, Any, Any]],
    owner: object,
    kwargs: dict[str, Any],
) -> Promise[Any] | None:
    """Start an operation; return its promise, or None if the keywords of callback style were given.

    Then one of the two handlers runs, once, on the queue. Raises `InvalidArgumentError` for a wrong
    `errorHandler` or `queue`: no handler could receive it.
    """
    mainQueue.notice_loop()
    name = parameters.name
    completion, error, queue = (kwargs.pop(key, None) for key in _CALLBACK)
    if completion is error is queue is None:
        try:
            return Promise(name, io_thread.submit(name, begun(begin()), owner))
        except errors.BrokerError:
            raise
        except Exception as failure:
            raise public_error(failure) from failure
    check_handler(name, "errorHandler", error)
    queue = checked_queue(queue)

    def finish(future: concurrent.futures.Future[Any]) -> None:
        try:
            result = future.result()
        except BaseException as failure:
            submit_handler(queue, name, functools.partial(error, public_error(failure)))
        else:
            # `logIn` has a result in one form only: without one, the handler is called without an argument.
            nothing = parameters.is_void and result is None
            submit_handler(
                queue, name, functools.partial(completion, *(() if nothing else (result,)))
            )
        if isinstance(queue, MainQueue):
            queue.arrived(name)

    try:
        check_handler(name, "completionHandler", completion)
        future = io_thread.submit(name, begun(begin()), owner)
    except Exception as failure:
        submit_handler(queue, name, functools.partial(error, public_error(failure)))
        return None
    if isinstance(queue, MainQueue):
        queue.expect(name)
    future.add_done_callback(finish)
    return None


@types.coroutine
def called() -> Generator[None, None, None]:
    """Separate a body's steps at the call, which returns here, from the rest on scbroker's thread."""
    yield


def begun(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Run a coroutine to its first `await` on this thread; return a coroutine that runs the rest."""
    try:
        step = work.send(None)
    except StopIteration as ended:
        return ready(ended.value)
    if step is not None:
        work.close()
        raise RuntimeError("The body of an operation has to await called() before anything else.")
    return _rest(work)


async def ready(value: T) -> T:
    return value


async def _rest(work: Coroutine[Any, Any, T]) -> T:
    return await _resumed(work)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Continue a coroutine that is suspended already: `await` would raise a RuntimeError for it."""
    result: T = yield from work
    return result


class Parameters:
    """The parameters of an operation's body, their checks, and the signature that callers see."""

    def __init__(
        self, body: Callable[..., Any], handlers: Collection[str], *, is_method: bool = True
    ) -> None:
        self.body: Callable[..., Any] = body
        self.name: str = body.__name__
        own = inspect.signature(body)
        parameters = list(own.parameters.values())[is_method:]
        self._by_position = [each.name for each in parameters if each.kind is _EITHER]
        self._defaults = {each.name: each.default for each in parameters}
        result = str(own.return_annotation)
        kind, taken = "Promise", "" if result == "None" else result
        if result.startswith("Pages["):
            kind, result = "Stream", result.removeprefix("Pages[")[:-1]
            taken = result
        annotations = (f"Callable[[{taken}], object]", "OnError", "Executor | None")
        shown = [each.replace(annotation=accepted(str(each.annotation))) for each in parameters]
        shown += [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
            for key, annotation in zip(handlers, annotations, strict=False)
        ]
        self.result: str = f"{kind}[{result}]"
        self.is_void: bool = result == "None"
        returned = self.result if kind == "Stream" else f"{self.result} | Self"
        first = [inspect.Parameter("self", _EITHER)] if is_method else []
        self.signature: inspect.Signature = inspect.Signature(
            [*first, *shown], return_annotation=returned
        )
        self._shown = inspect.Signature(shown)
        self._known: dict[str, Check] | None = None

    @property
    def _checks(self) -> dict[str, Check]:
        if self._known is None:
            hints = get_type_hints(self.body, include_extras=True)
            checks = {key: check_of(hints[key]) for key in self._defaults}
            self._known = {key: check for key, check in checks.items() if check is not None}
        return self._known

    def checked(self, args: Args, kwargs: Kwargs) -> dict[str, Any]:
        """Return the checked arguments by name, without those that are their parameter's default."""
        given = dict(zip(self._by_position, args, strict=False)) | kwargs
        if len(given) < len(args) + len(kwargs) or not given.keys() <= self._defaults.keys():
            self._refuse(args, kwargs)
        checks, defaults = self._checks, self._defaults
        found = {
            key: check(key, value) if (check := checks.get(key)) is not None else value
            for key, value in given.items()
            if value is not defaults[key]
        }
        if any(default is _NONE and key not in found for key, default in defaults.items()):
            self._refuse(args, kwargs)
        return found

    def _refuse(self, args: Args, kwargs: Kwargs) -> None:
        try:
            self._shown.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(self._shown.parameters)
            raise errors.InvalidArgumentError(
                f"{self.name}() {error}. It takes: {names}."
            ) from None


def check_handler(name: str, key: str, handler: object) -> None:
    """Raise `InvalidArgumentError` unless a handler is a function that can be called on a queue."""
    if not callable(handler):
        raise errors.InvalidArgumentError(f"{name}() in callback style needs {key}, a function.")
    called = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is not a function
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called):
        raise errors.InvalidArgumentError(
            f"{key} must not be a coroutine function: await the promise that {name}() returns instead."
        )


def checked_queue(queue: object) -> Executor:
    """Return the executor that runs handlers: the main queue unless another one is given."""
    if queue is None and not mainQueue.is_served:
        raise errors.InvalidArgumentError(
            "queue is needed, because no event loop of the main thread is known: pass an Executor of "
            "threads, or pass mainQueue and call mainQueue.run() on the main thread."
        )
    runner = mainQueue if queue is None else queue
    if not isinstance(runner, Executor) or isinstance(
        runner, concurrent.futures.ProcessPoolExecutor
    ):
        raise errors.InvalidArgumentError(
            f"queue must be a concurrent.futures.Executor of threads, not {type(queue).__name__}."
        )
    return runner


def submit_handler(queue: Executor, name: str, handler: Callable[[], object]) -> bool:
    """Run a handler of an operation on the queue; return False if the queue was shut down.

    An error that the handler raises is logged, because no caller could catch it.
    """

    def run() -> None:
        try:
            handler()
        except Exception:
            _log.exception("A handler of %s failed", name)

    run.__name__ = name  # for mainQueue's warning if it never runs
    try:
        queue.submit(run)
    except RuntimeError:
        _log.error("%s: its queue was shut down before its handler could run", name)
        return False
    return True


LONGEST_WAIT = 1.0
"""Seconds of a wait on the main thread: a Ctrl-C that comes just before it is handled only when it ends."""


class MainQueue(Executor):
    """Run submitted functions on the main thread, one after the other.

    Tk, Qt and other loops that are not asyncio's run it from a timer: `mainQueue.run(0)`.
    """

    def __init__(self) -> None:
        self._is_registered = False
        self._clear()

    def _clear(self) -> None:
        """Reset the state. In the child of a fork this drops the jobs: the parent runs them."""
        self._changed = threading.Condition()
        self._jobs: collections.deque[tuple[str, Callable[[], None]]] = collections.deque()
        self._expected: collections.Counter[str] = collections.Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_run = False

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = _MainFuture()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            except BaseException as error:  # Ctrl-C and sys.exit must also end the main thread
                future.set_exception(error)
                raise

        self._register()
        with self._changed:
            self._jobs.append((getattr(fn, "__name__", type(fn).__name__), job))
            self._changed.notify_all()
            self.notice_loop()
            self._wake_loop()
        return future

    def _register(self) -> None:
        """Register the hooks of the process with the first job, so that importing scbroker has no effect."""
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._warn_of_waiting)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._clear)

    def expect(self, name: str) -> None:
        """Make `run` wait for the handler of an operation that is under way."""
        self._register()
        with self._changed:
            self._expected[name] += 1

    def arrived(self, name: str) -> None:
        """Undo one `expect(name)`, because its handler was submitted."""
        with self._changed:
            self._expected -= collections.Counter((name,))
            self._changed.notify_all()

    def notice_loop(self) -> None:
        """Note the event loop of the main thread, if called there, and wake it for waiting jobs."""
        if not _on_main_thread():
            return
        try:
            found = asyncio.get_running_loop()
        except RuntimeError:
            return  # keep the known loop, which may run again
        with self._changed:
            before, self._loop = self._loop, found
            if self._jobs and found is not before:
                self._wake_loop()

    @property
    def is_served(self) -> bool:
        """Return whether a loop or `run` runs handlers, or this main thread can do so later."""
        loop = self._loop
        return _on_main_thread() or self._has_run or (loop is not None and not loop.is_closed())

    def run(self, timeout: float | None = None) -> bool:
        """Run handlers on the main thread until none is queued and no operation is under way.

        Return False when `timeout` seconds passed before that; 0 runs what is queued and returns.
        """
        if not _on_main_thread():
            raise errors.InvalidArgumentError("Call mainQueue.run() on the main thread.")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._has_run = True
        while True:
            self._run_queued()
            with self._changed:
                if not self._jobs and not self._expected:
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if not self._jobs:
                    self._changed.wait(LONGEST_WAIT if left is None else min(left, LONGEST_WAIT))

    def _warn_of_waiting(self) -> None:
        """Log, at the end of the process, the operations whose handlers did not run."""
        names = sorted({*self._expected, *(name for name, _ in self._jobs)})
        if names:
            _log.warning(
                "The process ends before these handlers ran: %s. Call mainQueue.run() on the main "
                "thread, run an event loop there, or pass queue=.",
                ", ".join(names),
            )

    def _run_queued(self) -> None:
        # Checked before each job: a loop may since have moved from the main thread to another.
        while _on_main_thread():
            with self._changed:
                if not self._jobs:
                    return
                _, job = self._jobs.popleft()
            job()

    def _wake_loop(self) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._run_queued)
        except RuntimeError:  # the loop was closed: the next loop, or run(), runs the job
            self._loop = None


class _MainFuture(concurrent.futures.Future[Any]):
    def result(self, timeout: float | None = None) -> Any:
        self._check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_thread()
        return super().exception(timeout)

    def _check_thread(self) -> None:
        if not self.done() and _on_main_thread():
            raise errors.InvalidArgumentError(
                "result() on the main thread, which runs the job itself, would wait for ever: "
                "call mainQueue.run() first"
            )


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


mainQueue: MainQueue = MainQueue()  # noqa: N816 - the interface's own name


Pages = AsyncGenerator[Sequence[T], None]
_EVENTS: Final = ("eventHandler", "errorHandler", "queue")


class EventHandlers(TypedDict, Generic[T]):
    """The keywords of a stream's handlers (PEP 692), and the executor that runs them."""

    eventHandler: Callable[[T], object]
    errorHandler: OnError
    queue: NotRequired[Executor | None]


class _EndedError(Exception):
    """Raised by `take`: the stream has no further item."""


class _NotYetError(Exception):
    """Raised by `take`: no item has arrived yet, so wait for a wake-up and take again."""


class _Feed(Generic[T]):
    """The rest of the current page, and the step of the generator that prefetches the next one."""

    def __init__(self, name: str, pages: Pages[T], owner: object) -> None:
        self._name, self._pages, self._owner = name, pages, owner
        self._begun: collections.deque[T] = collections.deque()
        self.is_over = False
        self._wakers: list[Callable[[], object]] = []
        self._process = os.getpid()
        # Re-entrant: a finalizer of the stream may run in the midst of any method, on its thread.
        self._lock = threading.RLock()
        self._stepping = asyncio.Lock()
        self._step()

    def _step(self) -> None:
        """Run the generator on scbroker's thread to its next page."""
        self._next = io_thread.submit(self._name, self._next_page(), self._owner, endless=True)
        self._next.add_done_callback(self._wake)

    async def _next_page(self) -> Sequence[T] | None:
        """Return the next page that is not empty; None at the end."""
        async with self._stepping:
            async for page in self._pages:
                if page:
                    return page
        return None

    def _wake(self, _: object = None) -> None:
        with self._lock:
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            with contextlib.suppress(RuntimeError):  # the waiting task's event loop was closed
                wake()

    def take(self) -> T:
        """Return the next item, or raise `_NotYetError`, `_EndedError`, or (once) the generator's error."""
        check_process(self._process)
        with self._lock:
            if self._begun:
                return self._begun.popleft()
            if self.is_over:
                raise _EndedError
            if not self._next.done():
                raise _NotYetError
            failure: BaseException | None
            try:
                failure = self._next.exception()
            except concurrent.futures.CancelledError as cancelled:
                failure = cancelled
            page = None if failure is not None else self._next.result()
            if page is not None:
                self._begun.extend(page)
                self._step()
                return self._begun.popleft()
            self.is_over = True
        if failure is None:
            raise _EndedError
        raise public_error(failure) from None

    def wake_by(self, wake: Callable[[], object]) -> None:
        """Call `wake` once, on any thread, when an item has arrived or the stream has ended."""
        with self._lock:
            waits = not (self._begun or self.is_over or self._next.done())
            if waits:
                self._wakers.append(wake)
        if not waits:
            wake()

    def forget(self, wake: Callable[[], object]) -> None:
        """Remove the wake-up of a consumer that waits no longer."""
        with self._lock, contextlib.suppress(ValueError):  # `wake` was called and removed already
            self._wakers.remove(wake)

    def close(self) -> None:
        """Drop what has arrived, wake all consumers, and end the generator."""
        if self._process != os.getpid():
            return  # the parent's feed: its lock may have been held at the fork
        with self._lock:
            was_over, self.is_over = self.is_over, True
            self._begun.clear()
        self._wake()
        if not was_over:
            self._next.cancel()
            io_thread.submit(self._name, self._end(), endless=True)

    async def _end(self) -> None:
        async with self._stepping:  # after the step that was cancelled
            await self._pages.aclose()


class Stream(Generic[T_co]):
    """Results that arrive one after another, for `for` and `async for`.

    Iterating waits for the next result; `for` in a coroutine raises an `invalidArgumentError` instead,
    because it would block the event loop. An error is raised once and ends the stream. `close` ends it at
    once, and wakes threads and tasks that wait for a result. Leaving `with` or `async with` closes the
    stream, and so does deleting the last reference to it. If a task is cancelled while it waits, no result is
    lost: the next iteration returns it. Several threads or tasks may iterate over one stream; each result
    goes to one of them.
    """

    __slots__ = ("__weakref__", "_feed", "_name")

    def __init__(self, name: str, pages: Pages[T_co], owner: object = None) -> None:
        self._name = name
        self._feed: _Feed[T_co] = _Feed(name, pages, owner)
        weakref.finalize(self, self._feed.close).atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        if io_thread.is_current():
            raise errors.InvalidArgumentError(
                "next() on scbroker's own thread would wait for ever: call it on a thread of your own"
            )
        while True:
            try:
                return self._feed.take()
            except _EndedError:
                raise StopIteration from None
            except _NotYetError:
                if would_block_loop():
                    raise errors.InvalidArgumentError(
                        f"`for` over {self._name}() would block the running event loop: write `async for`, "
                        "or call the function that iterates by asyncio.to_thread"
                    ) from None
                arrived = threading.Lock()
            arrived.acquire()
            wake = arrived.release
            self._feed.wake_by(wake)
            try:
                while not arrived.acquire(timeout=LONGEST_WAIT):
                    pass
            finally:
                self._feed.forget(wake)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co:
        while True:
            try:
                return self._feed.take()
            except _EndedError:
                raise StopAsyncIteration from None
            except _NotYetError:
                loop = asyncio.get_running_loop()
                arrived = loop.create_future()
            wake = functools.partial(loop.call_soon_threadsafe, set_done, arrived)
            self._feed.wake_by(wake)
            try:
                await arrived
            finally:
                self._feed.forget(wake)

    def close(self) -> None:
        """End the stream; callable from any thread, any number of times. It does not wait."""
        self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Stream of {self._name}>"


async def _deliver(
    name: str, stream: Stream[T], event: Callable[[T], object], error: OnError, queue: Executor
) -> None:
    """Give each result to its handler, as one job on the queue, submitted after the previous job ran.

    So handlers run in order and one at a time on any queue, and other jobs of the queue can run in between.
    The stream is kept alive until it ends or is closed.
    """
    loop, handled = asyncio.get_running_loop(), asyncio.Event()

    def handle(item: T) -> None:
        try:
            if not stream._feed.is_over:  # it may have been closed since
                event(item)
        finally:
            loop.call_soon_threadsafe(handled.set)

    try:
        async for item in stream:
            handled.clear()
            if not submit_handler(queue, name, functools.partial(handle, item)):
                break
            await handled.wait()
    except errors.BrokerError as failure:
        submit_handler(queue, name, functools.partial(error, failure))
    stream.close()
    if isinstance(queue, MainQueue):
        queue.arrived(name)


def stream_operation(
    body: Callable[Concatenate[S, P], Pages[T]],
) -> Callable[Concatenate[S, P], Stream[T]]:
    """Make an operation of a body that returns a generator of pages; callers get a Stream of their items."""
    parameters = Parameters(body, _EVENTS)
    name = parameters.name

    @functools.wraps(body)
    def call(self: Operations, /, *args: Any, **kwargs: Any) -> Any:
        mainQueue.notice_loop()
        event, error, queue = (kwargs.pop(key, None) for key in _EVENTS)
        is_handled = not (event is error is queue is None)
        if is_handled:
            check_handler(name, "errorHandler", error)
            check_handler(name, "eventHandler", event)
            queue = checked_queue(queue)
        try:
            pages: Pages[Any] = self._perform(
                name, parameters.body, parameters.checked(args, kwargs)
            )
        except Exception as failure:
            if is_handled:
                pages = _failing(failure)
            elif isinstance(failure, errors.BrokerError):
                raise
            else:
                raise public_error(failure) from failure
        stream = Stream[Any](name, pages, self)
        if is_handled:
            if isinstance(queue, MainQueue):
                queue.expect(name)
            work = _deliver(name, stream, event, error, queue)
            io_thread.submit(name, work, self, endless=True)
        return stream

    call.__signature__ = parameters.signature  # type: ignore[attr-defined] # functions have it all the same
    call.parameters, call.forms = parameters, {}  # type: ignore[attr-defined] # as above
    return call


async def _failing(error: Exception) -> Pages[Any]:
    no_pages: tuple[Sequence[Any], ...] = ()
    for page in no_pages:
        yield page
    raise error
