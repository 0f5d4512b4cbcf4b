"""Make one function of an operation's body that serves both call styles.

An operation is an `async def` under `@operation`. The function made here checks the arguments by the types
of the parameters, starts the body, lets it go on on scbroker's thread, and passes its outcome to a `Promise`
or to exactly one of two handlers. For type checkers, `tools/make_stubs.py` writes both styles into the
module's `.pyi`.

A promise can be awaited in any event loop, and read by `.result()` in a plain script. Each read of a failure
raises a fresh error without inner frames: tracebacks grow with each raise, and frames hold secrets.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import contextlib
import functools
import inspect
import logging
import os
import types
from collections.abc import Callable, Collection, Coroutine, Generator
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    NotRequired,
    ParamSpec,
    TypedDict,
    TypeVar,
    get_type_hints,
)

from scbroker import errors
from scbroker.client.arguments import Check, accepted, check_of
from scbroker.client.calls.io_thread import check_process, io_thread
from scbroker.client.calls.main_queue import MainQueue, mainQueue

P = ParamSpec("P")
S = TypeVar("S", bound="Operations")
T = TypeVar("T")
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
T_co = TypeVar("T_co", covariant=True)
OnError = Callable[[errors.BrokerError], object]
_CALLBACK: Final = ("completionHandler", "errorHandler", "queue")
_EITHER: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NONE: Final = inspect.Parameter.empty
_log = logging.getLogger("scbroker")


class _Outcome:
    """The state that a promise and its running operation share; logs a failure that was never read."""

    __slots__ = ("future", "is_read", "name", "process")

    def __init__(self, name: str, future: concurrent.futures.Future[Any]) -> None:
        self.name, self.future, self.is_read, self.process = name, future, False, os.getpid()
        _under_way[id(self)] = self
        future.add_done_callback(functools.partial(_release, id(self)))

    def __del__(self) -> None:
        if self.is_read or not self.future.done() or self.future.cancelled():
            return
        error = self.future.exception()
        if error is not None:
            _log.error("%s failed and its error was never read: %s", self.name, public_error(error))


_under_way: dict[int, _Outcome] = {}
"""Keeps operations under way alive, so that a promise that was dropped still logs its failure."""


def _release(key: int, _: object) -> None:
    _under_way.pop(key, None)


class Promise(Coroutine[Any, None, T_co]):
    """The result of an operation, which can be awaited or waited for any number of times.

    asyncio accepts it as a coroutine: `asyncio.create_task`, `TaskGroup.create_task` and `asyncio.run` take
    it. Unlike a coroutine, the operation has started already, and several tasks may wait for it. Cancelling
    such a task leaves the operation running; `cancel()` stops the operation.
    """

    __slots__ = ("_outcome",)

    def __init__(self, name: str, future: concurrent.futures.Future[T_co]) -> None:
        self._outcome = _Outcome(name, future)

    @property
    def __name__(self) -> str:
        """Return the name of the operation, for the repr of a task."""
        return self._outcome.name

    def send(self, value: None, /) -> Any:
        """Take one step of a task's wait. No state is kept between steps, so that several tasks can wait."""
        del value
        return next(self.__await__())

    def throw(self, *error: Any) -> Any:
        """End a task's wait with an error, as asyncio does to cancel it."""
        return super().throw(*error)

    def close(self) -> None:
        """Do nothing: a wait holds no resource that would have to be closed."""

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait in the running event loop. Cancelling the wait leaves the operation running."""
        future = self._outcome.future
        if not future.done():
            check_process(self._outcome.process)
            loop = asyncio.get_running_loop()
            done = loop.create_future()

            def wake(_: object) -> None:
                with contextlib.suppress(RuntimeError):  # the waiting task's event loop was closed
                    loop.call_soon_threadsafe(_set, done)

            future.add_done_callback(wake)
            yield from done
        return self._read()

    def result(self, timeout: float | None = None) -> T_co:
        """Wait in a plain script and return the result; `TimeoutError` after `timeout` seconds.

        Raises `invalidArgumentError` on scbroker's own thread, which would wait for itself, and in a
        task of an event loop that it would block, unless the operation has ended. A notebook runs each cell
        in such a task, so it is allowed in IPython.
        """
        if io_thread.is_current():
            raise errors.InvalidArgumentError(
                "result() on scbroker's own thread would wait for ever: call it on a thread of your own"
            )
        if not self.done():
            check_process(self._outcome.process)
        if not self.done() and timeout != 0 and would_block_loop():
            name = self._outcome.name
            raise errors.InvalidArgumentError(
                f"result() of {name}() would block the running event loop: write `await` in place of "
                ".result(), or call the function that waits by asyncio.to_thread"
            )
        future = self._outcome.future
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            future.exception(timeout)
        if not future.done():
            raise TimeoutError(f"{self._outcome.name} is still under way.")
        return self._read()

    def done(self) -> bool:
        """Return whether the operation has ended, with a result or an error."""
        return self._outcome.future.done()

    def cancel(self) -> bool:
        """Stop the operation; return False if it had ended. What was sent may still take effect."""
        return self._outcome.future.cancel()

    def _read(self) -> T_co:
        self._outcome.is_read = True
        error: BaseException | None
        try:
            error = self._outcome.future.exception()
        except concurrent.futures.CancelledError as cancelled:
            error = cancelled
        if error is not None:
            raise public_error(error) from None
        result: T_co = self._outcome.future.result()
        return result

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<Promise of {self._outcome.name}, {state}>"


def would_block_loop() -> bool:
    """Return whether a task of a running event loop calls this, except a notebook's cell: it may block."""
    try:
        return asyncio.current_task() is not None and not hasattr(builtins, "__IPYTHON__")
    except RuntimeError:  # no loop runs on this thread
        return False


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def public_error(error: BaseException) -> errors.BrokerError:
    """Return an error as callers see it: always a BrokerError, fresh, without frames."""
    if isinstance(error, errors.BrokerError):
        return error.fresh()
    if isinstance(error, (asyncio.CancelledError, concurrent.futures.CancelledError)):
        return errors.OperationCancelledError()
    made: errors.BrokerError
    if isinstance(error, MemoryError):
        made = errors.TooLargeError(
            "There is too little memory for this operation: a log-in needs 64 MiB, and a content that is "
            "read whole needs its size. Give the process more memory."
        )
    elif isinstance(error, OSError):
        made = errors.InvalidArgumentError(
            f"{error.filename or 'A file or the working folder'} cannot be used: {error.strerror or error}."
        )
    else:
        made = errors.BrokerFaultError(
            f"A fault in scbroker itself ({type(error).__name__}): please report it."
        )
    made.outcome = errors.WriteOutcome.Uncertain
    return made


