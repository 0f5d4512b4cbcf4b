"""Decoders of one type are made by several threads at once."""

import subprocess
import sys

import pytest

_RACE = """
import sys
import threading
from typing import Annotated

import msgspec
from scbroker.records.canonical import {made}

sys.setswitchinterval(1e-6)
for turn in range(100):
    patterns = [Annotated[str, msgspec.Meta(pattern=f"^{{turn}}-{{n}}$")] for n in range(10)]
    kind = msgspec.defstruct("Kind", [(f"f{{n}}", text) for n, text in enumerate(patterns)])
    data = msgspec.{format}.encode({{f"f{{n}}": f"{{turn}}-{{n}}" for n in range(10)}})
    start = threading.Barrier(2)

    def decode():
        start.wait()
        {made}(kind).decode(data)

    threads = [threading.Thread(target=decode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("decoded")
"""


@pytest.mark.long
@pytest.mark.parametrize("made, format", [("decoder", "msgpack"), ("json_decoder", "json")])
def test_two_threads_that_decode_a_type_for_the_first_time_do_not_crash(
    made: str, format: str
) -> None:
    code = _RACE.format(made=made, format=format)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "decoded\n"), done.stderr
