"""The seam between the two call styles: one body serves both.

The protocol in `provider.py` declares an operation once, as two overloads and a docstring under
`@operation`. A class implements it as `_name(self, ...)`, an ordinary method that checks and copies
its arguments at once and gives back the coroutine of the rest. The wrapper here runs that coroutine
on scbroker's thread and hands its outcome to a promise or to exactly one of two handlers.
"""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, get_overloads

from scbroker.client.io_thread import io_thread
from scbroker.client.main_queue import MainQueue, mainQueue
from scbroker.client.promise import Promise, public_error
from scbroker.errors import BrokerError, InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])
_CALLBACK: Final = ("completionHandler", "errorHandler", "queue")
_log = logging.getLogger("scbroker")


def operation(declared: F) -> F:
    """Makes an operation of a declaration with two overloads, promise style first."""
    overloads = [inspect.signature(overload) for overload in get_overloads(declared)]
    forms = [form for form in overloads if "completionHandler" not in form.parameters]
    signature = _of_all(forms)
    name = declared.__name__
    is_void = any("Promise[None]" in str(form.return_annotation) for form in forms)

    @functools.wraps(declared)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        style: dict[str, Any] = {key: kwargs.pop(key) for key in _CALLBACK if key in kwargs}
        signature.bind(self, *args, **kwargs)  # TypeError for what fits no parameter
        body = functools.partial(getattr(self, f"_{name}"), *args, **kwargs)
        if not style:
            return Promise(name, io_thread.submit(name, body(), self))
        _start_with_handlers(name, body, is_void, **_checked(name, style))
        return self

    call.__signature__ = signature  # type: ignore[attr-defined] # functions have it all the same
    return call  # type: ignore[return-value] # the overloads are what callers see


def _of_all(forms: list[inspect.Signature]) -> inspect.Signature:
    """The first form's signature; what only other forms take stands behind it, as optional keywords."""
    parameters = dict(forms[0].parameters)
    for form in forms[1:]:
        for key, parameter in form.parameters.items():
            optional = parameter.replace(kind=parameter.KEYWORD_ONLY, default=None)
            parameters.setdefault(key, optional)
    return forms[0].replace(parameters=list(parameters.values()))


def _checked(name: str, style: dict[str, Any]) -> dict[str, Any]:
    """The three keywords of callback style; both handlers are needed, and plain functions."""
    for key in ("completionHandler", "errorHandler"):
        handler = style.get(key)
        if not callable(handler):
            raise InvalidArgumentError(f"{name} in callback style needs {key}, a function.")
        called = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is no function
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called):
            raise InvalidArgumentError(
                f"{key} is a coroutine function: await the promise that {name} returns instead."
            )
    queue = style.get("queue") or mainQueue
    if not isinstance(queue, concurrent.futures.Executor) or isinstance(
        queue, concurrent.futures.ProcessPoolExecutor
    ):
        raise InvalidArgumentError("queue is a thread-based concurrent.futures.Executor.")
    return {**style, "queue": queue}


def _start_with_handlers(
    name: str,
    body: Callable[[], Coroutine[Any, Any, Any]],
    is_void: bool,
    *,
    completionHandler: Callable[..., object],
    errorHandler: Callable[[BrokerError], object],
    queue: concurrent.futures.Executor,
) -> None:
    if isinstance(queue, MainQueue):
        queue.expect()

    def deliver(handler: Callable[..., object], *outcome: Any) -> None:
        try:
            queue.submit(_run_handler, name, handler, *outcome)
        except RuntimeError:
            _log.error("%s: its queue was shut down before its handler could run", name)
        finally:
            if isinstance(queue, MainQueue):
                queue.arrived()

    def finished(future: concurrent.futures.Future[Any]) -> None:
        try:
            result = future.result()
        except BaseException as error:
            deliver(errorHandler, public_error(error))
        else:
            # logIn is Void in one of its forms alone: that one gives None.
            deliver(completionHandler, *(() if is_void and result is None else (result,)))

    try:
        work = body()
    except BrokerError as error:
        deliver(errorHandler, error.fresh())
        return
    except BaseException:
        if isinstance(queue, MainQueue):
            queue.arrived()
        raise
    io_thread.submit(name, work, body).add_done_callback(finished)


def _run_handler(name: str, handler: Callable[..., object], *outcome: Any) -> None:
    try:
        handler(*outcome)
    except Exception:
        _log.exception("A handler of %s failed", name)
