"""Fixtures of the tests that need engines of a broker that spans machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.ceph import ObjectGateway


@pytest.fixture(scope="session")
def gateway() -> Iterator[ObjectGateway]:
    """An S3 of this test process, and what a broker needs of it in the environment."""
    with ObjectGateway() as found, pytest.MonkeyPatch.context() as patched:
        for name, value in found.environment.items():
            patched.setenv(name, value)
        yield found
