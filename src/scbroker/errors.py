"""Define the errors of all operations as one tree: one class for each decision that a caller can make.

Both ends raise them. A broker's answer has the `code` of an error (docs/spec/protocol.md, section 1), and the
client raises an error of the same class. No message contains a secret. The first line of each docstring is
the default message. The tree has the `code` of each class:

    BrokerError
    ├── InvalidArgumentError        invalid  (a ValueError and a TypeError)
    ├── NotAuthenticatedError       session
    ├── CredentialsError            credentials
    ├── SuspendedError              suspended
    ├── ApiKeyError                 api-key
    ├── ChallengeError              challenge
    ├── PermissionDeniedError       permission
    │   └── BlockedError            blocked
    ├── NotFoundError               not-found
    ├── DeletedError                deleted
    ├── EventsExpiredError          events-expired
    ├── ConflictError               conflict
    │   ├── StaleKeysError          stale-keys
    │   └── PartGoneError           part-gone
    ├── AlreadyExistsError          exists
    ├── TooLargeError               too-large
    │   └── DiskFullError           disk-full
    ├── QuotaExceededError          quota
    ├── ClockError                  clock
    ├── RejectedError               rejected
    ├── IncompleteUploadError       incomplete
    ├── UnsupportedVersionError     version
    ├── BrokerFaultError            internal
    ├── BrokerUnavailableError      unavailable
    │   ├── UnreachableError        unreachable
    │   │   └── OfflineError        offline
    │   ├── ThrottledError          throttled
    │   └── OverloadedError         overloaded
    ├── UnsettledAccessError        unsettled
    ├── UntrustedError              untrusted
    │   ├── IntegrityError          integrity
    │   ├── RollbackError           rollback
    │   ├── ForkError               fork
    │   ├── KeySubstitutionError    key-substitution
    │   └── DecryptionError         decryption
    ├── TrustStoreError             trust-store
    ├── SessionStoreError           session-store
    └── OperationCancelledError     cancelled

Each is an attribute of `BrokerError` in camelCase as well: `except BrokerError.notFoundError`. An error
equals its class and the families above it: `error == BrokerError.notFoundError`. The `outcome` of an error
says whether the change that failed may have taken effect (docs/guide/errors.md).
"""

from __future__ import annotations

import enum
import uuid
from typing import ClassVar


class WriteOutcome(enum.Enum):
    """Whether a signed change took effect at the broker."""

    Stored = "Stored"
    """The broker confirmed the change, or a verified history contains it."""
    NotStored = "NotStored"
    """The change surely has no effect: nothing signed was sent, or another record has its version."""
    Uncertain = "Uncertain"
    """The change was signed and sent. It may have taken effect, or do so later, whatever the answer was."""


