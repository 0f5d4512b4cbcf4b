"""Other users choose names and ids of what they share: none of them steers a command."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from tests.kit.people import Person, put
from tests.kit.tables import damage_parts
from tests.kit.waiting import PATIENCE

WRITER = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload


@pytest.fixture
def mallory(person: Callable[[str], Person]) -> Iterator[ServerProvider]:
    with person("Mallory").session() as provider:
        yield provider


def share(
    mallory: ServerProvider, session: ServerProvider, name: str, *, writable: bool = False
) -> uuid.UUID:
    """Have Mallory share a container with the user of `session`."""
    may = WRITER if writable else ContainerAccessLevel.DefaultUserPermissions
    level = AccessLevel(session.getUserId().result(), may)
    own = AccessLevel(mallory.getUserId().result(), ContainerAccessLevel.DefaultOwnerPermissions)
    return put(mallory, name, b"evil", accessLevels=[own, level])


@pytest.mark.long
def test_a_name_that_begins_the_id_of_a_stranger_s_container_is_not_guessed(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    hers = share(mallory, session, "any", writable=True)
    name = hers.hex[:6]
    own = put(session, name, b"mine")
    (alice.home / "file").write_text("secret")
    for command in (["get", name], ["cat", name], ["rm", name, "--yes"], ["info", name]):
        done = alice.run(*command, status=2)
        assert str(hers) in done.error, done
        assert own.hex[:8] in done.error
    assert "use a whole id" in alice.run("put", "file", "--into", name, "--yes", status=2).error
    assert alice.run("cat", str(own)).output == "mine"
    assert alice.run("cat", hers.hex[:7]).output == "evil"


@pytest.mark.long
def test_into_by_name_asks_before_it_writes_what_others_can_read(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    levels = [
        AccessLevel(session.getUserId().result(), 511),
        AccessLevel(mallory.getUserId().result(), WRITER),
    ]
    own = put(session, "shared.txt", b"known", accessLevels=levels)
    mallory.updateContainerHeader(own, {"name": "diary.txt"}).result(PATIENCE)
    (alice.home / "diary.txt").write_text("secret")
    error = alice.run("put", "diary.txt", "--into", "diary.txt", status=2).error
    assert "Others can read 'diary.txt'" in error
    assert mallory.getContainerContent(own).result(PATIENCE) == b"known"
    alice.run("put", "diary.txt", "--into", str(own))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "command",
    [["get"], ["rm", "--yes"], ["leave", "--yes", "--abandon"], ["link", "--until", "1h"]],
    ids=lambda command: command[0],
)
def test_a_container_that_cannot_be_opened_is_a_failure_of_a_command_on_a_folder(
    command: list[str], alice: Person, session: ServerProvider
) -> None:
    """It may be one of the folder: its name cannot be read."""
    spoilt, _ = put(session, "f/spoilt"), put(session, "f/whole")
    damage_parts(alice.broker.database_url, spoilt)
    done = alice.run(command[0], "-r", "f/", "f", *command[1:], status=1)
    assert done.error.count(f"{spoilt}: ") == 1


def test_a_name_that_a_container_without_readable_name_may_have_is_found_with_a_warning(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    spoilt = put(session, "plan", b"mine")
    damage_parts(alice.broker.database_url, spoilt)
    share(mallory, session, "plan")
    done = alice.run("cat", "plan", "--quiet")
    assert f"1 of your containers cannot be read, such as {spoilt}" in done.error


@pytest.mark.long
def test_a_link_makes_no_hidden_files(person: Callable[[str], Person], stranger: Person) -> None:
    """A hostile link would write .bash_profile or .ssh/authorized_keys of a person who opens it at home."""
    mallory = person("Mallory")
    with mallory.session() as hers:
        ids = [str(put(hers, name)) for name in (".ssh/authorized_keys", "a/.bashrc", "harmless")]
    [url] = mallory.run("link", *ids, "--until", "1h").lines
    done = stranger.run("open", "-", "-o", ".", stdin=url.encode(), status=2)
    assert done.error.count("would make a hidden file") == 2
    assert not (stranger.home / ".ssh").exists()
    assert not (stranger.home / "a").exists()
    assert (stranger.home / "harmless").exists()