class Handlers(TypedDict, Generic[T]):
    """The keywords of callback style (PEP 692): the two handlers, and the executor that runs them."""

    completionHandler: Callable[[T], object]
    errorHandler: OnError
    queue: NotRequired[concurrent.futures.Executor | None]


class VoidHandlers(TypedDict):
    """The same for an operation without a result: its handler is called without an argument."""

    completionHandler: Callable[[], object]
    errorHandler: OnError
    queue: NotRequired[concurrent.futures.Executor | None]


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
        call: Callable[Concatenate[S, P], Promise[T]] = _operation(parameters, arranged, forms)
        functools.update_wrapper(call, body)
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


def _operation(
    parameters: Parameters,
    arranged: Callable[[Args, Kwargs], tuple[Args, Kwargs]],
    forms: dict[str, str],
) -> Any:
    def call(self: Operations, /, *args: Any, **kwargs: Any) -> Any:
        def begin() -> Coroutine[Any, Any, Any]:
            given = parameters.checked(*arranged(args, kwargs))
            return self._perform(parameters.name, parameters.body, given)

        promise = _call(parameters, begin, self, kwargs)
        return self if promise is None else promise

    call.__signature__ = parameters.signature  # type: ignore[attr-defined] # functions have it all the same
    call.parameters, call.forms = parameters, forms  # type: ignore[attr-defined] # as above
    return call


