"""Define the commands that read contents: into files, and to standard output."""

from __future__ import annotations

import codecs
import itertools
import re
import stat
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import CONTAINERS, Checksum, command
from scbroker.cli.files import STREAM, is_same_time, modified_of, time_of
from scbroker.cli.names import ContainersArgument, Everyone, Recursive, label_of
from scbroker.cli.output import Size, harmless
from scbroker.cli.paths import Folder, translated
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, Total, do_each, jobs_of
from scbroker.desk.names import containers_of, is_damaged, name_of
from scbroker.desk.paths import OWN, collision_key
from scbroker.desk.people import counted
from scbroker.desk.strangers import Strangers, is_own
from scbroker.folders import make_folder
from scbroker.spelling import without_invisible

_COLUMNS: Final = {"name": "NAME", "status": "STATUS", "length": "SIZE", "path": "FILE"}
_SMALL: Final = 65_536
"""Bytes: contents up to this size are read in batches."""
_PIECE: Final = 8_388_608
_HARMLESS: Final = re.compile("[\t\n\u00ad\u200c\u200d\ufeff]|\r\n")
"""Characters that `harmless` escapes and plain text may have: tab, line end, joiner, soft hyphen, BOM."""

Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist.")]


@command(CONTAINERS)
def get(
    run: Run,
    containers: ContainersArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file or folder to write; `-` writes to standard output. By default a file in this "
            "folder.",
        ),
    ] = None,
    recursive: Recursive = False,
    everyone: Everyone = False,
    force: Force = False,
    checksum: Checksum = False,
) -> None:
    """Save contents to files.

    A file gets the last part of the container's name; with --recursive the whole name, as a path. It has the
    time of the file that was stored, and only you can read it. It gets its name once all of it is verified.

    An existing file is not overwritten without --force. It is skipped as "unchanged" if it has the size and
    time of the stored one; with --checksum, if it has the same bytes, all of which are read from the broker.
    So after an interruption, run the same command again: it skips the files that are complete, and resumes a
    large one where it stopped. With --force every file is written.

    With --recursive, the command gets the containers that nobody can change but you, your contacts, and
    members of groups that you or a contact made; with --everyone, also those of other people. It gets hidden
    files only of containers that nobody but you can change.
    """
    found = found_containers(run, containers, recursive=recursive, everyone=everyone, newest=True)
    if recursive and not everyone:
        strangers = Strangers(run.session)
        why = "would make hidden files that others than you can change: `scbroker get ID -o FILE` gets one"
        found = without(run, found, lambda each: strangers.hide(each, name_of(each) or ""), why)
    save(run, found, output, recursive=recursive, force=force, checksum=checksum)


@command(CONTAINERS)
def cat(run: Run, containers: ContainersArgument) -> None:
    """Write contents to standard output.

    Several contents come one after the other. A terminal shows plain text only, because control characters
    could act on it. For other contents, use a pipe or `scbroker get`.
    """
    _write_out(run, found_containers(run, containers, recursive=False, newest=True))


def found_containers(
    run: Run, texts: list[str], *, recursive: bool, everyone: bool = False, newest: bool = False
) -> list[scbroker.Container[Any]]:
    """Return the containers that the arguments name, each once; `newest` as in `Names.ids_of`."""
    if recursive:
        return containers_below(run, texts, everyone=everyone)
    ids = list(dict.fromkeys(run.names.ids_of(texts, newest=newest)))
    results = containers_of(run.session, ids)
    containers: list[scbroker.Container[Any]] = []
    for container_id, result in zip(ids, results, strict=True):
        if isinstance(result, errors.BrokerError):
            run.failed(str(container_id), result)
        else:
            containers.append(result)
    return containers


def containers_below(
    run: Run, texts: Sequence[str], *, everyone: bool, known: Collection[uuid.UUID] = ()
) -> list[scbroker.Container[Any]]:
    """Return the containers below folders; without `everyone`, leave out strangers' and say how many."""
    found = {each.id: each for text in texts for each in run.names.below(text, known)}.values()
    if everyone:
        return list(found)
    why = "people who are not your contacts can change, or have named: --everyone takes them too"
    return without(run, found, Strangers(run.session, known).may_change, why)


