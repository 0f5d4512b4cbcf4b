"""Both call styles over a real broker: one body, one outcome, exactly one handler, never in between."""

import asyncio
import concurrent.futures
import datetime as dt
import functools
import gc
import logging
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from scbroker import (
    AccessChange,
    AccessLevel,
    BrokerError,
    ContactCard,
    Container,
    ContainerAccessLevel,
    ContainerEvent,
    ContainerPage,
    ContentReader,
    Group,
    GroupManager,
    GroupMember,
    GroupRenewal,
    Header,
    Heads,
    KeyRing,
    Link,
    MemoryTrustStore,
    NewContainer,
    Promise,
    PublicKey,
    SecuredContainer,
    ServerProvider,
    Usage,
    keys,
    mainQueue,
)
from scbroker.crypto import seal
from tests.client.conftest import PASSPHRASE, PASSWORD, REMINDER, Account, refusal
from tests.kit.brokers import BrokerProcess
from tests.kit.cases import in_one_case
from tests.kit.declared import HOMES
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, Octets
from tests.kit.waiting import PATIENCE, until, wait_until

VOID = object()
EVERY_PERMISSION = ContainerAccessLevel.DefaultOwnerPermissions


@dataclass
class Handlers:
    """Both handlers, a queue for them, and what they were called with, where."""

    queue: concurrent.futures.ThreadPoolExecutor
    completed: list[tuple[Any, ...]] = field(default_factory=list)
    failed: list[Any] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    _called: threading.Event = field(default_factory=threading.Event)

    def completionHandler(self, *result: Any) -> None:  # noqa: N802 - the interface's name
        self.threads.append(threading.current_thread())
        self.completed.append(result)
        self._called.set()

    def errorHandler(self, error: BrokerError) -> None:  # noqa: N802 - the interface's name
        self.threads.append(threading.current_thread())
        self.failed.append(error)
        self._called.set()

    @property
    def style(self) -> dict[str, Any]:
        return {"completionHandler": self.completionHandler, "errorHandler": self.errorHandler}

    @property
    def queued(self) -> dict[str, Any]:
        return {**self.style, "queue": self.queue}

    def wait(self) -> None:
        """Wait for the one call of a handler on the queue, and for all that the queue still has."""
        assert self._called.wait(PATIENCE), "no handler was called"
        self.queue.shutdown()
        assert self.threads[0].name.startswith("the-queue")

    @property
    def calls(self) -> int:
        return len(self.completed) + len(self.failed)


def call(provider: ServerProvider, name: str, **arguments: Any) -> Any:
    """Calls an operation in whatever style the arguments say."""
    return getattr(provider, name)(**arguments)


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    with concurrent.futures.ThreadPoolExecutor(1, "the-queue") as queue:
        yield Handlers(queue)


@dataclass
class World:
    """What an operation needs: a provider with a session, a container of its user, an account."""

    provider: ServerProvider
    container: uuid.UUID
    account: Account
    folder: Path


@pytest.fixture
def world(
    request: pytest.FixtureRequest, new_provider: NewProvider, account: Account, tmp_path: Path
) -> World:
    operation = request.node.callspec.params["operation"]
    ring = account.ring if operation.of_account else True
    provider = new_provider(ring, sessionStore=tmp_path / "sessions")
    made = provider.createContainer(b"old", {"old": 1}, type="old").result(PATIENCE)
    if operation.is_shared:
        provider.grantAccess(made.id, AccessLevel(account.ring.userId)).result(PATIENCE)
    return World(provider, made.id, account, tmp_path)


@dataclass(frozen=True)
class Operation:
    """One way to call one operation, and what comes of it."""

    name: str
    arguments: Callable[[World], dict[str, Any]]
    gives: Any
    """A type of the result, the result itself, or VOID."""
    form: str = ""
    of_account: bool = False
    """Whether it is about a KeyFile that opens, which the session's user has to have then."""
    is_shared: bool = False
    """Whether another user has access to the container: its only member cannot leave it."""

    def __str__(self) -> str:
        return self.name + self.form

    def call(self, world: World, **style: Any) -> Any:
        return getattr(world.provider, self.name)(**self.arguments(world), **style)

    def check(self, result: Any) -> None:
        if isinstance(self.gives, type):
            assert isinstance(result, self.gives)
        elif callable(self.gives):
            assert self.gives(result)
        else:
            assert result == self.gives


def nothing(_: World) -> dict[str, Any]:
    return {}


def to_a_file(world: World) -> dict[str, Any]:
    return {"containerId": world.container, "path": world.folder / "file"}


