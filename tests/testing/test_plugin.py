"""The pytest plugin, as installed: runs of pytest in processes of their own, each in a folder of its own."""

import os
import re
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Final

import pytest

from scbroker import BrokerError, MemoryTrustStore
from scbroker.testing import PASSPHRASE, LocalBroker
from tests.kit.waiting import wait_until
from tests.test_docs import DOCS, Page

pytest_plugins = ["pytester"]
GUIDE: Final = DOCS / "guide" / "testing.md"


@pytest.mark.long
def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    files = {
        match[1]: example.code
        for example in Page(GUIDE).examples
        if (match := re.match(r"# (\w+\.py)\n", example.code))
    }
    assert len(files) == 2
    for name, code in files.items():
        (pytester.path / name).write_text(code)
    tests = sum(code.count("\ndef test_") for code in files.values())
    pytester.runpytest_subprocess().assert_outcomes(passed=tests)


@pytest.mark.long
def test_a_run_ends_its_broker_and_removes_its_folder(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temporary")))
    monkeypatch.setenv("SCBROKER_MAX_CONTENT", "not a number")  # must not reach the broker
    pytester.makepyfile(
        """
        def test_there_is_a_broker(scbroker_broker):
            print("address", scbroker_broker.url)
            assert scbroker_broker.new_provider("a program").applicationName == "a program"
        """
    )
    result = pytester.runpytest_subprocess("-s")
    result.assert_outcomes(passed=1)
    [url] = re.findall(r"address (\S+)", result.stdout.str())
    broker = LocalBroker()
    broker.url = url
    with pytest.raises(BrokerError.unreachableError):
        broker.new_provider(timeout=1.0).getReminder(
            "8bc85a1e-7008-81b5-a4a4-91ea171fbdd7"
        ).result()
    assert list((pytester.path / "temporary").glob("scbroker-*")) == []


@pytest.mark.long
def test_the_broker_ends_with_tests_that_are_killed() -> None:
    # A broker that nothing refers to would end at once, with its pipe.
    code = (
        "from scbroker.testing import LocalBroker\n"
        "with LocalBroker() as broker:\n"
        "    print(broker.url, flush=True)\n"
        "    input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        address = urllib.parse.urlsplit(tests.stdout.readline().strip())
        assert answers(address)
        tests.kill()
    wait_until(lambda: not answers(address))


def answers(address: urllib.parse.SplitResult) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((address.hostname, address.port)) == 0


@pytest.mark.long
def test_a_run_that_does_not_use_the_fixture_imports_and_starts_nothing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_loaded():
            loaded = {name for name in sys.modules if name.startswith("scbroker")}
            assert loaded == {"scbroker", "scbroker.testing", "scbroker.testing.plugin"}
            assert not {"aiohttp", "cryptography", "msgspec", "sqlalchemy"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings, missing, message",
    [
        ({}, "uvicorn", "*did not start.*package uvicorn: run `pip install './scbroker?server?'`."),
        pytest.param({"quota_bites": 1}, None, "*did not start.*QUOTA_BITES*", marks=pytest.mark.long),
    ],
    ids=["without the extra", "with an unknown setting"],
)  # fmt: skip
def test_a_broker_that_does_not_start_fails_each_test_with_its_reason_alone(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    missing: str | None,
    message: str,
) -> None:
    if missing:
        fault = f"raise ModuleNotFoundError('No module named {missing}', name={missing!r})"
        (pytester.mkdir("without") / f"{missing}.py").write_text(fault)
        path = [str(pytester.path / "without"), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    pytester.makeconftest(
        f"import pytest\n@pytest.fixture(scope='session')\ndef scbroker_settings(): return {settings}\n"
    )
    pytester.makepyfile("def test_one(scbroker_broker): ...\ndef test_two(scbroker_broker): ...\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines([message])
    assert "Traceback" not in result.stdout.str()
    assert "another exception" not in result.stdout.str()


@pytest.mark.long
def test_providers_are_closed_with_their_broker_and_have_trust_stores_of_their_own(
    tmp_path: Path,
) -> None:
    with LocalBroker() as broker:
        alice, other = broker.new_user(), broker.new_provider(trustStore=tmp_path)
        note = alice.createContainer(b"note").result()
        ring = alice.getKeyRing().result()
        other.logIn(ring, ring.userId).result()
        assert other.getContainerContent(note.id).result() == b"note"
        assert isinstance(alice._trust_store, MemoryTrustStore)
        again = broker.new_provider().logIn(alice.getUserId().result(), passphrase=PASSPHRASE)
        assert again.result()
        assert broker.url.startswith("http://127.0.0.1:")
    assert list(tmp_path.iterdir())
    with pytest.raises(BrokerError.notAuthenticatedError):
        alice.getUserId().result()
