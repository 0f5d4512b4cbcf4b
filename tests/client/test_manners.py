"""Importing scbroker changes nothing in the interpreter, and a provider survives what programs change.

The child of a fork is told to make new providers.
"""

import os
from pathlib import Path

import pytest

from scbroker import CachedProvider, KeychainSessionStore
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.scripts import run_script
from tests.kit.waiting import PATIENCE


@pytest.mark.process
def test_neither_import_nor_use_changes_the_interpreter(broker: BrokerProcess) -> None:
    """Functions and hooks of sys, threading, asyncio, signal and gc are the same objects before and after."""
    done = run_script(
        """
        import asyncio, asyncio.events, concurrent.futures.process, gc, signal, sys, threading, warnings

        def state():
            found = {
                (module.__name__, name): id(value)
                for module in (asyncio, asyncio.events, gc, signal, sys, threading)
                for name, value in vars(module).items()
                if callable(value)
            }
            return found | {
                "asyncgen hooks": sys.get_asyncgen_hooks(),
                "trace": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
                "at the end of threading": list(threading._threading_atexits),
                "signals": [signal.getsignal(each) for each in sorted(signal.valid_signals())],
                "wake-up": signal.set_wakeup_fd(-1),
                "switch interval": sys.getswitchinterval(),
                "recursion": sys.getrecursionlimit(),
                "gc": (gc.get_threshold(), gc.isenabled(), len(gc.callbacks)),
                "import": (list(sys.meta_path), list(sys.path_hooks), list(sys.path)),
                "policy": id(asyncio.events._event_loop_policy),
                "filters": list(warnings.filters),
            }

        def compare(when):
            now = state()
            for name in before.keys() | now.keys():
                if before.get(name) != now.get(name):
                    print(when, "changed", name)

        import ctypes.util, encodings.idna, numbers, queue, ssl, uvloop  # the libraries' own effects
        import aiohttp, cryptography.hazmat.primitives.asymmetric.ed25519, filelock, msgspec, yarl
        before, threads = state(), threading.active_count()
        import scbroker
        for name in scbroker.__all__:
            getattr(scbroker, name)
        compare("the import")
        assert threading.active_count() == threads
        provider = scbroker.ServerProvider(
            *sys.argv[1:], "test", trustStore=scbroker.MemoryTrustStore()
        )
        provider.register("A password 1", "A passphrase 1").result()
        provider.createContainer(b"x", completionHandler=lambda _: None, errorHandler=print)
        assert scbroker.mainQueue.run(60)
        compare("use")
        """,
        str(broker.api_key),
        broker.url,
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_what_was_made_before_a_fork_is_refused_in_the_child_and_a_new_provider_works(
    broker: BrokerProcess,
) -> None:
    """The parent goes on with the connections that the child inherited."""
    done = run_script(
        """
        import asyncio, gc, os, sys, warnings
        from scbroker import BrokerError, MemoryTrustStore, Promise, ServerProvider, Stream
        from scbroker.client.calls.tasks import io_thread
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later, of forking with threads

        def new():
            return ServerProvider(*sys.argv[1:], "test", trustStore=MemoryTrustStore())

        async def never():
            await asyncio.Event().wait()

        async def pages():
            yield [1]
            await never()

        provider = new()
        provider.register("A password 1", "A passphrase 1").result()
        user = provider.getUserId().result()
        provider.createContainer(b"before").result()
        stream, waiting = Stream("work", pages()), Promise("never", io_thread.submit("never", never()))
        if (pid := os.fork()) == 0:
            attempts = (
                provider.getUserId,
                lambda: provider.getReminder(user).result(),
                lambda: provider.logIn(user, passphrase="A passphrase 1").result(),
                lambda: next(stream),
                waiting.result,
            )
            for attempt in attempts:
                try:
                    attempt()
                except BrokerError.invalidArgumentError as error:
                    print(error, flush=True)
            provider.close()
            del provider, stream
            gc.collect()
            provider = new()
            provider.logIn(user, passphrase="A passphrase 1").result()
            provider.createContainer(b"of the child").result()
            provider.close()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        print(len(provider.listContainers().result().containers), next(stream))
        waiting.cancel()
        """,
        str(broker.api_key),
        broker.url,
    )
    refused = "The process was forked after this provider was made: make a new provider in the child process."
    assert done.stdout.splitlines() == [*[refused] * 5, "0", "2 1"], done.stderr
    assert done.stderr == ""


def test_a_provider_keeps_its_folders_when_the_program_changes_its_working_directory(
    new_provider: NewProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a session that begins later would have an empty trust store."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    keychain = KeychainSessionStore("keychain")
    with CachedProvider(new_provider(trustStore="trust", sessionStore="kept"), "cache") as device:
        monkeypatch.chdir("other")
        device.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
        device.createContainer(b"content").result(PATIENCE)
    assert keychain.directory == tmp_path / "keychain"
    assert {each.name for each in tmp_path.iterdir()} == {"cache", "kept", "other", "trust"}
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_until_no_thread_makes_a_decoder() -> None:
    """In the child nobody would release the lock."""
    done = run_script(
        """
        import dataclasses, os, threading, time, warnings
        from scbroker.records import canonical
        warnings.simplefilter("ignore", DeprecationWarning)
        makes = threading.Event()

        def kind():
            makes.set()
            time.sleep(0.2)  # about time
            return int

        @dataclasses.dataclass
        class Slow:
            number: "kind()"

        threading.Thread(target=canonical.json_decoder, args=(Slow,)).start()
        makes.wait()
        if (pid := os.fork()) == 0:
            canonical.json_decoder(int)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert done.stdout == "0\n", done.stderr