def with_own(**more: Any) -> Callable[[World], dict[str, Any]]:
    return lambda world: {"containerId": world.container, **more}


def list_of(kind: type) -> Callable[[Any], bool]:
    return lambda found: bool(found) and all(isinstance(item, kind) for item in found)


def of_user(world: World) -> dict[str, Any]:
    return {"userId": world.account.ring.userId}


def by_ring(world: World) -> dict[str, Any]:
    return {"keyRing": world.account.ring, **of_user(world)}


def by_passphrase(world: World) -> dict[str, Any]:
    return {"passphrase": PASSPHRASE, **of_user(world)}


def with_key_file(**more: Any) -> Callable[[World], dict[str, Any]]:
    return lambda world: {"keyFileData": world.account.key_file, **more}


def with_key_file_of_user(world: World) -> dict[str, Any]:
    return {"keyFileData": world.account.key_file, **of_user(world)}


def kept(world: World) -> dict[str, Any]:
    world.provider._kept._put([world.account.ring], True)
    return of_user(world)


SECRETS = {"password": PASSWORD, "passphrase": PASSPHRASE}
EVERYTHING = {"content": b"n", "customHeaderObject": None, "accessLevels": None, "type": None}
own = with_own()


def with_other_user(world: World) -> dict[str, Any]:
    level = AccessLevel(world.account.ring.userId)
    return {"containerIds": world.container, "accessLevels": level}


def of_own_and_nobody(world: World) -> dict[str, Any]:
    return {"containerIds": [world.container], "userIds": [uuid.uuid4()]}


def of_a_link(world: World) -> dict[str, Any]:
    return {"containerIds": world.container, "expiresAt": dt.datetime.now(dt.UTC) + dt.timedelta(1)}


def own_link(world: World) -> dict[str, Any]:
    """A link of the provider's user; without a session, any user id."""
    try:
        return {"link": world.provider.createLink(**of_a_link(world)).result(PATIENCE)}
    except BrokerError.notAuthenticatedError:
        return {"link": uuid.uuid4()}


def new_group(world: World) -> uuid.UUID:
    """A group of the provider's user and another; without a session, any id."""
    try:
        made = world.provider.createGroup("Team", world.account.ring.userId)
    except BrokerError.notAuthenticatedError:
        return uuid.uuid4()
    return made.result(PATIENCE).id


def of_group(**more: Any) -> Callable[[World], dict[str, Any]]:
    return lambda world: {"groupId": new_group(world), **more}


def of_two_groups(world: World) -> dict[str, Any]:
    return {"groupId": new_group(world), "newGroupId": new_group(world)}


def with_other_owner(world: World) -> dict[str, Any]:
    other = GroupManager(world.account.ring.userId, owner=True)
    return {"groupId": new_group(world), "managers": [other]}


def of_an_offer(world: World) -> dict[str, Any]:
    """A group in which another user has made the provider's user a member; without a session, any id."""
    own, ring = world.provider, world.account.ring
    store = MemoryTrustStore()
    try:
        user = own.getUserId().result(PATIENCE)
    except BrokerError.notAuthenticatedError:
        return {"groupId": uuid.uuid4()}
    with ServerProvider(own.apiKey, own.serverUrl, "other", trustStore=store) as other:
        other.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
        return {"groupId": other.createGroup("Team", user).result(PATIENCE).id}


