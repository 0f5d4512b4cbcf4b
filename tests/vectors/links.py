"""Links: docs/spec/links.md."""

import uuid
from typing import Any

from scbroker.client.people.links import LinkUrl, encode_base64
from scbroker.crypto.verify import labelled_hash
from tests.vectors.cast import cast, chosen
from tests.vectors.files import Vector, invalid, store, valid

SERVER = "https://broker.example"
PATH = f"{SERVER}/scbroker"
MARK = "/#scbroker-link:"
API_KEY = uuid.UUID(bytes=chosen("API key", size=16), version=4)


def make() -> None:
    secret, fingerprint = chosen("link", "secret"), cast()["dora"].fingerprint
    bins = (b"\xc4\x20" + secret, b"\xc4\x20" + fingerprint, b"\xc4\x10" + API_KEY.bytes)
    good = b"\x01\x94" + b"".join(bins) + b"\xc2"
    code = encode_base64(_whole(SERVER, good))
    # Two bits of the last character encode nothing: 94 bytes are 125 1/3 characters.
    spare = code[:-1] + chr(ord(code[-1]) + 1)

    def of(
        name: str, comment: str, body: bytes, server: str = SERVER, error: str = "invalid"
    ) -> Vector:
        url = server + MARK + encode_base64(_whole(server, body))
        return invalid(name, comment, error, kind="url", url=url)

    def text(name: str, comment: str, url: str) -> Vector:
        return invalid(name, comment, "invalid", kind="url", url=url)

    store(
        "links",
        "docs/spec/links.md. Of the kind `url`: a link and its parts. Of the kind `passphrase`: the "
        "passphrase of the link's user. The fingerprint is Dora's (people.json).",
        [
            _url("a link", "Without a password.", SERVER, False),
            _url("with a password", "The last field is true.", SERVER, True),
            _url("below a path", "The broker is not at the root.", PATH, False),
            _url("this machine", "http to a loopback.", "http://127.0.0.1:8000", False),
            _url("this machine by name", "http to a loopback.", "http://broker.localhost", False),
            _url("this machine, IPv6", "http to a loopback.", "http://[::1]:8000", False),
            text("no mark", "The fragment begins with another word.",
                 f"{SERVER}/#scbroker-lynk:{code}"),
            text("longer than 2,048 characters", "By a long path.",
                 _url("", "", f"{SERVER}/{'p' * 2000}", False)["url"]),
            text("padded", "base64 with its padding.", f"{SERVER}{MARK}{code}=="),
            text("bits left over", "The last character encodes more than the bytes.",
                 f"{SERVER}{MARK}{spare}"),
            text("cut", "The last character is missing.", f"{SERVER}{MARK}{code[:-1]}"),
            text("another host", "The checksum is that of broker.example.",
                 f"https://broken.example{MARK}{code}"),
            text("another checksum", "Its last byte.",
                 SERVER + MARK + encode_base64(_whole(SERVER, good)[:-1] + b"\x00")),
            of("version 2", "The version byte is 02.", b"\x02" + good[1:], error="version"),
            of("a secret of 31 bytes", "One too few.", b"\x01\x94\xc4\x1f" + secret[1:]
               + b"".join(bins[1:]) + b"\xc2"),
            of("a fingerprint of 33 bytes", "One too many.",
               b"\x01\x94" + bins[0] + b"\xc4\x21\x00" + fingerprint + bins[2] + b"\xc2"),
            of("an API key as text", "It has 16 bytes.",
               b"\x01\x94" + bins[0] + bins[1] + b"\xb0" + b"k" * 16 + b"\xc2"),
            of("hasPassword as a number", "0 in place of false.", good[:-1] + b"\x00"),
            of("five elements", "One more than the grammar has.",
               b"\x01\x95" + good[2:] + b"\xc0"),
            of("bin not shortest", "The secret's length in two bytes.",
               b"\x01\x94\xc5\x00\x20" + secret + b"".join(bins[1:]) + b"\xc2"),
            of("trailing byte", "Behind the array.", good + b"\xc0"),
            of("http to another machine", "The secrets would travel in clear text.", good,
               "http://broker.example"),
            of("another scheme", "ftp.", good, "ftp://broker.example"),
            of("port above 65535", "By one.", good, "https://broker.example:65536"),
            of("number for the last label", "No IPv4 address.", good, "https://1.2.3.4.5"),
            of("scheme in upper case", "HTTPS.", good, "HTTPS://broker.example"),
            of("user name in the address", "Before the host.", good, "https://user@broker.example"),
            of("slash at the end", "Before the mark is a second one.", good, f"{SERVER}/"),
            of("query", "Behind the path.", good, f"{PATH}?a=b"),
            of("dot segment", "Two dots.", good, f"{SERVER}/a/../b"),
            of("no host", "Scheme alone.", good, "https:"),
            _passphrase("passphrase without password", "Empty.", secret, fingerprint, None),
            _passphrase("passphrase with password", "ASCII.", secret, fingerprint, "correct horse"),
            _passphrase("passphrase with password, normalised", "A ligature and a combining mark.",
                        secret, fingerprint, "u\u0308ber \ufb01ve"),
            invalid("password of no bytes", "It would be that of a link without a password.",
                    "invalid", kind="passphrase", secret=secret, fingerprint=fingerprint,
                    password="", passphrase=_link(SERVER, False).passphrase(None)),
        ],
    )  # fmt: skip


def _whole(server: str, body: bytes) -> bytes:
    return body + labelled_hash("link-checksum", server.encode(), body)[:5]


def _link(server: str, password: bool) -> LinkUrl:
    secret = chosen("link", "secret")
    return LinkUrl(server, API_KEY, cast()["dora"].fingerprint, secret, password)


def _url(name: str, comment: str, server: str, password: bool) -> Vector:
    link = _link(server, password)
    return valid(
        name, comment, kind="url", url=link.text, serverUrl=server, secret=link.secret,
        fingerprint=link.fingerprint, apiKey=str(link.apiKey), hasPassword=password,
        userId=str(link.userId),
    )  # fmt: skip


def _passphrase(
    name: str, comment: str, secret: bytes, fingerprint: bytes, password: str | None
) -> dict[str, Any]:
    link = _link(SERVER, password is not None)
    return valid(
        name, comment, kind="passphrase", secret=secret, fingerprint=fingerprint, password=password,
        passphrase=link.passphrase(password),
    )  # fmt: skip
