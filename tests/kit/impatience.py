"""A program that retries without a pause, and four times at most, whoever has answered it before."""

import pytest

from scbroker.client.http import requests


def be_impatient(patched: pytest.MonkeyPatch, pause: float = 0.0) -> None:
    """For brokers of a test's own that never recover: a minute of patience would change nothing."""
    patched.setattr(requests, "pause_before_retry", lambda *_: pause)
    patched.setattr(requests, "_PATIENCE", 0.0)