def without(
    run: Run,
    found: Collection[scbroker.Container[Any]],
    is_left_out: Callable[[scbroker.Container[Any]], bool],
    why: str,
) -> list[scbroker.Container[Any]]:
    """Return the containers without those to leave out, and say how many were left out."""
    kept, left_out = list[scbroker.Container[Any]](), list[scbroker.Container[Any]]()
    for each in found:
        (left_out if is_left_out(each) else kept).append(each)
    if left_out:
        number, example = counted(len(left_out), "container"), label_of(left_out[0])
        message = f"Left out below the folder: {number} (such as {example!r}), which {why}."
        if not kept:
            raise errors.NotFoundError(message)
        run.out.say(message)
    return kept


def save(
    run: Run,
    found: list[scbroker.Container[Any]],
    output: str | None,
    *,
    recursive: bool,
    force: bool,
    checksum: bool = False,
    how: str = "scbroker get",
) -> None:
    """Write contents to files, or to standard output; messages suggest the command `how`."""
    if output == STREAM:
        _write_out(run, found)
        return
    strangers = Strangers(run.session)
    with _Target(output, recursive or len(found) > 1, how, strangers) as target:
        _transfer(run, found, target, recursive=recursive, force=force, checksum=checksum)


class _Target:
    """The folder that files are written to, or the one file that `--output` names."""

    def __init__(self, output: str | None, is_folder: bool, how: str, strangers: Strangers) -> None:
        """Open the folder of `--output`, which is created if it does not exist."""
        path = Path(output or ".")
        self.how, self._strangers, self._file = how, strangers, None
        if is_folder or path.is_dir() or str(output).endswith("/"):
            with translated(path):
                make_folder(path)
        else:
            self._file, path = PurePosixPath(path.name), path.parent
        self.folder, self.given_folder = Folder(path), path

    def __enter__(self) -> _Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.close()

    def path_of(self, container: scbroker.Container[Any], *, recursive: bool) -> PurePosixPath:
        """Return the path for a content. Raises `InvalidArgumentError` if the name is missing or unsafe."""
        if self._file is not None:
            return self._file
        name = name_of(container)
        if name is None:
            why = "'s header is damaged" if is_damaged(container) else " has no name"
            raise errors.InvalidArgumentError(f"The container{why}: name a file with --output.")
        try:
            return self._strangers.path_of(container, name, alone=not recursive)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message} `{self.how} {container.id} --output FILE` names the file."
            ) from None


@dataclass(frozen=True, slots=True)
class _Item:
    """A container and the path of the file for its content."""

    container: scbroker.Container[Any]
    path: PurePosixPath
    folder: Path
    """The folder that `path` is in, as `--output` names it."""

    @property
    def name(self) -> str:
        return label_of(self.container)

    def size_of(self) -> int:
        return self.container.length or 0

    def outcome(self, status: str, result: int | errors.BrokerError) -> Outcome:
        """Return the outcome of saving the content; `result` is its number of bytes, or the error."""
        if isinstance(result, errors.BrokerError):
            return Outcome(self.name, result)
        row = {"name": name_of(self.container), "status": status, "id": self.container.id}
        return Outcome(
            self.name, {**row, "length": Size(result), "path": str(self.folder / self.path)}
        )


def _transfer(
    run: Run,
    found: list[scbroker.Container[Any]],
    target: _Target,
    *,
    recursive: bool,
    force: bool,
    checksum: bool,
) -> None:
    items: list[_Item] = []
    unchanged: list[Outcome] = []
    for item in _with_own_paths(run, found, target, recursive=recursive):
        try:
            if _is_there(run, item, target.folder, force=force, checksum=checksum):
                unchanged.append(item.outcome("unchanged", item.container.length or 0))
            else:
                items.append(item)
        except errors.BrokerError as error:
            run.failed(item.name, error)
    what = f"{len(items)} contents" if len(items) > 1 else "".join(item.name for item in items)
    size = sum(map(_Item.size_of, items))

    def jobs(together: Together, total: Total) -> Iterable[Job]:
        receiving = _Receiving(run.session, target.folder, force, together, total)
        return jobs_of(
            items, lambda item: item.container.length, _SMALL, receiving.save_batch, receiving.save
        )

    do_each(run, what, size, jobs, _COLUMNS, unchanged)


