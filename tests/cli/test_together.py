"""Work on many items: errors of one and of all, interruptions, progress."""

import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
import typer

from scbroker import ServerProvider, errors
from scbroker.cli.commands.getting import plain_text
from scbroker.cli.output import Output
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, Total, batches, do_each
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

COLUMNS = {"name": "NAME"}


def done(name: str) -> list[Outcome]:
    return [Outcome(name, {"name": name, "status": "done"})]


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
