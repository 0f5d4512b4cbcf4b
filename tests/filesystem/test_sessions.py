"""A filesystem without a provider resumes the kept session, in every process that gets it."""

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

from scbroker import BrokerError, ServerProvider
from scbroker.filesystem import ContainerFileSystem
from tests.filesystem.conftest import PASSPHRASE
from tests.kit.waiting import PATIENCE


def test_a_session_that_the_program_closed_is_resumed(kept_options: dict[str, Any]) -> None:
    before = ContainerFileSystem(**kept_options).provider
    assert isinstance(before, ServerProvider)
    before.close()
    assert ContainerFileSystem(**kept_options).ls("") == []


def test_a_filesystem_stays_with_its_user_and_broker_whatever_comes_later(
    kept_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that one user opened is never stored as another's, nor at another broker."""
    files = ContainerFileSystem(**kept_options)
    files.pipe("diary", b"of Alice")
    writing = files.open("secret", "wb")
    writing.write(b"of Alice")
    with ServerProvider.fromEnvironment(None, **kept_options) as other:
        other.register("B password 2", "B passphrase 2", keep=True).result(PATIENCE)
        user: dict[str, Any] = {"userId": other.getUserId().result(PATIENCE)}
        monkeypatch.setenv("SCBROKER_SERVER_URL", "http://127.0.0.1:9")
        assert files.cat("diary") == b"of Alice"
        files.provider.logout().result(PATIENCE)
        for act in (lambda: files.ls(""), writing.close):
            with pytest.raises(BrokerError.notAuthenticatedError):
                act()
        monkeypatch.setenv("SCBROKER_SERVER_URL", other.serverUrl)
        assert ContainerFileSystem(**kept_options, **user).ls("") == []


def test_a_provider_is_one_and_comes_alone(kept_options: dict[str, Any]) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="must be a BrokerProvider, not str"):
        ContainerFileSystem(provider="https://broker.example")  # type: ignore[arg-type] # wrong on purpose
    provider = ContainerFileSystem(**kept_options).provider
    with pytest.raises(BrokerError.invalidArgumentError, match="without userId"):
        ContainerFileSystem(provider=provider, **kept_options)


def test_without_a_kept_session_or_variables_the_error_says_what_to_do(
    kept_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokerError.notAuthenticatedError, match=r"keep=True.*storage_options"):
        ContainerFileSystem(sessionStore=str(tmp_path / "none")).ls("")
    monkeypatch.delenv("SCBROKER_API_KEY")
    with pytest.raises(
        BrokerError.invalidArgumentError, match=r"SCBROKER_API_KEY.*storage_options"
    ):
        ContainerFileSystem(**kept_options).ls("")


def test_no_option_takes_a_secret_and_none_is_in_what_fsspec_writes(
    kept_options: dict[str, Any],
) -> None:
    with pytest.raises(TypeError, match="passphrase"):
        fsspec.filesystem("scbroker", passphrase=PASSPHRASE)
    files = ContainerFileSystem(**kept_options)
    files.ls("")
    written = files.to_json() + repr(files) + str(pickle.dumps(files))
    assert os.environ["SCBROKER_API_KEY"] not in written
    assert PASSPHRASE not in written


def test_a_filesystem_and_a_file_can_be_pickled_unless_they_have_a_provider(
    kept_options: dict[str, Any],
) -> None:
    files = ContainerFileSystem(**kept_options)
    files.pipe("a", b"abc")
    assert pickle.loads(pickle.dumps(files)).cat("a") == b"abc"
    with files.open("a") as file:
        file.seek(1)
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == b"bc"
    with fsspec.open("scbroker://a", **kept_options) as file:
        assert file.read() == b"abc"
    with pytest.raises(TypeError, match="leave provider out"):
        pickle.dumps(ContainerFileSystem(provider=files.provider))


@pytest.mark.long
def test_the_asynchronous_wrapper_of_fsspec_works_in_a_loop(kept_options: dict[str, Any]) -> None:
    async def use() -> Any:
        inner = fsspec.filesystem("scbroker", asynchronous=True, **kept_options)
        files = AsyncFileSystemWrapper(inner, asynchronous=True)
        await files._pipe({"a/b": b"one", "a/c": b"two"}, batch_size=2)
        found = await files._cat_ranges(["a/b", "a/c"], [0, 1], [2, 3])
        await files._rm("a/b")
        return found, await files._find("")

    assert asyncio.run(use()) == ([b"on", b"wo"], ["a/c"])


def test_a_relative_folder_is_the_one_in_which_the_filesystem_was_made(
    kept_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative: dict[str, Any] = {name: Path(each).name for name, each in kept_options.items()}
    files = ContainerFileSystem(**relative)
    monkeypatch.chdir("/")
    assert files.ls("") == []


def run(script: str, kept_options: dict[str, Any]) -> tuple[str, str]:
    command = [sys.executable, "-c", script, *kept_options.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
