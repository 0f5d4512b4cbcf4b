"""Show a container and what the broker can see of it; rename and delete it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import datetime as dt
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import scbroker
from scbroker import errors
from scbroker.cli.command import Run
from scbroker.cli.commands.getting import rename
from scbroker.cli.files import File, time_at
from scbroker.cli.output import harmless
from scbroker.cli.ui.session import (
    HOME,
    UPLOAD,
    Container,
    container_of,
    find,
    in_text,
    path_of,
    people_of,
    provider_of,
    session_of,
    show_of,
    shown_name,
)
from scbroker.cli.web.site import ask, done, fields
from scbroker.desk.names import check_free, name_of, shortened
from scbroker.desk.paths import relative_path
from scbroker.desk.people import SHARE, WRITE, People, in_words, modifier_is_member, some
from scbroker.vocabulary import ContainerAccessLevel

_EXCERPT: Final = 32
"""Bytes of each sealed part that the view of the broker's knowledge shows."""
_FIELDS: Final = 12
_LONGEST: Final = 80


def may(people: People, container: Container) -> dict[str, bool]:
    """Return which actions the user's permissions allow: the page offers no others.

    Only Delete is possible without seeing the list of members.
    """
    own = people.rights(container)
    delete = ContainerAccessLevel.Delete in own or container.access is None
    return {"rename": WRITE in own, "share": SHARE in own, "delete": delete}


async def _show(request: Request) -> Response:
    container = await container_of(request)
    people = await people_of(request)
    return show_of(
        request,
        "container.html",
        container,
        people=people,
        may=may(people, container),
        content=await session_of(request).do(lambda run: preview(run, container)),
        is_member=await session_of(request).do(
            lambda run: modifier_is_member(run.session, container)
        ),
    )


async def _rename(request: Request) -> Response:
    if request.method == "GET":
        container = await container_of(request)
        return show_of(request, "rename.html", container, own_name=name_of(container) or "")
    id, new = request.path_params["id"], str(relative_path(fields(request).get("name", "").strip()))
    await session_of(request).do(lambda run: rename(run, find(run, id), new))
    return done(request, f"The container is named {new!r} now.", path_of(id))


async def _delete(request: Request) -> Response:
    container = await container_of(request)
    if request.method == "POST":
        await provider_of(request).deleteContainer(container.id)
        return done(request, f"{shown_name(container)!r} is deleted.", HOME)
    others = (await people_of(request)).others(container)
    if others is None:
        also = "Members whom you cannot see lose it too."
    elif others:
        also = f"Others lose it too: {some(map(in_text, others))}."
    else:
        also = "Nobody else has access to it."
    return ask(
        request,
        f"Delete {shown_name(container)}?",
        [also, "It cannot be undone."],
        "Delete for everybody",
        path_of(container.id),
        is_dangerous=True,
    )


async def _broker(request: Request) -> Response:
    """Show what the broker can see of a container, and what it cannot.

    Both sides come from the container itself: from the bytes that the broker serves, and from what the user's
    keys open. docs/what-the-broker-sees.md has the whole list.
    """
    container, people = await container_of(request), await people_of(request)
    stored = await provider_of(request).getSecuredContainer(container.id)
    header = None if container.header is None else container.header.customHeaderObject
    return show_of(
        request,
        "broker_sees.html",
        container,
        own_name=name_of(container),
        stored=stored,
        sealed_header=_sealed(stored.sealedHeader),
        sealed_content=_sealed(stored.sealedContent),
        wrap=_sealed(stored.wrap),
        fields=_shown_fields(header),
        members=[
            (each, people.holder(each), in_words(each.permissions))
            for each in container.access or ()
        ],
        hides_members=container.access is None,
        may_hide_type=ContainerAccessLevel.ViewType not in people.rights(container),
    )


