"""Standard input, output and error as shells may give them: closed, full, ended or in another encoding."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.people import Person
from tests.kit.processes import command


def shell(person: Person, line: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell in which "$@" is the program."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *command()], env={**person.environment, **env}, cwd=person.home,
        capture_output=True, check=False,
    )  # fmt: skip


def test_a_closed_stream_is_an_error_for_a_command_that_needs_it_and_for_no_other(
    person: Callable[[str], Person],
) -> None:
    alice = person("Alice")
    (alice.home / "plan").write_bytes(b"precious")
    for line, status, message in (
        ('"$@" put plan <&-', 0, b""),
        (
            '"$@" put - --into plan --yes <&-',
            2,
            b"Standard input cannot be read: Bad file descriptor.",
        ),
        ('"$@" contacts add - <&-', 1, b"Bad file descriptor."),
        ('"$@" whoami >&-', 1, b"Bad file descriptor."),
        ('"$@" cat plan >&-', 1, b"Bad file descriptor."),
        ('"$@" whoami <&- 2>&-', 0, b""),
        ('"$@" rm plan 2>&-', 2, b""),
    ):
        done = shell(alice, line)
        assert (done.returncode, message in done.stderr) == (status, True), (line, done)
        assert shell(alice, '"$@" cat plan').stdout == b"precious"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_output_to_a_full_disk_is_an_error_in_one_line(person: Callable[[str], Person]) -> None:
    done = shell(person("Alice"), '"$@" whoami >/dev/full')
    assert done.returncode == 1
    assert done.stderr == (b"scbroker: No space left on device.\n")


@pytest.mark.long
def test_a_closed_pipe_ends_the_command_without_a_message(person: Callable[[str], Person]) -> None:
    alice = person("Alice")
    program: Any = command("whoami")
    with subprocess.Popen(
        program, env=alice.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
