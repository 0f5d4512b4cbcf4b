"""Each operation does all that its row of the interface says, and no more.

tests/conformance/rows.txt names these tests. They have to notice mutants of their operation
(`make conformance`): an ignored parameter, another result, another field of a result, nothing done at all.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from scbroker import (
    AccessChange,
    AccessLevel,
    Availability,
    BrokerError,
    Container,
    ContainerAccessLevel,
    ContainerEventType,
    Header,
    KeyRing,
    KeyType,
    MemoryTrustStore,
    NewContainer,
    Promise,
    PublicKey,
    SecuredContainer,
    ServerProvider,
    openLink,
)
from scbroker.records.container_record import parse_record
from scbroker.types import Metadata
from tests.client.conftest import PASSPHRASE, PASSWORD, REMINDER, Account, drop, id_of
from tests.client.test_containers import container_key, opened
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.owners import (
    NEW_PASSPHRASE,
    NEW_PASSWORD,
    Owner,
    change,
    is_good,
    new_owner,
    ring_of,
    shared_by,
    token_of,
)
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions
READER = Level.DefaultUserPermissions


def given(promise: Promise[Any]) -> Any:
    """Wait for a result. Typed as Any: mypy refuses to compare the None of a Void operation."""
    return promise.result(PATIENCE)


def levels_of(alice: ServerProvider, bob: ServerProvider) -> list[AccessLevel]:
    return [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), READER)]


def metadata_of(found: Metadata) -> dict[str, Any]:
    """Every field that all kinds of containers have; access in whatever order it comes."""
    found_fields = {each.name: getattr(found, each.name) for each in fields(Metadata)}
    access: Sequence[AccessLevel] = found_fields["access"] or ()
    return {**found_fields, "access": set(access)}


def availability_of(found: Container[Any]) -> tuple[Availability, Availability]:
    return found.contentAvailability, found.headerAvailability


@pytest.fixture
def shared(alice: ServerProvider, bob: ServerProvider) -> SecuredContainer:
    """A container of alice with a content, a header and a type, which bob may read."""
    levels = levels_of(alice, bob)
    made: SecuredContainer = given(
        alice.createContainer(b"old", {"old": 1}, accessLevels=levels, type="old")
    )
    return made


def state(provider: ServerProvider, container: uuid.UUID) -> tuple[Any, ...]:
    """Content, header, type and members, as a reader finds them."""
    found = given(provider.getContainer(container))
    header = None if found.header is None else found.header.customHeaderObject
    access = {level.userId: level.permissions for level in found.access or ()}
    return found.content, header, found.type, access


def check_is_stored(provider: ServerProvider, result: SecuredContainer, *, version: int) -> None:
    """The result of a change is the container as the broker has it from then on."""
    stored = given(provider.getSecuredContainer(result.id))
    assert isinstance(result, SecuredContainer)
    assert result == stored
    assert result.version == version


# Containers


def test_a_container_is_created_with_content_access_and_type_and_the_result_is_what_is_stored(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    levels = levels_of(alice, bob)
    made = given(alice.createContainer(b"content", accessLevels=levels, type="label"))
    check_is_stored(alice, made, version=1)
    members = {id_of(alice): OWNER, id_of(bob): READER}
    for reader in (alice, bob):
        assert state(reader, made.id) == (b"content", None, "label", members)


def test_a_container_is_created_with_a_header_too(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    levels = levels_of(alice, bob)
    made = given(alice.createContainer(b"content", {"h": [1]}, accessLevels=levels, type="label"))
    check_is_stored(alice, made, version=1)
    members = {id_of(alice): OWNER, id_of(bob): READER}
    for reader in (alice, bob):
        assert state(reader, made.id) == (b"content", {"h": [1]}, "label", members)


@pytest.mark.long
def test_both_forms_of_creation_take_all_parameters_by_position(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    """A list of AccessLevel in second place, also the empty one, is the form without header.

    None before a text is the access list; a header that cannot be told from one goes by name.
    """
    provider: Any = alice
    both = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob))]
    members = {id_of(alice): OWNER, id_of(bob): Level.DefaultUserPermissions}
    only = {id_of(alice): OWNER}
    cases: list[tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = [
        ((both, "t"), {}, (None, "t", members)),
        ((both,), {"type": "t"}, (None, "t", members)),
        ((both,), {}, (None, None, members)),
        ((tuple(both),), {}, (None, None, members)),
        (([], "t"), {}, (None, "t", only)),
        (([],), {}, (None, None, only)),
        (([], None), {}, (None, None, only)),
        ((None, "t"), {}, (None, "t", only)),
        ((), {"accessLevels": both, "type": "t"}, (None, "t", members)),
        (({"h": 1}, both, "t"), {}, ({"h": 1}, "t", members)),
        (({"h": 1}, [], "t"), {}, ({"h": 1}, "t", only)),
        (({"h": 1}, None, None), {}, ({"h": 1}, None, only)),
        ((["h"], both), {"type": "t"}, (["h"], "t", members)),
        ((None, both), {}, (None, None, members)),
        ((None, None, "t"), {}, (None, "t", only)),
        ((), {"customHeaderObject": []}, ([], None, only)),
        ((), {"customHeaderObject": [], "accessLevels": both}, ([], None, members)),
    ]
    for args, kwargs, expected in cases:
        made = given(provider.createContainer(b"c", *args, **kwargs))
        assert state(alice, made.id) == (b"c", *expected), (args, kwargs)
    made = given(provider.createContainer(None, None, None, None))
    assert state(alice, made.id) == (None, None, None, only)


def test_a_container_lacks_all_that_its_creation_leaves_out(alice: ServerProvider) -> None:
    made = given(alice.createContainer(None))
    assert state(alice, made.id) == (None, None, None, {id_of(alice): OWNER})
    assert made.length is None


def check_update(
    alice: ServerProvider,
    bob: ServerProvider,
    shared: SecuredContainer,
    update: Callable[..., Promise[Any]],
    *arguments: Any,
    **changed: Any,
) -> None:
    """An update changes these and nothing else, for every reader, and gives what is stored or nothing."""
    fields = ("content", "header", "type", "access")
    before = dict(zip(fields, state(alice, shared.id), strict=True))
    version = given(alice.getContainerMetadata(shared.id)).version + 1
    result = given(update(shared.id, *arguments))
    expected = tuple((before | changed).values())
    assert state(alice, shared.id) == expected
    if id_of(bob) in expected[-1]:
        assert state(bob, shared.id) == expected
    if changed.keys() <= {"header", "content"}:
        assert result.id == shared.id
        check_is_stored(alice, result, version=version)
    else:
        assert result is None
        assert given(alice.getContainerMetadata(shared.id)).version == version


def test_an_update_of_the_header_replaces_it_alone_and_left_out_removes_it(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    update = alice.updateContainerHeader
    check_update(alice, bob, shared, update, {"new": 2}, header={"new": 2})
    check_update(alice, bob, shared, update, header=None)


def test_an_update_of_the_content_replaces_it_alone_and_left_out_removes_it(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    update = alice.updateContainerContent
    check_update(alice, bob, shared, update, b"new", content=b"new")
    check_update(alice, bob, shared, update, content=None)


def test_an_update_of_the_type_replaces_it_alone_and_left_out_removes_it(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    check_update(alice, bob, shared, alice.updateContainerType, "new", type="new")
    check_update(alice, bob, shared, alice.updateContainerType, type=None)


def test_an_update_of_the_access_levels_replaces_them_alone_and_left_out_leaves_the_creator(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    update, owners = alice.updateContainerAccessLevels, shared_by(alice, bob)
    members = {id_of(alice): OWNER, id_of(bob): OWNER}
    check_update(alice, bob, shared, update, owners, access=members)
    check_update(alice, bob, shared, update, access={id_of(alice): OWNER})
    with pytest.raises(BrokerError.notFoundError):
        given(bob.getContainer(shared.id))


def test_an_update_of_everything_replaces_content_header_access_and_type(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    owners = shared_by(alice, bob)
    update = alice.updateContainer(
        shared.id, content=b"new", customHeaderObject=[2], accessLevels=owners, type="new"
    )
    made = given(update)
    check_is_stored(alice, made, version=2)
    assert made.id == shared.id
    members = {id_of(alice): OWNER, id_of(bob): OWNER}
    for reader in (alice, bob):
        assert state(reader, shared.id) == (b"new", [2], "new", members)


def test_an_update_of_everything_removes_all_that_it_leaves_out(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    provider: Any = alice
    made = given(provider.updateContainer(shared.id))
    check_is_stored(alice, made, version=2)
    assert state(alice, shared.id) == (None, None, None, {id_of(alice): OWNER})
    with pytest.raises(BrokerError.notFoundError):
        given(bob.getContainer(shared.id))


def test_an_update_of_everything_takes_all_parameters_by_position(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    provider: Any = alice
    given(provider.updateContainer(shared.id, b"new", {"new": 2}, levels_of(alice, bob), "new"))
    members = {id_of(alice): OWNER, id_of(bob): READER}
    assert state(alice, shared.id) == (b"new", {"new": 2}, "new", members)
    given(provider.updateContainer(shared.id, b"o", accessLevels=levels_of(alice, bob)))
    assert state(alice, shared.id) == (b"o", None, None, members)


def test_a_container_is_read_with_content_header_and_all_of_its_metadata(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    for reader in (alice, bob):
        found = given(reader.getContainer(shared.id))
        assert metadata_of(found) == metadata_of(shared)
        assert found.content == b"old"
        assert found.header == Header({"old": 1})
        assert availability_of(found) == (Availability.Available, Availability.Available)
        assert (found.contentBy, found.headerBy, found.asOf) == (id_of(alice), id_of(alice), None)
        assert found.isOwnDocument is False
    none = given(alice.getContainer(given(alice.createContainer(None)).id))
    assert (none.content, none.header) == (None, None)
    assert availability_of(none) == (Availability.Absent, Availability.Absent)


def test_the_metadata_of_a_container_come_alone(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    for reader in (alice, bob):
        found = given(reader.getContainerMetadata(shared.id))
        assert metadata_of(found) == metadata_of(shared)
        assert (found.content, found.header) == (None, None)
        assert availability_of(found) == (Availability.NotIncluded, Availability.NotIncluded)
        assert (found.contentBy, found.headerBy, found.asOf) == (id_of(alice), id_of(alice), None)
        assert found.isOwnDocument is False


def test_metadata_are_the_creators_and_say_what_was_created(alice: ServerProvider) -> None:
    before = dt.datetime.now(dt.UTC)
    made = given(alice.createContainer(b"five!", {"h": 1}, type="label"))
    assert (made.type, made.version, made.length) == ("label", 1, 5)
    assert made.createdBy == made.modifiedBy == id_of(alice)
    assert before <= made.createdAt == made.modifiedAt <= dt.datetime.now(dt.UTC)
    later = given(alice.updateContainerHeader(made.id, 1))
    assert (later.version, later.createdAt) == (2, made.createdAt)
    assert later.modifiedAt > made.modifiedAt


def test_the_header_of_a_container_is_the_object_or_none(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    for reader in (alice, bob):
        assert given(reader.getContainerHeader(shared.id)) == Header({"old": 1})
    given(alice.updateContainerHeader(shared.id))
    for reader in (alice, bob):
        assert given(reader.getContainerHeader(shared.id)) is None


@dataclass
class Letter:
    subject: str
    pages: int


def test_a_header_of_the_callers_type_goes_through_json_and_back(alice: ServerProvider) -> None:
    made = given(alice.createContainer(b"", Letter("s", 2)))
    assert given(alice.getContainerHeader(made.id)) == Header({"subject": "s", "pages": 2})
    assert given(alice.getContainerHeader(made.id, Letter)) == Header(Letter("s", 2))
    assert given(alice.getContainerHeader(made.id, dict)) == Header({"subject": "s", "pages": 2})
    with pytest.raises(BrokerError.invalidArgumentError, match="not a int"):
        given(alice.getContainerHeader(made.id, int))


def test_the_content_of_a_container_is_the_bytes_or_none_and_empty_is_not_none(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer
) -> None:
    for reader in (alice, bob):
        assert given(reader.getContainerContent(shared.id)) == b"old"
    for content, length in ((b"", 0), (None, None)):
        updated = given(alice.updateContainerContent(shared.id, content))
        assert updated.length == length
        for reader in (alice, bob):
            assert given(reader.getContainerContent(shared.id)) == content
        made = given(alice.createContainer(content))
        assert (made.length, given(alice.getContainerContent(made.id))) == (length, content)


def test_a_secured_container_is_what_the_creation_gave_and_opens_with_the_readers_key_alone(
    alice: ServerProvider, shared: SecuredContainer
) -> None:
    found = given(alice.getSecuredContainer(shared.id))
    assert found == shared
    record = parse_record(found.record)
    assert (record.containerId, record.version) == (shared.id.bytes, 1)
    assert found.signature
    assert found.wrap
    for plaintext in (b"old", b'"old"'):
        assert plaintext not in (found.sealedContent or b"") + (found.sealedHeader or b"")
    assert opened(found, container_key(alice, shared.id)) == b"old"


@both_engines
def test_a_deleted_container_is_neither_read_nor_changed_by_anybody(
    alice: ServerProvider, bob: ServerProvider, shared: SecuredContainer, new_provider: NewProvider
) -> None:
    """Bob reads it on one of his two devices before."""
    other, seasoned = given(alice.createContainer(b"another")), new_provider(ring_of(bob))
    assert given(seasoned.getContainerContent(shared.id)) == b"old"
    assert given(alice.deleteContainer(shared.id)) is None
    for provider in (alice, bob, seasoned) * 2:
        for operation in (
            provider.getContainer, provider.getContainerHeader, provider.getContainerContent,
            provider.getContainerMetadata, provider.getSecuredContainer,
            provider.updateContainerHeader, provider.deleteContainer,
        ):  # fmt: skip
            with pytest.raises(BrokerError.deletedError):
                given(operation(shared.id))
    assert given(alice.getContainerContent(other.id)) == b"another"


# Access levels


@pytest.mark.parametrize("levels", ["left out", None, []], ids=str)
def test_a_creation_without_access_levels_gives_the_creator_alone_every_permission(
    alice: ServerProvider, bob: ServerProvider, levels: Any
) -> None:
    arguments: dict[str, Any] = {} if levels == "left out" else {"accessLevels": levels}
    made = given(alice.createContainer(b"", **arguments))
    assert list(made.access) == [AccessLevel(id_of(alice), Level(511))]
    with pytest.raises(BrokerError.notFoundError):
        given(bob.getContainer(made.id))


def test_access_levels_that_are_given_are_taken_exactly_whoever_gives_them(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    """The caller is in none of the lists: with a creation, an update of access and one of everything."""
    only_bob = [AccessLevel(id_of(bob), OWNER)]
    by_creation = given(alice.createContainer(b"his", accessLevels=only_bob))
    assert by_creation.access is None, "she does not see a list that she is not in"
    by_access, by_update = (given(alice.createContainer(b"his")) for _ in range(2))
    given(alice.updateContainerAccessLevels(by_access.id, only_bob))
    update = alice.updateContainer(
        by_update.id, content=b"his", customHeaderObject=None, accessLevels=only_bob, type=None
    )
    given(update)
    for made in (by_creation, by_access, by_update):
        assert state(bob, made.id) == (b"his", None, None, {id_of(bob): OWNER})
        with pytest.raises(BrokerError.notFoundError):
            given(alice.getContainer(made.id))


# Session and user


def enters(new_provider: NewProvider, user: uuid.UUID, **secrets: Any) -> Any:
    """The KeyFile that a log-in on another device gives, or the error."""
    try:
        return given(new_provider().logIn(user, **secrets))
    except BrokerError as error:
        return type(error)


BOTH = {"password": PASSWORD, "passphrase": PASSPHRASE}
NEW = {"password": NEW_PASSWORD, "passphrase": NEW_PASSPHRASE}


@both_engines
def test_a_registration_creates_a_user_who_logs_in_with_both_secrets_and_has_the_reminder(
    new_provider: NewProvider,
) -> None:
    provider = new_provider()
    key_file = given(provider.register(PASSWORD, PASSPHRASE, REMINDER))
    user = id_of(provider)
    assert enters(new_provider, user, **BOTH) == key_file
    assert given(new_provider().getReminder(user)) == REMINDER
    assert enters(new_provider, user, password=NEW_PASSWORD, passphrase=PASSPHRASE) is (
        BrokerError.credentialsError
    )
    assert enters(new_provider, user, passphrase=NEW_PASSPHRASE) is BrokerError.credentialsError
    assert given(provider.createContainer(b"")).createdBy == user


def test_a_registration_without_a_reminder_has_none(new_provider: NewProvider) -> None:
    provider = new_provider()
    given(provider.register(PASSWORD, PASSPHRASE))
    assert given(provider.getReminder()) == ""


@both_engines
def test_a_log_in_needs_the_passphrase_and_checks_the_password_where_it_is_given(
    account: Account, new_provider: NewProvider
) -> None:
    user = account.ring.userId
    assert enters(new_provider, user, passphrase=PASSPHRASE) == account.key_file
    assert enters(new_provider, user, **BOTH) == account.key_file
    refused = [
        {"password": PASSWORD},
        {"password": NEW_PASSWORD, "passphrase": PASSPHRASE},
        {"password": PASSWORD, "passphrase": NEW_PASSPHRASE},
    ]
    for secrets in refused:
        assert enters(new_provider, user, **secrets) is BrokerError.credentialsError, secrets
    provider = new_provider()
    given(provider.logIn(user, passphrase=PASSPHRASE))
    assert ring_of(provider).rawFingerprint == account.ring.rawFingerprint


@both_engines
def test_a_log_in_with_a_key_ring_takes_that_users_alone_and_gives_nothing(
    account: Account, new_provider: NewProvider
) -> None:
    provider = new_provider()
    ring = account.ring
    assert given(provider.logIn(keyRing=ring, userId=ring.userId)) is None
    assert (id_of(provider), ring_of(provider)) == (ring.userId, ring)
    by_position = new_provider()
    assert given(by_position.logIn(ring, ring.userId)) is None
    assert id_of(by_position) == ring.userId
    assert given(provider.createContainer(b"")).createdBy == ring.userId
    fresh = new_provider()
    with pytest.raises(BrokerError.invalidArgumentError):
        drop(fresh.logIn(keyRing=ring, userId=uuid.uuid4()))
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(fresh.getUserId())


def test_a_log_out_gives_nothing_ends_the_token_and_drops_the_key_ring(
    alice: ServerProvider, broker: BrokerProcess
) -> None:
    given(alice.createContainer(b""))
    token, session = token_of(alice), alice._current
    assert session is not None
    assert is_good(token, broker)
    assert given(alice.logout()) is None
    assert not is_good(token, broker)
    assert session.keys.is_forgotten
    for operation in (alice.getKeyRing, alice.getUserId, alice.logout, alice.getEvents):
        with pytest.raises(BrokerError.notAuthenticatedError):
            drop(operation())


def test_a_deleted_user_is_gone_from_the_broker_and_the_session_is_over(
    new_provider: NewProvider, bob: ServerProvider
) -> None:
    owner = new_owner(new_provider)
    provider, user = owner.provider, owner.user_id
    made = given(provider.createContainer(b"mine"))
    assert given(provider.deleteUser()) is None
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(provider.getUserId())
    assert enters(new_provider, user, **BOTH) is BrokerError.credentialsError
    with pytest.raises(BrokerError):
        given(new_provider().logIn(keyRing=owner.ring, userId=user))
    assert given(bob.getReminder(user)) == ""
    with pytest.raises(BrokerError):
        given(bob.getContainer(made.id))
    with pytest.raises(BrokerError):
        given(bob.createContainer(b"", accessLevels=[AccessLevel(user)]))


@pytest.fixture
def owner(new_provider: NewProvider) -> Owner:
    return new_owner(new_provider)


def test_changed_credentials_are_the_only_ones_and_the_reminder_is_the_new_one(
    owner: Owner, new_provider: NewProvider
) -> None:
    provider, user = owner.provider, owner.user_id
    key_file = given(provider.changeCredentials(NEW_PASSWORD, NEW_PASSPHRASE, "a new reminder"))
    assert key_file != owner.key_file
    assert enters(new_provider, user, **NEW) == key_file
    assert enters(new_provider, user, **BOTH) is BrokerError.credentialsError
    assert enters(new_provider, user, password=PASSWORD, passphrase=NEW_PASSPHRASE) is (
        BrokerError.credentialsError
    )
    assert given(new_provider().getReminder(user)) == "a new reminder"


def test_the_key_ring_and_the_user_id_are_those_of_the_session(
    account: Account, new_provider: NewProvider
) -> None:
    provider = new_provider(account.ring)
    found = given(provider.getKeyRing())
    assert isinstance(found, KeyRing)
    assert [key.seeds for key in found.signing] == [key.seeds for key in account.ring.signing]
    assert [key.seeds for key in found.encryption] == [key.seeds for key in account.ring.encryption]
    assert given(provider.getUserId()) == account.ring.userId
    fresh = new_provider()
    for operation in (fresh.getKeyRing, fresh.getUserId):
        with pytest.raises(BrokerError.notAuthenticatedError):
            drop(operation())


# KeyFile and reminder


@both_engines
def test_a_reminder_is_that_of_the_user_who_is_named_or_of_the_sessions(
    owner: Owner, account: Account, new_provider: NewProvider
) -> None:
    given(owner.provider.changeCredentials(NEW_PASSWORD, NEW_PASSPHRASE, "the own one"))
    assert given(owner.provider.getReminder()) == "the own one"
    for provider in (owner.provider, new_provider()):
        assert given(provider.getReminder(account.ring.userId)) == REMINDER
        assert given(provider.getReminder(owner.user_id)) == "the own one"
    assert given(new_provider().getReminder(uuid.uuid4())) == "", "as of an unknown user"
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(new_provider().getReminder())


def test_a_key_file_is_created_and_updated_with_its_secrets_and_its_reminder(
    owner: Owner, new_provider: NewProvider
) -> None:
    provider, user = owner.provider, owner.user_id
    given(provider.deleteKeyFile())
    for reminder in ("created", "updated"):
        storing = provider.createOrUpdateKeyFile(owner.key_file, PASSWORD, PASSPHRASE, reminder)
        assert given(storing) == owner.key_file
        assert enters(new_provider, user, **BOTH) == owner.key_file
        assert given(provider.getReminder()) == reminder
    for secrets in ((NEW_PASSWORD, PASSPHRASE), (PASSWORD, "", "")):
        with pytest.raises(BrokerError):
            given(provider.createOrUpdateKeyFile(owner.key_file, *secrets))
    with pytest.raises(BrokerError):
        given(provider.createOrUpdateKeyFile(b"junk", PASSWORD, PASSPHRASE))


def test_a_deleted_key_file_opens_nothing_and_has_no_reminder(
    owner: Owner, new_provider: NewProvider
) -> None:
    assert given(owner.provider.deleteKeyFile()) is None
    assert enters(new_provider, owner.user_id, **BOTH) is BrokerError.credentialsError
    assert given(owner.provider.getReminder()) == ""
    assert given(owner.provider.needToSyncAccount(owner.user_id, owner.key_file)) is True
    with pytest.raises(BrokerError.credentialsError):
        given(owner.provider.getKeyFile(PASSPHRASE))
    assert id_of(owner.provider) == owner.user_id, "the session goes on"


def test_the_stored_key_file_is_given_to_its_passphrase(
    account: Account, new_provider: NewProvider
) -> None:
    provider = new_provider(account.ring)
    assert given(provider.getKeyFile(PASSPHRASE)) == account.key_file
    with pytest.raises(BrokerError.credentialsError):
        given(provider.getKeyFile(NEW_PASSPHRASE))


def test_a_sync_is_needed_for_all_bytes_but_those_on_the_broker(
    account: Account, new_provider: NewProvider
) -> None:
    provider, user, key_file = new_provider(account.ring), account.ring.userId, account.key_file
    assert given(provider.needToSyncAccount(user, key_file)) is False
    others = (b"", b"junk", key_file[:-1], key_file + b"\0", bytes(len(key_file)))
    for other in others:
        assert given(provider.needToSyncAccount(user, other)) is True
    with pytest.raises(BrokerError):
        given(provider.needToSyncAccount(uuid.uuid4(), key_file))


# Public keys


@pytest.fixture
def rotated(alice: ServerProvider) -> ServerProvider:
    """A user whose first keys are retired."""
    given(change(alice, compromised=True))
    return alice


def expected_keys(ring: KeyRing) -> list[tuple[Any, ...]]:
    """After one rotation: user, type, index, bytes, whether it is active, fingerprint."""
    keys = [(KeyType.Signing, index, key.public) for index, key in enumerate(ring.signing)]
    keys += [(KeyType.Encryption, index, key.public) for index, key in enumerate(ring.encryption)]
    return [
        (ring.userId, kind, index, public, index == 1, ring.fingerprint)
        for kind, index, public in keys
    ]


def shown(key: PublicKey) -> tuple[Any, ...]:
    return (key.userId, key.keyType, key.index, key.key, key.active, key.fingerprint)


@both_engines
def test_all_public_keys_that_match_are_given_in_order_with_every_field(
    rotated: ServerProvider, bob: ServerProvider
) -> None:
    ring, before = ring_of(rotated), dt.datetime.now(dt.UTC)
    everything = expected_keys(ring)
    assert [shown(key) for key in given(rotated.getPublicKeys())] == everything
    assert given(bob.getPublicKeys())[0].userId == id_of(bob)
    for kind in (None, *KeyType):
        for index in (None, 0, 1, 2):
            found = given(bob.getPublicKeys(ring.userId, kind, index))
            assert [shown(key) for key in found] == [
                key for key in everything if kind in (None, key[1]) and index in (None, key[2])
            ]
            for key in found:
                assert (key.retiredAt is None) == key.active
                assert key.createdAt < (key.retiredAt or before)
                assert before - key.createdAt < dt.timedelta(minutes=5)


@pytest.mark.parametrize(
    "asked, kind", [((), KeyType.Signing), *(((kind,), kind) for kind in KeyType)]
)
def test_the_latest_active_key_is_the_one_of_the_highest_index_that_is_not_retired(
    rotated: ServerProvider, bob: ServerProvider, asked: tuple[KeyType, ...], kind: KeyType
) -> None:
    """A signing key, unless another kind is asked for."""
    ring = ring_of(rotated)
    found = given(bob.getLatestActiveSigningKey(ring.userId, *asked))
    assert shown(found) == next(
        key for key in expected_keys(ring) if key[1:3] == (kind, 1) and key[4]
    )
    (same,) = given(bob.getPublicKeys(ring.userId, kind, 1))
    assert found == same
    assert found.retiredAt is None


@pytest.mark.parametrize("kind", KeyType)
def test_a_deleted_user_has_no_active_key(
    alice: ServerProvider, bob: ServerProvider, kind: KeyType
) -> None:
    user = id_of(alice)
    given(alice.createContainer(b"", accessLevels=shared_by(alice, bob)))
    given(alice.deleteUser())
    assert given(bob.getLatestActiveSigningKey(user, kind)) is None


@pytest.mark.parametrize("kind", KeyType)
def test_an_unknown_user_has_no_active_key(alice: ServerProvider, kind: KeyType) -> None:
    assert given(alice.getLatestActiveSigningKey(uuid.uuid4(), kind)) is None


# Events


@dataclass
class Log:
    """A user's log, and what is known of each event without asking for it."""

    provider: ServerProvider
    events: list[tuple[Any, ...]]
    """Event type, container, container type and the one before, version, changes."""
    began: dt.datetime


