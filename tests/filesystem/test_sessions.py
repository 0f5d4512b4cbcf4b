"""A filesystem without a provider resumes the kept session, in every process that gets it."""

import asyncio
import os
import pickle
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

from scbroker import BrokerError, ServerProvider
from scbroker.filesystem import ContainerFileSystem
from tests.filesystem.conftest import PASSPHRASE
from tests.kit.cases import in_one_case
from tests.kit.waiting import PATIENCE


@pytest.mark.long
def test_a_session_is_resumed_once_for_all_filesystems_of_its_options(
    kept_options: dict[str, Any],
) -> None:
    first, second = (ContainerFileSystem(**kept_options) for _ in range(2))
    first.pipe("a", b"x")
    assert second.cat("a") == b"x"
    assert first.provider is second.provider


def test_a_session_that_the_program_closed_is_resumed(kept_options: dict[str, Any]) -> None:
    before = ContainerFileSystem(**kept_options).provider
    assert isinstance(before, ServerProvider)
    before.close()
    assert ContainerFileSystem(**kept_options).ls("") == []


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


@in_one_case("option", [
    {"asynchronous": True}, {"loop": None}, {"batch_size": 4}, {"max_paths": 10},
    {"use_listings_cache": False}, {"listings_expiry_time": 1}, {"skip_instance_cache": True},
    {"default_block_size": 4096}, {"default_cache_type": "none"}, {"auto_mkdir": True},
])  # fmt: skip
def test_options_that_programs_pass_to_any_filesystem_are_accepted(option: dict[str, Any]) -> None:
    files = fsspec.filesystem("scbroker", userId=str(uuid.UUID(int=0)), **option)
    assert pickle.loads(pickle.dumps(files)).storage_options == files.storage_options


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


def test_a_provider_and_options_of_a_session_are_not_combined(kept_options: dict[str, Any]) -> None:
    provider = ContainerFileSystem(**kept_options).provider
    with pytest.raises(BrokerError.invalidArgumentError, match="without userId"):
        ContainerFileSystem(provider=provider, **kept_options)
    with pytest.raises(BrokerError.invalidArgumentError, match="BrokerProvider, not str"):
        fsspec.filesystem("scbroker", provider="alice")


FORKED = """
import os, sys
from scbroker.filesystem import ContainerFileSystem
files = ContainerFileSystem(sessionStore=sys.argv[1], trustStore=sys.argv[2])
files.pipe("a", b"of the parent")
child = os.fork()
if child == 0:
    files.pipe("b", files.cat("a") + b" and the child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
files.invalidate_cache()
print(files.cat("b").decode())
"""
UNFINISHED = """
import sys
from scbroker.filesystem import ContainerFileSystem
files = ContainerFileSystem(sessionStore=sys.argv[1], trustStore=sys.argv[2])
opened = [files.open("a", "wb"), files.open("b", "xb"), files.open("c", "w")]
opened[0].write(bytes(9 * 2**20))
opened[1].write(b"little")
opened[2].write("little")
print("written")
"""


def run(script: str, kept_options: dict[str, Any]) -> tuple[str, str]:
    command = [sys.executable, "-c", script, *kept_options.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_child_of_a_fork_reads_and_writes(kept_options: dict[str, Any]) -> None:
    assert run(FORKED, kept_options) == ("of the parent and the child\n", "")


@pytest.mark.long
def test_a_process_ends_at_once_although_files_were_never_closed_and_stores_nothing_of_them(
    kept_options: dict[str, Any],
) -> None:
    output, log = run(UNFINISHED, kept_options)
    assert output == "written\n"
    expected = [f"{name!r} was never closed: nothing of it is stored." for name in "abc"]
    assert sorted(log.splitlines()) == expected
    assert ContainerFileSystem(**kept_options).ls("") == []
