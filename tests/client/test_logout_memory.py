"""After a log-out the process holds no key material: nothing that is alive leads to any.

Each story is told in a process of its own, so that nothing of the test's counts. There every secret is
noted under a mask as it is used; afterwards the process looks through all that it can reach, and this
one reads its whole memory from outside. What Python has freed it does not wipe (docs/security.md), so
the story first writes over what is free: what is found then is kept.
"""

import asyncio
import base64
import gc
import json
import re
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker import BrokerError, FileTrustStore, KeyRing, Promise, ServerProvider
from scbroker import keys as keys_module
from scbroker.client.calls.tasks import io_thread
from scbroker.client.core import sealing
from scbroker.client.users.session import Session
from scbroker.crypto.seal import DecryptionKey, SigningKey
from scbroker.keys import PassphraseKeys
from tests.client.conftest import drop
from tests.kit.brokers import BrokerProcess
from tests.kit.waiting import PATIENCE

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = {"Ed25519 seed", "ML-DSA seed", "ML-KEM seed", "X25519 key"}
KEYS: Final = SEEDS | {"wrap", "auth", "password key", "container key", "trust store key"}
HOLDERS: Final = (KeyRing, SigningKey, DecryptionKey, PassphraseKeys)
MASK: Final = 0x5A
# Masked as well, for the story's process imports this: password, passphrase, a wrong password.
HIDDEN: Final = [
    bytes(each ^ MASK for each in reversed(secret))
    for secret in (b"9 selum hguonE", b"f0 skniht ydoboN taht sdrow thgie", b"8 selum ynam ooT")
]

Masked = dict[str, set[bytes]]
"""Secrets by name, each under the mask: who looks for them does not find this."""


def masked(secret: bytes | memoryview | str) -> bytes:
    """Through small integers, of which Python has one each: no copy is left behind."""
    data = (ord(each) for each in secret) if isinstance(secret, str) else iter(secret)
    return bytes([each ^ MASK for each in data])


def text(hidden: bytes) -> str:
    return "".join(chr(each ^ MASK) for each in hidden)


# In the process of the story


class Story:
    """A provider, what is done with it, and every secret that went through it."""

    def __init__(self, url: str, api_key: str, folder: str, *hidden: str) -> None:
        self.noted: Masked = {}
        self.password, self.passphrase, self.wrong = (bytes.fromhex(each) for each in hidden)
        self.noted |= {"password": {self.password}, "passphrase": {self.passphrase}}
        self._note_keys_as_they_are_used()
        self.provider = ServerProvider(
            api_key,
            url,
            "memory",
            trustStore=FileTrustStore(folder),
            sessionStore=Path(folder, "sessions"),
        )
        self.kept: list[object] = []

    def note(self, name: str, secret: bytes | memoryview | str) -> None:
        self.noted.setdefault(name, set()).add(masked(secret))

    def _note_keys_as_they_are_used(self) -> None:
        for module, function, name in (
            (sealing, "seal", "container key"),
            (sealing, "unseal", "container key"),
            (keys_module, "seal", "password key"),
            (keys_module, "unseal", "password key"),
        ):
            self._hook(module, function, name)
        self._hook(sealing, "seal_into", "container key", at=1)
        self._hook(sealing, "unseal_into", "container key", at=1)
        derive, own = PassphraseKeys.derive, SigningKey.derive

        def passphrase_keys(passphrase: str, user_id: Any) -> PassphraseKeys:
            made = derive(passphrase, user_id)
            self.note("wrap", made.wrap)
            self.note("auth", made.auth)
            return made

        def of_signing_key(key: SigningKey, name: str) -> bytes:
            made = own(key, name)
            self.note("trust store key", made)
            return made

        PassphraseKeys.derive = passphrase_keys  # type: ignore[method-assign]
        SigningKey.derive = of_signing_key  # type: ignore[method-assign, assignment]

    def _hook(self, module: object, function: str, name: str, at: int = 0) -> None:
        honest = getattr(module, function)

        def hooked(*given: Any) -> Any:
            self.note(name, given[at])
            return honest(*given)

        setattr(module, function, hooked)

    def register(self) -> None:
        made = self.provider.register(text(self.password), text(self.passphrase))
        made.result(PATIENCE)
        self.user = self.provider.getUserId().result(PATIENCE)

    def work(self) -> None:
        """A small container and a large one, read and changed; and the session's own secrets noted."""
        made = self.provider.createContainer(b"c" * 200_000, {"h": 1}).result(PATIENCE)
        self.provider.createContainer(b"c").result(PATIENCE)
        self.provider.getContainer(made.id).result(PATIENCE)
        self.provider.updateContainerAccessLevels(made.id).result(PATIENCE)
        self.provider.getKeyRing().result(PATIENCE)
        self.note_seeds()
        session: Any = self.provider._current
        self.note("token", session.token.value)

    def note_seeds(self) -> None:
        session: Any = self.provider._current
        for signing in session.keys.ring.signing:
            self.note("Ed25519 seed", signing.seeds[0])
            self.note("ML-DSA seed", signing.seeds[1])
        for encryption in session.keys.ring.encryption:
            self.note("ML-KEM seed", encryption.seeds[0])
            self.note("X25519 key", encryption.seeds[1])

    def rotate(self) -> None:
        changing = self.provider.changeCredentials(
            text(self.password), text(self.passphrase), compromised=True
        )
        changing.result(PATIENCE)

    def log_in(self) -> None:
        promise = self.provider.logIn(self.user, text(self.password), text(self.passphrase))
        promise.result(PATIENCE)

    def fail_to_log_in(self) -> Promise[bytes]:
        """The passphrase's part opens, and then the password is wrong."""
        promise = self.provider.logIn(self.user, text(self.wrong), text(self.passphrase))
        try:
            promise.result(PATIENCE)
        except BrokerError.credentialsError:
            return promise
        raise AssertionError("The log-in did not fail.")

    def log_out(self) -> None:
        self.provider.logout().result(PATIENCE)


