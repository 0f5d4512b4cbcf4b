"""Errors of clients, and names of operations in the protocol, for lies about them."""

from typing import Final

from scbroker import BrokerError

CLOCK: Final = BrokerError.clockError
DECRYPTION: Final = BrokerError.decryptionError
FAULT: Final = BrokerError.brokerFaultError
FORK: Final = BrokerError.forkError
INTEGRITY: Final = BrokerError.integrityError
ROLLBACK: Final = BrokerError.rollbackError
SUBSTITUTION: Final = BrokerError.keySubstitutionError
_CONTAINER: Final = "/v1/containers/{containerId}"
_PART: Final = f"{_CONTAINER}/parts/{{partId}}"
VIEW: Final = f"GET {_CONTAINER}"
RECORD: Final = f"PUT {_CONTAINER}/records/{{version}}"
BODIES: Final = f"GET {_CONTAINER}/records"
GOVERNING: Final = f"GET {_CONTAINER}/governing"
CHUNK: Final = f"PUT {_PART}/chunks/{{index}}"
HASHES: Final = f"GET {_PART}/hashes"
SEGMENTS: Final = f"GET {_PART}/segments"
TO_SEND: Final = f"POST {_PART}/transfers"
TO_READ: Final = f"GET {_PART}/transfers"
SENT: Final = f"POST {_PART}/chunks"
VIEWS: Final = "POST /v1/batches/views"
RECORDS: Final = "POST /v1/batches/records"
LIST: Final = "POST /v1/containers/list"
GROUPS: Final = "POST /v1/groups/views"
EVENTS: Final = "GET /v1/events"
KEYS: Final = "POST /v1/key-records"
GROUP_LIST: Final = "GET /v1/groups"
CHALLENGES: Final = "POST /v1/session-challenges"
SESSIONS: Final = "POST /v1/sessions"
STATE: Final = "GET /v1/key-file"
OPEN: Final = "POST /v1/users/{userId}/key-file/open"
REMINDER: Final = "GET /v1/users/{userId}/reminder"
