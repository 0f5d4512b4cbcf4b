"""Define the commands that read contents, into files and to standard output, and that delete and rename."""

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
from scbroker.cli.command import CONTAINERS, Checksum, Run, Yes, command
from scbroker.cli.files import STREAM, Folder, is_same_time, modified_of, time_of, translated
from scbroker.cli.names import (
    ContainerArgument,
    ContainersArgument,
    Everyone,
    Recursive,
    is_whole,
    label_of,
)
from scbroker.cli.output import Row, Size, harmless
from scbroker.cli.together import Together, do_each, tried
from scbroker.desk.names import Container, check_free, containers_of, header_of, is_damaged, name_of
from scbroker.desk.paths import OWN, collision_key, relative_path
from scbroker.desk.people import counted, is_own, some
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
        why = "would make hidden files that others than you can change: `scbroker get ID -o FILE` gets one"
        found = without(run, found, lambda each: run.people.hide(each, name_of(each) or ""), why)
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
) -> list[Container]:
    """Return the containers that the arguments name, each once; `newest` as in `Names.ids_of`."""
    if recursive:
        return containers_below(run, texts, everyone=everyone)
    ids = list(dict.fromkeys(run.names.ids_of(texts, newest=newest)))
    results = zip(ids, containers_of(run.session, ids), strict=True)
    return list(run.succeeded(dict(results)).values())


def containers_below(
    run: Run, texts: Sequence[str], *, everyone: bool, known: Collection[uuid.UUID] = ()
) -> list[Container]:
    """Return the containers below folders; without `everyone`, leave out strangers' and say how many."""
    found = {each.id: each for text in texts for each in run.names.below(text, known)}.values()
    if everyone:
        return list(found)
    why = "people who are not your contacts can change, or have named: --everyone takes them too"
    return without(run, found, lambda each: run.people.may_change(each, known), why)


def without(
    run: Run, found: Collection[Container], is_left_out: Callable[[Container], bool], why: str
) -> list[Container]:
    """Return the containers without those to leave out, and say how many were left out."""
    kept, left_out = list[Container](), list[Container]()
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
    found: list[Container],
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

    container: Container
    path: PurePosixPath


def _name_of(item: _Item) -> str:
    return label_of(item.container)


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

    def save(self, found: list[Container]) -> None:
        """Save the contents, but for files that are there already."""
        items: list[_Item] = []
        unchanged: list[tuple[_Item, Row]] = []
        for item in self._with_own_paths(found):
            try:
                if self._is_there(item):
                    row = self._row(item, item.container.length or 0, "unchanged")
                    unchanged.append((item, row))
                else:
                    items.append(item)
            except errors.BrokerError as error:
                self.run.failed(_name_of(item), error)
        what = f"{len(items)} contents" if len(items) > 1 else "".join(map(_name_of, items))
        size = sum(item.container.length or 0 for item in items)

        def work(together: Together) -> Iterable[tuple[_Item, Row | errors.BrokerError]]:
            alone, batch = partial(self._save, together), partial(self._save_batch, together)
            return together.each(items, alone, batch, lambda each: each.container.length, _SMALL)

        do_each(self.run, what, size, _name_of, _COLUMNS, work, unchanged)

    def _path_of(self, container: Container) -> PurePosixPath:
        """Return the path for a content. Raises `InvalidArgumentError` if the name is missing or unsafe."""
        if self.file is not None:
            return self.file
        name = name_of(container)
        if name is None:
            why = "'s header is damaged" if is_damaged(container) else " has no name"
            raise errors.InvalidArgumentError(f"The container{why}: name a file with --output.")
        try:
            return self.run.people.path_of(container, name, alone=not self.recursive)
        except errors.InvalidArgumentError as error:
            raise errors.InvalidArgumentError(
                f"{error.message} `{self.how} {container.id} --output FILE` names the file."
            ) from None

    def _with_own_paths(self, found: list[Container]) -> Iterator[_Item]:
        """Yield the containers with their paths, each path once.

        Anybody can share a container with any name. So if several containers have the same path, or paths
        that differ only in invisible characters, only the one that the user created and named is written
        (with `recursive`, the newest of several that nobody else can have named); each of the others is an
        error. Paths that differ only in case are all written if the folder distinguishes case.
        """
        run, user = self.run, self.run.people.own_id
        paths: dict[str, list[_Item]] = {}
        several: dict[str, list[_Item]] = {}

        def refuse(item: _Item, why: str) -> None:
            how = f"`{self.how} {item.container.id} --output FILE` gets this one"
            run.failed(_name_of(item), errors.AlreadyExistsError(f"{why}: {how}."))

        for container in found:
            try:
                item = _Item(container, self._path_of(container))
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

    def _save_batch(
        self, together: Together, items: Sequence[_Item]
    ) -> list[Row | errors.BrokerError]:
        """Save small contents, which are read by one request."""
        ids = [item.container.id for item in items]
        results = together.wait(self.run.session.getContainers(ids, headers=False))

        def write(item: _Item, result: Container | errors.BrokerError) -> Row:
            if isinstance(result, errors.BrokerError):
                raise result
            if result.content is None:
                raise no_content(result)
            self.folder.write(result.content, item.path, **self._options(item))
            together.progress(item.path, len(result.content))
            return self._row(item, len(result.content))

        return [tried(write, *each) for each in zip(items, results, strict=True)]

    def _save(self, together: Together, item: _Item) -> Row:
        """Save a large content through a temporary file whose name lets the next run resume the download."""
        container, temporary = item.container, self.folder.path / f"{OWN}-{item.container.id.hex}"
        try:
            saving = self.run.session.saveContainerContent(
                container.id, temporary, progress=together.progress_of(item.path)
            )
            length = together.wait(saving)
            if length is None:
                raise no_content(container)
            self.folder.place(temporary, item.path, **self._options(item))
        finally:
            temporary.unlink(missing_ok=True)
        return self._row(item, length)

    def _options(self, item: _Item) -> dict[str, Any]:
        """Return how to put a file into place: what replaces another one is synced first."""
        modified = modified_of(item.container)
        return {"replace": self.force, "modified": modified, "sync": self.force}

    def _row(self, item: _Item, length: int, status: str = "saved") -> Row:
        row = {"name": name_of(item.container), "status": status, "id": item.container.id}
        return {**row, "length": Size(length), "path": str(self.given_folder / item.path)}