OPERATIONS = [
    Operation("register", lambda _: SECRETS, bytes),
    Operation("logIn", by_passphrase, bytes),
    Operation("logIn", by_ring, VOID, form=" with a KeyRing"),
    Operation("resumeSession", kept, uuid.UUID),
    Operation("getKeptSessions", nothing, list),
    Operation("forgetKeptSession", of_user, VOID),
    Operation("logout", nothing, VOID),
    Operation("getKeyRing", nothing, KeyRing),
    Operation("getUserId", nothing, uuid.UUID),
    Operation("deleteUser", nothing, VOID),
    Operation("changeCredentials", lambda _: SECRETS, bytes),
    Operation("changeCredentials", lambda _: {**SECRETS, "compromised": True}, bytes,
              form=" compromised"),
    Operation("createOrUpdateKeyFile", with_key_file(**SECRETS, reminder=REMINDER), bytes,
              of_account=True),
    Operation("getKeyFile", lambda _: {"passphrase": PASSPHRASE}, bytes, of_account=True),
    Operation("deleteKeyFile", nothing, VOID),
    Operation("needToSyncAccount", with_key_file_of_user, False, of_account=True),
    Operation("getReminder", of_user, REMINDER),
    Operation("createContainer", lambda _: {"content": b"new"}, SecuredContainer),
    Operation("createContainers", lambda _: {"containers": [NewContainer(b"1"), NewContainer(b"2")]},
              list_of(SecuredContainer)),
    Operation("updateContainer", with_own(**EVERYTHING), SecuredContainer),
    Operation("updateContainerHeader", with_own(customHeaderObject=1), SecuredContainer),
    Operation("updateContainerContent", with_own(content=b"new"), SecuredContainer),
    Operation("updateContainerAccessLevels", own, VOID),
    Operation("updateContainersAccessLevels",
              lambda world: {"changes": [AccessChange(world.container, replace=[])]},
              list_of(SecuredContainer)),
    Operation("grantAccess", with_other_user, list_of(SecuredContainer)),
    Operation("revokeAccess", of_own_and_nobody, list_of(SecuredContainer)),
    Operation("createLink", of_a_link, Link),
    Operation("getLinks", nothing, []),
    Operation("revokeLink", own_link, VOID),
    Operation("updateContainerType", with_own(type="new"), VOID),
    Operation("getContainer", own, Container),
    Operation("getContainers", lambda world: {"containerIds": [world.container]}, list_of(Container)),
    Operation("listContainers", nothing, ContainerPage),
    Operation("getContainerHeader", own, Header({"old": 1})),
    Operation("getContainerContent", own, b"old"),
    Operation("saveContainerContent", to_a_file, 3),
    Operation("openContainerContent", own, ContentReader),
    Operation("getContainerMetadata", own, Container),
    Operation("getSecuredContainer", own, SecuredContainer),
    Operation("deleteContainer", own, VOID),
    Operation("leaveContainer", with_own(abandon=True), VOID, is_shared=True),
    Operation("blockUser", of_user, VOID),
    Operation("unblockUser", of_user, VOID),
    Operation("getBlockedUsers", nothing, []),
    Operation("createGroup", lambda _: {"name": "Team"}, Group),
    Operation("getGroups", nothing, list),
    Operation("getGroupMembers", of_group(), list_of(GroupMember)),
    Operation("acceptGroup", of_group(), Group),
    Operation("declineGroup", of_an_offer, VOID),
    Operation("leaveGroup", of_group(abandon=True), VOID),
    Operation("addGroupMembers", of_group(members=[]), Group),
    Operation("removeGroupMembers", of_group(userIds=[]), Group),
    Operation("setGroupRoles", of_group(roles=[]), Group),
    Operation("setGroupManagers", with_other_owner, Group),
    Operation("renameGroup", of_group(name="New"), Group),
    Operation("renewGroup", of_group(), GroupRenewal(0, [])),
    Operation("replaceGroup", of_two_groups, GroupRenewal(0, [])),
    Operation("deleteGroup", of_group(), VOID),
    Operation("getUsage", nothing, Usage),
    Operation("getContactCard", lambda _: {"name": "Alice"}, ContactCard),
    Operation("getSentChanges", own, []),
    Operation("confirmAccess", own, None),
    Operation("resetContainerMark", own, Heads),
    Operation("resetEventMark", nothing, Heads),
    Operation("getPublicKeys", nothing, list_of(PublicKey)),
    Operation("getLatestActiveSigningKey", of_user, PublicKey),
    Operation("getEvents", nothing, list_of(ContainerEvent)),
]  # fmt: skip


