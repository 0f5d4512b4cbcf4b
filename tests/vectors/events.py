"""Events and the digest of a log: docs/spec/protocol.md, section 5."""

import uuid
from typing import Any

from scbroker.records.canonical import user_id_of
from tests.independent.events import details, digest
from tests.vectors.cast import DAY, START, cast, chosen
from tests.vectors.files import invalid, store, valid

FAULT = "internal"


def make() -> None:
    log = _log()
    emptied = [
        _emptied(event) if event["containerId"] == log[0]["containerId"] else event for event in log
    ]
    both = {**emptied[0], "salt": log[0]["salt"]}
    neither = {**log[0], "salt": None}
    loud = {"applicationName": "an application", "version": 1, "containerType": "note",
            "relatedUserId": log[0]["relatedUserId"], "changes": ["header"],
            "previousContainerType": "old"}  # fmt: skip
    store(
        "events",
        "docs/spec/protocol.md, 5. `events` are the maps of the protocol, as JSON with byte strings in "
        "hexadecimal, from id 1 on; `digest` is d(n) after the last of them. An emptied event has the same "
        "digest.",
        [
            valid("no events", "d(0).", events=[], digest=bytes(32)),
            *(valid(f"{n + 1} events", event["eventType"], events=log[: n + 1],
                    digest=digest(log[: n + 1])) for n, event in enumerate(log)),
            valid("emptied", "The container of events 1 and 2 was deleted: the digest stays.",
                  events=emptied, digest=digest(log)),
            invalid("salt and detailsHash", "One of them.", FAULT, events=[both]),
            invalid("neither salt nor detailsHash", "One of them.", FAULT, events=[neither]),
            *(invalid(f"emptied with {name}", "An emptied event says nothing else.", FAULT,
                      events=[{**emptied[0], name: value}]) for name, value in loud.items()),
        ],
    )  # fmt: skip


def _log() -> list[dict[str, Any]]:
    bob = str(user_id_of(cast()["bob"].fingerprint))
    one, two = (str(uuid.UUID(bytes=chosen("events", n, size=16))) for n in range(2))

    def event(number: int, kind: str, box: str, **fields: Any) -> dict[str, Any]:
        return {
            "id": number, "eventType": kind, "containerId": box, "containerType": None,
            "date": START + number * DAY, "version": number, "relatedUserId": bob,
            "applicationName": "vectors", "changes": [], "salt": chosen("event", number, size=16),
            **fields,
        }  # fmt: skip

    return [
        event(1, "Added", one, containerType="note", applicationName="Größe"),
        event(2, "Updated", one, containerType="story", previousContainerType="note",
              changes=["content", "type"]),
        event(3, "Accessed", two),
        event(4, "Deleted", two, relatedUserId=None, applicationName=""),
    ]  # fmt: skip


def _emptied(event: dict[str, Any]) -> dict[str, Any]:
    kept = {name: event[name] for name in ("id", "eventType", "containerId")}
    return {
        **kept, "containerType": None, "date": START + 9 * DAY, "version": 0, "relatedUserId": None,
        "applicationName": "", "changes": [], "salt": None, "detailsHash": details(event),
    }  # fmt: skip
