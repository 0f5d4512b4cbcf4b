"""`scbroker ui`: list, gallery, upload, download, preview, rename and delete, against a real broker."""

from __future__ import annotations

import socket
from urllib.parse import quote

import pytest
from starlette.requests import Request

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from scbroker.cli.ui.container import _file
from tests.kit.cases import in_one_case
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, wait_until

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


@in_one_case(
    "milliseconds, stored",
    [
        ("1700000000123", "2023-11-14T22:13:20.123000Z"),
        ("0", "1970-01-01T00:00:00.000000Z"),
        ("-1", "1969-12-31T23:59:59.999000Z"),
        ("-8640000000000000", "0001-01-01T00:00:00.000000Z"),  # of JavaScript's
        ("8640000000000000", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_the_time_of_an_uploaded_file_is_stored(milliseconds: str, stored: str) -> None:
    query = f"name=letter.txt&modified={milliseconds}".encode()
    request = Request({"type": "http", "headers": [], "query_string": query})
    assert _file(request).header()["modified"] == stored


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


@pytest.mark.long
@pytest.mark.parametrize("name", ["", "../x", "a\nb", "/etc/passwd", "x" * 2000])
def test_a_file_whose_name_no_file_should_get_is_refused(page: UsersPage, name: str) -> None:
    assert page.call(f"/upload?name={quote(name)}", bytes(300_000)).expect(400).text
    assert listed(page) == []


@pytest.mark.long
def test_an_upload_that_is_cut_off_stores_nothing(page: UsersPage, alice: Person) -> None:
    secret = page.get("/containers").text.split('data-form="')[1].split('"')[0]
    lines = [
        f"POST {page.root}/upload?name=cut HTTP/1.1",
        f"Host: {page.host}:{page.port}",
        f"Origin: {page.origin}",
        f"Cookie: {page.cookie}",
        f"X-Page-Form: {secret}",
        "Content-Length: 20000000",
    ]
    with socket.create_connection((page.host, page.port), 30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + bytes(10_000_000))
        wait_until(lambda: query(alice.broker.database_url, "SELECT 1 FROM chunks"))
    page.upload("whole", b"1")  # and the page goes on
    assert [each["name"] for each in alice.json("ls")] == ["whole"]
    page.stop()
    assert "Traceback" not in page.log


@pytest.mark.long
def test_a_container_is_deleted_after_a_question(page: UsersPage, alice: Person) -> None:
    id = page.upload("draft", b"1")
    assert "Delete draft?" in page.get(f"/containers/{id}/delete").expect(200).words
    assert [each["name"] for each in alice.json("ls")] == ["draft"]
    assert "is deleted" in page.post(f"/containers/{id}/delete").expect(200).words
    assert alice.json("ls") == []
    page.get(f"/containers/{id}").expect(410)


def _shared_with(session: ServerProvider, other: Person) -> list[AccessLevel]:
    own = session.getUserId().result(PATIENCE)
    owner = ContainerAccessLevel.DefaultOwnerPermissions
    return [AccessLevel(own, owner), AccessLevel(other.ring.userId)]
