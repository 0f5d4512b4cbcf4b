"""A server process has nothing with which it could decrypt."""

import subprocess
import sys

import pytest

from tests.kit.waiting import PATIENCE

PROGRAM = """
import sys
import scbroker.server.commands
from scbroker.server.app import create_app

from tests.kit.waiting import PATIENCE
create_app(None)
print("\\n".join(sys.modules))
"""


def _modules(program: str) -> set[str]:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return set(finished.stdout.split())


@pytest.mark.long
def test_the_server_never_imports_what_can_decrypt_or_the_client() -> None:
    found = _modules(PROGRAM)
    assert "scbroker.crypto.verify" in found
    own = {name for name in found if name.startswith("scbroker.")}
    forbidden = (
        "scbroker.crypto.seal",
        "scbroker.keys",
        "scbroker.types",
        "scbroker.client",
        "scbroker.cli",
    )
    assert not {name for name in own if name.startswith(forbidden)}
    assert "aiohttp" not in found


@pytest.mark.long
def test_the_same_program_finds_them_in_a_client() -> None:
    """Or the test above could pass by looking at the wrong thing."""
    found = _modules(
        "import sys, scbroker\nscbroker.ServerProvider\nprint('\\n'.join(sys.modules))"
    )
    assert {"scbroker.crypto.seal", "scbroker.keys", "scbroker.client.server_provider"} <= found
