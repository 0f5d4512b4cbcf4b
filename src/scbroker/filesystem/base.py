"""Import the base classes from fsspec, which has no types, and declare the members that are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scbroker.extras import install

if TYPE_CHECKING:
    import io

    class AbstractFileSystem:
        blocksize: int

        def __init__(self, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        @classmethod
        def _strip_protocol(cls, path: Any) -> Any: ...
        def open(self, path: str, mode: str, *args: Any, **kwargs: Any) -> Any: ...
        def cat_file(self, path: str, start: int | None, end: int | None, **kwargs: Any) -> Any: ...
        def get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None: ...
        def invalidate_cache(self, path: str | None = None) -> None: ...

    class AbstractBufferedFile:
        fs: Any
        path: str
        mode: str
        size: int
        autocommit: bool
        buffer: io.BytesIO
        cache: Any
        closed: bool
        forced: bool

        def __init__(self, fs: Any, path: str, mode: str, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def flush(self, force: bool = False) -> None: ...
else:
    try:
        from fsspec.spec import AbstractBufferedFile as AbstractBufferedFile
        from fsspec.spec import AbstractFileSystem as AbstractFileSystem
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"scbroker.filesystem needs the package fsspec: run {install('fsspec')}.",
            name=error.name,
        ) from None