def _with_own_paths(
    run: Run, found: list[scbroker.Container[Any]], target: _Target, *, recursive: bool
) -> Iterator[_Item]:
    """Yield the containers with their paths, each path once.

    Anybody can share a container with any name. So if several containers have the same path, or paths that
    differ only in invisible characters, only the one that the user created and named is written (with
    `recursive`, the newest of several that nobody else can have named); each of the others is an error. Paths
    that differ only in case are all written if the folder distinguishes case.
    """
    user = run.session.getUserId().result()
    paths: dict[str, list[_Item]] = {}
    several: dict[str, list[_Item]] = {}
    for container in found:
        try:
            path = target.path_of(container, recursive=recursive)
            item = _Item(container, path, target.given_folder)
            paths.setdefault(without_invisible(str(item.path)), []).append(item)
        except errors.InvalidArgumentError as error:
            run.failed(label_of(container), error)
    for items in paths.values():
        own = [item for item in items if is_own(item.container, user)]
        if (
            recursive and len({each.path for each in own}) == 1
        ):  # the whole names are equal: without `recursive`, only their last parts
            left = run.names.without_twins(str(items[0].path), [each.container for each in own])
            own = [each for each in own if each.container in left]
            items = [each for each in items if not is_own(each.container, user) or each in own]
        chosen = next((each for each in (items, own) if len(each) == 1), [])
        for item in chosen:
            several.setdefault(collision_key(str(item.path)), []).append(item)
        for item in items:
            if item not in chosen:
                refused = errors.AlreadyExistsError(
                    f"{len(items)} containers have this name: `{target.how} {item.container.id} "
                    "--output FILE` gets this one."
                )
                run.failed(item.name, refused)
    for items in several.values():
        items.sort(key=lambda item: not is_own(item.container, user))
        kept = target.folder.told_apart([item.path for item in items])
        for item in items:
            if item.path in kept:
                yield item
            else:
                refused = errors.AlreadyExistsError(
                    f"The folder takes this name for that of {label_of(items[0].container)!r}: "
                    f"`{target.how} {item.container.id} --output FILE` gets this one."
                )
                run.failed(item.name, refused)


def _is_there(run: Run, item: _Item, folder: Folder, *, force: bool, checksum: bool) -> bool:
    """Return whether the file exists with the content's size and time, or, with `checksum`, with its bytes.

    Raises `AlreadyExistsError` for a different file, unless `force` is set, which replaces it.
    """
    state = folder.status(item.path)
    if state is None:
        return False
    path = str(folder.path / item.path)
    if not stat.S_ISREG(state.st_mode):
        raise errors.AlreadyExistsError(
            f"{path!r} exists and is not a regular file: name another one with --output."
        )
    if force:
        return False
    if state.st_size == item.container.length:
        if checksum:
            with folder.open(item.path) as file:
                is_same = has_content(run, item.container, file)
        else:
            is_same = is_same_time(time_of(state), modified_of(item.container))
        if is_same:
            return True
    raise errors.AlreadyExistsError(
        f"{path!r} exists already, and differs: --force overwrites it, --output names another file."
    )


def has_content(run: Run, container: scbroker.Container[Any], file: BinaryIO) -> bool:
    """Return whether a file has exactly the bytes of a content, which are read and verified."""
    with Together() as together:
        parts = pieces(run.session, container, together)
        return all(file.read(len(each)) == each for each in parts) and not file.read(1)


