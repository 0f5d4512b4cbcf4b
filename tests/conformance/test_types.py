"""A type checker knows the types that the interface gives: of parameters, results and handlers."""

from pathlib import Path

import pytest

from tests.conformance import typed


@pytest.mark.long
def test_mypy_says_of_each_call_what_the_interface_says(tmp_path: Path) -> None:
    assert typed.misjudged(tmp_path) == []
