"""The one spelling of a broker's address: docs/spec/protocol.md, sections 0 and 2."""

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.wire.users import canonical_origin, is_this_machine
from tests.kit.cases import in_one_case

SPELLINGS = {
    "https://broker.example:443": [
        "https://broker.example", "https://broker.example/", "HTTPS://Broker.Example",
        "https://broker.example:443", "https://broker.example:443/", "https://BROKER.example:0443",
        "https://broker.example:", "https://broker.example.", "https://broker.example?",
        "https://broker.example#", "https://\uff42roker\u3002example",
    ],
    "https://broker.example:8443": ["https://broker.example:8443", "https://Broker.Example:8443/"],
    "https://a_b-c:443": ["https://a_b-c"],
    "https://1a:443": ["https://1a"],
    "https://xn--bcher-kva.example:443": [
        "https://bücher.example", "https://BÜCHER.example", "https://xn--bcher-kva.example",
        "https://bu\u0308cher.example",
    ],
    "http://localhost:80": [
        "http://localhost", "http://LOCALHOST:80", "http://localhost.", "http://127.0.0.1",
        "http://127.255.255.254:80", "http://[::1]", "http://[0:0:0:0:0:0:0:1]:80",
        "http://[::ffff:127.0.0.1]", "http://\uff11\uff12\uff17.0.0.1", "http://broker.localhost",
    ],
    "https://localhost:443": ["https://localhost", "https://127.0.0.2", "https://[::1]:443"],
    "http://localhost:8000": ["http://127.0.0.1:8000", "http://[::1]:8000"],
    "https://192.0.2.1:443": ["https://192.0.2.1", "https://[::ffff:192.0.2.1]"],
    "https://[2001:db8::1]:443": [
        "https://[2001:db8::1]", "https://[2001:DB8:0:0::0001]", "https://[2001:db8::0.0.0.1]",
    ],
}  # fmt: skip

REFUSED = [
    "", "broker.example", "broker.example:443", "//broker.example", "https:", "https://", "https:///",
    "https://:443", "ftp://broker.example", "ws://broker.example", "file:///etc/passwd",
    "http://broker.example", "http://192.0.2.1", "http://[2001:db8::1]", "http://128.0.0.1",
    "http://0.0.0.0", "http://[::]", "http://[::ffff:192.0.2.1]", "http://localhost.example",
    "http://127.0.0.1.example", "http://notlocalhost", "https://broker.example/path",
    "https://broker.example//", "https://broker.example?a=b",
    "https://broker.example#a", "https://user@broker.example", "https://user:pass@broker.example",
    "https://@broker.example", "https://broker.example@evil.example", "https://broker.example:port",
    "https://broker.example:65536", "https://broker.example:-1", "https://broker.example:+443",
    "https://broker.example:\uff1443", "https://broker.example:44 3", "https://a:1:2", "https://[::1",
    "https://::1", "https://[::1]x", "https://[v1.a]", "https://[1.2.3.4]", "https://[fe80::1%eth0]",
    "https://[broker.example]", "https://a b", "https://a\\b", "https://a%62", "https://a\0b",
    "https://a;b", "https://a,b", "https://a*", "https://a..b", "https://.a", "https://a. .b",
    "https://127.1", "https://1", "https://0x7f000001", "https://0x7f.1", "https://a.0x",
    "https://127.0.0.0x1", "https://127.0.0.1.2", "https://0177.0.0.1", "https://256.0.0.1",
    " https://a", "https://a ", "https://a\nb", "https://a\t", "\rhttps://a",
    "https://\ud800", "https://" + "a" * 64, "https://a\u2100b", "https://a\uff0fb",
]  # fmt: skip


@in_one_case(
    "spelling, canonical",
    [(spelling, canonical) for canonical, found in SPELLINGS.items() for spelling in found],
)
def test_every_spelling_of_an_address_gives_the_same_origin(spelling: str, canonical: str) -> None:
    assert canonical_origin(spelling) == canonical


@in_one_case("url", REFUSED)  # fmt: skip
def test_what_is_no_address_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        canonical_origin(url)
    assert caught.type is InvalidArgumentError


@pytest.mark.parametrize(
    "host, is_here",
    [
        ("localhost", True), ("app.localhost", True), ("127.1.2.3", True), ("::1", True),
        ("broker.example", False), ("192.0.2.1", False), ("2001:db8::1", False),
        ("", False), ("999.0.0.1", False), ("a b", False), ("::g", False), ("a" * 64, False),
    ],
)  # fmt: skip
def test_only_names_and_addresses_of_loopback_are_this_machine(host: str, is_here: bool) -> None:
    assert is_this_machine(host) is is_here


def test_a_password_in_an_address_is_not_in_the_error() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        canonical_origin("https://user:hunter2@broker.example")
    assert "hunter2" not in str(caught.value)
