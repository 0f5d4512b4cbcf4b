"""Programs that are killed in the middle of an operation on a group; `assurance/faults` kills brokers.

After a kill at any step the group is as before the operation or as after it, for all members alike. The same
call then does what is left.
"""

from pathlib import Path

import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.group_acts import Act, Scene, each_act, repeat
from tests.kit.killed_programs import KilledPrograms
from tests.kit.stops import steps


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
