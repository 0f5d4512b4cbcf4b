"""Ask a broker about 280 questions, and compare its answers with docs/spec/protocol.md and groups.md."""

import uuid
from collections.abc import Callable, Sequence
from typing import Final

from scbroker.conformance import group_stories, stories
from scbroker.conformance.by_hand import StoryError
from scbroker.conformance.faults import every_operation
from scbroker.conformance.outcomes import Outcome, Report
from scbroker.conformance.probe import Probe
from scbroker.errors import BrokerError

Chapter = Callable[[Probe], None]
CHAPTERS: Final[tuple[Chapter, ...]] = (
    every_operation,
    stories.registering,
    stories.logging_in,
    stories.opening_key_files,
    stories.reading_key_records,
    stories.blocking,
    stories.usage,
    stories.writing,
    stories.leaving,
    stories.reading,
    stories.transferring,
    stories.listing_events,
    group_stories.making_groups,
    group_stories.reading_groups,
    group_stories.acting_through_groups,
    group_stories.leaving_groups,
    stories.deleting_users,
)


def probe(
    url: str,
    api_key: uuid.UUID,
    report: Report = lambda _: None,
    chapters: Sequence[Chapter] = CHAPTERS,
) -> list[Outcome]:
    """Ask a broker the questions of these chapters and return the outcomes; `report` gets each at once.

    Raises `InvalidArgumentError` for a URL that no client may use.
    """
    asking = Probe(url, api_key, report)
    try:
        for chapter in chapters:
            try:
                chapter(asking)
            except (StoryError, BrokerError) as error:
                title = (chapter.__doc__ or "").rstrip(".")
                asking.ask("5", f"{title}: the valid requests succeed", "success", error)
        return asking.outcomes
    finally:
        asking.delete_users()
        asking.at.close()
