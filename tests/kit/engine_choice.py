"""Which engines a test run takes, and what it leaves out: for tests/kit/fixtures.py.

    pytest                             # each test on the engines that its marks name
    pytest --engines cluster           # all that touches a broker, each on PostgreSQL and an S3
    pytest --engines cluster --without ceph

The engines of the cluster are started once, by the process that pytest was called in; the workers of
xdist get their addresses. What is left out is counted, and said in the last line.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Final

import pytest

from assurance.cluster.deployment import PARTS, Addresses, Deployment, missing
from tests.kit.brokers import ENGINES

CLUSTER: Final = "cluster"
CHOICES: Final = (*ENGINES, CLUSTER)
"""SQLite or PostgreSQL beside a folder; or PostgreSQL under Patroni beside an S3."""

_ELSEWHERE: Final = "are about other engines"
_UNTOUCHED: Final = "start no broker that could stand on them"
_OF_CLUSTER: Final = "need a cluster (make test-all)"
_LONG: Final = "take long (make test-all)"
_OF_PART: Final = "need what was left out"


class Choice:
    """The choice of one run; the plugin that makes tests follow it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.engines = _names(config, "--engines", CHOICES)
        self.without = _names(config, "--without", PARTS)
        self.left_out: Counter[str] = Counter()
        self._sampled: set[str] = set()
        self._stack = ExitStack()
        self._addresses: Addresses | None = None
        lacking = missing(self.without) if CLUSTER in self.engines else ""
        if lacking:
            raise pytest.UsageError(lacking)

    @property
    def addresses(self) -> Addresses:
        """Where the cluster's engines are; they are started when somebody first asks."""
        if self._addresses is None and _is_worker(self._config):
            self._addresses = Addresses(**self._workerinput["addresses"])
        elif self._addresses is None:
            self._addresses = self._started()
        return self._addresses

    def _started(self) -> Addresses:
        try:
            return self._stack.enter_context(Deployment(without=self.without)).addresses
        except Exception as error:  # each further test would wait for them again
            pytest.exit(f"The engines of the cluster did not start: {error}", returncode=1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Whatever engines a test names for the everyday run, it runs on those that were chosen."""
        if "engine" not in metafunc.fixturenames or not self.engines:
            return
        wanted = self._wanted(metafunc.definition)
        for node in metafunc.definition.listchain():
            node.own_markers[:] = [mark for mark in node.own_markers if not _engines_of(mark)]
        metafunc.definition.add_marker(pytest.mark.parametrize("engine", wanted, indirect=True))

    def _wanted(self, definition: pytest.Item) -> list[str]:
        """Some of the engines that were chosen; or another one, to be left out."""
        possible: Iterable[str] = CHOICES
        if mark := definition.get_closest_marker("only_on"):
            possible = mark.args
        elif any(_engines_of(mark) == ["postgresql"] for mark in definition.iter_markers()):
            possible = ("postgresql", CLUSTER)  # what only more than one writer can show
        return [name for name in possible if name in self.engines] or list(possible)[:1]

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Leave to the long run the further cases of a sampled test, and PostgreSQL of most tests."""
        test = item.nodeid.partition("[")[0]
        is_seldom = _engine_of(item) == "postgresql" and not item.get_closest_marker(
            "postgresql_too"
        )
        if (is_seldom and not self.engines) or test in self._sampled:
            item.add_marker(pytest.mark.long)
        elif item.get_closest_marker("sampled") and not item.get_closest_marker("long"):
            self._sampled.add(test)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        for item in items:
            reason = self._reason(item)
            if reason:
                self.left_out[reason] += 1
            (dropped if reason else kept).append(item)
        if dropped:
            self._config.hook.pytest_deselected(items=dropped)
            items[:] = kept

    def _reason(self, item: pytest.Item) -> str:
        """Why a test is left out; an empty text if it is not."""
        if item.get_closest_marker("long") and not self._config.getoption("--long"):
            return _LONG
        parts = [mark.args or PARTS for mark in item.iter_markers(CLUSTER)]
        if parts:
            if CLUSTER not in self.engines:
                return _OF_CLUSTER
            return _OF_PART if {*self.without} & {part for some in parts for part in some} else ""
        if not self.engines:
            return ""
        engine = _engine_of(item)
        if engine is None:
            return _UNTOUCHED
        return "" if engine in self.engines else _ELSEWHERE

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Of xdist: what a worker has to know."""
        if CLUSTER in self.engines:
            node.workerinput["addresses"] = asdict(self.addresses)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Of xdist: what a worker left out; all leave out the same."""
        counts = getattr(node, "workeroutput", {}).get("left_out", {})
        self.left_out |= Counter(counts)

    def pytest_sessionfinish(self) -> None:
        if _is_worker(self._config):
            self._config.workeroutput["left_out"] = dict(self.left_out)  # type: ignore[attr-defined]

    def pytest_unconfigure(self) -> None:
        """Ends the engines; what was left out is the last that is said."""
        self._stack.close()
        if _is_worker(self._config):
            return
        said = [f"{count} tests that {why}" for why, count in sorted(self.left_out.items())]
        if self.without:
            said.append(f"without {', '.join(self.without)}")
        if said:
            print(f"Left out: {'; '.join(said)}.")

    @property
    def _workerinput(self) -> dict[str, Any]:
        found: dict[str, Any] = self._config.workerinput  # type: ignore[attr-defined]
        return found


CHOICE: Final = pytest.StashKey[Choice]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("scbroker")
    group.addoption("--engines", default="", help=f"of {', '.join(CHOICES)}: with commas between")
    group.addoption("--long", action="store_true", help="those that take long as well")
    group.addoption("--without", default="", help=f"of the cluster's {', '.join(PARTS)}: left out")


def pytest_configure(config: pytest.Config) -> None:
    choice = config.stash[CHOICE] = Choice(config)
    config.pluginmanager.register(choice, "engine-choice")


def _names(config: pytest.Config, option: str, known: Iterable[str]) -> tuple[str, ...]:
    names = tuple(str(config.getoption(option)).replace(",", " ").split())
    if unknown := set(names).difference(known):
        raise pytest.UsageError(f"{option} takes {', '.join(known)}, and not {', '.join(unknown)}.")
    return names


def _engines_of(mark: pytest.Mark) -> list[str]:
    """The engines that a mark names for the everyday run."""
    if mark.name == "parametrize" and mark.args and mark.args[0] == "engine":
        return list(mark.args[1])
    return []


def _engine_of(item: pytest.Item) -> object:
    """The engine on which a test runs; None for a test of no broker."""
    spec = getattr(item, "callspec", None)
    return spec and spec.params.get("engine")


def _is_worker(config: pytest.Config) -> bool:
    """Return whether this is a process that xdist started."""
    return hasattr(config, "workerinput")
