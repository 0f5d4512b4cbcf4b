"""The URL of a link: its parts survive encoding and parsing, and only a whole link is accepted."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker import BrokerError
from scbroker.client.people.links import LinkUrl, plain_address

SERVER = "https://broker.example/scbroker"
LINK = LinkUrl(SERVER, uuid.UUID(int=7), b"f" * 32, b"s" * 32, True)


@given(
    st.sampled_from(["https://broker.example", SERVER, "http://127.0.0.1:8000", "https://[::1]"]),
    st.uuids(),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.booleans(),
)
def test_the_parts_of_a_url_survive_encoding_and_parsing(
    server: str, api_key: uuid.UUID, fingerprint: bytes, secret: bytes, password: bool
) -> None:
    link = LinkUrl(server, api_key, fingerprint, secret, password)
    assert LinkUrl.parse(link.text) == link
    assert LinkUrl.parse(f" \n{link.text}\n") == link
    assert link.text.startswith(f"{server}/#")


def changed_texts() -> list[str]:
    """Return the URL with each character replaced, removed, doubled or swapped with the next one."""
    text, found = LINK.text, []
    for at, character in enumerate(text):
        other = "A" if character != "A" else "B"
        found += [text[:at] + each + text[at + 1 :] for each in (other, "", character * 2)]
        found.append(text[:at] + text[at + 1 : at + 2] + character + text[at + 2 :])
    return [each for each in found if each != text]


def test_a_url_with_any_one_character_changed_is_refused_and_not_repeated_in_the_error() -> None:
    for text in changed_texts():
        with pytest.raises(BrokerError) as refused:
            LinkUrl.parse(text)
        assert type(refused.value) is BrokerError.invalidArgumentError
        assert text[-30:] not in str(refused.value)


def test_a_secret_is_derived_anew_for_each_password_user_and_link() -> None:
    other_secret = LinkUrl(SERVER, LINK.apiKey, LINK.fingerprint, b"t" * 32, True)
    other_user = LinkUrl(SERVER, LINK.apiKey, b"g" * 32, LINK.secret, True)
    found = [LINK.passphrase(password) for password in (None, "a", "b", "ab")]
    found += [other_secret.passphrase("a"), other_user.passphrase("a")]
    assert len(set(found)) == len(found)
    assert LINK.passphrase("e\u0301") == LINK.passphrase("é")
    assert "a" * 32 not in repr(LINK)


@pytest.mark.parametrize("password", ["", "x" * 1024, "\ud800"])
def test_a_password_that_the_format_cannot_hold_is_refused(password: str) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="password must be"):
        LINK.passphrase(password)


@pytest.mark.parametrize(
    "configured, plain",
    [
        (SERVER, SERVER),
        ("https://Broker.example:8443/a/b", "https://Broker.example:8443/a/b"),
        ("HTTPS://broker.example/a", "https://broker.example:443/a"),
        ("https://bücher.example./a", "https://xn--bcher-kva.example:443/a"),
        ("http://127.0.0.1.:8000", "http://localhost:8000"),
    ],
)
def test_an_address_that_a_provider_takes_gets_the_form_that_a_link_has(
    configured: str, plain: str
) -> None:
    assert plain_address(configured) == plain
    link = LinkUrl(plain, LINK.apiKey, LINK.fingerprint, LINK.secret, False)
    assert LinkUrl.parse(link.text).serverUrl == plain
