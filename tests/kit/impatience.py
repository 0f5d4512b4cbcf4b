"""A program that asks again at once, and four times at most, whoever has answered it before."""

from __future__ import annotations

import pytest
import tenacity

from scbroker.client.http import transport


def be_impatient(patched: pytest.MonkeyPatch) -> None:
    """For brokers of a test's own that never recover: a minute of patience would change nothing."""
    patched.setattr(transport._RETRYING, "wait", tenacity.wait_none())
    patched.setattr(transport, "_PATIENCE", 0.0)