@pytest.fixture
def log(new_provider: NewProvider) -> Log:
    """Seven events of three containers: one changes its type, one is deleted, which empties its events."""
    began = dt.datetime.now(dt.UTC)
    provider = new_provider(True, applicationName="the program")
    one = given(provider.createContainer(b"", type="label"))
    two = given(provider.createContainer(b"", type="label 2"))
    three = given(provider.createContainer(b""))
    given(provider.updateContainerHeader(one.id, 1))
    given(provider.updateContainerContent(two.id, b"x"))
    given(provider.updateContainerType(one.id, "later"))
    given(provider.deleteContainer(three.id))
    kind = ContainerEventType
    return Log(
        provider,
        [
            (kind.Added, one.id, "label", None, 1, ()),
            (kind.Added, two.id, "label 2", None, 1, ()),
            (kind.Added, three.id, None, None, 0, ()),
            (kind.Updated, one.id, "label", None, 2, ("header",)),
            (kind.Updated, two.id, "label 2", None, 2, ("content",)),
            (kind.Updated, one.id, "later", "label", 3, ("type",)),
            (kind.Deleted, three.id, None, None, 2, ()),
        ],
        began,
    )


def test_without_criteria_all_events_come_in_order_with_every_field(log: Log) -> None:
    found = given(log.provider.getEvents())
    assert [event.id for event in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [
        (
            each.eventType,
            each.containerId,
            each.containerType,
            each.previousContainerType,
            each.version,
            tuple(each.changes),
        )
        for each in found
    ] == log.events
    for event in found:
        is_emptied = event.version == 0
        assert event.relatedUserId == (None if is_emptied else id_of(log.provider))
        assert event.applicationName == ("" if is_emptied else "the program")
        assert event.groupId is None
        assert log.began <= event.date <= dt.datetime.now(dt.UTC)


def test_each_criterion_gives_exactly_the_events_that_match_it(log: Log) -> None:
    two = log.events[1][1]
    kind = ContainerEventType
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [1, 2, 3, 4, 5, 6, 7]),
        ({"eventType": [kind.Added]}, [1, 2, 3]),
        ({"eventType": [kind.Updated, kind.Deleted]}, [4, 5, 6, 7]),
        ({"containerId": two}, [2, 5]), ({"containerType": "label"}, [1, 4, 6]),
        ({"containerType": "later"}, [6]), ({"containerType": "labe"}, []),
        ({"startId": 3}, [3, 4, 5, 6, 7]), ({"endId": 3}, [1, 2, 3]),
        ({"startId": 2, "endId": 5}, [2, 3, 4, 5]),
        ({"eventType": [kind.Updated], "containerId": two, "startId": 2}, [5]),
    ]  # fmt: skip
    for criteria, expected in cases:
        found = given(log.provider.getEvents(**criteria))
        assert [event.id for event in found] == expected, criteria
    by_position = given(log.provider.getEvents([kind.Updated], two, "label 2", 2, 5))
    assert [event.id for event in by_position] == [5]


