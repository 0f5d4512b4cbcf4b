"""Make one function of an operation's declaration that serves both call styles.

`provider.py` declares an operation once, as overloads and a docstring under `@operation`. A class implements
it as `_name(self, ...)`, an ordinary method that returns a coroutine. The function made here checks the
arguments by their declared types, starts the coroutine on scbroker's thread, and passes its outcome to a
`Promise` or to exactly one of two handlers.

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
from collections.abc import Callable, Collection, Coroutine, Generator, Set
from typing import Any, Final, Generic, NotRequired, TypedDict, TypeVar, get_overloads

from scbroker import errors
from scbroker.client.arguments import check_of
from scbroker.client.calls.io_thread import check_process, io_thread
from scbroker.client.calls.main_queue import MainQueue, mainQueue

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
OnError = Callable[[errors.BrokerError], object]
_CALLBACK: Final = ("completionHandler", "errorHandler", "queue")
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
                with contextlib.suppress(RuntimeError):  # that loop has ended, and the wait with it
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
    """Return whether a task of an event loop called this. A cell of a notebook may block its kernel's."""
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


def operation(declared: F) -> F:
    """Make an operation of a declaration whose overloads all name the same parameters by position."""
    return operation_of_forms(lambda *_: 0)(declared)


def operation_of_forms(
    form_of: Callable[[tuple[object, ...], Collection[str]], int],
) -> Callable[[F], F]:
    """Make an operation of a declaration with several forms: overloads that differ by position.

    `form_of` takes the arguments by position and the names of the others, and returns which form they
    belong to: its number among the overloads in promise style.
    """

    def decorate(declared: F) -> F:
        declaration = Declaration(declared, form_of)
        name, is_void = declaration.name, declaration.is_void

        @functools.wraps(declared)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            mainQueue.notice_loop()
            style = [kwargs.pop(key, None) for key in _CALLBACK]
            in_promise_style = all(value is None for value in style)
            handlers = None if in_promise_style else _Handlers(name, is_void, *style)
            try:
                if handlers is not None:
                    check_handler(name, "completionHandler", handlers.completion)
                future = io_thread.submit(name, declaration.begin(self, args, kwargs), self)
            except Exception as error:
                if handlers is not None:
                    handlers.fail(error)
                    return self
                if isinstance(error, errors.BrokerError):
                    raise
                raise public_error(error) from error
            if handlers is None:
                return Promise(name, future)
            handlers.follow(future)
            return self

        call.__signature__ = declaration.signature  # type: ignore[attr-defined] # functions have it all the same
        return call  # type: ignore[return-value] # the overloads are what callers see

    return decorate


def function_operation(body: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[[F], F]:
    """Make an operation of a function that belongs to no provider: `body` is its `_name`.

    In callback style it returns None.
    """

    def decorate(declared: F) -> F:
        method = operation(declared)
        host = type(declared.__name__, (), {f"_{declared.__name__}": staticmethod(body)})()

        @functools.wraps(declared)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(host, *args, **kwargs)
            return None if result is host else result

        return call  # type: ignore[return-value] # the overloads are what callers see

    return decorate


class Declaration:
    """The overloads of an operation: its forms, and the checks of their parameters.

    Overloads with `**handlers` show callback style to type checkers; every other overload is a form.
    `handlers` are the keywords that replace `**handlers` at run time.
    """

    def __init__(
        self,
        declared: Callable[..., Any],
        form_of: Callable[[tuple[object, ...], Collection[str]], int] = lambda *_: 0,
        handlers: tuple[str, str, str] = _CALLBACK,
    ) -> None:
        overloads = [_with_self(inspect.signature(each)) for each in get_overloads(declared)]
        forms = [each for each in overloads if "handlers" not in each.parameters]
        self.name: str = declared.__name__
        self.takes_handlers: bool = len(forms) < len(overloads)
        self.is_void: bool = any(form.return_annotation == "Promise[None]" for form in forms)
        self._form_of = form_of
        keywords = handlers if self.takes_handlers else ()
        self._signatures = [_with_all(form, forms, keywords) for form in forms]
        self._names = [_names(each) for each in self._signatures]
        self._checks = {
            key: check_of(parameter.annotation)
            for form in forms
            for key, parameter in list(form.parameters.items())[1:]
        }

    @property
    def signature(self) -> inspect.Signature:
        return self._signatures[0]

    def begin(self, provider: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check the arguments, and return what the provider's `_name` makes of them."""
        form = self._form_of(args, kwargs)
        signature, (by_position, required, known) = self._signatures[form], self._names[form]
        bound = dict(zip(by_position, args, strict=False)) | kwargs
        fits = len(bound) == len(args) + len(kwargs) and required <= bound.keys() <= known
        if not fits:
            bound = _bound(self.name, signature, (provider, *args), kwargs)
        given = {
            key: self._checks[key](key, value)
            for key, value in bound.items()
            if value is not signature.parameters[key].default
        }
        return getattr(provider, f"_{self.name}")(**given)


def _names(form: inspect.Signature) -> tuple[list[str], Set[str], Set[str]]:
    """Return the parameters that may be given by position, those without a default, and all of them.

    By these `begin` sees whether arguments fit: `Signature.bind` takes a few times as long.
    """
    parameters = list(form.parameters.values())[1:]
    by_position = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    required = {each.name for each in parameters if each.default is each.empty}
    return by_position, required, {each.name for each in parameters}


def _with_self(form: inspect.Signature) -> inspect.Signature:
    """Return the signature of a method as it is, and that of a function with `self` before it."""
    if "self" in form.parameters:
        return form
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return form.replace(parameters=[own, *form.parameters.values()])


def _with_all(
    form: inspect.Signature, forms: list[inspect.Signature], handlers: Collection[str]
) -> inspect.Signature:
    """Return a form's signature with all other parameters, and those of callback style, as keywords."""
    kind, _, result = str(form.return_annotation)[:-1].partition("[")
    taken = "" if result == "None" else result
    annotations = (f"Callable[[{taken}], object]", "OnError", "Executor | None")
    parameters = dict(form.parameters)
    for each in forms:
        for key, parameter in each.parameters.items():
            optional = parameter.replace(kind=parameter.KEYWORD_ONLY, default=None)
            parameters.setdefault(key, optional)
    for key, annotation in zip(handlers, annotations, strict=False):
        parameters[key] = inspect.Parameter(
            key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )
    returned = form.return_annotation if kind == "Stream" else f"{form.return_annotation} | Self"
    return form.replace(parameters=list(parameters.values()), return_annotation=returned)


def _bound(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments by name, without `self`; `InvalidArgumentError` if they do not fit."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        names = ", ".join(list(signature.parameters)[1:])
        raise errors.InvalidArgumentError(f"{name}() {error}. It takes: {names}.") from None
    return dict(list(given.items())[1:])


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
        """Give `errorHandler` an error of the call itself."""
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
            # Only one of logIn's forms is Void: its result is None.
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
