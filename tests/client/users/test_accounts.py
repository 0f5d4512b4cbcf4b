"""Registration and the three log-ins over a real broker: what opens, what is refused, what is kept."""

import re
import uuid
from typing import Any

import pytest

from scbroker import BrokerError, KeyRing, KeyType, MemoryTrustStore, ServerProvider
from tests.client.conftest import PASSPHRASE, PASSWORD, Account, drop
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE


def logged_in(provider: ServerProvider) -> uuid.UUID | None:
    try:
        return provider.getUserId().result(PATIENCE)
    except BrokerError.notAuthenticatedError:
        return None


@pytest.mark.parametrize("name", ["password", "passphrase"])
@pytest.mark.parametrize(
    "weak", ["", "Sh0rt!", "alllowercase", "lower and spaces", "ONLYUPPER123", "x" * 2000, "Aa1\ud800xxxx"]
)  # fmt: skip
def test_a_weak_or_impossible_secret_is_refused_without_being_quoted(
    new_provider: NewProvider, name: str, weak: str
) -> None:
    secrets: Any = {"password": PASSWORD, "passphrase": PASSPHRASE, name: weak}
    with pytest.raises(BrokerError.invalidArgumentError, match=name) as caught:
        drop(new_provider().register(**secrets))
    assert not weak or weak not in str(caught.value)


@pytest.mark.parametrize("passphrase", ["Pa\u00dfword \ufb01 1", "Pa\u00dfword fi 1"])
def test_a_passphrase_that_is_the_password_is_refused_in_every_unicode_spelling(
    new_provider: NewProvider, passphrase: str
) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="must differ") as caught:
        drop(new_provider().register("Pa\u00dfword fi 1", passphrase))
    assert passphrase not in str(caught.value)


def test_what_a_validator_of_the_callers_own_says_decides(new_provider: NewProvider) -> None:
    seen = []

    def picky(secret: str) -> str | None:
        seen.append(secret)
        return None if secret.startswith("ok") else "it does not begin with ok"

    provider = new_provider(secretValidator=picky)
    with pytest.raises(BrokerError.invalidArgumentError, match="does not begin with ok"):
        drop(provider.register("ok", "no"))
    provider.register("ok", "ok2").result(PATIENCE)
    assert seen == ["ok", "no", "ok", "ok2"]


def test_closing_forgets_the_session_and_the_provider_can_be_used_again(
    account: Account, new_provider: NewProvider
) -> None:
    provider = new_provider()
    with provider:
        provider.logIn(account.ring.userId, passphrase=PASSPHRASE).result(PATIENCE)
    assert logged_in(provider) is None
    provider.logIn(account.ring.userId, passphrase=PASSPHRASE).result(PATIENCE)
    assert logged_in(provider) == account.ring.userId


def test_a_key_file_with_other_keys_than_the_published_ones_is_refused(
    account: Account, new_provider: NewProvider
) -> None:
    """A KeyRing with a key more than the chain: the broker withholds key records."""
    extra = KeyRing.generate()
    ring = KeyRing(1, account.ring.signing, (*account.ring.encryption, *extra.encryption))
    with pytest.raises(BrokerError.rollbackError, match="withholds"):
        new_provider().logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
    swapped = KeyRing(1, account.ring.signing, extra.encryption)
    with pytest.raises(BrokerError.keySubstitutionError):
        new_provider().logIn(keyRing=swapped, userId=ring.userId).result(PATIENCE)


def test_a_public_key_has_its_users_fingerprint_however_it_is_spelt(
    alice: ServerProvider, account: Account
) -> None:
    ring = account.ring
    keys = alice.getPublicKeys(ring.userId).result(PATIENCE)
    assert {key.fingerprint for key in keys} == {ring.fingerprint}
    assert keys[0].hasFingerprint(ring.fingerprint.upper().replace(" ", "-"))
    assert not keys[0].hasFingerprint(KeyRing.generate().fingerprint)
    with pytest.raises(BrokerError.invalidArgumentError):
        keys[0].hasFingerprint(ring.fingerprint[:19])
    with pytest.raises(BrokerError.notFoundError):
        alice.getPublicKeys(uuid.uuid4()).result(PATIENCE)


@pytest.mark.parametrize("kind", [*KeyType, 0, 1, "Signing", "Encryption"], ids=repr)
def test_a_key_type_is_taken_as_member_value_or_name_and_an_unknown_user_has_no_latest_key(
    alice: ServerProvider, account: Account, kind: KeyType | int | str
) -> None:
    user = account.ring.userId
    [key] = alice.getPublicKeys(user, kind).result(PATIENCE)
    assert kind in (key.keyType, key.keyType.value, key.keyType.name)
    assert alice.getLatestActiveSigningKey(user, kind).result(PATIENCE) == key
    assert alice.getLatestActiveSigningKey(uuid.uuid4(), kind).result(PATIENCE) is None


@pytest.mark.long
def test_an_address_that_the_broker_accepts_no_log_ins_for_is_named_before_a_user_is_made(
    start_broker: StartBroker,
) -> None:
    """Both errors name the address that was used and those that the broker accepts."""
    broker = start_broker(origins="https://a.example,https://b.example:8443")
    users = "SELECT count(*) FROM users"
    names = f"{re.escape(broker.origin)}.*https://a.example:443, https://b.example:8443"
    options: Any = {"trustStore": MemoryTrustStore()}
    with ServerProvider(broker.api_key, broker.url, "tests", **options) as provider:
        for _ in range(2):
            with pytest.raises(BrokerError.invalidArgumentError, match=names):
                provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        assert query(broker.database_url, users) == [(0,)]
        ring = broker.new_user()
        with pytest.raises(BrokerError.credentialsError, match=names):
            provider.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