# Authentication and the provider


def test_a_provider_is_known_to_the_broker_by_its_api_key_and_the_log_names_its_program(
    account: Account, new_provider: NewProvider
) -> None:
    provider = new_provider(True, applicationName="one program")
    given(provider.createContainer(b""))
    assert [event.applicationName for event in given(provider.getEvents())] == ["one program"]
    key, url, store = uuid.uuid4(), provider.serverUrl, MemoryTrustStore()
    with ServerProvider(key, url, "one program", trustStore=store) as stranger:
        with pytest.raises(BrokerError.apiKeyError):
            given(stranger.register(PASSWORD, PASSPHRASE))
        with pytest.raises(BrokerError.apiKeyError):
            given(stranger.logIn(account.ring.userId, passphrase=PASSPHRASE))


@pytest.mark.parametrize("kind", [uuid.UUID, str])
def test_a_provider_keeps_what_it_was_made_with_and_refuses_anything_else_as_api_key(
    kind: Any,
) -> None:
    key = uuid.uuid4()
    provider = ServerProvider(kind(str(key)), "https://broker.example", "my program")
    assert (provider.apiKey, provider.serverUrl, provider.applicationName) == (
        key,
        "https://broker.example",
        "my program",
    )
    wrong: list[Any] = ["no key", 7, None]
    for api_key in wrong:
        with pytest.raises(BrokerError):
            ServerProvider(api_key, "https://broker.example", "my program")