def has_content(run: Run, container: Container, file: BinaryIO) -> bool:
    """Return whether a file has exactly the bytes of a content, which are read and verified."""
    with Together() as together:
        parts = pieces(run.session, container, together)
        return all(file.read(len(each)) == each for each in parts) and not file.read(1)


def no_content(container: Container | None = None) -> errors.BrokerError:
    """Return the error for a content that does not exist, or that the permissions hide."""
    if container is not None and not container.hasContent:
        return errors.NotFoundError("The container has no content.")
    return errors.PermissionDeniedError(
        "Your permissions on this container hide the content: ask a member for Download and Decrypt."
    )


def _write_out(run: Run, containers: list[Container]) -> None:
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
    session: scbroker.ServerProvider, container: Container, together: Together
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


_DELETED: Final = {"name": "NAME", "status": "STATUS", "id": "ID"}


@command(CONTAINERS)
def rm(
    run: Run,
    containers: ContainersArgument,
    recursive: Recursive = False,
    everyone: Everyone = False,
    yes: Yes = False,
) -> None:
    """Delete containers for all of their members.

    This cannot be undone, and needs the permission Delete. `scbroker leave` gives up your own access only.

    A container of yours to which somebody else has given its name is deleted by its whole id alone.
    """
    found = found_containers(run, containers, recursive=recursive, everyone=everyone)
    own, given = run.people.own_id, found
    found = []
    for each in given:
        is_named = each.createdBy != own or is_own(each, own)
        if is_named or any(is_whole(text, each.id) for text in containers):
            found.append(each)
            continue
        who = run.people.name_of(each.headerBy or each.createdBy)
        refused = errors.InvalidArgumentError(
            f"{who} has given this name: `scbroker rm {each.id}` deletes the container."
        )
        run.failed(label_of(each), refused)
    if not found:
        return
    others = [run.people.others_of(each) for each in found]
    people = {name for each in others for name in each or []}
    also = f" for everybody, also for {some(sorted(people))}" if people else ""
    if None in others:
        also = " for everybody, also for members whom you cannot see"
    what = some(repr(label_of(each)) for each in found)
    run.confirm(f"Delete {what}{also}? It cannot be undone.", yes)

    def work(together: Together) -> Iterable[tuple[Any, Row | errors.BrokerError]]:
        def delete(container: Container) -> Row:
            together.wait(run.session.deleteContainer(container.id))
            together.progress(container.id, 1)
            return {"name": name_of(container), "status": "deleted", "id": container.id}

        return together.each(found, delete)

    do_each(run, "Deleting", len(found), label_of, _DELETED, work, of_bytes=False)


@command(CONTAINERS)
def mv(
    run: Run,
    container: ContainerArgument,
    name: Annotated[
        str, typer.Argument(metavar="NEW-NAME", help="The new name, with / for folders.")
    ],
) -> None:
    """Give a container another name.

    All members see the new name. Nothing else in the header changes. This needs the permission Upload.
    """
    new = str(relative_path(name))
    found = run.names.container(container)
    version = rename(run, found, new)
    row = {"id": found.id, "name": new, "version": version}
    run.out.done(row, f"{label_of(found)!r} is {new!r} now.")


def rename(run: Run, found: Container, new: str) -> int:
    """Give a container a name that no other one of the user has, and return its new version."""
    check_free(run.session, new, run.people.own_id, found.id)
    header = header_of(found)
    if header is None and found.hasHeader and not is_damaged(found):
        raise errors.InvalidArgumentError(
            f"The container {label_of(found)!r} cannot be renamed: its header is hidden from you, or another "
            "program wrote it in a form without names."
        )
    renamed = {**(header or {}), "name": new}
    changing = run.session.updateContainerHeader(found.id, renamed, ifVersion=found.version)
    return changing.result().version
