"""Count the files that one createContainer passes, and the changes from one file to another.

    python -m tools.count_files

Client and broker run in this process. The second create is counted, when keys and statements are cached. A
change is a call of a function in another file than that of the call before it in the same thread.
"""

import contextlib
import io
import os
import sys
import tempfile
import threading
import urllib.request
import uuid
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final

import scbroker
from scbroker.server.commands import serve
from scbroker.server.settings import Settings
from tests.kit.engines import free_port
from tests.kit.waiting import PATIENCE, wait_until

_SOURCE: Final = str(Path(scbroker.__file__).parent)
_passed: Final = defaultdict[int, list[str]](list)
"""The files of the functions that each thread called, in order, while `_is_counting` is set."""
_is_counting: Final = threading.Event()


def _note(frame: FrameType, event: str, argument: Any) -> None:
    del argument
    if event == "call" and _is_counting.is_set():
        path = frame.f_code.co_filename
        if path.startswith(_SOURCE):
            _passed[threading.get_ident()].append(path.removeprefix(_SOURCE + "/"))


def main() -> None:
    threading.setprofile(_note)
    sys.setprofile(_note)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        key, port = uuid.uuid4(), free_port()
        url = f"http://127.0.0.1:{port}"
        settings = Settings(data_dir=folder, port=port, api_key=str(key))
        threading.Thread(target=serve, args=(settings,), daemon=True).start()
        wait_until(lambda: _answers(url))
        provider = scbroker.ServerProvider(key, url, "count")
        provider.register("correct Horse 7", "battery Staple 8").result(PATIENCE)
        provider.createContainer(b"content", {"name": "header"}).result(PATIENCE)
        _is_counting.set()
        provider.createContainer(b"content", {"name": "header"}).result(PATIENCE)
        _is_counting.clear()
    files = {path for trail in _passed.values() for path in trail}
    changes = sum(one != other for trail in _passed.values() for one, other in pairwise(trail))
    print(*sorted(files), f"{len(files)} files, {changes} changes of file", sep="\n", flush=True)
    os._exit(0)  # the broker's threads go on


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health/ready") as answer:
        return bool(answer.status == 200)
    return False


if __name__ == "__main__":
    main()
