"""Work on many items: an interruption, and where text and items may be cut."""

import threading
from collections.abc import Callable, Iterator

import pytest

from scbroker import ServerProvider, errors
from scbroker.cli.commands.getting import plain_text
from scbroker.cli.together import Together, batches
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE


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