def log_out(story: Story) -> None:
    story.log_out()


def close_after_a_failed_log_in(story: Story) -> None:
    story.log_out()
    drop(story.fail_to_log_in())
    story.log_in()
    story.work()
    story.provider.close()


def delete_user(story: Story) -> None:
    story.provider.deleteUser().result(PATIENCE)


def delete_user_after_a_rotation(story: Story) -> None:
    story.rotate()
    story.work()
    story.provider.deleteUser().result(PATIENCE)


def log_out_of_a_session_that_took_anothers_place(story: Story) -> None:
    story.log_in()
    story.work()
    story.log_out()


def log_out_of_a_session_that_was_kept_and_resumed(story: Story) -> None:
    made = story.provider.logIn(story.user, passphrase=text(story.passphrase), keep=True)
    made.result(PATIENCE)
    story.provider.close()
    story.provider.resumeSession().result(PATIENCE)
    story.rotate()
    story.work()
    story.log_out()


def keep_the_promise_of_a_failed_log_in(story: Story) -> None:
    story.log_out()
    story.kept.append(story.fail_to_log_in())


ENDS: Final[dict[str, Callable[[Story], None]]] = {
    "logout": log_out,
    "close after a failed logIn": close_after_a_failed_log_in,
    "deleteUser": delete_user,
    "deleteUser after a rotation": delete_user_after_a_rotation,
    "logout of a session that took another's place": log_out_of_a_session_that_took_anothers_place,
    "logout of a session that was kept and resumed": log_out_of_a_session_that_was_kept_and_resumed,
    "a failed logIn whose promise is kept": keep_the_promise_of_a_failed_log_in,
}
FRAMES: Final = {
    "a failed logIn whose promise is kept": {
        "PassphraseKeys", "auth", "passphrase", "password", "password key", "wrap"
    }
}  # fmt: skip
"""The limit: who keeps the promise of a failed operation keeps its frames, and what they hold."""


def tell(end: str, *arguments: str) -> None:
    """A story from its beginning to this end, with what it reaches; for a process of its own.

    Its memory is looked at before each search of its own, which has the secrets stand there.
    """
    gc.disable()  # what goes, goes by itself
    story = Story(*arguments)
    story.register()
    story.work()
    _show(story)
    session: Any = story.provider._current
    ended, session = weakref.ref(session), None
    during = reached(story)
    ENDS[end](story)
    at_once = reached(story)
    gc.collect()
    write_over_what_is_free()
    _show(story)
    died, in_the_end = ended() is None, reached(story)
    _show(story, during=during, at_once=at_once, in_the_end=in_the_end, session_died=died)


def tell_until_the_end(end: str, *arguments: str) -> None:
    """The stories of several users to this end: nothing has written over what was freed at the last one."""
    story = Story(*arguments)
    for _ in range(4):
        story.register()
        story.note_seeds()
        story.provider.createContainer(b"c" * 200_000, {"h": 1}).result(PATIENCE)
        ENDS[end](story)
    _show(story)