class _Receiving:
    """The transfer of contents to files."""

    def __init__(
        self,
        session: scbroker.ServerProvider,
        folder: Folder,
        force: bool,
        together: Together,
        total: Total,
    ) -> None:
        self._session, self._folder, self._force = session, folder, force
        self._together, self._total = together, total

    def save_batch(self, items: Sequence[_Item]) -> list[Outcome]:
        """Save small contents, which are read by one request."""
        ids = [item.container.id for item in items]
        results = self._together.wait(self._session.getContainers(ids, headers=False))
        return [self._written(*each) for each in zip(items, results, strict=True)]

    def _written(
        self, item: _Item, result: scbroker.Container[Any] | errors.BrokerError
    ) -> Outcome:
        if isinstance(result, errors.BrokerError):
            return item.outcome("saved", result)
        if result.content is None:
            return item.outcome("saved", no_content(result))
        try:
            self._folder.write(
                result.content,
                item.path,
                replace=self._force,
                modified=modified_of(item.container),
                sync=self._force,
            )
        except errors.BrokerError as error:
            return item.outcome("saved", error)
        self._total.set(item.path, len(result.content))
        return item.outcome("saved", len(result.content))

    def save(self, item: _Item) -> list[Outcome]:
        """Save a large content through a temporary file whose name lets the next run resume the download."""
        container, temporary = item.container, self._folder.path / f"{OWN}-{item.container.id.hex}"
        try:
            progress = self._total.of(item.path)
            saving = self._session.saveContainerContent(container.id, temporary, progress=progress)
            length = self._together.wait(saving)
            if length is None:
                return [item.outcome("saved", no_content(container))]
            self._folder.place(
                temporary,
                item.path,
                replace=self._force,
                modified=modified_of(container),
                sync=self._force,
            )
        except errors.BrokerError as error:
            return [item.outcome("saved", error)]
        finally:
            temporary.unlink(missing_ok=True)
        return [item.outcome("saved", length)]


def no_content(container: scbroker.Container[Any]) -> errors.BrokerError:
    """Return the error for a container without a content that the user can read."""
    if not container.hasContent:
        return errors.NotFoundError("The container has no content.")
    return hidden_content()


def hidden_content() -> errors.BrokerError:
    """Return the error for a container that the user may not read."""
    return errors.PermissionDeniedError(
        "Your permissions on this container hide the content: ask a member for Download and Decrypt."
    )


def _write_out(run: Run, containers: list[scbroker.Container[Any]]) -> None:
    """Write contents to standard output, in constant memory."""
    size = sum(container.length or 0 for container in containers)
    what = ", ".join(map(label_of, containers))
    is_terminal = sys.stdout.isatty()
    # No progress bar on a terminal that shows the content: it would appear amid the text.
    bar = nullcontext(lambda _: None) if is_terminal else run.out.progress(what, size)
    with bar as show, Together() as together:
        total = Total(show)
        for container in containers:
            parts = pieces(run.session, container, together)
            for piece in plain_text(parts, label_of(container)) if is_terminal else parts:
                sys.stdout.buffer.write(piece)
                total.add(len(piece))
            sys.stdout.buffer.flush()


def pieces(
    session: scbroker.ServerProvider, container: scbroker.Container[Any], together: Together
) -> Iterator[bytes]:
    """Yield a content in pieces; each is fetched while the one before is written."""
    reader = together.wait(session.openContainerContent(container.id))
    if reader is None:
        raise no_content(container)
    with reader:
        starts = range(0, reader.size, _PIECE)
        promises = (reader.readRange(start, _PIECE) for start in starts)
        prefetched = next(promises, None)
        while prefetched is not None:
            present, prefetched = prefetched, next(promises, None)
            yield together.wait(present)


def plain_text(pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield pieces of a text. Raises `InvalidArgumentError` before anything that could steer a terminal."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    rest = ""
    for piece in itertools.chain(pieces, [None]):
        try:
            text = rest + decoder.decode(piece or b"", final=piece is None)
        except UnicodeDecodeError:
            text = "\0"
        # A Windows line end may be split between two pieces: keep its "\\r" for the next one.
        rest = "\r" if text.endswith("\r") and piece is not None else ""
        text = text.removesuffix(rest)
        visible = _HARMLESS.sub("", text)
        if harmless(visible) != visible:
            raise errors.InvalidArgumentError(
                f"{name!r} is not plain text, and a terminal could act on it: use a pipe, or `scbroker get`."
            )
        yield text.encode()
