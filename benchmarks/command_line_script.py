"""Do with the library what `put` and `get` do: the floor of `command_line`.

`python command_line_script.py JOB SOURCE TARGET` runs in the home folder of a user.
"""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from scbroker import Container, NewContainer, ServerProvider

_BATCH: Final = 64


def main(job: str, source: str, target: str) -> None:
    config = Path(".config/scbroker/config.toml").read_text("utf-8")
    profile = tomllib.loads(config)["profiles"]["default"]
    with ServerProvider(
        profile["api_key"], profile["server_url"], "scbroker",
        sessionStore=profile["session_folder"], trustStore=profile["trust_folder"],
    ) as provider:  # fmt: skip
        provider.resumeSession().result()
        _JOBS[job](provider, source, target)


def _put_many(provider: Any, source: str, target: str) -> None:
    del target
    new = (
        NewContainer(file, {"name": str(file)})
        for file in Path(source).rglob("*")
        if file.is_file()
    )
    for result in provider.createContainers(new).result():
        assert not isinstance(result, Exception)


def _get_many(provider: Any, source: str, target: str) -> None:
    names = {
        each.id: name
        for each in provider.iterContainers()
        if isinstance(each, Container)
        and each.header is not None
        and (name := each.header.customHeaderObject["name"]).startswith(source)
    }
    ids = list(names)
    for at in range(0, len(ids), _BATCH):
        for each in provider.getContainers(ids[at : at + _BATCH]).result():
            file = Path(target, names[each.id])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(each.content)


def _put_one(provider: Any, source: str, target: str) -> None:
    del target
    made = provider.createContainer(Path(source), {"name": source}).result()
    Path("id").write_text(str(made.id), "utf-8")


def _get_one(provider: Any, source: str, target: str) -> None:
    del source
    provider.saveContainerContent(Path("id").read_text("utf-8"), Path(target)).result()


_JOBS: Final[dict[str, Callable[[Any, str, str], None]]] = {
    "put-many": _put_many,
    "get-many": _get_many,
    "put-one": _put_one,
    "get-one": _get_one,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
