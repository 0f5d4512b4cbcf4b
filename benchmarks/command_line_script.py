"""Do with the library what `put`, `get` and `ls` do, as a plain script would.

`python command_line_script.py JOB ARGUMENT...` runs in the home folder of a user.
"""

import sys
import tomllib
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from scbroker import Container, NewContainer, ServerProvider

_BATCH: Final = 512
_SMALL: Final = 65_536
_AT_ONCE: Final = 3


def main(job: str, *arguments: str) -> None:
    config = Path(".config/scbroker/config.toml").read_text("utf-8")
    profile = tomllib.loads(config)["profiles"]["default"]
    with ServerProvider(
        profile["api_key"], profile["server_url"], "scbroker",
        sessionStore=profile["session_folder"], trustStore=profile["trust_folder"],
    ) as provider:  # fmt: skip
        provider.resumeSession().result()
        _JOBS[job](provider, *arguments)


def _put_many(provider: Any, source: str, type: str | None = None) -> None:
    """Store a folder: small files in batches, and large ones one by one, a few at once.

    Each container has the path of its file, from the folder on, as its name.
    """
    top = Path(source)
    small: list[Path] = []
    large: list[Path] = []
    for file in top.rglob("*"):
        if file.is_file():
            (small if file.stat().st_size <= _SMALL else large).append(file)

    def header(file: Path) -> dict[str, str]:
        return {"name": str(file.relative_to(top.parent))}

    for at in range(0, len(small), _BATCH):
        new = [NewContainer(file, header(file), type=type) for file in small[at : at + _BATCH]]
        for result in provider.createContainers(new).result():
            assert not isinstance(result, Exception), result
    _a_few_at_once(provider.createContainer(file, header(file), type=type) for file in large)


def _get_many(provider: Any, source: str, target: str) -> None:
    """Get a folder: small contents in batches, and large ones into their files, a few at once."""
    small: dict[uuid.UUID, Path] = {}
    large: dict[uuid.UUID, Path] = {}
    for each, name in _named(provider):
        if name.startswith(f"{source}/"):
            (small if (each.length or 0) <= _SMALL else large)[each.id] = Path(target, name)
    for file in (*small.values(), *large.values()):
        file.parent.mkdir(parents=True, exist_ok=True)
    ids = list(small)
    for at in range(0, len(ids), _BATCH):
        for each in provider.getContainers(ids[at : at + _BATCH]).result():
            small[each.id].write_bytes(each.content)
    _a_few_at_once(provider.saveContainerContent(id, file) for id, file in large.items())


def _a_few_at_once(promises: Iterable[Any]) -> None:
    """Start each operation when an earlier one ends."""
    running: deque[Any] = deque()
    for promise in promises:
        running.append(promise)
        if len(running) == _AT_ONCE:
            running.popleft().result()
    for promise in running:
        promise.result()


def _put_one(provider: Any, source: str) -> None:
    made = provider.createContainer(Path(source), {"name": source}).result()
    Path("id").write_text(str(made.id), "utf-8")


def _get_one(provider: Any, source: str, target: str) -> None:
    del source
    provider.saveContainerContent(Path("id").read_text("utf-8"), Path(target)).result()


def _list(provider: Any) -> None:
    for each, name in _named(provider):
        print(each.id, name)


def _find(provider: Any, name: str) -> None:
    print([each.id for each, other in _named(provider) if other == name])


def _list_type(provider: Any, type: str) -> None:
    for each, name in _named(provider, type):
        print(each.id, name)


def _named(provider: Any, type: str | None = None) -> Iterator[tuple[Container[Any], str]]:
    for each in provider.iterContainers(type):
        assert isinstance(each, Container), each
        if each.header is not None:
            yield each, each.header.customHeaderObject["name"]


_JOBS: Final[dict[str, Callable[..., None]]] = {
    "put-many": _put_many,
    "get-many": _get_many,
    "put-one": _put_one,
    "get-one": _get_one,
    "list": _list,
    "find": _find,
    "list-type": _list_type,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
