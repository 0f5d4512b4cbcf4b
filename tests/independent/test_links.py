"""links.json: docs/spec/links.md."""

from collections.abc import Callable

from tests.independent import ids, links
from tests.independent.encodings import uuid_of_text, uuid_text
from tests.independent.vectors import Vector, cases, expect, octets


@cases("links")
def test_links_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A link is read only whole and unchanged, and gives the passphrase of the vector."""
    expect(vector, lambda: READERS[vector["kind"]](vector))


def _url(vector: Vector) -> None:
    link = links.parse(vector["url"])
    if vector["result"] == "valid":
        assert link == links.Link(
            vector["serverUrl"],
            octets(vector["secret"]),
            octets(vector["fingerprint"]),
            uuid_of_text(vector["apiKey"]),
            vector["hasPassword"],
        )
        assert uuid_text(ids.user_id_of(link.fingerprint)) == vector["userId"]
        assert links.url_of(link) == vector["url"]


def _passphrase(vector: Vector) -> None:
    secret, fingerprint = octets(vector["secret"]), octets(vector["fingerprint"])
    assert links.passphrase(secret, fingerprint, vector["password"]) == vector["passphrase"]


READERS: dict[str, Callable[[Vector], None]] = {"url": _url, "passphrase": _passphrase}