class BrokerError(Exception):
    """Any failure of an operation. `code` is stable; `retryable` tells whether a retry can succeed."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    outcome: WriteOutcome = WriteOutcome.NotStored
    """Whether the change that failed with this error took effect nevertheless."""
    containerId: uuid.UUID | None = None
    """The container whose change was sent, or whose entry in a list this is; None for other errors."""
    requestId: str | None = None
    """The refused request's id in the broker's log; None if no request was refused."""

    invalidArgumentError: ClassVar[type[InvalidArgumentError]]
    notAuthenticatedError: ClassVar[type[NotAuthenticatedError]]
    credentialsError: ClassVar[type[CredentialsError]]
    suspendedError: ClassVar[type[SuspendedError]]
    apiKeyError: ClassVar[type[ApiKeyError]]
    challengeError: ClassVar[type[ChallengeError]]
    permissionDeniedError: ClassVar[type[PermissionDeniedError]]
    blockedError: ClassVar[type[BlockedError]]
    notFoundError: ClassVar[type[NotFoundError]]
    deletedError: ClassVar[type[DeletedError]]
    eventsExpiredError: ClassVar[type[EventsExpiredError]]
    conflictError: ClassVar[type[ConflictError]]
    staleKeysError: ClassVar[type[StaleKeysError]]
    partGoneError: ClassVar[type[PartGoneError]]
    alreadyExistsError: ClassVar[type[AlreadyExistsError]]
    tooLargeError: ClassVar[type[TooLargeError]]
    diskFullError: ClassVar[type[DiskFullError]]
    quotaExceededError: ClassVar[type[QuotaExceededError]]
    clockError: ClassVar[type[ClockError]]
    rejectedError: ClassVar[type[RejectedError]]
    incompleteUploadError: ClassVar[type[IncompleteUploadError]]
    unsupportedVersionError: ClassVar[type[UnsupportedVersionError]]
    brokerFaultError: ClassVar[type[BrokerFaultError]]
    brokerUnavailableError: ClassVar[type[BrokerUnavailableError]]
    unreachableError: ClassVar[type[UnreachableError]]
    offlineError: ClassVar[type[OfflineError]]
    throttledError: ClassVar[type[ThrottledError]]
    overloadedError: ClassVar[type[OverloadedError]]
    unsettledAccessError: ClassVar[type[UnsettledAccessError]]
    untrustedError: ClassVar[type[UntrustedError]]
    integrityError: ClassVar[type[IntegrityError]]
    rollbackError: ClassVar[type[RollbackError]]
    forkError: ClassVar[type[ForkError]]
    keySubstitutionError: ClassVar[type[KeySubstitutionError]]
    decryptionError: ClassVar[type[DecryptionError]]
    trustStoreError: ClassVar[type[TrustStoreError]]
    sessionStoreError: ClassVar[type[SessionStoreError]]
    operationCancelledError: ClassVar[type[OperationCancelledError]]

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])

    def __init_subclass__(cls, code: str | None = None, retryable: bool = False) -> None:
        """Set the class attributes; a subclass that gives none inherits them."""
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.retryable = retryable or cls.retryable
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


class InvalidArgumentError(BrokerError, ValueError, TypeError, code="invalid"):
    """An argument is wrong: correct it."""


class NotAuthenticatedError(BrokerError, code="session"):
    """There is no authenticated session: call register, logIn or resumeSession first.

    If `resumeSession` raises it, log in with the passphrase.
    """


class CredentialsError(BrokerError, code="credentials"):
    """The password or passphrase is wrong, or the user does not exist.

    The broker does not say which: ask again for user id, passphrase and password.
    """


class SuspendedError(BrokerError, code="suspended"):
    """The operator of the broker has suspended this user: ask the operator.

    The user's data was not deleted.
    """


class ApiKeyError(BrokerError, code="api-key"):
    """The broker does not accept this API key: ask its operator for a valid one."""


class ChallengeError(BrokerError, code="challenge"):
    """The broker refused a signature: log in again, at one of the origins that it names."""


class PermissionDeniedError(BrokerError, code="permission"):
    """The container's access list does not allow this: ask a member with ModifyAccess."""


class BlockedError(PermissionDeniedError, code="blocked"):
    """A user who would get access has blocked you: leave the user out."""


class NotFoundError(BrokerError, code="not-found"):
    """It does not exist, or you do not have access to it."""


class DeletedError(BrokerError, code="deleted"):
    """The container was deleted."""


class EventsExpiredError(BrokerError, code="events-expired"):
    """The broker has dropped these events: read your containers again."""

    firstId: int
    """The lowest id that the broker still has: go on with getEvents(startId=firstId)."""

    def __init__(self, message: str = "", firstId: int = 1) -> None:
        super().__init__(message)
        self.firstId = firstId


class ConflictError(BrokerError, code="conflict"):
    """It was changed meanwhile: read it again and decide."""


class StaleKeysError(ConflictError, code="stale-keys"):
    """A recipient has newer keys: call again, which reads them."""


class PartGoneError(ConflictError, code="part-gone"):
    """The content was replaced while it was read: read the container again."""


class AlreadyExistsError(BrokerError, code="exists"):
    """An object with this id exists already. Every id is made from fresh random bytes: report it."""


class TooLargeError(BrokerError, code="too-large"):
    """A limit was exceeded: send or ask for less at once."""


class DiskFullError(TooLargeError, code="disk-full"):
    """No room is left on a disk of this device: free some, and try again."""


class QuotaExceededError(BrokerError, code="quota"):
    """Your quota at this broker leaves too little: delete something, or ask its operator."""

    resource: str
    """The limited resource: `bytes` or `containers`."""
    quota: int
    used: int
    """How much of the quota was used before."""
    needed: int
    """How much more was needed."""

    def __init__(
        self,
        message: str = "",
        *,
        resource: str = "bytes",
        quota: int = 0,
        used: int = 0,
        needed: int = 0,
    ) -> None:
        self.resource, self.quota, self.used, self.needed = resource, quota, used, needed
        if not message and needed:
            message = (
                f"You have {self._amount(self.free)} of {self._amount(quota)} left, and this needs "
                f"{self._amount(needed)}: delete something, or ask the broker's operator for more."
            )
        super().__init__(message)

    @property
    def free(self) -> int:
        """Return how much of the quota was left."""
        return max(0, self.quota - self.used)

    def _amount(self, number: int) -> str:
        if self.resource != "bytes":
            return f"{number:,} {self.resource}"
        size, units = float(number), ["KiB", "MiB", "GiB", "TiB"]
        if size < 1024:
            return f"{number} B"
        while (size := size / 1024) >= 1024 and len(units) > 1:
            units.pop(0)
        return f"{size:.1f} {units[0]}"


