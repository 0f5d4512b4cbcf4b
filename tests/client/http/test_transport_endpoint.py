"""Which object stores a caller allows, and which addresses are theirs."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scbroker import BrokerError, ServerProvider
from scbroker.client.http.transport import allowed, checked_origins
from tests.kit.cases import in_one_case

KEY = uuid.UUID(int=1)
STORE = "https://s3.example"
ORIGINS = checked_origins([STORE, "http://127.0.0.1:9000", "https://[2001:db8::1]:8443"])


def provider(**options: Any) -> ServerProvider:
    return ServerProvider(KEY, "https://broker.example", "tests", **options)


@pytest.mark.parametrize(
    "origin",
    [
        "http://s3.example", "s3.example", "https://s3.example/bucket", "https://s3.example?x",
        "https://user@s3.example", "https://", "ftp://s3.example", "*", "", None, 5,
    ],
)  # fmt: skip
def test_what_is_no_origin_of_an_object_store_is_refused(origin: object) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="objectStoreOrigins"):
        provider(objectStoreOrigins=[STORE, origin])


def test_origins_come_from_the_environment_unless_the_caller_gives_some() -> None:
    environment = {
        "SCBROKER_API_KEY": str(KEY),
        "SCBROKER_SERVER_URL": "https://broker.example",
        "SCBROKER_APPLICATION_NAME": "tests",
    }

    def origins(**options: Any) -> frozenset[str]:
        made = ServerProvider.fromEnvironment(environment, **options)
        return made._requests.endpoint.stores

    assert origins() == frozenset()
    environment["SCBROKER_OBJECT_STORE_ORIGINS"] = f"{STORE},http://127.0.0.1:9000"
    assert origins() == {"https://s3.example:443", "http://127.0.0.1:9000"}
    assert origins(objectStoreOrigins=[]) == frozenset()
    environment["SCBROKER_OBJECT_STORE_ORIGINS"] = "s3.example"
    with pytest.raises(BrokerError.invalidArgumentError, match="objectStoreOrigins"):
        origins()


@pytest.mark.parametrize(
    "address",
    [
        "https://s3.example/bucket/parts/00/x?X-Amz-Signature=00",
        "https://s3.example:443/x",
        "https://S3.Example/x",
        "http://127.0.0.1:9000/x?a=%2F..%2F",
        "https://[2001:db8::1]:8443/x",
    ],
)
def test_an_address_of_an_allowed_origin_is_asked_as_it_was_given(address: str) -> None:
    url = allowed(address, ORIGINS)
    assert url is not None
    assert str(url).lower() == address.lower().replace(":443/", "/") or str(url) == address


@in_one_case("address", [
        "http://s3.example/x", "https://s3.example:444/x", "https://s3.example./x",
        "https://sub.s3.example/x", "https://s3.example.evil.example/x", "http://localhost:9000/x",
        "http://[::1]:9000/x", "http://127.0.0.1/x", "https://[2001:db8:0::1]:8443/x",
        "HTTPS://s3.example/x", " https://s3.example/x", "https://s3.example/x\n",
        "https://s3.example/\u00e4", "https://s3.example:https/x", "",
    ])  # fmt: skip
def test_an_address_in_any_other_spelling_is_not_asked(address: str) -> None:
    assert allowed(address, ORIGINS) is None


@given(
    st.text(max_size=40), st.sampled_from(["https://s3.example", "https://", "http://127.0.0.1"])
)
def test_whatever_a_broker_sends_only_an_allowed_host_is_ever_asked(text: str, start: str) -> None:
    for address in (
        start + text,
        text,
        f"https://{text}@s3.example/",
        f"https://{text}s3.example/",
    ):
        url = allowed(address, ORIGINS)
        if url is not None:
            found = (url.scheme, (url.raw_host or "").lower(), url.port)
            assert found in {
                ("https", "s3.example", 443),
                ("http", "127.0.0.1", 9000),
                ("https", "2001:db8::1", 8443),
            }
            assert url.raw_user is None
            assert url.raw_password is None