def each_of(operations: Iterable[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", list(operations), ids=str)


def is_of_a_container(name: str) -> bool:
    """Return whether the operation fails for an unknown container; those of many list the error instead."""
    kinds = ("getContainer", "getSecured", "openContainer", "saveContainer", "updateContainer")
    return (
        name.startswith((*kinds, "deleteContainer", "leaveContainer")) and "Containers" not in name
    )


each_operation = each_of(OPERATIONS)


def test_the_table_has_every_operation_of_the_protocol() -> None:
    assert HOMES.keys() == {each.name for each in OPERATIONS}


@pytest.mark.sampled
@each_operation
def test_in_promise_style_the_promise_carries_the_result(
    operation: Operation, world: World
) -> None:
    """By waiting and by awaiting alike."""
    promise = operation.call(world)
    assert isinstance(promise, Promise)
    result = promise.result(PATIENCE)
    assert asyncio.run(awaited(promise)) is result
    if operation.gives is VOID:
        assert result is None
    else:
        operation.check(result)


async def awaited(promise: Promise[Any]) -> Any:
    return await promise


@pytest.mark.sampled
@each_operation
def test_in_callback_style_one_handler_runs_once_on_the_queue_with_the_result_or_nothing(
    operation: Operation, world: World, handlers: Handlers
) -> None:
    assert operation.call(world, **handlers.queued) is world.provider
    handlers.wait()
    check_completed(operation, handlers)


def check_completed(operation: Operation, handlers: Handlers) -> None:
    """One call of one handler: with the result, or with nothing where there is none."""
    assert (len(handlers.completed), handlers.failed) == (1, [])
    (result,) = handlers.completed
    if operation.gives is VOID:
        assert result == ()
    else:
        assert len(result) == 1
        operation.check(result[0])


@in_one_case("operation", [each for each in OPERATIONS if is_of_a_container(each.name)])
def test_a_brokers_error_is_raised_by_the_promise_and_goes_to_the_error_handler_alone(
    operation: Operation, alice: ServerProvider, account: Account, tmp_path: Path
) -> None:
    nowhere = World(alice, uuid.uuid4(), account, tmp_path)
    refusal(operation.call(nowhere), BrokerError.notFoundError)
    with concurrent.futures.ThreadPoolExecutor(1, "the-queue") as queue:
        handlers = Handlers(queue)
        assert operation.call(nowhere, **handlers.queued) is alice
        handlers.wait()
    assert handlers.completed == []
    (error,) = handlers.failed
    assert isinstance(error, BrokerError.notFoundError)
    assert (error.__traceback__, error.__context__) == (None, None)


STOPPED = {"getContainerContent", "createContainer", "updateContainer", "changeCredentials"}


@each_of(each for each in OPERATIONS if each.name in STOPPED)
def test_a_promise_that_is_cancelled_ends_as_cancelled_and_the_provider_goes_on(
    operation: Operation, world: World
) -> None:
    began = threading.Event()

    async def stall(go: Go) -> Octets:
        began.set()
        await asyncio.Event().wait()
        return await go()

    with Network() as network:
        for method in ("GET", "POST", "PUT"):
            network.treat(method, "", stall)
        promise = operation.call(world)
        assert began.wait(PATIENCE)
        assert promise.cancel()
        refusal(promise, BrokerError.operationCancelledError)
    assert world.provider.getContainerContent(world.container).result(PATIENCE) == b"old"
    assert world.provider.createContainer(b"x").result(PATIENCE).version == 1


UNKNOWN, OTHER = uuid.uuid4(), uuid.uuid4()
LEVEL, GOOD = AccessLevel(UNKNOWN), NewContainer(b"")
PAST = AccessLevel(UNKNOWN, expiresAt=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
SOON = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def with_levels(levels: Any) -> dict[str, Any]:
    return {"containerId": UNKNOWN, "accessLevels": levels}


def change(**more: Any) -> dict[str, Any]:
    return {"changes": [AccessChange(UNKNOWN, **more)]}


def link(**more: Any) -> dict[str, Any]:
    return {"containerIds": UNKNOWN, "expiresAt": SOON, **more}


def in_group(**more: Any) -> dict[str, Any]:
    return {"groupId": UNKNOWN, **more}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("register", {"password": PASSWORD, "passphrase": ""}, "passphrase"),
    ("register", {**SECRETS, "reminder": "x" * 1025}, "reminder"),
    ("register", {**SECRETS, "reminder": "\ud800"}, "reminder"),
    ("logIn", {"userId": "not an id", "passphrase": PASSPHRASE}, "userId is not a UUID"),
    ("resumeSession", {"userId": "me"}, "userId"),
    ("forgetKeptSession", {"userId": 7}, "userId"),
    ("unblockUser", {"userId": "bob"}, "userId"),
    ("createContainer", {"content": "text"}, "content must be bytes"),
    ("createContainer", {"content": b"", "type": "ä" * 129}, "type"),
    ("createContainer", {"content": b"", "type": "\ud800"}, "type"),
    ("updateContainerAccessLevels", with_levels("alice"), "accessLevels must be a list of Acc"),
    ("updateContainerAccessLevels", with_levels(LEVEL), "accessLevels must be a list of Acc"),
    ("updateContainerAccessLevels", with_levels([UNKNOWN]), r"accessLevels\[0\] must be an Acc"),
    ("updateContainerAccessLevels", with_levels([LEVEL] * 2), "names user .* twice"),
    ("updateContainerAccessLevels", with_levels([PAST]), "in the past"),
    ("updateContainerAccessLevels",
     with_levels([AccessLevel(uuid.UUID(int=n)) for n in range(1025)]), "1024"),
    ("createContainers", {"containers": GOOD}, "containers must be a list"),
    ("createContainers", {"containers": [GOOD, NewContainer(b"", type="\0")]}, r"\[1\]: type"),
    ("createContainers", {"containers": [NewContainer(Path("nowhere"))]}, r"\[0\]: The file"),
    ("createContainers", {"containers": [NewContainer(b"", {1: object()})]}, r"\[0\]: The header"),
    ("createContainers", {"containers": [GOOD, b""]}, r"containers\[1\] must be a NewContainer"),
    ("updateContainersAccessLevels", {"changes": AccessChange(UNKNOWN)}, "must be a list of Acc"),
    ("updateContainersAccessLevels", {"changes": [UNKNOWN]}, r"changes\[0\] must be an AccessCh"),
    ("updateContainersAccessLevels", {"changes": [AccessChange("x")]}, r"\[0\]: containerId is not"),
    ("updateContainersAccessLevels", {"changes": [AccessChange(UNKNOWN)] * 2}, r"\[1\] names the"),
    ("updateContainersAccessLevels", change(add=[LEVEL], remove=[UNKNOWN]), "add and remove both"),
    ("updateContainersAccessLevels", change(add=[LEVEL], replace=[LEVEL]), "replace names the wh"),
    ("updateContainersAccessLevels", change(add=[LEVEL] * 2), r"\[0\]: add names user .* twice"),
    ("updateContainersAccessLevels", change(replace=[LEVEL] * 2), "replace names user .* twice"),
    ("updateContainersAccessLevels", change(add=[PAST]), r"\[0\]: expiresAt"),
    ("updateContainersAccessLevels", change(add=[UNKNOWN]), r"add\[0\] must be an AccessLevel"),
    ("updateContainersAccessLevels", change(remove=[LEVEL]), r"remove\[0\] must be a"),
    ("grantAccess", {"containerIds": [UNKNOWN] * 2, "accessLevels": []}, r"\[1\] names the cont"),
    ("grantAccess", {"containerIds": UNKNOWN, "accessLevels": [LEVEL] * 2}, "twice"),
    ("grantAccess", {"containerIds": UNKNOWN, "accessLevels": OTHER}, "must be a list of AccessL"),
    ("revokeAccess", {"containerIds": [UNKNOWN] * 2, "userIds": []}, r"\[1\] names the container"),
    ("revokeAccess", {"containerIds": [UNKNOWN], "userIds": [7]}, r"userIds\[0\]"),
    ("getContainers", {"containerIds": [], "content": 1}, "content must be a bool"),
    ("getContainers", {"containerIds": [UNKNOWN, "x"]}, r"containerIds\[1\] is not a UUID"),
    ("getContainer", {"containerId": "c"}, "containerId is not a UUID"),
    ("getContactCard", {"name": ""}, "name"),
    ("getSentChanges", {"containerId": "c"}, "containerId"),
    ("confirmAccess", {"containerId": UNKNOWN, "accept": 7}, "accept"),
    ("resetContainerMark", {"containerId": UNKNOWN, "accept": 7}, "accept"),
    ("resetEventMark", {"accept": b"head"}, "accept"),
    ("getEvents", {"groupId": 7}, "groupId"),
    ("listContainers", {"limit": 65}, "limit"),
    ("getContainerContent", {"containerId": 7}, "containerId"),
    ("saveContainerContent", {"containerId": UNKNOWN, "path": "text"}, "path must be a"),
    ("openContainerContent", {"containerId": "c"}, "containerId"),
    ("getSecuredContainer", {"containerId": None}, "containerId"),
    ("updateContainerType", {"containerId": UNKNOWN, "ifVersion": "1"}, "ifVersion must be an int"),
    ("createLink", link(containerIds=[]), "1 to 256 containers, not 0"),
    ("createLink", link(containerIds=[uuid.uuid4() for _ in range(257)]), "not 257"),
    ("createLink", link(containerIds=[UNKNOWN] * 2), r"containerIds\[1\] names"),
    ("createLink", link(permissions=511), "cannot have .*ModifyAccess.*Delete"),
    ("createLink", link(permissions=0), "at least one permission"),
    ("createLink", link(expiresAt=None), "expiresAt is missing"),
    ("createLink", link(expiresAt=PAST.expiresAt), "in the future"),
    ("createLink", link(expiresAt=dt.datetime(2100, 1, 1)), "time zone"),  # noqa: DTZ001 # is tested
    ("createLink", link(password=""), "password must be"),
    ("createLink", link(password="secret"), "The password is too weak"),
    ("createLink", link(name="n" * 65), "1 to 64 characters"),
    ("createLink", link(name="a\nb"), "printable"),
    ("createLink", link(apiKey="key"), "apiKey is not a UUID"),
    ("createGroup", {"name": "  "}, "blank"),
    ("createGroup", {"name": "a\nb"}, "printable"),
    ("createGroup", {"name": "ä" * 129}, "256"),
    ("createGroup", {"name": "a", "description": "d" * 4097}, "4,096"),
    ("createGroup", {"name": "a", "description": "\0"}, "printable"),
    ("createGroup", {"name": "a", "members": [UNKNOWN] * 2}, "twice"),
    ("createGroup", {"name": "a", "managers": [UNKNOWN] * 2}, "twice"),
    ("setGroupRoles", in_group(roles=UNKNOWN), "MemberRole"),
    ("addGroupMembers", in_group(members=5), "MemberRole"),
    ("setGroupManagers", in_group(managers=[OTHER]), "an owner"),
    ("setGroupManagers", in_group(managers=[]), "an owner"),
    ("renameGroup", in_group(), "name or a description"),
    ("renameGroup", in_group(name=""), "blank"),
    ("getGroupMembers", {"groupId": "team"}, "groupId"),
    ("getPublicKeys", {"userId": "me"}, "userId"),
    ("getLatestActiveSigningKey", {"userId": UNKNOWN, "keyType": "signing"}, "keyType must be"),
    ("getReminder", {"userId": 7}, "userId"),
    ("changeCredentials", {"password": PASSWORD, "passphrase": "weak"}, "weak"),
    ("createOrUpdateKeyFile", {"keyFileData": b"x", **SECRETS}, "keyFileData"),
    ("getKeyFile", {"passphrase": ""}, "passphrase"),
    ("needToSyncAccount", {"userId": UNKNOWN, "keyFileData": b"x"}, "session's own"),
]  # fmt: skip


@in_one_case("name, arguments, words", WRONG)
def test_a_wrong_argument_is_raised_by_the_call_or_given_to_the_error_handler(
    alice: ServerProvider, name: str, arguments: dict[str, Any], words: str
) -> None:
    """In promise style at once, as a ValueError too; in callback style never on the caller's stack."""
    failed: list[BrokerError] = []
    style = {"completionHandler": failed.append, "errorHandler": failed.append}
    with Network() as network:
        with pytest.raises(BrokerError.invalidArgumentError, match=words) as caught:
            getattr(alice, name)(**arguments)
        assert isinstance(caught.value, ValueError)
        assert getattr(alice, name)(**arguments, **style) is alice
        assert failed == []
        assert mainQueue.run(PATIENCE)
        assert network.sent == []
    assert [type(error) for error in failed] == [BrokerError.invalidArgumentError]


MISFITS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("getContainer", (), {}, "missing a required argument: 'containerId'"),
    ("getContainer", (uuid.uuid4(), None, None), {}, "too many positional"),
    ("register", (PASSWORD,), {}, "missing a required argument: 'passphrase'"),
    ("createContainer", (b"",), {"contents": b""}, "keyword argument 'contents'"),
    ("createContainer", (b"", [], "t", None), {"type": "t"}, "multiple values for argument 'type'"),
    ("getEvents", (), {"since": 1}, "'since'.* It takes: eventType, containerId"),
]  # fmt: skip


@in_one_case("name, args, kwargs, message", MISFITS)
def test_missing_and_unknown_parameters_are_named_by_an_argument_and_type_error(
    alice: ServerProvider, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match=message) as caught:
        getattr(alice, name)(*args, **kwargs)
    assert isinstance(caught.value, TypeError)


def test_an_exception_of_an_argument_of_its_own_becomes_a_broker_error(
    alice: ServerProvider, handlers: Handlers
) -> None:
    own: dict[str, AccessLevel] = {}

    def levels() -> Iterator[AccessLevel]:
        yield own["no level"]

    with pytest.raises(BrokerError, match="KeyError") as caught:
        call(alice, "createContainer", content=b"", accessLevels=levels())
    assert isinstance(caught.value.__cause__, KeyError)
    call(alice, "createContainer", content=b"", accessLevels=levels(), **handlers.style)
    assert mainQueue.run(PATIENCE)
    assert [type(error) for error in handlers.failed] == [type(caught.value)]


async def coroutine_handler(*_: object) -> None:
    """What nobody would await."""


class CoroutineObject:
    async def __call__(self, *_: object) -> None:
        """What nobody would await either."""


NO_HANDLERS: list[Any] = [
    None,
    "print",
    coroutine_handler,
    functools.partial(coroutine_handler, 1),
    CoroutineObject(),
]
BAD_STYLES: list[dict[str, Any]] = [
    {"queue": mainQueue},
    *({"completionHandler": print, "errorHandler": bad} for bad in NO_HANDLERS),
    {"completionHandler": print, "errorHandler": print, "queue": "main"},
    {
        "completionHandler": print,
        "errorHandler": print,
        "queue": concurrent.futures.ProcessPoolExecutor(1),
    },
]


@in_one_case("style", BAD_STYLES)
def test_the_error_handler_is_needed_as_a_plain_function_and_the_queue_as_an_executor(
    alice: ServerProvider, style: dict[str, Any]
) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match=r"errorHandler|queue"):
        call(alice, "getUserId", **style)
    assert mainQueue.run(0)


