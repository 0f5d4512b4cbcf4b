"""Attacks on the user's page: by hostile files, by other sites, and by users of the same machine."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from scbroker import AccessLevel
from tests.hostile_broker.catalogue import attack
from tests.kit.pages import Reply, UsersPage
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

hostile = attack(111, "hostile file on the user's page")
reached = attack(112, "user's page reached by others")
SCRIPT: Final = "<script>fetch('/')</script>"
SVG: Final = f'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)">{SCRIPT}</svg>'.encode()
HTML: Final = f"<!doctype html><img src=x onerror=alert(1)>{SCRIPT}".encode()
PNG: Final = b"\x89PNG\r\n\x1a\n"
CONTENTS: Final = {
    "svg": SVG,
    "html": HTML,
    "html after a byte order mark": b"\xef\xbb\xbf" + HTML,
    "html in UTF-16": HTML.decode().encode("utf-16"),
    "xml": b'<?xml version="1.0"?><?xml-stylesheet href="x.xsl"?>' + SVG,
    "html in a picture": PNG + HTML,
    "html in a PDF": b"%PDF-1.7\n" + HTML,
    "script": b"alert(1)",
}


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def page(alice: Person) -> Iterator[UsersPage]:
    """Alice's page, which her browser has entered."""
    with UsersPage(alice) as opened:
        opened.enter().expect(200)
        yield opened


@pytest.fixture
def share(person: Callable[[str], Person], alice: Person) -> Iterator[Callable[..., uuid.UUID]]:
    """Share a container of Mallory's with Alice."""
    with person("Mallory").session() as session:
        own, other = session.getUserId().result(PATIENCE), alice.ring.userId

        def shared(content: bytes, header: object, type: str | None = None) -> uuid.UUID:
            access = [AccessLevel(own), AccessLevel(other)]
            return session.createContainer(content, header, access, type).result(PATIENCE).id

        yield shared


def is_inert(answer: Reply) -> bool:
    """Return whether a browser runs nothing of an answer, and never takes it for another type."""
    headers = answer.headers
    kind, policy = headers["content-type"], headers["content-security-policy"]
    return (
        headers["x-content-type-options"] == "nosniff"
        and re.fullmatch("image/(png|jpeg|gif|webp|avif)|application/pdf", kind) is not None
        and policy.startswith("sandbox; default-src 'none'")
    )


@pytest.mark.long
@hostile
def test_no_content_is_active_in_the_page(page: UsersPage, share: Callable[..., uuid.UUID]) -> None:
    """Whatever the sender says of its type."""
    header = {"name": "picture.svg", "mediaType": "image/svg+xml"}
    for kind, content in CONTENTS.items():
        id = share(content, header)
        shown = page.get(f"/containers/{id}").expect(200).text
        assert "<script>" not in shown, kind
        assert "<svg" not in shown, kind
        assert "onerror=alert(1)>" not in shown, kind
        for view in ("image", "pdf"):
            answer = page.get(f"/containers/{id}/{view}")
            assert answer.status == 404 or is_inert(answer), (kind, answer.headers)
        saved = page.get(f"/containers/{id}/download").expect(200)
        assert saved.body == content, kind
        assert saved.headers["content-type"] == "application/octet-stream", kind
        assert saved.headers["content-disposition"].startswith("attachment;"), kind
        assert saved.headers["x-content-type-options"] == "nosniff", kind


@pytest.mark.long
@hostile
@pytest.mark.parametrize("view", ["image", "pdf"])
def test_a_picture_or_pdf_is_shown_without_script_form_and_request(
    page: UsersPage, view: str
) -> None:
    content = {"image": PNG, "pdf": b"%PDF-1.7\n"}[view]
    id = page.upload("x", content)
    answer = page.get(f"/containers/{id}/{view}").expect(200)
    assert is_inert(answer)
    assert "script-src" not in answer.headers["content-security-policy"]


@pytest.mark.long
@hostile
def test_a_name_neither_ends_the_header_nor_leaves_the_folder_of_downloads(
    page: UsersPage, share: Callable[..., uuid.UUID]
) -> None:
    harmless = re.compile(r"""attachment; filename="[\w. -]+"; filename\*=UTF-8''[\w.%~-]+""")
    for name in (
        'a"; filename=b.exe', "a\r\nSet-Cookie: x=1", "../../.bashrc", ".bashrc", "CON", "a\u202eb"
    ):  # fmt: skip
        id = share(b"1", {"name": name})
        headers = page.get(f"/containers/{id}/download").expect(200).headers
        found = headers["content-disposition"]
        assert harmless.fullmatch(found), name
        assert "set-cookie" not in headers, name
        assert "%2F" not in found, name
        assert 'filename="."' not in found, name
        assert 'filename="CON"' not in found, name


@pytest.mark.long
@hostile
def test_control_characters_of_a_text_are_shown_as_escapes(
    page: UsersPage, share: Callable[..., uuid.UUID]
) -> None:
    id = share("pay \u202e001\u202c \x1b[2J".encode(), {"name": "x"})
    shown = page.get(f"/containers/{id}").expect(200).text
    assert "\\u202e001\\u202c \\x1b[2J" in shown
    assert "\x1b" not in shown


@pytest.mark.long
@reached
@pytest.mark.parametrize("secret", ["", "guessed"])
def test_an_upload_without_the_secret_of_the_page_stores_nothing(
    page: UsersPage, secret: str, alice: Person
) -> None:
    page.call("/upload?name=x", b"1", {"X-Page-Form": secret}).expect(403)
    assert alice.json("ls") == []


@pytest.mark.long
@reached
@pytest.mark.parametrize("origin", ["https://evil.example", "null", None])
def test_an_upload_of_another_site_stores_nothing(
    page: UsersPage, origin: str | None, alice: Person
) -> None:
    page.call("/upload?name=x", b"1", {"Origin": origin, "Sec-Fetch-Site": None}).expect(403)
    assert alice.json("ls") == []


@pytest.mark.long
@reached
def test_another_user_of_the_machine_gets_nothing_without_the_cookie(page: UsersPage) -> None:
    id = page.upload("x", PNG)
    page.cookie = None
    for view in ("/containers", "/state", f"/containers/{id}/download", f"/containers/{id}/image"):
        page.get(view).expect(403)
    page.request("POST", page.root + "/upload?name=x", b"1").expect(403)
