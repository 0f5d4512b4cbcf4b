"""What is against answers without end, of attack 40."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.edits import Edit, Mutation, against, tests_of

_EVIDENCE: Final = "src/scbroker/client/containers/evidence.py"
_EVENT_LOG: Final = "src/scbroker/client/events.py"
_EVENTS: Final = "src/scbroker/wire/events.py"
_READING: Final = "src/scbroker/client/core/judging.py"

ENDLESS: Final[list[Mutation]] = [
    against(
        40,
        "what leads to a head is fetched once members have signed that",
        Edit(
            _EVIDENCE,
            "    if len(found.views) > MANY_VIEWS:\n"
            "        await io_thread.in_pool(found.check_signed)\n"
            "    else:\n"
            "        found.check_signed()\n"
            "    if distance",
            "    if distance",
        ),
        tests_of(
            "endless_answers",
            "nothing_is_fetched_that_leads_to_a_head_which_no_member_signed",
        ),
    ),
    against(
        40,
        "a head that members signed is so far from a mark at most",
        Edit(_EVIDENCE, "    if distance > _MAX_WALK:\n", "    if False:\n"),
        tests_of(
            "endless_answers",
            "a_head_that_a_member_signed_for_a_version_out_of_reach_is_too_far",
        ),
    ),
    against(
        40,
        "governing records among bodies are missed at the first of them",
        Edit(
            _READING,
            "                if known.record.version not in self._served:\n",
            "                if False:\n",
        ),
        tests_of(
            "endless_answers",
            "governing_records_among_bodies_that_are_not_judged_end_it_at_the_first",
        ),
    ),
    against(
        40,
        "a page of bodies is as long as it can be",
        Edit(_EVIDENCE, "    if len(page.bodies) != count or", "    if not page.bodies or"),
        tests_of(
            "endless_answers",
            "pages_of_fewer_bodies_than_there_are_do_not_make_more_requests_of_it",
        ),
    ),
    against(
        40,
        "events count that were dropped while they were read",
        Edit(_EVENT_LOG, "        count += len(ids)", "        count = len(found)"),
        tests_of(
            "log_ends",
            "events_that_are_dropped_as_fast_as_they_are_read_are_too_many_in_the_end",
        ),
    ),
    against(
        40,
        "an event names each change once at most",
        Edit(_EVENTS, "Meta(max_length=_MAX_CHANGES)", "Meta(max_length=2**24)"),
        tests_of("log_ends", "an_event_names_no_more_changes_than_there_are"),
    ),
]
