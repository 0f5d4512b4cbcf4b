"""Programs and brokers that are killed in the middle of an operation on a group.

After a kill at any step the group is as before the operation or as after it, for all members alike. The same
call then does what is left. `assurance/faults` kills brokers at each commit.
"""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.group_acts import NAME, Act, Scene, each_act, repeat, start
from tests.kit.killed_programs import KilledPrograms
from tests.kit.stops import Stops, steps
from tests.kit.waiting import PATIENCE


@pytest.mark.long
@each_act
def test_a_program_killed_at_any_request_leaves_all_or_nothing_and_the_next_one_completes_it(
    act: Act, broker: BrokerProcess, new_provider: NewProvider, tmp_path: Path
) -> None:
    done = 0
    for number, step in enumerate(steps()):
        scene = Scene(broker, new_provider)
        program = KilledPrograms(tmp_path / str(number), broker, scene.rings["alice"])
        operation, *arguments = act.call(scene)
        if not program.dies(step, operation, *arguments, **act.more):
            act.ends(scene, False)
            break
        was_done = act.is_done(scene)
        done += was_done
        with program.lives() as provider:
            repeat(provider, act, scene)
        act.ends(scene, was_done)
    assert number >= 4, "an operation has two requests at least"
    assert done, "no kill came after the record was stored"


@pytest.mark.long
@both_engines
@each_act
def test_a_broker_killed_around_any_record_has_stored_all_or_nothing_and_the_call_completes(
    act: Act, start_broker: StartBroker, new_provider: NewProvider
) -> None:
    """Fresh devices read the group from the broker's next start, before the program sends anything again."""
    broker, seen = start_broker(), list[bool]()
    for step in steps():
        scene = Scene(broker, new_provider)

        def restart(scene: Scene = scene) -> None:
            broker.kill()
            broker.start()
            seen.append(act.is_done(scene))

        with Stops(NAME, step, partial(asyncio.to_thread, restart), acts_only=True) as stops:
            start(scene.manager, act, scene).result(PATIENCE)
        act.ends(scene, False)
        if not stops.stopped:
            break
    assert len(seen) >= 2
    assert True in seen, "no kill came after the record was stored"
