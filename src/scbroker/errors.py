"""Define the errors of all operations as one tree: one class for each decision that a caller can make.

Both ends raise them. A broker's answer has the `code` of an error (docs/spec/protocol.md, section 1), and the
client raises an error of the same class. No message contains a secret. The first line of each docstring is
the default message.

    BrokerError
    ├── InvalidArgumentError        (a ValueError and a TypeError) the call is wrong; nothing was changed
    ├── NotAuthenticatedError       no session, or it ended
    ├── CredentialsError            wrong password or passphrase, or no such user
    ├── ApiKeyError                 the broker does not know the API key
    ├── ChallengeError              the broker refused the log-in's signature or nonce
    ├── PermissionDeniedError       the container's access list does not allow it
    ├── NotFoundError               it does not exist, or this user has no access to it
    ├── DeletedError                the container was deleted
    ├── EventsExpiredError          the broker has dropped these events
    ├── ConflictError               the same thing was changed meanwhile
    │   ├── StaleKeysError          a recipient has newer keys
    │   └── PartGoneError           the content was replaced while it was read
    ├── AlreadyExistsError          the id is taken, now or for ever
    ├── TooLargeError               a limit was exceeded
    ├── ClockError                  this machine's clock and the broker's differ
    ├── RejectedError               the broker refused a record by a rule of the specs
    ├── IncompleteUploadError       chunks of a content are missing
    ├── UnsupportedVersionError     the other end does not speak this protocol
    ├── BrokerFaultError            the broker failed, or answered what the protocol does not know
    ├── BrokerUnavailableError      try again: `retryable` is true
    │   ├── UnreachableError        no answer: connection refused, lost or timed out
    │   ├── ThrottledError          too many requests: wait `retryAfter` seconds
    │   └── OverloadedError         the broker has no capacity at present
    ├── UntrustedError              what was served is not what its author made: do not use it
    │   ├── IntegrityError          a signature, hash or rule fails
    │   ├── RollbackError           older than what this device has seen
    │   ├── ForkError               another history than the one this device has seen
    │   ├── KeySubstitutionError    keys that do not belong to the user they are served for
    │   └── DecryptionError         a secret is wrong, or the data is damaged
    ├── TrustStoreError             the trust store is damaged, another user's or cannot be written
    └── OperationCancelledError     the promise was cancelled, or the process ended

Each is an attribute of `BrokerError` in camelCase as well: `except BrokerError.notFoundError`. An error
equals its class and the families above it: `error == BrokerError.notFoundError`.
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """Any failure of an operation. `code` is stable; `retryable` tells whether a retry can succeed."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    invalidArgumentError: ClassVar[type[InvalidArgumentError]]
    notAuthenticatedError: ClassVar[type[NotAuthenticatedError]]
    credentialsError: ClassVar[type[CredentialsError]]
    apiKeyError: ClassVar[type[ApiKeyError]]
    challengeError: ClassVar[type[ChallengeError]]
    permissionDeniedError: ClassVar[type[PermissionDeniedError]]
    notFoundError: ClassVar[type[NotFoundError]]
    deletedError: ClassVar[type[DeletedError]]
    eventsExpiredError: ClassVar[type[EventsExpiredError]]
    conflictError: ClassVar[type[ConflictError]]
    staleKeysError: ClassVar[type[StaleKeysError]]
    partGoneError: ClassVar[type[PartGoneError]]
    alreadyExistsError: ClassVar[type[AlreadyExistsError]]
    tooLargeError: ClassVar[type[TooLargeError]]
    clockError: ClassVar[type[ClockError]]
    rejectedError: ClassVar[type[RejectedError]]
    incompleteUploadError: ClassVar[type[IncompleteUploadError]]
    unsupportedVersionError: ClassVar[type[UnsupportedVersionError]]
    brokerFaultError: ClassVar[type[BrokerFaultError]]
    brokerUnavailableError: ClassVar[type[BrokerUnavailableError]]
    unreachableError: ClassVar[type[UnreachableError]]
    throttledError: ClassVar[type[ThrottledError]]
    overloadedError: ClassVar[type[OverloadedError]]
    untrustedError: ClassVar[type[UntrustedError]]
    integrityError: ClassVar[type[IntegrityError]]
    rollbackError: ClassVar[type[RollbackError]]
    forkError: ClassVar[type[ForkError]]
    keySubstitutionError: ClassVar[type[KeySubstitutionError]]
    decryptionError: ClassVar[type[DecryptionError]]
    trustStoreError: ClassVar[type[TrustStoreError]]
    operationCancelledError: ClassVar[type[OperationCancelledError]]

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:  # a caller's own subclass gets no attribute here
            setattr(BrokerError, cls.__name__[0].lower() + cls.__name__[1:], cls)

    def __eq__(self, other: object) -> bool:
        """Return whether this is the same object, or an error of the class `other`."""
        if isinstance(other, type) and issubclass(other, BrokerError):
            return isinstance(self, other)
        return super().__eq__(other)

    def __hash__(self) -> int:  # by identity: an error is not found in a set of classes
        return super().__hash__()

    @property
    def message(self) -> str:
        """Return what happened and what to do about it, for a person."""
        return str(self)

    def fresh(self) -> BrokerError:
        """Return a copy without traceback and context, to raise it a second time."""
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        return copy


