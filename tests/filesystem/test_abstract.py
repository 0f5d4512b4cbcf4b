"""The abstract tests with which fsspec tests its own filesystems.

Left out are 32 cases of patterns for each of copy, get and put: fsspec itself evaluates them, by `find`, and
test_system.py tests that.
"""

from typing import Any

import pytest
from fsspec.tests import abstract

from scbroker import ServerProvider
from scbroker.filesystem import ContainerFileSystem

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True),
    # fsspec's fixtures are class methods, which pytest 9 warns of.
    pytest.mark.filterwarnings("ignore::pytest.PytestWarning"),
]


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc] # fsspec has no types
    @pytest.fixture
    def fs(self, alice: ServerProvider) -> ContainerFileSystem:
        return ContainerFileSystem(provider=alice)

    @pytest.fixture
    def fs_path(self) -> str:
        return "tested"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc] # likewise
    test_copy_glob_edge_cases = None


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc] # likewise
    test_get_glob_edge_cases = None


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc] # likewise
    test_put_glob_edge_cases = None


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc] # likewise
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc] # likewise
    pass