# Beyond the interface


def test_several_containers_are_created_and_read_in_their_order(alice: ServerProvider) -> None:
    made = given(
        alice.createContainers([NewContainer(b"one", {"n": 1}), NewContainer(b"two", type="t")])
    )
    assert [given(alice.getSecuredContainer(each.id)) for each in made] == made
    ids = [each.id for each in made]
    for order in (ids, ids[::-1], ids[:1]):
        found = given(alice.getContainers(order))
        assert found == [given(alice.getContainer(each)) for each in order]
    assert [each.content for each in given(alice.getContainers(ids))] == [b"one", b"two"]


def test_access_to_several_containers_is_granted_revoked_and_replaced(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    ids = [given(alice.createContainer(each)).id for each in (b"one", b"two")]
    me, him = given(alice.getUserId()), given(bob.getUserId())
    mine, his = AccessLevel(me, ContainerAccessLevel.DefaultOwnerPermissions), AccessLevel(him)

    def check(found: Any, *levels: AccessLevel) -> None:
        assert [each.id for each in found] == ids
        for each in found:
            assert sorted(each.access, key=str) == sorted(levels, key=str)
            assert given(alice.getContainerMetadata(each.id)).access == each.access
            assert each.record == given(alice.getSecuredContainer(each.id)).record

    check(given(alice.grantAccess(ids, [his])), mine, his)
    assert [each.content for each in given(bob.getContainers(ids))] == [b"one", b"two"]
    check(given(alice.revokeAccess(ids, [him])), mine)
    added = [AccessChange(each, add=[his]) for each in ids]
    check(given(alice.updateContainersAccessLevels(added)), mine, his)
    replaced = [AccessChange(each, replace=[mine]) for each in ids]
    check(given(alice.updateContainersAccessLevels(replaced)), mine)


def test_a_link_reads_until_it_is_revoked(alice: ServerProvider) -> None:
    box = given(alice.createContainer(b"for a guest")).id
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=7)
    link = given(alice.createLink([box], ContainerAccessLevel.DefaultUserPermissions, end))
    assert given(alice.getLinks()) == [link]
    with given(openLink(link, trustStore=MemoryTrustStore())) as guest:
        assert given(guest.getContainerContent(box)) == b"for a guest"
        assert given(alice.revokeLink(link)) is None
        with pytest.raises(BrokerError):
            given(guest.getContainerContent(box))
    assert given(alice.getLinks()) == []


