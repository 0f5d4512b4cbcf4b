"""The abstract tests with which fsspec tests its own filesystems."""

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
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc] # likewise
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc] # likewise
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc] # likewise
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc] # likewise
    pass
