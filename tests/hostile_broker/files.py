"""What callers do with a content: they write it to a file, which is there whole or not at all."""

import tempfile
import uuid
from pathlib import Path

import pytest

from scbroker import BrokerError, ServerProvider
from tests.hostile_broker.broker import PATIENCE


def save(device: ServerProvider, container: uuid.UUID, path: Path) -> None:
    path.write_bytes(device.getContainerContent(container).result(PATIENCE) or b"")


def check_no_file(
    device: ServerProvider, container: uuid.UUID, folder: Path, error: type[BrokerError]
) -> None:
    """Saving fails, and leaves nothing in a folder where files would be that nobody named."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(work)
        patched.setattr(tempfile, "tempdir", str(work))
        with pytest.raises(error):
            save(device, container, work / "content")
    assert list(work.iterdir()) == []
