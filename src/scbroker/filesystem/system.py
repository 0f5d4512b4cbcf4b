"""Implement fsspec's filesystem over the containers of a session.

All operations use six primitives: list (`_listing`), open, create, update, rename and delete one container.
docs/adr, 20 says why. Secrets are not options: fsspec writes options into pickles, JSON and task graphs.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import unicodedata
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import scbroker
from scbroker import errors
from scbroker.desk.names import LONGEST_NAME, containers_of, header_of, header_with
from scbroker.desk.paths import filesystem_path, id_of, is_hidden
from scbroker.desk.people import People, others_can_change
from scbroker.filesystem.files import AbstractFileSystem, ContainerFile, Content
from scbroker.filesystem.listing import Entry, Info, Listing, info_of, listings_of, path_of

Container = scbroker.Container[Any]
_EXPIRY_SECONDS: Final = 10.0
_AT_ONCE: Final = 64
_GENERIC: Final = {
    "asynchronous", "loop", "batch_size", "max_paths", "auto_mkdir", "block_size", "default_block_size",
    "cache_type", "default_cache_type", "cache_options", "default_cache_options", "fill_cache",
    "default_fill_cache",
}  # fmt: skip
"""Options that programs pass to any filesystem. As in fsspec's own synchronous ones, they have no effect."""
_VARIABLES: Final = (
    "SCBROKER_API_KEY",
    "SCBROKER_SERVER_URL",
    "SCBROKER_APPLICATION_NAME",
    "SCBROKER_OBJECT_STORE_ORIGINS",
)
_OTHERWISE: Final = (
    "For scbroker://, storage_options can also have a sessionStore (the folder with the kept session), or "
    "a provider with a session."
)
_Key = tuple[int | str | None, ...]
_sessions: Final[dict[_Key, scbroker.ServerProvider]] = {}
_locks: Final[dict[int, threading.Lock]] = {}
"""Locks by process id: one that a thread of the parent held at a fork would stay locked in the child."""