class InvalidArgumentError(BrokerError, ValueError, TypeError):
    """An argument is wrong: correct it. Nothing was changed."""

    code = "invalid"


class NotAuthenticatedError(BrokerError):
    """There is no authenticated session: call register or logIn first."""

    code = "session"


class CredentialsError(BrokerError):
    """The password or passphrase is wrong, or the user does not exist."""

    code = "credentials"


class ApiKeyError(BrokerError):
    """The broker does not know this API key: ask its operator for one."""

    code = "api-key"


class ChallengeError(BrokerError):
    """The broker refused the log-in: check that serverUrl is the address it is configured for."""

    code = "challenge"


class PermissionDeniedError(BrokerError):
    """The container's access list does not allow this: ask a member with ModifyAccess."""

    code = "permission"


class NotFoundError(BrokerError):
    """It does not exist, or you do not have access to it."""

    code = "not-found"


class DeletedError(BrokerError):
    """The container was deleted."""

    code = "deleted"


class EventsExpiredError(BrokerError):
    """The broker has dropped these events: read your containers again."""

    code = "events-expired"

    firstId: int
    """The lowest id that the broker still has: go on with getEvents(startId=firstId)."""

    def __init__(self, message: str = "", firstId: int = 1) -> None:
        super().__init__(message)
        self.firstId = firstId


class ConflictError(BrokerError):
    """It was changed meanwhile: read it again and decide."""

    code = "conflict"


class StaleKeysError(ConflictError):
    """A recipient has newer keys: read them again."""

    code = "stale-keys"


class PartGoneError(ConflictError):
    """The content was replaced while it was read: read the container again."""

    code = "part-gone"


class AlreadyExistsError(BrokerError):
    """An object with this id exists already: use another id."""

    code = "exists"


class TooLargeError(BrokerError):
    """A limit was exceeded: send or ask for less at once."""

    code = "too-large"


class ClockError(BrokerError):
    """This machine's clock and the broker's differ by more than five minutes: set it right."""

    code = "clock"


class RejectedError(BrokerError):
    """The broker refused a record that breaks a rule of the specification."""

    code = "rejected"


class IncompleteUploadError(BrokerError):
    """The broker has not received all chunks of the content: upload it again."""

    code = "incomplete"


class UnsupportedVersionError(BrokerError):
    """The other end does not speak this version of the protocol: update the older of the two."""

    code = "version"


class BrokerFaultError(BrokerError):
    """The broker failed, or its answer does not follow the protocol: ask its operator."""

    code = "internal"
    retryable = True


class BrokerUnavailableError(BrokerError):
    """The broker cannot answer at present: try again later."""

    code = "unavailable"
    retryable = True

    retryAfter: float | None

    def __init__(self, message: str = "", retryAfter: float | None = None) -> None:
        super().__init__(message)
        self.retryAfter = retryAfter


class UnreachableError(BrokerUnavailableError):
    """The broker cannot be reached: check serverUrl and the network."""

    code = "unreachable"


class ThrottledError(BrokerUnavailableError):
    """Too many requests: wait for `retryAfter` seconds."""

    code = "throttled"


class OverloadedError(BrokerUnavailableError):
    """The broker has no capacity at present: try again after `retryAfter` seconds."""

    code = "overloaded"


class UntrustedError(BrokerError):
    """The broker served something that its author did not make: do not use it."""

    code = "untrusted"


class IntegrityError(UntrustedError):
    """A signature, hash or rule fails: somebody without the permission changed the data."""

    code = "integrity"


class RollbackError(UntrustedError):
    """The broker served something older than this device has seen: ask its operator."""

    code = "rollback"


class ForkError(UntrustedError):
    """The broker served another history than the one that this device has seen: ask its operator."""

    code = "fork"


class KeySubstitutionError(UntrustedError):
    """The broker served keys that are not this user's: do not share with them."""

    code = "key-substitution"


class DecryptionError(UntrustedError):
    """Decryption failed: the secret is wrong, or the data is damaged."""

    code = "decryption"


class TrustStoreError(BrokerError):
    """The trust store is damaged, another user's, or cannot be written: restore or remove it."""

    code = "trust-store"


class OperationCancelledError(BrokerError):
    """The operation was cancelled."""

    code = "cancelled"
