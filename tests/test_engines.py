"""The PostgreSQL that other tests rely on is real, is private to them, and goes away."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.kit import engines
from tests.kit.engines import PostgresServer
from tests.kit.waiting import wait_until


@pytest.mark.long
def test_leaving_the_block_ends_every_process_and_removes_the_folder() -> None:
    """Nothing is left behind, also when a session is still open."""

    async def leave_with_an_open_session() -> None:
        with PostgresServer() as server:
            processes.extend(_processes(server))
            folders.append(_folder(server.pid))
            connection = await asyncpg.connect(_plain(server.createdatabase()))
        connection.terminate()

    processes: list[psutil.Process] = []
    folders: list[Path] = []
    asyncio.run(leave_with_an_open_session())

    assert len(processes) > 1
    assert not any(map(_lives, processes))
    assert not any(folder.exists() for folder in folders)


@pytest.mark.long
def test_a_killed_test_runner_takes_its_server_along() -> None:
    """SIGKILL leaves the runner no chance to clean up; the server ends all the same."""
    code = (
        "from tests.kit.engines import PostgresServer\n"
        "with PostgresServer() as server:\n"
        "    print(server.pid, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as runner:
        assert runner.stdout is not None
        postmaster = psutil.Process(int(runner.stdout.readline()))
        processes = [postmaster, *postmaster.children(recursive=True)]
        folder = _folder(postmaster.pid)
        runner.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(map(_lives, processes)))
    wait_until(lambda: not folder.exists())


@pytest.mark.long
def test_a_durable_server_keeps_what_it_acknowledged() -> None:
    """A row committed before a crash is there after the restart, under the same URL."""
    with PostgresServer(durable=True) as server:
        url = server.createdatabase()
        _query(url, "create table kept (id int)")
        _query(url, "insert into kept values (7)")
        assert _query(url, "show fsync") == "on"

        server.crash()
        server.start()

        assert _query(url, "select id from kept") == 7


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_binaries_that_the_other_user_cannot_reach_are_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A virtual environment inside a folder for root alone is no obstacle."""
    wheel = engines._wheel()
    tmp_path.chmod(0o700)
    for folder in wheel.parent.glob(f"{wheel.name}*"):
        (tmp_path / folder.name).symlink_to(folder)
    monkeypatch.setattr(engines, "_wheel", lambda: tmp_path / wheel.name)

    with PostgresServer() as server:
        executable = Path(psutil.Process(server.pid).exe())
        assert executable.is_relative_to(_folder(server.pid))
        assert _query(server.createdatabase(), "select 1") == 1


def _plain(url: str) -> str:
    return url.replace("postgresql+asyncpg:", "postgresql:")


def _query(url: str, statement: str) -> object:
    async def ask() -> object:
        connection = await asyncpg.connect(_plain(url))
        try:
            answer: object = await connection.fetchval(statement)
            return answer
        finally:
            await connection.close()

    return asyncio.run(ask())


def _processes(server: PostgresServer) -> list[psutil.Process]:
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def _folder(pid: int) -> Path:
    return Path(psutil.Process(pid).cwd()).parent


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
