"""Hooks of mkdocs: what its configuration cannot say."""

import posixpath
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[[^\]]*\]\(([^)#:]+)\)")


def on_config(config: Any) -> None:
    """An entry of the nav that ends in a slash is a folder: its index, then its pages by name."""
    folder = Path(config.docs_dir)
    for section in config.nav:
        for title, entry in section.items():
            if str(entry).endswith("/"):
                pages = sorted(
                    (folder / entry).glob("*.md"),
                    key=lambda page: (page.stem != "index", page.name),
                )
                section[title] = [page.relative_to(folder).as_posix() for page in pages]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of docs/, as they do in the repository, become names of files."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        return f"`{target.removeprefix('../')}`" if target.startswith("../") else link[0]

    return _LINK.sub(named, markdown)
