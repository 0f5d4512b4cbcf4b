"""Kill processes of brokers and databases, and start them again."""

import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psutil

from tests.kit.brokers import BrokerProcess


@dataclass(frozen=True)
class Victim:
    """Something that can be killed and started again."""

    name: str
    kill: Callable[[], object]
    """Send SIGKILL, or what comes closest: nothing more is written, and no answer sent."""
    revive: Callable[[], object]
    """Start it again on the same data and address; return once it is started."""


def all_of(broker: BrokerProcess) -> Victim:
    """Return a broker with all of its workers."""
    return Victim("broker", broker.kill, broker.start)


def worker_of(broker: BrokerProcess, rng: random.Random) -> Victim:
    """Return one worker of a broker that has several; the supervisor starts another."""
    return Victim("worker", partial(_kill_worker, broker, rng), lambda: None)


def _kill_worker(broker: BrokerProcess, rng: random.Random) -> None:
    # The other child is the resource tracker of Python's multiprocessing.
    with suppress(psutil.Error):  # the supervisor was about to replace it
        children = psutil.Process(broker.pid).children()
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        if workers:
            rng.choice(workers).send_signal(signal.SIGKILL)