def _show(story: Story, **more: Any) -> None:
    """Says what there is to look for, and waits until that was done."""
    noted = {
        name: [base64.b64encode(each).decode() for each in sorted(found)]
        for name, found in story.noted.items()
    }
    sys.stdout.write(json.dumps({"noted": noted, **more}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def reached(story: Story) -> dict[str, int]:
    """How many live objects hold a secret, or are made to hold one, by its name."""
    needles = {name: [masked(each) for each in of] for name, of in story.noted.items()}
    shortest = min(len(one) for of in needles.values() for one in of)
    own = {id(each) for of in needles.values() for each in (of, *of)} | {id(needles)}
    todo: list[Any] = [*gc.get_objects(), *sys._current_frames().values()]
    own |= {id(todo)}
    seen, found = set(own), Counter[str]()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, (bytes, bytearray, str)):
            if len(each) < shortest:
                continue
            data = each.encode("utf-8", "replace") if isinstance(each, str) else bytes(each)
            found.update(name for name, of in needles.items() if any(one in data for one in of))
            continue
        if isinstance(each, (*HOLDERS, Session)):
            found[type(each).__name__] += 1
        todo += gc.get_referents(each)
    return dict(found)


def write_over_what_is_free() -> None:
    """Has the allocators hand out again, in every thread of ours, what they took back."""

    async def on_the_loop() -> None:
        _fill()
        await asyncio.gather(*(io_thread.in_pool(one_of_four) for _ in range(4)))

    together = threading.Barrier(4)

    def one_of_four() -> None:
        together.wait(PATIENCE)  # so that each of the four threads takes one
        _fill()

    _fill()
    io_thread.submit("fill", on_the_loop()).result(PATIENCE)


def _fill() -> None:
    small = [(size, 8_000) for size in range(1, 500, 16)]
    large = [(size, 400) for size in range(500, 6_000, 96)]
    for size, count in [*small, *large, (16_000, 100), (40_000, 50), (70_000, 30)]:
        filled = [bytes(size) for _ in range(count)]
        del filled


# In the process of the test


@contextmanager
def told(
    end: str, broker: BrokerProcess, folder: Path, tell: Callable[..., None] = tell
) -> Iterator[subprocess.Popen[str]]:
    """The process of a story."""
    hidden = [each.hex() for each in HIDDEN]
    arguments = [end, broker.url, str(broker.api_key), str(folder), *hidden]
    code = f"import sys; from {__name__} import {tell.__name__} as tell; tell(*sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        assert process.wait(PATIENCE) == 0


def next_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the story says, with the secrets unmasked."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the story ended early"
    said: dict[str, Any] = json.loads(line)
    said["noted"] = {
        name: [masked(base64.b64decode(each)) for each in of] for name, of in said["noted"].items()
    }
    return said


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


_REGION: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r\S+ \S+ \S+ \S+ *(.*)")
_BLOCK: Final = 2**24
_OVERLAP: Final = 128


def in_memory(pid: int, secrets: dict[str, list[bytes]]) -> dict[str, int] | None:
    """How often each secret stands in the whole readable memory of a process; None beside Linux."""
    if sys.platform != "linux":
        return None
    found = Counter[str]()
    maps = Path(f"/proc/{pid}/maps").read_text()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for start, end in _regions(maps):
            tail, position = b"", start
            while position < end:
                memory.seek(position)
                try:
                    data = memory.read(min(_BLOCK, end - position))
                except OSError:  # mapped and not there, as beyond the end of a file
                    break
                block, position = tail + data, position + len(data)
                for name, of in secrets.items():
                    found[name] += sum(block.count(one) for one in of)
                tail = block[-_OVERLAP:]
    return {name: count for name, count in found.items() if count}


def _regions(maps: str) -> Iterator[tuple[int, int]]:
    for line in maps.splitlines():
        if (match := _REGION.match(line)) and match[3] not in ("[vvar]", "[vsyscall]"):
            yield int(match[1], 16), int(match[2], 16)


# These begin a process each, in which all memory is searched.
@pytest.mark.long
@pytest.mark.parametrize(
    "end", ["logout", *(pytest.param(end, marks=pytest.mark.long) for end in [*ENDS][1:])]
)
def test_after_its_end_a_session_leaves_no_secret_within_reach_and_no_seed_in_memory(
    end: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The keys go at once, the session itself and its trust store's key with the next collection."""
    with told(end, broker, tmp_path) as process:
        present = in_memory(process.pid, seeds_of(next_of(process)))
        go_on(process)
        left = in_memory(process.pid, seeds_of(next_of(process)))
        go_on(process)
        after = next_of(process)
        go_on(process)
    assert set(after["noted"]) == KEYS | {"token", "password", "passphrase"}
    assert {*SEEDS, "token", "KeyRing", "SigningKey", "DecryptionKey"} <= set(after["during"])
    kept = FRAMES.get(end, set())
    assert set(after["at_once"]) <= {"Session", "trust store key", *kept}
    assert set(after["in_the_end"]) <= kept
    assert after["session_died"]
    if present is None or left is None:
        pytest.skip("The memory of another process can be read on Linux alone.")
    assert set(present) == SEEDS, "there was something to find"
    assert left == {}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of another process")
@pytest.mark.parametrize(
    "end, runs",
    [
        pytest.param("deleteUser", 1, id="deleteUser, once", marks=pytest.mark.long),
        pytest.param("logout", 2, id="logout, twice", marks=pytest.mark.long),
    ],
)
def test_when_a_session_has_ended_no_seed_is_left_in_memory_that_was_freed(
    end: str, runs: int, broker: BrokerProcess, tmp_path: Path
) -> None:
    """At once, since keys overwrite their seeds when they are freed, whatever the process does next."""
    for run in range(runs):
        with told(end, broker, tmp_path / str(run), tell_until_the_end) as process:
            seeds = seeds_of(next_of(process))
            assert set(seeds) == SEEDS
            left = in_memory(process.pid, seeds)
            go_on(process)
        assert left == {}, f"run {run}"


def seeds_of(said: dict[str, Any]) -> dict[str, list[bytes]]:
    return {name: of for name, of in said["noted"].items() if name in SEEDS}