def _call(
    parameters: Parameters,
    begin: Callable[[], Coroutine[Any, Any, Any]],
    owner: object,
    kwargs: dict[str, Any],
) -> Promise[Any] | None:
    """Start an operation; return its promise, or None if the keywords of callback style were given."""
    mainQueue.notice_loop()
    name = parameters.name
    style = [kwargs.pop(key, None) for key in _CALLBACK]
    in_promise_style = all(value is None for value in style)
    handlers = None if in_promise_style else _Handlers(name, parameters.is_void, *style)
    try:
        if handlers is not None:
            check_handler(name, "completionHandler", handlers.completion)
        future = io_thread.submit(name, begun(begin()), owner)
    except Exception as error:
        if handlers is not None:
            handlers.fail(error)
            return None
        if isinstance(error, errors.BrokerError):
            raise
        raise public_error(error) from error
    if handlers is None:
        return Promise(name, future)
    handlers.follow(future)
    return None


class _Called:
    """Awaited once by a body, at the point where the call returns and scbroker's thread takes over."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def called() -> _Called:
    """Return the awaitable that separates a body's steps at the call from the rest."""
    return _Called()


def begun(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Run a coroutine to its first `await` on this thread; return a coroutine that runs the rest."""
    try:
        step = work.send(None)
    except StopIteration as ended:
        return _ready(ended.value)
    if step is not None:
        work.close()
        raise RuntimeError("The body of an operation has to await called() before anything else.")
    return _rest(work)


async def _ready(value: T) -> T:
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

    @functools.cached_property
    def _checks(self) -> dict[str, Check]:
        hints = get_type_hints(self.body, include_extras=True)
        return {key: check_of(hints[key]) for key in self._defaults}

    def checked(self, args: Args, kwargs: Kwargs) -> dict[str, Any]:
        """Return the checked arguments by name, without those that are their parameter's default."""
        given = dict(zip(self._by_position, args, strict=False)) | kwargs
        if len(given) < len(args) + len(kwargs) or not given.keys() <= self._defaults.keys():
            self._refuse(args, kwargs)
        checks, defaults = self._checks, self._defaults
        found = {
            key: checks[key](key, value)
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


def checked_queue(queue: object) -> concurrent.futures.Executor:
    """Return the executor that runs handlers: the main queue unless another one is given."""
    if queue is None and not mainQueue.is_served:
        raise errors.InvalidArgumentError(
            "queue is needed, because no event loop of the main thread is known: pass an Executor of "
            "threads, or pass mainQueue and call mainQueue.run() on the main thread."
        )
    runner = mainQueue if queue is None else queue
    if not isinstance(runner, concurrent.futures.Executor) or isinstance(
        runner, concurrent.futures.ProcessPoolExecutor
    ):
        raise errors.InvalidArgumentError(
            f"queue must be a concurrent.futures.Executor of threads, not {type(queue).__name__}."
        )
    return runner


class _Handlers:
    """The callback style of one call: one of the two handlers runs, once, on the queue.

    Raises `InvalidArgumentError` for a wrong `errorHandler` or `queue`: no handler could receive it.
    """

    def __init__(
        self, name: str, is_void: bool, completion: Any, error: Any, queue: object
    ) -> None:
        check_handler(name, "errorHandler", error)
        self.completion = completion
        self._name, self._is_void, self._error = name, is_void, error
        self._queue = checked_queue(queue)

    def fail(self, error: Exception) -> None:
        """Pass `errorHandler` an error from before the operation started, such as a wrong argument."""
        self._submit(self._error, public_error(error))

    def follow(self, future: concurrent.futures.Future[Any]) -> None:
        """Run the handler that fits the outcome when the operation ends."""
        if isinstance(self._queue, MainQueue):
            self._queue.expect(self._name)
        future.add_done_callback(self._finish)

    def _finish(self, future: concurrent.futures.Future[Any]) -> None:
        try:
            result = future.result()
        except BaseException as error:
            self._submit(self._error, public_error(error))
        else:
            # `logIn` has a result in one form only: without one, the handler is called without an argument.
            nothing = self._is_void and result is None
            self._submit(self.completion, *(() if nothing else (result,)))
        if isinstance(self._queue, MainQueue):
            self._queue.arrived(self._name)

    def _submit(self, handler: Callable[..., object], *outcome: Any) -> None:
        submit_handler(self._queue, self._name, functools.partial(handler, *outcome))


def submit_handler(
    queue: concurrent.futures.Executor, name: str, handler: Callable[[], object]
) -> bool:
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
