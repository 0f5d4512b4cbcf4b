"""A broker that cannot use its data folder says so at its start."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.server.commands import prepare
from scbroker.server.settings import Settings

NOBODY = 65534


@contextmanager
def folder_of_a_plain_user() -> Iterator[Path]:
    """A folder of the user who runs the block: not root, who could list every folder."""
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as name:  # a test's own folders are closed to others
        if os.geteuid():
            yield Path(name)
            return
        os.chown(name, NOBODY, -1)
        os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o311, 0o600, 0o000], ids=oct)
def test_a_data_folder_that_cannot_be_listed_is_named_with_the_command_that_opens_it(
    mode: int,
) -> None:
    with folder_of_a_plain_user() as folder:
        (folder / "broker.key").touch()
        folder.chmod(mode)
        try:
            with pytest.raises(InvalidArgumentError, match=f"chmod 700 {folder}") as caught:
                prepare(Settings(data_dir=str(folder)))
            assert f"chown {os.geteuid()} {folder}" in str(caught.value)
            assert folder.stat().st_mode & 0o777 == mode
        finally:
            folder.chmod(0o700)
        prepare(Settings(data_dir=str(folder)))