def test_containers_are_listed_by_pages(alice: ServerProvider) -> None:
    items = [
        NewContainer(b"content", {"n": n}, type="even" if n % 2 == 0 else None) for n in range(5)
    ]
    made = given(alice.createContainers(items))
    order = sorted(each.id for each in made)
    first = given(alice.listContainers(limit=2))
    rest = given(alice.listContainers(startAfter=first.next))
    assert [each.id for each in (*first.containers, *rest.containers)] == order
    assert (first.next, rest.next, first.leftOut, rest.leftOut) == (order[1], None, [], [])
    even = given(alice.listContainers("even")).containers
    assert {each.id for each in even} == {each.id for each in made[::2]}
    assert {each.header.customHeaderObject["n"] for each in even} == {0, 2, 4}
    assert given(alice.listContainers(headerType=dict[str, int])).containers[0].content is None
    [without, *_] = given(alice.listContainers(headers=False)).containers
    assert without == given(alice.getContainerMetadata(order[0]))


def test_a_content_is_saved_and_opened_or_there_is_none(
    alice: ServerProvider, tmp_path: Path
) -> None:
    made, none = given(alice.createContainer(b"content")), given(alice.createContainer(None))
    assert given(alice.saveContainerContent(made.id, tmp_path / "file")) == 7
    assert (tmp_path / "file").read_bytes() == b"content"
    with given(alice.openContainerContent(made.id)) as reader:
        assert reader.read() == b"content"
    assert given(alice.saveContainerContent(none.id, tmp_path / "none")) is None
    assert not (tmp_path / "none").exists()
    assert given(alice.openContainerContent(none.id)) is None
    empty = given(alice.createContainer(b""))
    assert given(alice.saveContainerContent(empty.id, tmp_path / "empty")) == 0
