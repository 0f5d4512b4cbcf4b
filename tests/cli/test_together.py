"""Work on many items: errors of one and of all, interruptions, progress."""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from scbroker import ServerProvider, errors
from scbroker.cli.commands.getting import plain_text
from scbroker.cli.commands.putting import Sending, Work
from scbroker.cli.files import find
from scbroker.cli.output import Output
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, Total, batches, do_each
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

COLUMNS = {"name": "NAME"}


def done(name: str) -> list[Outcome]:
    return [Outcome(name, {"name": name, "status": "done"})]


def failing(error: BaseException) -> list[Outcome]:
    raise error


def work(*jobs: Job, done: list[Outcome] | None = None) -> Run:
    """Run jobs one after the other, as far as threads allow."""

    def given(together: Together, total: Total) -> Iterable[Job]:
        del together, total
        return jobs

    run = Run(None, Output(as_json=False, quiet=False))
    do_each(run, "items", 1, given, COLUMNS, done or [])
    return run


def test_an_item_that_fails_is_a_line_and_gives_the_status_and_the_others_are_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = Outcome("b", errors.NotFoundError("It is missing."))
    run = work(lambda: done("a"), lambda: [missing], lambda: done("c"))
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["a", "c"]
    assert shown.err == "scbroker: b: It is missing.\n2 done.\n"
    with pytest.raises(typer.Exit) as end:
        run.end()
    assert end.value.exit_code == 3


@pytest.mark.parametrize("error", [errors.UnreachableError("It is away."), KeyboardInterrupt()])
def test_after_an_error_that_all_items_would_meet_the_rows_of_what_is_done_are_written(
    capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    with pytest.raises(type(error)):
        work(lambda: failing(error), done=done("a"))
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["a"]
    assert "1 done; the same command goes on" in shown.err


def test_an_unreachable_broker_as_the_outcome_of_one_item_ends_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(errors.UnreachableError):
        work(lambda: [Outcome("a", errors.UnreachableError("It is away."))])
    assert "Nothing done; the same command" in capsys.readouterr().err


def test_a_defect_is_raised_and_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        work(lambda: failing(ZeroDivisionError()))


def test_a_job_is_read_when_a_thread_can_run_it() -> None:
    taken: list[int] = []
    go_on = threading.Event()

    def jobs() -> Iterator[Callable[[], int]]:
        yield lambda: 0
        for number in range(20):
            taken.append(number)
            yield lambda: int(go_on.wait(PATIENCE))

    with Together() as together:
        results = together.run(jobs())
        next(results)
        assert len(taken) < 20
        go_on.set()
        assert sum(1 for _ in results) == 20


def test_an_operation_that_begins_after_the_end_is_cancelled(
    person: Callable[[str], Person],
) -> None:
    with person("Alice").session() as session:
        with Together() as together:
            assert together.wait(session.getKeptSessions())
        with pytest.raises(errors.OperationCancelledError):
            together.wait(session.listContainers())


def test_an_operation_under_way_is_cancelled_when_the_command_is_interrupted(
    person: Callable[[str], Person],
) -> None:
    go_on = threading.Event()
    ended: list[type] = []

    def content() -> Iterator[bytes]:
        go_on.wait(PATIENCE)
        yield b"text"

    def store(together: Together, session: ServerProvider) -> None:
        try:
            together.wait(session.createContainer(content()))
        except errors.BrokerError as error:
            ended.append(type(error))

    with person("Alice").session() as session:
        together = Together()
        waiting = threading.Thread(target=store, args=(together, session))
        waiting.start()
        together.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        waiting.join(PATIENCE)
        assert ended == [errors.OperationCancelledError]
        go_on.set()
        assert not session.listContainers().result().containers


def test_progress_is_the_sum_of_all_items() -> None:
    shown: list[int] = []
    total = Total(shown.append)
    first, second = total.of("first"), total.of("second")
    first(10, 100)
    second(5, None)
    first(30, 100)
    total.set("third", 7)
    total.add(1)
    assert shown == [10, 15, 35, 42, 43]


def test_no_bar_is_shown_for_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    out = Output(as_json=False, quiet=False)
    for total in (0, 1):
        with out.progress("Working", total) as show:
            show(total)
        assert ("Working" in capfd.readouterr().err) == bool(total)


@pytest.mark.sampled
@pytest.mark.parametrize("content", ["text", ""])
@pytest.mark.parametrize("left", [2, 0])
def test_a_file_that_vanishes_fails_alone_and_not_with_its_batch(
    person: Callable[[str], Person], tmp_path: Path, content: str, left: int
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "f" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "f" / name).write_text(content)
    files = find([str(tmp_path / "f")], None, recursive=True, skipped=print, failed=print)
    vanished = files[left:]
    for file in vanished:
        assert file.path is not None
        file.path.unlink()
    with person("Alice").session() as session, Together() as together:
        sending = Sending(session, Work(new=files), together, Total(lambda _: None))
        outcomes = [outcome for job in sending.jobs() for outcome in job()]
    found = {each.item: each.result for each in outcomes}
    for file in vanished:
        error = found.pop(file.name)
        assert isinstance(error, errors.InvalidArgumentError)
        assert "cannot be read: No such file" in error.message
    assert [row["status"] for row in found.values() if isinstance(row, dict)] == ["stored"] * left


def joined(*pieces: bytes) -> bytes:
    return b"".join(plain_text(iter(pieces), "name"))


def test_a_character_and_a_line_end_may_be_cut_between_two_pieces() -> None:
    assert joined(b"a\xc3", b"\xa9\r", b"\nb") == "aé\r\nb".encode()
    assert joined() == b""
    for pieces in ([b"a\r", b"b"], [b"a\r"], [b"\xc3"], [b"\xc3", b"a"]):
        with pytest.raises(errors.InvalidArgumentError, match="plain text"):
            joined(*pieces)


def test_batches_have_all_items_in_order_and_end_at_256_items_or_4_mib() -> None:
    mib = 1_048_576
    assert [len(each) for each in batches(range(600), lambda _: 0)] == [256, 256, 88]
    assert list(batches([1, 3, 1, 5, 1], lambda size: size * mib)) == [[1, 3], [1], [5], [1]]
    assert list(batches([], int)) == []