class ClockError(BrokerError, code="clock"):
    """This machine's clock and the broker's differ by minutes: set it right.

    They differ by more than five minutes, for a change of keys by more than three.
    """


class RejectedError(BrokerError, code="rejected"):
    """The broker refused a record that breaks a rule of the specification.

    Update the older of client and broker. If both are current, report it.
    """


class IncompleteUploadError(BrokerError, code="incomplete"):
    """The broker has not received all chunks of the content: upload it again."""


class UnsupportedVersionError(BrokerError, code="version"):
    """The other end does not speak this version of the protocol: update the older of the two.

    If another server answers at `serverUrl`, the message says so: correct the address.
    """


class BrokerFaultError(BrokerError, code="internal", retryable=True):
    """The broker failed, or its answer does not follow the protocol: ask its operator."""


class BrokerUnavailableError(BrokerError, code="unavailable", retryable=True):
    """The broker cannot answer at present: try again later."""

    retryAfter: float | None

    def __init__(self, message: str = "", retryAfter: float | None = None) -> None:
        super().__init__(message)
        self.retryAfter = retryAfter


class UnreachableError(BrokerUnavailableError, code="unreachable"):
    """The broker cannot be reached: check serverUrl and the network."""

    sent: bool
    """Whether the request may have left this device; False if no connection was made."""

    def __init__(
        self, message: str = "", retryAfter: float | None = None, *, sent: bool = True
    ) -> None:
        super().__init__(message, retryAfter)
        self.sent = sent


class OfflineError(UnreachableError, code="offline"):
    """The broker is away, and the cache cannot answer this: nothing was sent. Try again when it is back."""

    def __init__(
        self, message: str = "", retryAfter: float | None = None, *, sent: bool = False
    ) -> None:
        super().__init__(message, retryAfter, sent=sent)


class ThrottledError(BrokerUnavailableError, code="throttled"):
    """Too many requests: wait for `retryAfter` seconds."""


class OverloadedError(BrokerUnavailableError, code="overloaded"):
    """The broker has no capacity at present: try again after `retryAfter` seconds.

    If the message says that the broker's disk is full, tell its operator.
    """


class UnsettledAccessError(BrokerError, code="unsettled"):
    """A former member of a group may have changed access: compare the lists, and call confirmAccess."""

    version: int
    """The version that changed access."""
    hash: bytes
    """The hash of its record: `confirmAccess` accepts it."""

    def __init__(self, message: str = "", *, version: int = 0, hash: bytes = b"") -> None:
        super().__init__(message)
        self.version, self.hash = version, hash


class UntrustedError(BrokerError, code="untrusted"):
    """The broker served something that its author did not make: do not use it."""


class IntegrityError(UntrustedError, code="integrity"):
    """A signature, hash or rule fails: somebody without the permission changed the data."""


class RollbackError(UntrustedError, code="rollback"):
    """The broker served something older than this device has seen: ask its operator."""


class ForkError(UntrustedError, code="fork"):
    """The broker served another history than the one that this device has seen: ask its operator."""


class KeySubstitutionError(UntrustedError, code="key-substitution"):
    """The broker served keys that are not this user's: do not share with them."""


class DecryptionError(UntrustedError, code="decryption"):
    """Decryption failed: the secret is wrong, or the data is damaged.

    `KeyRing.open` and `KeyFile.open` raise it for a wrong passphrase too, and for a wrong
    password given alone.
    """


class TrustStoreError(BrokerError, code="trust-store"):
    """The trust store is damaged, another user's, or cannot be written: restore or remove it.

    Remove it only if it is damaged and no copy exists: the device then verifies as a new one does, and the
    broker can serve it an older state once.
    """


class SessionStoreError(BrokerError, code="session-store"):
    """A session cannot be kept on this device, or the kept one is damaged: log in without keep=True."""


class OperationCancelledError(BrokerError, code="cancelled"):
    """The operation was cancelled.

    A change may have taken effect: read before you repeat it.
    """

    outcome: WriteOutcome = WriteOutcome.Uncertain
