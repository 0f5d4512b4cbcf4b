"""Kill at random under load, and check that nothing acknowledged is lost.

    python -m assurance.faults.crash --kills 200 [--engine sqlite|postgresql|cluster] [--seed N]

Eight writers, eight readers and two managers of a group use the client. At random moments a victim gets
SIGKILL and is started again. After each kill the rows that changed are compared with what was acknowledged;
at the end everything is, by fresh devices. The same seed gives the same operations and kills; their timing
varies.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from assurance.faults import scenes
from assurance.faults.crowd import Crowd
from assurance.faults.inspection import Inspection
from assurance.faults.scenes import Scene
from tests.kit.processes import want_forks
from tests.kit.waiting import wait_until

_WHILE_STARTING: Final = 0.25
"""The share of kills that do not wait until the previous victim serves again."""
_THOROUGH: Final = 50


@dataclass
class Report:
    """The numbers of a run, and its violations."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    refused: int = 0
    checked: int = 0
    longest: float = 0.0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {name}" for name, count in sorted(self.kills.items()))
        lines = [
            f"seed {self.seed}: {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s",
            f"{self.acknowledged} operations acknowledged, {self.refused} refused, the slowest "
            f"took {self.longest:.1f} s",
            f"{self.checked} comparisons, {len(self.violations)} violations",
            *self.violations[:40],
        ]
        return "\n".join(lines)


def run(
    scene: Scene,
    kills: int,
    seed: int,
    *,
    writers: int = 8,
    readers: int = 8,
    enough: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Kill so many times, and go on until more than `enough` operations were acknowledged.

    Return a report with all violations.
    """
    began, rng = time.monotonic(), random.Random(seed)  # about time
    report = Report(seed)
    crowd = Crowd(scene, seed, writers, readers)
    inspection = Inspection(scene, crowd)
    crowd.start()
    try:
        for number in range(1, kills + 1):
            time.sleep(rng.uniform(0, scene.longest_life))  # about time
            victim = rng.choice(scene.victims)
            victim.kill()
            victim.revive()
            if rng.random() > _WHILE_STARTING:
                scene.await_ready()
            report.kills[victim.name] += 1
            report.violations += inspection.after_a_kill()
            if number % _THOROUGH == 0:
                report.violations += inspection.of_everything()
            if number % 10 == 0:
                wrong = [*report.violations, *crowd.ledger.violations]
                seconds = time.monotonic() - began  # about time
                say(
                    f"{number} kills, {crowd.ledger.acknowledged} acknowledged, "
                    f"{seconds:.0f} s, {len(wrong)} violations {wrong[:3]}"
                )
        wait_until(lambda: crowd.ledger.acknowledged > enough)
    finally:
        crowd.stop()
    report.violations += crowd.ledger.violations
    report.violations += inspection.at_the_end()
    report.acknowledged, report.refused = crowd.ledger.acknowledged, crowd.ledger.refused
    report.checked, report.longest = inspection.checked, crowd.longest
    report.seconds = time.monotonic() - began  # about time
    return report


def scene_of(engine: str, folder: Path, rng: random.Random) -> AbstractContextManager[Scene]:
    """Return the deployment on this engine."""
    if engine == "sqlite":
        return scenes.sqlite(folder)
    if engine == "postgresql":
        return scenes.postgresql(folder, rng)
    return scenes.cluster()


def main() -> None:
    want_forks()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--engine", choices=["sqlite", "postgresql", "cluster"], default="sqlite")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        scene_of(arguments.engine, Path(folder), random.Random(arguments.seed)) as scene,
    ):
        report = run(
            scene, arguments.kills, arguments.seed, say=lambda line: print(line, flush=True)
        )
    print(report)
    sys.exit(bool(report.violations))


if __name__ == "__main__":
    main()
