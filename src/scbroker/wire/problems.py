"""Turn errors into `application/problem+json` and back (RFC 9457). Spec: docs/spec/protocol.md, section 1."""

from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from scbroker import errors
from scbroker.errors import BrokerError, BrokerUnavailableError
from scbroker.records.canonical import Uint
from scbroker.wire.codec import Message, Text

T = TypeVar("T")
STATUS: Final[dict[type[BrokerError], int]] = {
    errors.InvalidArgumentError: 400,
    errors.UnsupportedVersionError: 400,
    errors.ApiKeyError: 401,
    errors.NotAuthenticatedError: 401,
    errors.CredentialsError: 401,
    errors.ChallengeError: 401,
    errors.SuspendedError: 403,
    errors.PermissionDeniedError: 403,
    errors.BlockedError: 403,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.AlreadyExistsError: 409,
    errors.StaleKeysError: 409,
    errors.DeletedError: 410,
    errors.PartGoneError: 410,
    errors.TooLargeError: 413,
    errors.QuotaExceededError: 413,
    errors.ClockError: 422,
    errors.RejectedError: 422,
    errors.IncompleteUploadError: 422,
    errors.ThrottledError: 429,
    errors.BrokerFaultError: 500,
    errors.OverloadedError: 503,
}
_BY_CODE: Final = {kind.code: kind for kind in STATUS}
MAX_PROBLEM: Final = 8192
_MAX_DETAIL: Final = 500
_LONGEST_WAIT: Final = 99_999


class Quota(Message, frozen=True, kw_only=True):
    """Which quota a request exceeds."""

    resource: Literal["bytes", "containers"]
    quota: Uint
    used: Uint
    needed: Uint


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error answer. Programs read `code`, people `detail`."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    quota: Quota | msgspec.UnsetType = msgspec.UNSET
    """Only with the code `quota`."""


class ItemProblem(Message, frozen=True, kw_only=True):
    """The error of one item of a batch."""

    code: Annotated[Text, Meta(max_length=64)]
    detail: Annotated[Text, Meta(max_length=_MAX_DETAIL)]
    retryAfter: Uint | None = None
    quota: Quota | msgspec.UnsetType = msgspec.UNSET


def problem_of(error: BrokerError) -> Problem:
    """Return the answer for an error; one without a status in `STATUS` becomes an internal fault."""
    kind = type(error) if type(error) in STATUS else errors.BrokerFaultError
    detail = str(error) if kind is type(error) else "The broker failed. Its log says why."
    return Problem(
        title=kind.code, status=STATUS[kind], detail=detail, code=kind.code, quota=_quota_of(error)
    )


def _quota_of(error: BrokerError) -> Quota | msgspec.UnsetType:
    if not isinstance(error, errors.QuotaExceededError):
        return msgspec.UNSET
    return Quota(
        resource="bytes" if error.resource == "bytes" else "containers",
        quota=error.quota,
        used=error.used,
        needed=error.needed,
    )


def error_of(status: int, body: bytes, retry_after: str | None) -> BrokerError:
    """Return the error of an answer. Its detail is the broker's word and is cleaned of control characters."""
    try:
        problem = msgspec.json.decode(body[:MAX_PROBLEM], type=Problem)
        kind = _BY_CODE[problem.code]
    except (ValueError, RecursionError, KeyError):
        return _error_without_code(status, retry_after)
    return _error(kind, problem.detail, seconds_of(retry_after), problem.quota)


def item_problem_of(error: BrokerError) -> ItemProblem:
    """Return the answer for an item of a batch that failed alone."""
    problem = problem_of(error)
    wait = error.retryAfter if isinstance(error, BrokerUnavailableError) else None
    return ItemProblem(
        code=problem.code,
        detail=problem.detail.replace("\0", "")[:_MAX_DETAIL],
        retryAfter=None if wait is None else max(1, round(wait)),
        quota=problem.quota,
    )


def error_of_item(problem: ItemProblem) -> BrokerError:
    kind = _BY_CODE.get(problem.code)
    if kind is None:
        return errors.BrokerFaultError(
            f"The broker answered with the unknown error code {problem.code!r:.40}: update scbroker."
        )
    wait = None if problem.retryAfter is None else float(min(problem.retryAfter, _LONGEST_WAIT))
    return _error(kind, problem.detail, wait, problem.quota)


def result_of(result: T | None, problem: ItemProblem | None) -> T | BrokerError:
    """Return what a batch answers for one item: its result or the error of its problem, never both."""
    if problem is None and result is not None:
        return result
    if problem is not None and result is None:
        return error_of_item(problem)
    return errors.BrokerFaultError(
        "The broker's answer for a container is neither a result nor a problem."
    )


def _error(
    kind: type[BrokerError], text: str, wait: float | None, quota: Quota | msgspec.UnsetType
) -> BrokerError:
    detail = "".join(char for char in text[:_MAX_DETAIL] if char.isprintable())
    if issubclass(kind, BrokerUnavailableError):
        return kind(detail, retryAfter=wait)
    if issubclass(kind, errors.QuotaExceededError) and not isinstance(quota, msgspec.UnsetType):
        return kind(detail, **msgspec.structs.asdict(quota))
    return kind(detail)


def _error_without_code(status: int, retry_after: str | None) -> BrokerError:
    if status == 503:
        return errors.OverloadedError(retryAfter=seconds_of(retry_after))
    if status in (502, 504):
        return errors.UnreachableError(
            f"A proxy in front of the broker answered {status}: check whether the broker runs."
        )
    return errors.BrokerFaultError(
        f"The broker answered with status {status} and without an error code of the protocol."
    )


def seconds_of(text: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header; None without one, or for a date."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 6):
        return None
    return float(text)
