"""The short form of the exhaustive searches, and that each notices a rule that is taken out."""

from collections.abc import Callable
from typing import Any

import pytest

from assurance.exhaustive import acts, chains, keychains, keyfiles, views
from scbroker.client.core import judging
from scbroker.client.users import accounts
from scbroker.records import judge
from scbroker.records.judge import InForce
from scbroker.records.key_record import KeyChain


def short() -> None:
    chains.search(acts.KEPT["short"], 3)
    chains.search(acts.KEPT["short-keys"], 3)


def short_departures() -> None:
    chains.search(acts.KEPT["short-departures"], 3)


@pytest.mark.parametrize(
    "search",
    [
        short,
        short_departures,
        lambda: keychains.search(4),
        lambda: keyfiles.search(3),
        lambda: views.search(2),
    ],
    ids=["records", "departures", "key chains", "KeyFiles", "views"],
)
def test_code_and_oracle_agree_on_every_small_history(search: Callable[[], None]) -> None:
    search()


def _allowed(*_: object, **__: object) -> None:
    """Stand in for a check that is taken out."""


@pytest.mark.parametrize(
    "search, owner, name",
    [
        (short, judge, "check_delegation"),
        (short, judge, "_check_renewal"),
        (short, judge, "_check_parts"),
        (short, judge, "_check_governing"),
        (short, judge, "_check_link"),
        (short, judge, "_check_time"),
        (short, judge, "_check_key_indices"),
        (short, judge, "_raises_key_index"),
        (short, InForce, "needs_renewal"),
        (short_departures, InForce, "needs_renewal"),
        (short_departures, judge, "verify_departure"),
        (lambda: views.search(2), judging, "_check_disclosed"),
        (lambda: views.search(2), judging.Evidence, "_check_mark"),
        (lambda: keychains.search(4), KeyChain, "check_active"),
        (lambda: keyfiles.search(3), accounts, "_check_same"),
    ],
)
def test_a_check_that_is_taken_out_is_noticed(
    search: Callable[[], None], owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, _allowed)
    with pytest.raises(AssertionError):
        search()


def test_a_rule_4_that_knows_no_departures_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    check = judge.check_delegation

    def ignoring(*given: Any, left: object = (), **rest: Any) -> None:
        del left
        check(*given, **rest)

    monkeypatch.setattr(judge, "check_delegation", ignoring)
    with pytest.raises(AssertionError):
        short_departures()
