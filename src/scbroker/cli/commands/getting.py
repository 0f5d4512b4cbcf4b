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
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, Final, NamedTuple

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli.command import CONTAINERS, Checksum, command
from scbroker.cli.files import STREAM, is_same_time, modified_of, time_of
from scbroker.cli.names import ContainersArgument, Everyone, Recursive, label_of
from scbroker.cli.output import Size, harmless
from scbroker.cli.paths import Folder, translated
from scbroker.cli.run import Run
from scbroker.cli.together import Job, Outcome, Together, do_each, jobs_of
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

OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The file or folder to write; `-` writes to standard output.",
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist.")]


@command(CONTAINERS)
def get(
    run: Run,
    containers: ContainersArgument,
    output: OutputOption = None,
    recursive: Recursive = False,
    everyone: Everyone = False,
    force: Force = False,
    checksum: Checksum = False,
) -> None:
    """Save contents to files.

    Without --output, a file in this folder gets the last part of the container's name; with --recursive the
    whole name, as a path. It has the time of the file that was stored, and only you can read it. It gets its
    name once all of it is verified.

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
    path, file = Path(output or "."), None
    if recursive or len(found) > 1 or path.is_dir() or str(output).endswith("/"):
        with translated(path):
            make_folder(path)
    else:
        file, path = PurePosixPath(path.name), path.parent
    with Folder(path) as folder:
        _Saving(run, folder, path, file, recursive, force, checksum, how).save(found)


class _Item(NamedTuple):
    """A container and the path of the file for its content."""

    container: scbroker.Container[Any]
    path: PurePosixPath

    @property
    def name(self) -> str:
        return label_of(self.container)


class _Saving(NamedTuple):
    """Saves contents below a folder, or to the one `file` in it that `--output` names."""

    run: Run
    folder: Folder
    given_folder: Path
    """The folder as `--output` names it."""
    file: PurePosixPath | None
    recursive: bool
    force: bool
    checksum: bool
    how: str
    """The command that messages suggest."""

    def save(self, found: list[scbroker.Container[Any]]) -> None:
        """Save the contents, but for files that are there already."""
        items: list[_Item] = []
        unchanged: list[Outcome] = []
        for item in self._with_own_paths(found):
            try:
                if self._is_there(item):
                    length = item.container.length or 0
                    unchanged.append(self._outcome(item, length, "unchanged"))
                else:
                    items.append(item)
            except errors.BrokerError as error:
                self.run.failed(item.name, error)
        what = f"{len(items)} contents" if len(items) > 1 else "".join(item.name for item in items)
        size = sum(item.container.length or 0 for item in items)

        def jobs(together: Together) -> Iterable[Job]:
            batch, alone = partial(self._save_batch, together), partial(self._save, together)
            return jobs_of(items, lambda item: item.container.length, _SMALL, batch, alone)

        do_each(self.run, what, size, jobs, _COLUMNS, unchanged)

    def _path_of(self, container: scbroker.Container[Any], strangers: Strangers) -> PurePosixPath:
        """Return the path for a content. Raises `InvalidArgumentError` if the name is missing or unsafe."""
        if self.file is not None:
            return self.file
        name = name_of(container)
        if name is None:
            why = "'s header is damaged" if is_damaged(container) else " has no name"
            raise errors.InvalidArgumentError(f"The container{why}: name a file with --output.")
        try:
            return strangers.path_of(container, name, alone=not self.recursive)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message} `{self.how} {container.id} --output FILE` names the file."
            ) from None

    def _with_own_paths(self, found: list[scbroker.Container[Any]]) -> Iterator[_Item]:
        """Yield the containers with their paths, each path once.

        Anybody can share a container with any name. So if several containers have the same path, or paths
        that differ only in invisible characters, only the one that the user created and named is written
        (with `recursive`, the newest of several that nobody else can have named); each of the others is an
        error. Paths that differ only in case are all written if the folder distinguishes case.
        """
        run, user = self.run, self.run.session.getUserId().result()
        strangers = Strangers(run.session)
        paths: dict[str, list[_Item]] = {}
        several: dict[str, list[_Item]] = {}

        def refuse(item: _Item, why: str) -> None:
            how = f"`{self.how} {item.container.id} --output FILE` gets this one"
            run.failed(item.name, errors.AlreadyExistsError(f"{why}: {how}."))

        for container in found:
            try:
                item = _Item(container, self._path_of(container, strangers))
                paths.setdefault(without_invisible(str(item.path)), []).append(item)
            except errors.InvalidArgumentError as error:
                run.failed(label_of(container), error)
        for items in paths.values():
            own = [item for item in items if is_own(item.container, user)]
            # With `recursive` the whole names are equal: otherwise only their last parts.
            if self.recursive and len({each.path for each in own}) == 1:
                left = run.names.without_twins(str(items[0].path), [each.container for each in own])
                own = [each for each in own if each.container in left]
                items = [each for each in items if not is_own(each.container, user) or each in own]
            chosen = next((each for each in (items, own) if len(each) == 1), [])
            for item in chosen:
                several.setdefault(collision_key(str(item.path)), []).append(item)
            for item in items:
                if item not in chosen:
                    refuse(item, f"{len(items)} containers have this name")
        for items in several.values():
            items.sort(key=lambda item: not is_own(item.container, user))
            kept = self.folder.told_apart([item.path for item in items])
            for item in items:
                if item.path in kept:
                    yield item
                else:
                    other = label_of(items[0].container)
                    refuse(item, f"The folder takes this name for that of {other!r}")

    def _is_there(self, item: _Item) -> bool:
        """Return whether the file exists with the content's size and time, or by `checksum` with its bytes.

        Raises `AlreadyExistsError` for a different file, unless `force` is set, which replaces it.
        """
        state = self.folder.status(item.path)
        if state is None:
            return False
        path = str(self.folder.path / item.path)
        if not stat.S_ISREG(state.st_mode):
            raise errors.AlreadyExistsError(
                f"{path!r} exists and is not a regular file: name another one with --output."
            )
        if self.force:
            return False
        if state.st_size == item.container.length:
            if self.checksum:
                with self.folder.open(item.path) as file:
                    is_same = has_content(self.run, item.container, file)
            else:
                is_same = is_same_time(time_of(state), modified_of(item.container))
            if is_same:
                return True
        raise errors.AlreadyExistsError(
            f"{path!r} exists already, and differs: --force overwrites it, --output names another file."
        )

    def _save_batch(self, together: Together, items: Sequence[_Item]) -> list[Outcome]:
        """Save small contents, which are read by one request."""
        ids = [item.container.id for item in items]
        results = together.wait(self.run.session.getContainers(ids, headers=False))
        return [self._written(together, *each) for each in zip(items, results, strict=True)]

    def _written(
        self, together: Together, item: _Item, result: scbroker.Container[Any] | errors.BrokerError
    ) -> Outcome:
        if isinstance(result, errors.BrokerError):
            return self._outcome(item, result)
        if result.content is None:
            return self._outcome(item, no_content(result))
        try:
            self.folder.write(result.content, item.path, **self._options(item))
        except errors.BrokerError as error:
            return self._outcome(item, error)
        together.progress(item.path, len(result.content))
        return self._outcome(item, len(result.content))

    def _save(self, together: Together, item: _Item) -> list[Outcome]:
        """Save a large content through a temporary file whose name lets the next run resume the download."""
        container, temporary = item.container, self.folder.path / f"{OWN}-{item.container.id.hex}"
        try:
            progress = together.progress_of(item.path)
            saving = self.run.session.saveContainerContent(
                container.id, temporary, progress=progress
            )
            length = together.wait(saving)
            if length is None:
                return [self._outcome(item, no_content(container))]
            self.folder.place(temporary, item.path, **self._options(item))
        except errors.BrokerError as error:
            return [self._outcome(item, error)]
        finally:
            temporary.unlink(missing_ok=True)
        return [self._outcome(item, length)]

    def _options(self, item: _Item) -> dict[str, Any]:
        """Return how to put a file into place: what replaces another one is synced first."""
        modified = modified_of(item.container)
        return {"replace": self.force, "modified": modified, "sync": self.force}

    def _outcome(
        self, item: _Item, result: int | errors.BrokerError, status: str = "saved"
    ) -> Outcome:
        """Return the outcome of saving a content; `result` is its number of bytes, or the error."""
        if isinstance(result, errors.BrokerError):
            return Outcome(item.name, result)
        row = {"name": name_of(item.container), "status": status, "id": item.container.id}
        path = str(self.given_folder / item.path)
        return Outcome(item.name, {**row, "length": Size(result), "path": path})


def has_content(run: Run, container: scbroker.Container[Any], file: BinaryIO) -> bool:
    """Return whether a file has exactly the bytes of a content, which are read and verified."""
    with Together() as together:
        parts = pieces(run.session, container, together)
        return all(file.read(len(each)) == each for each in parts) and not file.read(1)


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
        done = 0
        for container in containers:
            parts = pieces(run.session, container, together)
            for piece in plain_text(parts, label_of(container)) if is_terminal else parts:
                sys.stdout.buffer.write(piece)
                done += len(piece)
                show(done)
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
