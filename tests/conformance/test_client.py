"""`scbroker conformance client`: our client plays every scene as expected, and a broken one does not."""

import json
import sys

import pytest

from scbroker import BrokerError
from scbroker.conformance.client import play, scenes
from scbroker.conformance.outcomes import Outcome
from tests.kit.brokers import environment
from tests.kit.processes import run


def adapter(broken: str) -> list[str]:
    return [sys.executable, "-m", "tests.conformance.broken_adapter", broken]


def failures(outcomes: list[Outcome]) -> dict[str, str]:
    return {each.name: each.came for each in outcomes if not each.passed}


@pytest.mark.long
def test_our_client_plays_every_scene_as_expected() -> None:
    reported: list[Outcome] = []
    outcomes = play(adapter("nothing"), reported.append)
    assert failures(outcomes) == {}
    assert [each.name for each in outcomes] == [scene["name"] for scene in scenes()]
    assert reported == outcomes


@pytest.mark.long
@pytest.mark.parametrize(
    "broken, noticed",
    [
        (
            "marks",
            {
                "an older version than the device has seen",
                "another history than the device has seen",
                "a shorter log than the device has seen",
                "another event than the device has seen",
                "a membership that is denied",
                "a change of access by a former member of a group",
                "a group that the list of groups leaves out",
                "an older KeyFile than the device has seen",
            },
        ),
        (
            "signatures",
            {"a changed signature of a record", "a changed signature of a record of a group"},
        ),
    ],
    ids=["marks", "signatures"],
)
def test_a_client_without_a_defence_fails_the_scenes_that_name_it_and_no_other(
    broken: str, noticed: set[str]
) -> None:
    assert failures(play(adapter(broken))).keys() == noticed


@pytest.mark.long
@pytest.mark.parametrize(
    "broken, scene, came",
    [
        ("cookies", "a cookie is set, and the next requests have none", "the client sent a cookie"),
        ("secrecy", "events are listed", "the client sent a secret in the clear to "),
    ],
    ids=["cookies", "secrecy"],
)
def test_a_client_that_sends_what_it_must_not_fails_the_scenes_in_which_it_does(
    broken: str, scene: str, came: str
) -> None:
    found = failures(play(adapter(broken)))
    assert found[scene].startswith(came)
    assert "two users register" not in found


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="'no-such-command' cannot be"):
        play(["no-such-command"])


@pytest.mark.long
def test_a_program_that_answers_no_json_and_ends_fails_every_scene_and_the_command_exits_with_1() -> (
    None
):
    command = [sys.executable, "-c", "print(1)"]
    options = ["conformance", "client", "--json", "--", *command]
    status, output, _ = run(options, environment(), 120)
    assert status == 1
    outcomes = json.loads(output)
    assert {each["name"] for each in outcomes} == {scene["name"] for scene in scenes()}
    assert not any(each["passed"] for each in outcomes)