def _shown_fields(header: object) -> list[tuple[str, str]]:
    """Return the first fields of a header, each as a short text."""
    items: list[tuple[Any, Any]] = [*header.items()] if isinstance(header, dict) else []
    if header is not None and not items:
        items = [("header", header)]
    shown = [
        (
            shortened(str(key), _LONGEST),
            shortened(each if isinstance(each, str) else json.dumps(each), _LONGEST),
        )
        for key, each in items[:_FIELDS]
    ]
    more = len(items) - len(shown)
    return [*shown, ("…", f"{more} more fields")] if more else shown


def _sealed(octets: bytes | None) -> dict[str, object]:
    """Return a sealed part's size and first bytes at the broker; the size is None without a part."""
    if octets is None:
        return {"size": None, "excerpt": ""}
    more = "…" if len(octets) > _EXCERPT else ""
    return {"size": len(octets), "excerpt": octets[:_EXCERPT].hex(" ", 2) + more}


_PIECE: Final = 1_048_576
_HEAD: Final = 65_536
"""Bytes of a text that are shown."""
_IMAGE_BYTES: Final = 33_554_432
PDF: Final = "application/pdf"
_KINDS: Final = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb".{4}ftypavif", re.DOTALL), "image/avif"),
    (re.compile(rb"%PDF-[12]\.\d"), PDF),
)
_POLICY: Final = (
    "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The policy for contents: no script, style, frame, form or request, and an origin of its own."""
_STALL_SECONDS: Final = 300.0
"""Seconds to wait for the next piece of a file from the browser; then the upload fails."""


def media_type_of(head: bytes) -> str | None:
    """Return the type of a content that a browser may show, by its first bytes; None for any other."""
    return next((kind for pattern, kind in _KINDS if pattern.match(head)), None)


def text_of(head: bytes) -> str | None:
    """Return the start of a UTF-8 text, with deceptive characters escaped; None for other content."""
    try:
        # Incremental, because the end may cut a character.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(harmless(line.replace("\t", "    ")) for line in lines)


def _attachment(run: Run, container: Container) -> str:
    """Return a download's Content-Disposition; an unsafe file name is replaced by the container's id."""
    try:
        path = People(run.session).path_of(container, name_of(container) or "", alone=True)
        safe = path.name
    except errors.InvalidArgumentError:
        safe = str(container.id)
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", safe)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}"


async def _download(request: Request) -> Response:
    container, reader = await _open(request)
    disposition = await session_of(request).do(lambda run: _attachment(run, container))
    headers = {"Content-Disposition": disposition}
    return _stream(request, reader, "application/octet-stream", headers, is_use=True)


async def _shown(request: Request, kind: str) -> Response:
    """Send a content for display if its first bytes are of this media type; else raise `NotFoundError`."""
    _, reader = await _open(request)
    media_type = media_type_of(await reader.readRange(0, _HEAD))
    if media_type is None or not media_type.startswith(kind) or reader.size > _IMAGE_BYTES:
        reader.close()
        raise errors.NotFoundError("This content cannot be shown: download it.")
    headers = {"Content-Security-Policy": _POLICY, "Content-Disposition": "inline"}
    return _stream(request, reader, media_type, headers)


async def _open(request: Request) -> tuple[Container, scbroker.ContentReader]:
    id, wanted = request.path_params["id"], request.query_params.get("version")

    def opened(run: Run) -> tuple[Container, scbroker.ContentReader]:
        container = find(run, id)
        if wanted not in (None, str(container.version)):
            raise _changed()
        return container, _reader(run, container)

    return await session_of(request).do(opened)


def _stream(
    request: Request,
    reader: scbroker.ContentReader,
    media_type: str,
    headers: Mapping[str, str],
    *,
    is_use: bool = False,
) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        with reader:
            at = 0
            while at < reader.size:
                piece = await reader.readRange(at, _PIECE)
                if is_use:
                    session_of(request).use()
                yield piece
                at += len(piece)

    sized = {**headers, "Content-Length": str(reader.size), "Content-Type": media_type}
    return _Stream(pieces(), headers=sized)


class _Stream(StreamingResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the content; after an error, uvicorn closes the connection and the browser sees a cut file."""
        try:
            await super().__call__(scope, receive, send)
        except errors.BrokerError:
            return


def _reader(run: Run, container: Container) -> scbroker.ContentReader:
    """Open this version's content. Raises `NotFoundError` if none is readable, `ConflictError` if changed."""
    reader = run.session.openContainerContent(container.id).result()
    if reader is None:
        raise errors.NotFoundError("The container has no content that you can read.")
    if reader.version != container.version:
        reader.close()
        raise _changed()
    return reader


def _changed() -> errors.ConflictError:
    return errors.ConflictError(
        "The container was changed after this view was shown: open it again."
    )


def preview(run: Run, container: Container) -> dict[str, object]:
    """Return the kind of a content, and its beginning if it is a text, or the error of a damaged one."""
    if container.length is None:
        return {"kind": "hidden" if container.hasContent else "none"}
    try:
        with _reader(run, container) as reader:
            head = reader.read(_HEAD) or b""
            size = reader.size
    except errors.BrokerError as error:
        return {"kind": "fault", "text": error.message}
    media_type = media_type_of(head)
    if media_type is not None:
        kind = "pdf" if media_type == PDF else "image"
        return {"kind": kind if size <= _IMAGE_BYTES else "large"}
    text = text_of(head)
    if text is None:
        return {"kind": "other"}
    return {"kind": "text", "text": text, "is_cut": size > len(head)}


async def _upload(request: Request) -> Response:
    """Store a file. The body is read to its end also after an error: a browser reads no answer before."""
    try:
        file = _file(request)
        await session_of(request).check_broker()
        await session_of(request).do(
            lambda run: check_free(run.session, file.name, run.people.own_id)
        )
        made = await provider_of(request).createContainer(
            _body(request), customHeaderObject=file.header()
        )
    except errors.BrokerError:
        with contextlib.suppress(
            ClientDisconnect, RuntimeError
        ):  # RuntimeError: the body was already read to its end
            async for _ in request.stream():
                pass
        raise
    return JSONResponse({"path": path_of(made.id)})


def _file(request: Request) -> File:
    """Return a file's name and modification time, as the browser sent them."""
    query = request.query_params
    try:
        modified = time_at(int(query.get("modified", "")) * 1000)
    except ValueError:
        modified = dt.datetime.now(dt.UTC)
    return File(None, str(relative_path(query.get("name", ""))), None, modified)


def _body(request: Request) -> Iterator[bytes]:
    """Return the body of a request, as an iterator that another thread reads piece by piece.

    The browser waits while the pieces before are encrypted and sent: no more than a few are in memory. The
    iterator raises `InvalidArgumentError` if the browser sends no more.
    """
    stream, session, loop = request.stream(), session_of(request), asyncio.get_running_loop()

    def pieces() -> Iterator[bytes]:
        while True:
            waiting = asyncio.run_coroutine_threadsafe(anext(stream, None), loop)
            try:
                piece = waiting.result(_STALL_SECONDS)
            except (ClientDisconnect, TimeoutError):
                waiting.cancel()
                text = "The browser has sent no more of the file."
                raise errors.InvalidArgumentError(text) from None
            if piece is None:
                return
            session.use()
            yield piece

    return pieces()


_PATH: Final = "/containers/{id:uuid}"
routes: Final = [
    Route(_PATH, _show),
    Route(f"{_PATH}/rename", _rename, methods=["GET", "POST"]),
    Route(f"{_PATH}/delete", _delete, methods=["GET", "POST"]),
    Route(f"{_PATH}/broker", _broker),
    Route(f"{_PATH}/download", _download),
    Route(f"{_PATH}/image", partial(_shown, kind="image/")),
    Route(f"{_PATH}/pdf", partial(_shown, kind=PDF)),
    Route(UPLOAD, _upload, methods=["POST"]),
]