class ContainerFileSystem(AbstractFileSystem):
    """The containers of a user as files, by the names in their encrypted headers.

    `scbroker://reports/2026.parquet` is the container with this name, and `scbroker://id:UUID` the one with
    this id. A folder is the beginning of names, and exists while a container has such a name.

    `provider` is a BrokerProvider with a session. Otherwise the filesystem resumes the kept session of the
    user `userId` at the broker that the environment names; `sessionStore` and `trustStore` are paths of
    folders, as for a ServerProvider. Without `everyone`, the filesystem shows what the user, their contacts
    and members of groups that they have accepted alone can change; with it, also what other people can
    change. A listing is read again after `listings_expiry_time` seconds (default: 10), or each time with
    `use_listings_cache=False`.

    Errors are FileNotFoundError, FileExistsError, PermissionError, and the other errors of the library.
    """

    protocol = "scbroker"
    # fsspec's cache of filesystems compares options by their text, in which two providers may be equal.
    # `_sessions` and listing.py share what is worth keeping: the session and its listing.
    cachable = False

    def __init__(
        self,
        *,
        provider: scbroker.BrokerProvider | None = None,
        userId: uuid.UUID | str | None = None,
        sessionStore: str | None = None,
        trustStore: str | None = None,
        everyone: bool = False,
        use_listings_cache: bool = True,
        listings_expiry_time: float | None = None,
        **generic: Any,
    ) -> None:
        if unknown := generic.keys() - _GENERIC:
            raise TypeError(f"scbroker:// has no option {', '.join(sorted(unknown))}")
        super().__init__(**generic)
        if provider is not None:
            if not isinstance(provider, scbroker.BrokerProvider):
                raise errors.InvalidArgumentError(
                    f"provider must be a BrokerProvider, not {type(provider).__name__}"
                )
            if userId or sessionStore or trustStore:
                raise errors.InvalidArgumentError(
                    "provider has a session: pass it without userId, sessionStore and trustStore, also in "
                    "the configuration of fsspec"
                )
        self._given = self._provider = provider
        self._process = 0
        # Absolute: the session is resumed later, and the program may change its working directory before.
        kept, marks = (each and str(Path(each).absolute()) for each in (sessionStore, trustStore))
        self._session = (userId, kept, marks)
        self._everyone = everyone
        expiry = _EXPIRY_SECONDS if listings_expiry_time is None else listings_expiry_time
        self._max_age = expiry if use_listings_cache else 0.0

    @property  # not cached_property, which fsspec's asynchronous wrapper would read in its loop
    def provider(self) -> scbroker.BrokerProvider:
        """The session that the filesystem uses: of one user at one broker as long as its process lasts."""
        if self._provider is None or (self._given is None and self._process != os.getpid()):
            self._provider, self._process = _kept_session(*self._session), os.getpid()
        return self._provider

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = super()._strip_protocol(path)
        # Normalizing takes time quadratic in the length: skip it for a path longer than any container's.
        normal = path if len(path) > LONGEST_NAME else unicodedata.normalize("NFC", path)
        return normal.lstrip("/")

    def __reduce__(self) -> Any:
        if self._given is not None:
            raise TypeError(
                "A filesystem with a provider stays in its process: leave provider out, so that each process "
                "resumes the kept session."
            )
        return super().__reduce__()

    # Listing

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **kwargs: Any) -> list[Any]:
        """List a folder, or a single file; FileNotFoundError if neither exists."""
        del kwargs
        path = self._strip_protocol(path)
        if refresh:
            self.invalidate_cache()
        found = None if id_of(path) else self._listing().children(path)
        if found is None:
            found = [self.info(path)]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **kwargs: Any) -> Info:
        """Return the details of a file or folder: also the container's id, version, author and times.

        If several containers have the name, `containerIds` has their ids, and the size is None.
        """
        del kwargs
        path = self._strip_protocol(path)
        if id := id_of(path):
            return info_of(path, Entry.of(self._by_id(path, id)))
        listing = self._listing()
        if (found := listing.info(path)) is None:
            raise _not_found(path, listing.strangers)
        return found

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a file or folder exists. Unlike fsspec's own, raises the errors of the session."""
        try:
            self.info(path, **kwargs)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        """Return whether the path is a file. Unlike fsspec's own, raises the errors of the session."""
        try:
            return bool(self.info(path)["type"] == "file")
        except FileNotFoundError:
            return False

    def created(self, path: str) -> Any:
        """Return the time at which the container was created, by its author's clock."""
        return self.info(path).get("created")

    def modified(self, path: str) -> Any:
        """Return the time of the container's newest version, by its author's clock."""
        return self.info(path).get("modified")

    def invalidate_cache(self, path: str | None = None) -> None:
        """Have the next call read the names of all containers."""
        super().invalidate_cache(path)
        listings_of(self.provider).forget()

    # Reading and writing

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file. Closing a compressed one also closes the file that has the compressed content.

        fsspec leaves that to the garbage collection, which stores nothing here.
        """
        from fsspec.core import compr, get_compression

        if compression is None or "b" not in mode or mode == "rb":
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        file = super().open(path, mode, block_size, cache_options, **kwargs)
        opened = compr[get_compression(path, compression)](file, mode=mode[0])
        close = opened.close

        def close_both() -> None:
            close()
            if not getattr(opened, "_finalizing", False):  # set by the garbage collection
                file.close()

        if opened is not file:
            opened.close, opened._dealloc_warn = close_both, file._dealloc_warn
        return opened

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> ContainerFile:
        if mode not in ("rb", "wb", "xb"):
            raise errors.InvalidArgumentError(
                f"mode must be r, w or x, not {mode!r}: a content is replaced as a whole. To add to it, "
                "read it, and write all of it"
            )
        kwargs.pop("size", None)  # the size of an earlier version, from a pickled file
        options = {
            **kwargs,
            "block_size": block_size or self.blocksize,
            "autocommit": autocommit,
            "cache_options": cache_options,
        }
        if mode == "rb":
            return ContainerFile(self, path, mode, reader=self._reader(path), **options)
        target = self._target(path, exclusive=mode == "xb")
        return ContainerFile(self, path, mode, target=target, **options)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Return the bytes of a range, without reading ahead."""
        found: bytes = super().cat_file(path, start, end, **{"cache_type": "none", **kwargs})
        return found

    def get_file(self, rpath: str, lpath: Any = None, **kwargs: Any) -> None:
        """Save a file on the disk: a hidden one only if no other user can have named it."""
        path = self._strip_protocol(rpath)
        if id_of(path) is None and is_hidden(PurePosixPath(path)) and not self.isdir(path):
            [found] = self._changeable(path)
            if People(self.provider).hide(found, path):
                raise _refused(path, found, "another user has written its present version")
            path = f"id:{found.id}"  # the name may be another container's by now
        super().get_file(path, lpath, **kwargs)

    def cp_file(self, path1: str, path2: str, *, rename: bool = False, **kwargs: Any) -> None:
        """Copy a content into a container of the other name; the client encrypts it anew.

        With `rename`, give the container the other name instead.
        """
        del kwargs
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            return
        if rename:
            self._rename(path1, path2)
            return
        # `_open`: in a transaction, `open` would store the copy at the end of the transaction only.
        with (
            self.open(path1, "rb", cache_type="none") as source,
            closing(self._open(path2, "wb")) as copy,
        ):
            shutil.copyfileobj(source, copy, self.blocksize)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Rename containers: ids, contents and members stay. FileExistsError if the new name exists."""
        if self._strip_protocol(path1) != self._strip_protocol(path2):
            self.copy(path1, path2, recursive, maxdepth, on_error="raise", rename=True, **kwargs)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete containers for all their members. Nothing is deleted if one of them may not be."""
        names = list[str]()
        for each in self.expand_path(path, recursive=recursive, maxdepth=maxdepth):
            if not self.isdir(each):
                names.append(each)
            elif not recursive:
                raise IsADirectoryError(errno.EISDIR, "Pass recursive=True to delete it", each)
        self._delete(names)

    def rm_file(self, path: str) -> None:
        """Delete one container for all its members."""
        self._delete([self._strip_protocol(path)])

    # The primitives

    @contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """Raise the operating system's errors in place of the library's; drop an outdated listing."""
        try:
            yield
        except (errors.NotFoundError, errors.DeletedError) as error:
            self.invalidate_cache()
            raise FileNotFoundError(errno.ENOENT, error.message, path) from error
        except errors.ConflictError:
            self.invalidate_cache()
            raise
        except errors.PermissionDeniedError as error:
            raise PermissionError(errno.EACCES, error.message, path) from error

    def _listing(self) -> Listing:
        provider = self.provider
        return listings_of(provider).get(provider, self._everyone, self._max_age)

    def _by_id(self, path: str, id: uuid.UUID) -> Container:
        return self._each([path], [id], headers=False)[0]

    def _each(
        self, paths: Sequence[str], ids: Sequence[uuid.UUID], *, headers: bool
    ) -> list[Container]:
        """Return the containers with these ids; errors name their paths."""
        read: list[Any] = (
            containers_of(self.provider, ids)
            if headers
            else self.provider.getContainers(ids, content=False, headers=False).result()
        )
        found = list[Container]()
        for path, each in zip(paths, read, strict=True):
            with self.translated(path):
                if isinstance(each, errors.BrokerError):
                    raise each
                found.append(each)
        return found

    def _container(self, path: str, *, exact: bool = False) -> Entry:
        """Return the one container of a path as by `Listing.one`; FileNotFoundError without one."""
        if id := id_of(path):
            return Entry.of(self._by_id(path, id))
        listing = self._listing()
        if (found := listing.one(path, exact=exact)) is not None:
            return found
        if listing.info(path) is not None:
            raise IsADirectoryError(errno.EISDIR, "It is a folder", path)
        raise _not_found(path, listing.strangers)

    def _changeable(self, *paths: str, ids: Sequence[uuid.UUID] = ()) -> list[Container]:
        """Read the containers of these paths, or ids, again; raise unless each may be changed by its path.

        Another user can give a container any name: as its creator, or as a member with Upload. So a path with
        a name must be that of a container that no other user can have named; a path with an id can be of any.
        """
        ids = ids or [self._container(path, exact=True).id for path in paths]
        all_found = self._each(paths, ids, headers=True)
        own = self.provider.getUserId().result()
        for path, found in zip(paths, all_found, strict=True):
            if id_of(path) is not None:
                continue
            if path_of(found) != path:  # renamed since it was listed
                self.invalidate_cache()
                raise _not_found(path)
            if others_can_change(found, own):
                raise _refused(path, found, "others than you may have named it")
        return all_found

    def _reader(self, path: str) -> scbroker.ContentReader | None:
        """Return a reader of a container's content; None if it has none."""
        found = self._container(path)
        with self.translated(path):
            reader = self.provider.openContainerContent(found.id).result()
        if reader is None and found.size != 0:
            raise PermissionError(errno.EACCES, "Your permissions hide the content", path)
        return reader

    def _target(self, path: str, *, exclusive: bool = False) -> Container | None:
        """Return the container whose content a write to this path replaces; None if it creates one."""
        if (id := id_of(path)) is None:
            filesystem_path(path)
            if (found := self._listing().one(path)) is None:
                return None
            id = found.id
        if exclusive:
            raise FileExistsError(errno.EEXIST, "A container has this name", path)
        return self._changeable(path, ids=[id])[0]

    def target_now(
        self, path: str, target: Container | None, *, exclusive: bool
    ) -> Container | None:
        """Read the target of a file that was opened before again; raise unless it still may be changed.

        It is read by its id: another container may have the name by now. Without a target, return that of a
        container that this program has created since, or raise FileExistsError if `exclusive`.
        """
        if target is not None:
            [target] = self._changeable(path, ids=[target.id])
        elif listings_of(self.provider).knows(path):
            target = self._target(path, exclusive=exclusive)
        return target

    def claimed(self, path: str) -> AbstractContextManager[None]:
        """Let no other thread give a container this name in the block."""
        return listings_of(self.provider).claimed(path)

    def send(
        self, path: str, target: Container | None, content: Content
    ) -> scbroker.Promise[scbroker.SecuredContainer]:
        """Create a container, or replace the content of `target`."""
        if target is None:
            return self.provider.createContainer(content, header_with(path))
        return self.provider.updateContainerContent(target.id, content)

    def remove_time(self, target: Container) -> None:
        """Remove the time of the file from a header that `scbroker put` wrote.

        Otherwise `put` would skip a file of that time if the new content has the same size. It is removed
        before the last bytes are sent: if the broker refuses them, `put` sends the file once more.
        """
        header = header_of(target)
        if header is not None and header.pop("modified", None) is not None:
            self.provider.updateContainerHeader(
                target.id, header, ifVersion=target.version
            ).result()

    def stored(self, path: str, made: scbroker.SecuredContainer) -> None:
        """Note in the listing what a file has stored."""
        self._note(path, path, made.id, Entry.of(made, made.createdBy))

    def _note(self, path: str, new: str, id: uuid.UUID, entry: Entry | None) -> None:
        """Note in the listing that the container of `path` is named `new` now, or was deleted."""
        if id_of(path) is None:
            listings_of(self.provider).change(id, path, new, entry)
        else:  # a path with an id: the container's name is not known here
            self.invalidate_cache()

    def _rename(self, path: str, new: str) -> None:
        filesystem_path(new)
        with self.claimed(new), self.translated(path):
            if self._listing().info(new) is not None:
                raise FileExistsError(errno.EEXIST, "This name exists already", new)
            [found] = self._changeable(path)
            header = header_of(found)
            if header is None and found.hasHeader:
                raise PermissionError(errno.EACCES, "Its header is hidden, or has no names", path)
            renamed = header_with(new, header)
            made = self.provider.updateContainerHeader(
                found.id, renamed, ifVersion=found.version
            ).result()
            self._note(path, new, made.id, Entry.of(made, made.createdBy))

    def _delete(self, paths: list[str]) -> None:
        """Delete the containers of all paths, or none if one of them may not be changed."""
        found = self._changeable(*paths)
        for start in range(0, len(found), _AT_ONCE):
            some = found[start : start + _AT_ONCE]
            deleting = [self.provider.deleteContainer(each.id) for each in some]
            for path, each, promise in zip(paths[start:], some, deleting, strict=False):
                with self.translated(path):
                    promise.result()
                self._note(path, path, each.id, None)


