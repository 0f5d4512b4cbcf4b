"""`scbroker ui`: list, gallery, upload, download, preview, rename and delete, against a real broker."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.requests import Request

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from scbroker.cli.ui.upload import _file
from tests.kit.cases import in_one_case
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put
from tests.kit.waiting import PATIENCE

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
PDF = b"%PDF-1.7\n" + bytes(64)


def listed(page: UsersPage, query: str = "") -> list[str]:
    """The names of the list, in its order."""
    text = page.get(f"/containers{query}").expect(200).text
    return [row.split("</a>")[0].rpartition(">")[2] for row in text.split('<td class="text">')[1:]]


@pytest.mark.long
def test_the_list_is_searched_filtered_and_sorted(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    put(session, "photos/zoo.jpg", b"123", type="photo")
    put(session, "Letter to Bob.txt", b"1")
    put(session, "notes", b"12345", type="text", accessLevels=_shared_with(session, bob))
    assert listed(page) == ["Letter to Bob.txt", "notes", "photos/zoo.jpg"]
    assert listed(page, "?sort=size") == ["notes", "photos/zoo.jpg", "Letter to Bob.txt"]
    assert listed(page, "?sort=changed") == ["notes", "Letter to Bob.txt", "photos/zoo.jpg"]
    assert listed(page, "?q=LETTER+bob") == ["Letter to Bob.txt"]
    assert listed(page, "?type=photo") == ["photos/zoo.jpg"]
    bobby = befriend(session, bob, "Bobby")
    assert listed(page, f"?person={bobby}") == ["notes"]
    shown = page.get("/containers")
    assert f'/contacts/{bobby}">Bobby</a> <span class="tag">not verified</span>' in shown.text
    assert "only you" in shown.words
    assert "3 containers" in shown.words
    assert "No container matches" in page.get("/containers?q=nothing").words


@pytest.mark.sampled
@pytest.mark.parametrize("query", ["sort=x", "show=x", "page=0", "page=-1", "page=9999999"])
def test_a_list_that_cannot_be_is_an_error_on_the_page(page: UsersPage, query: str) -> None:
    assert "This did not work" in page.get(f"/containers?{query}").expect(400).words


@pytest.mark.long
def test_a_long_list_has_pages(page: UsersPage, session: ServerProvider) -> None:
    for number in range(49):
        put(session, f"{number:02}")
    assert len(listed(page)) == 48
    assert "Page 1 of 2" in page.get("/containers").words
    assert listed(page, "?page=2") == listed(page, "?page=7") == ["48"]


@pytest.mark.long
def test_the_list_shows_what_was_changed_meanwhile(
    page: UsersPage, session: ServerProvider
) -> None:
    id = put(session, "draft")
    assert listed(page) == ["draft"]
    session.updateContainerHeader(id, {"name": "final"}).result(PATIENCE)
    assert listed(page) == ["final"]
    session.deleteContainer(id).result(PATIENCE)
    assert listed(page) == []


def test_the_list_reads_the_headers_of_unchanged_containers_once(
    page: UsersPage, session: ServerProvider
) -> None:
    put(session, "draft")
    before = len(session.getEvents().result(PATIENCE))
    for _ in range(3):
        listed(page)
    assert len(session.getEvents().result(PATIENCE)) <= before + 1


@pytest.mark.long
def test_the_gallery_asks_for_the_pictures_that_headers_name(page: UsersPage) -> None:
    id = page.upload("zoo.png", PNG)
    other = page.upload("letter.txt", b"1")
    shown = page.get("/containers?show=gallery").expect(200).text
    assert f"/containers/{id}/image" in shown
    assert f"/containers/{other}/image" not in shown


@pytest.mark.long
def test_an_uploaded_file_is_stored_with_name_time_and_type_and_comes_back(
    page: UsersPage, alice: Person
) -> None:
    content = bytes(range(256)) * 20_000  # several segments
    id = page.upload("photos/Möwe.png", content)
    [found] = alice.json("ls")
    assert (found["name"], found["length"]) == ("photos/Möwe.png", len(content))
    header = alice.json("info", str(id))["header"]
    assert header["modified"] == "2023-11-14T22:13:20.000000Z"
    assert header["mediaType"] == "image/png"
    answer = page.get(f"/containers/{id}/download").expect(200)
    assert answer.body == content
    assert answer.headers["content-disposition"] == (
        "attachment; filename=\"M_we.png\"; filename*=UTF-8''M%C3%B6we.png"
    )


@in_one_case(
    "milliseconds, stored",
    [
        ("1700000000123", "2023-11-14T22:13:20.123000Z"),
        ("0", "1970-01-01T00:00:00.000000Z"),
        ("-1", "1969-12-31T23:59:59.999000Z"),
        ("-315619200000", "1960-01-01T00:00:00.000000Z"),
        (
            "-8640000000000000",
            "0001-01-01T00:00:00.000000Z",
        ),  # the first and the last of JavaScript
        ("8640000000000000", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_the_time_of_an_uploaded_file_is_stored(milliseconds: str, stored: str) -> None:
    query = f"name=letter.txt&modified={milliseconds}".encode()
    request = Request({"type": "http", "headers": [], "query_string": query})
    assert _file(request).header()["modified"] == stored


@pytest.mark.long
def test_an_upload_goes_to_the_broker_piece_by_piece(page: UsersPage) -> None:
    status = Path(f"/proc/{page.pid}/status")
    if not status.exists():
        pytest.skip("only Linux says how much memory a process has needed")

    def most() -> int:
        [line] = [each for each in status.read_text().splitlines() if each.startswith("VmHWM")]
        return int(line.split()[1]) * 1024

    page.upload("small", bytes(10_000_000))
    before = most()
    page.upload("large", bytes(200_000_000))
    assert most() - before < 60_000_000


@pytest.mark.long
@pytest.mark.parametrize("name", ["", "../x", "a\nb", "/etc/passwd", "x" * 2000])
def test_a_file_whose_name_no_file_should_get_is_refused(page: UsersPage, name: str) -> None:
    assert page.call(f"/upload?name={quote(name)}", bytes(300_000)).expect(400).text
    assert listed(page) == []


@pytest.mark.long
def test_a_name_that_is_taken_is_refused(page: UsersPage) -> None:
    page.upload("letter.txt", b"one")
    assert "already" in page.call("/upload?name=letter.txt", b"two").expect(409).text
    assert listed(page) == ["letter.txt"]


@pytest.mark.long
def test_an_upload_that_is_cut_off_stores_nothing(page: UsersPage, alice: Person) -> None:
    secret = page.get("/containers").text.split('data-form="')[1].split('"')[0]
    lines = [
        f"POST {page.root}/upload?name=cut HTTP/1.1",
        f"Host: {page.host}:{page.port}",
        f"Origin: {page.origin}",
        f"Cookie: {page.cookie}",
        f"X-Page-Form: {secret}",
        "Content-Length: 5000000",
    ]
    with socket.create_connection((page.host, page.port), 30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + bytes(3_000_000))
    page.upload("whole", b"1")  # and the page goes on
    assert [each["name"] for each in alice.json("ls")] == ["whole"]
    page.stop()
    assert "Traceback" not in page.log


@pytest.mark.long
def test_a_text_is_shown_and_a_long_one_is_cut(page: UsersPage) -> None:
    short = page.upload("short", "Grüße\tan Bob".encode())
    shown = page.get(f"/containers/{short}").expect(200)
    assert "Grüße an Bob" in shown.words
    assert "This is the beginning" not in shown.words
    shown = page.get(f"/containers/{page.upload('long', 'ä'.encode() * 40_000)}").expect(200)
    assert "This is the beginning" in shown.words


@pytest.mark.long
@pytest.mark.parametrize("content, view", [(PNG, "image"), (PDF, "pdf")])
def test_a_picture_and_a_pdf_are_offered_by_their_first_bytes(
    page: UsersPage, content: bytes, view: str
) -> None:
    id = page.upload("x.bin", content)
    assert f"/containers/{id}/{view}" in page.get(f"/containers/{id}").text
    answer = page.get(f"/containers/{id}/{view}").expect(200)
    assert answer.body == content
    other = {"image": "pdf", "pdf": "image"}[view]
    page.get(f"/containers/{id}/{other}").expect(404)


@pytest.mark.long
def test_other_contents_are_not_shown(page: UsersPage) -> None:
    id = page.upload("x.png", b"\x00\xff" * 20)
    assert "cannot be shown safely" in page.get(f"/containers/{id}").words


@pytest.mark.long
def test_a_container_without_content_has_no_download(
    page: UsersPage, session: ServerProvider
) -> None:
    empty = session.createContainer(None, {"name": "empty"}).result(PATIENCE).id
    assert "no content" in page.get(f"/containers/{empty}").expect(200).words
    page.get(f"/containers/{empty}/download").expect(404)


@pytest.mark.long
def test_a_container_is_renamed(page: UsersPage, alice: Person) -> None:
    id = page.upload("draft", b"1")
    assert "final" in page.post(f"/containers/{id}/rename", {"name": "final"}).expect(200).words
    assert [each["name"] for each in alice.json("ls")] == ["final"]
    other = page.upload("other", b"1")
    page.post(f"/containers/{other}/rename", {"name": "final"}).expect(409)
    page.post(f"/containers/{other}/rename", {"name": "../x"}).expect(400)
    page.post(f"/containers/{other}/rename", {"name": "other"}).expect(200)
    page.upload("draft", b"2")  # the name is free again


@pytest.mark.long
def test_a_container_is_deleted_after_a_question(page: UsersPage, alice: Person) -> None:
    id = page.upload("draft", b"1")
    assert "Delete draft?" in page.get(f"/containers/{id}/delete").expect(200).words
    assert [each["name"] for each in alice.json("ls")] == ["draft"]
    assert "is deleted" in page.post(f"/containers/{id}/delete").expect(200).words
    assert alice.json("ls") == []
    page.get(f"/containers/{id}").expect(410)


@pytest.mark.sampled
@pytest.mark.parametrize("id", ["x", "00000000-0000-8000-8000-000000000000"])
def test_a_container_that_does_not_exist_is_not_found(page: UsersPage, id: str) -> None:
    page.get(f"/containers/{id}").expect(404)


def _shared_with(session: ServerProvider, other: Person) -> list[AccessLevel]:
    own = session.getUserId().result(PATIENCE)
    owner = ContainerAccessLevel.DefaultOwnerPermissions
    return [AccessLevel(own, owner), AccessLevel(other.ring.userId)]