def test_a_wrong_completion_handler_is_told_to_the_error_handler(
    alice: ServerProvider, handlers: Handlers
) -> None:
    for bad in NO_HANDLERS:
        style = handlers.style | {"completionHandler": bad}
        assert call(alice, "createContainer", content=b"", **style) is alice
    assert mainQueue.run(PATIENCE)
    assert [type(each) for each in handlers.failed] == [BrokerError.invalidArgumentError] * 5
    assert all("completionHandler" in each.message for each in handlers.failed)


def test_callback_parameters_of_none_are_promise_style(alice: ServerProvider) -> None:
    promise = call(alice, "getUserId", completionHandler=None, errorHandler=None, queue=None)
    assert isinstance(promise, Promise)


def test_a_queue_that_was_shut_down_is_logged_and_hurts_nobody(
    alice: ServerProvider, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    closed = concurrent.futures.ThreadPoolExecutor(1)
    closed.shutdown()
    call(alice, "getUserId", **handlers.style, queue=closed)
    alice.getPublicKeys().result(PATIENCE)
    assert handlers.calls == 0
    assert [record.getMessage() for record in caplog.records] == [
        "getUserId: its queue was shut down before its handler could run"
    ]


def test_a_handlers_own_exception_is_logged_and_no_handler_is_called_again(
    alice: ServerProvider, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*outcome: Any) -> None:
        handlers.completed.append(outcome)
        raise LookupError("my own")

    style = {"completionHandler": fail, "errorHandler": fail}
    call(alice, "getUserId", **style)
    call(alice, "getContainer", containerId=uuid.uuid4(), **style)
    assert mainQueue.run(PATIENCE)
    assert len(handlers.completed) == 2
    raised = [record.exc_info for record in caplog.records if record.levelno == logging.ERROR]
    assert [info and info[0] for info in raised] == [LookupError] * 2


def test_handlers_without_a_queue_run_on_the_main_thread_of_a_plain_script(
    alice: ServerProvider, handlers: Handlers
) -> None:
    call(alice, "getUserId", **handlers.style)
    wait_until(lambda: mainQueue._jobs)
    assert handlers.calls == 0, "nothing runs before the main thread lets it"
    assert mainQueue.run(PATIENCE)
    assert handlers.threads == [threading.main_thread()]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_handlers_of_a_worker_threads_calls_run_in_each_loop_of_the_main_thread(
    alice: ServerProvider, run: Callable[[Any], uuid.UUID]
) -> None:
    """An operation that is called on the main thread notes its loop."""

    async def main() -> uuid.UUID:
        loop = asyncio.get_running_loop()
        await alice.getUserId()
        done: asyncio.Future[uuid.UUID] = loop.create_future()

        def completed(user: uuid.UUID) -> None:
            assert asyncio.get_running_loop() is loop
            done.set_result(user)

        def work() -> None:
            alice.getUserId(completionHandler=completed, errorHandler=done.set_exception)

        await asyncio.to_thread(work)
        return await asyncio.wait_for(done, PATIENCE)

    assert run(main()) == run(main()) == alice.getUserId().result(PATIENCE)


def test_a_worker_thread_needs_a_queue_while_no_loop_of_the_main_thread_is_known(
    alice: ServerProvider, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may pass mainQueue itself, or leave it out once the main thread has called mainQueue.run()."""
    monkeypatch.setattr(mainQueue, "_loop", None)
    monkeypatch.setattr(mainQueue, "_has_run", False)

    def without_a_loop() -> None:
        with pytest.raises(BrokerError.invalidArgumentError, match=r"queue is needed.*mainQueue"):
            call(alice, "getUserId", **handlers.style)
        with pytest.raises(BrokerError.invalidArgumentError, match="queue is needed"):
            alice.followEvents(eventHandler=print, errorHandler=print)
        call(alice, "getUserId", **handlers.style, queue=mainQueue)

    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        worker.submit(without_a_loop).result(PATIENCE)
        assert mainQueue.run(PATIENCE)
        worker.submit(lambda: call(alice, "getUserId", **handlers.style)).result(PATIENCE)
        assert mainQueue.run(PATIENCE)
    assert len(handlers.completed) == 2
    assert set(handlers.threads) == {threading.main_thread()}


def test_an_argument_error_is_not_handled_on_the_callers_stack_inside_asyncio(
    alice: ServerProvider, handlers: Handlers
) -> None:
    async def main() -> None:
        alice.getContainer("wrong", **handlers.style)
        assert handlers.calls == 0
        await until(lambda: handlers.calls)

    asyncio.run(main())
    assert len(handlers.failed) == 1


def test_what_was_given_is_taken_as_it_was_at_the_call(alice: ServerProvider) -> None:
    """A bytearray, an access list and a header changed afterwards change nothing in flight."""
    content, header = bytearray(b"as it was" * 20_000), {"as": "it was"}
    levels = [AccessLevel(alice.getUserId().result(PATIENCE), EVERY_PERMISSION)]
    promise = alice.createContainer(content, header, accessLevels=levels)
    content[:] = b"x" * len(content)
    header["as"] = "changed"
    levels.clear()
    found = alice.getContainer(promise.result(PATIENCE).id).result(PATIENCE)
    assert found.content == b"as it was" * 20_000
    assert found.header == Header({"as": "it was"})


def test_a_log_out_changes_nothing_in_flight(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    """What began before ends well; what begins after has no session; then the keys are gone."""
    ring = alice.getKeyRing().result(PATIENCE)
    made = [alice.createContainer(b"%d" % number * 100_000) for number in range(8)]
    gone = alice.logout()
    with pytest.raises(BrokerError.notAuthenticatedError):
        call(alice, "createContainer", content=b"")
    ids = [promise.result(PATIENCE).id for promise in made]
    gone.result(PATIENCE)
    again = new_provider(ring)
    for number, container in enumerate(ids):
        assert again.getContainerContent(container).result(PATIENCE) == b"%d" % number * 100_000


async def a_days_work(provider: ServerProvider, number: int) -> list[Any]:
    """With a container of its own, each result awaited."""
    made = await provider.createContainer(b"%d" % number * 40_000, {"n": number})
    await provider.updateContainerHeader(made.id, {"n": -number})
    await provider.updateContainerAccessLevels(made.id)
    found = await provider.getContainer(made.id)
    await provider.deleteContainer(made.id)
    return [found.version, found.content, found.header]


@pytest.mark.long
def test_a_provider_is_used_by_many_threads_and_event_loops_at_once(alice: ServerProvider) -> None:
    async def in_a_loop(numbers: range) -> list[list[Any]]:
        return await asyncio.gather(*(a_days_work(alice, number) for number in numbers))

    with concurrent.futures.ThreadPoolExecutor(10) as threads:
        begun = [threads.submit(asyncio.run, in_a_loop(range(n, n + 2))) for n in range(0, 16, 2)]
        done = [work for loop in begun for work in loop.result(PATIENCE)]
    assert done == [[3, b"%d" % n * 40_000, Header({"n": -n})] for n in range(16)]
    assert len(alice.getEvents().result(PATIENCE)) == 4 * 16


@pytest.mark.long
def test_log_ins_at_once_in_one_process_all_succeed(
    new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "stretch", seal.stretch)
    first = new_provider()
    key_file = first.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    user = first.getUserId().result(PATIENCE)
    providers = [new_provider() for _ in range(3)]
    begun = [provider.logIn(user, passphrase=PASSPHRASE) for provider in providers]
    assert [promise.result(PATIENCE) for promise in begun] == [key_file] * 3


def test_a_log_out_does_not_wait_for_what_was_cancelled(alice: ServerProvider) -> None:
    for _ in range(20):
        assert alice.createContainer(b"x").cancel()
    alice.logout().result(PATIENCE)


def test_a_provider_that_is_dropped_lives_until_what_it_began_has_ended(
    alice: ServerProvider, broker: BrokerProcess
) -> None:
    """Else its connections would be closed under the operation, and new ones never."""
    ring, go_on = alice.getKeyRing().result(PATIENCE), threading.Event()

    def content() -> Iterator[bytes]:
        yield b"first, "
        go_on.wait(PATIENCE)
        yield b"then"

    def begin() -> tuple[Promise[SecuredContainer], weakref.ref[ServerProvider]]:
        provider = ServerProvider(broker.api_key, broker.url, "x", trustStore=MemoryTrustStore())
        provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
        return provider.createContainer(content()), weakref.ref(provider)

    promise, owner = begin()
    gc.collect()
    assert owner() is not None
    go_on.set()
    assert promise.result(PATIENCE).length == 11
    wait_until(lambda: (gc.collect(), owner() is None)[1])