def _not_found(path: str, strangers: int = 0) -> FileNotFoundError:
    text = "No container that you see has this name"
    if strangers:
        text += (
            f" (left out are {strangers} of users who are not your contacts: add the users, or pass "
            "everyone=True)"
        )
    return FileNotFoundError(errno.ENOENT, text, path)


def _refused(path: str, found: Container, why: str) -> PermissionError:
    text = f"Use scbroker://id:{found.id} if you mean this container, because {why}"
    return PermissionError(errno.EACCES, text, path)


def _kept_session(
    user_id: uuid.UUID | str | None, session_store: str | None, trust_store: str | None
) -> scbroker.ServerProvider:
    """Return a provider with the kept session of a user, at the broker that the environment names.

    Raises `NotAuthenticatedError` if no session is kept, and `InvalidArgumentError` without the variables.
    """
    texts = (None if user_id is None else str(user_id), session_store, trust_store)
    process = os.getpid()  # the child of a fork needs a session of its own
    key = (process, *(os.environ.get(name) for name in _VARIABLES), *texts)
    with _locks.setdefault(process, threading.Lock()):
        if (found := _sessions.get(key)) is not None and _is_open(found):
            return found
        try:
            provider = scbroker.ServerProvider.fromEnvironment(
                sessionStore=session_store, trustStore=trust_store
            )
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(f"{error.message} {_OTHERWISE}") from None
        try:
            provider.resumeSession(user_id).result()
        except errors.BrokerError as error:
            provider.close()
            if isinstance(error, errors.NotAuthenticatedError):
                raise errors.NotAuthenticatedError(f"{error.message} {_OTHERWISE}") from None
            raise
        _sessions[key] = provider
        return provider


def _is_open(provider: scbroker.ServerProvider) -> bool:
    try:
        provider.getUserId().result()
    except errors.NotAuthenticatedError:  # the program has closed it, or logged out
        return False
    return True
