"""Both programs, with a real broker: Bob finds what Alice shares, and neither registers twice."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from functools import partial
from pathlib import Path

import pexpect
import pytest

from examples.two_programs import account, alice, bob
from scbroker import BrokerError, KeyFile, ServerProvider
from scbroker.testing import PASSPHRASE, PASSWORD, LocalBroker
from tests.kit.consoles import VOLATILE, steps
from tests.kit.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "examples" / "two-programs.md"
CARD = re.compile(VOLATILE["card"])


@pytest.fixture(autouse=True)
def surroundings(
    scbroker_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[str]:
    """The variables of both programs, and the questions that they have asked."""
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return PASSWORD if "password" in question else PASSPHRASE

    monkeypatch.setattr(account, "getpass", answer)
    for name, value in scbroker_broker.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SCBROKER_APPLICATION_NAME", "two programs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return asked


def test_bob_finds_what_alice_shares_with_his_card_and_later_starts_ask_for_nothing(
    surroundings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[str] = []
    opened: list[ServerProvider] = []

    def noted(folder: Path) -> ServerProvider:
        opened.append(account.provider_in(folder))
        return opened[-1]

    def follow() -> None:
        with pytest.raises(BrokerError.notAuthenticatedError):  # the provider is closed
            bob.main(tmp_path / "bob")

    def has_printed(text: str) -> bool:
        printed.append(capsys.readouterr().out)
        return text in "".join(printed)

    monkeypatch.setattr(bob, "provider_in", noted)
    for said in ("Dear Bob", "Dear Bob again"):
        runs = threading.Thread(target=follow)
        runs.start()
        wait_until(partial(has_printed, "scbroker-contact:"))
        [card, *_] = CARD.findall("".join(printed))
        alice.main(tmp_path / "alice", card, said)
        wait_until(partial(has_printed, f": {said!r}"))
        wait_until((tmp_path / "bob" / "next-event").exists)
        opened[-1].close()
        runs.join(PATIENCE)
    text = "".join(printed)
    [author] = set(re.findall(r"^shared by (\S+)$", text, re.MULTILINE))
    assert re.findall(r"^(\S+): '(.+)'$", text, re.MULTILINE)[-1] == (author, "Dear Bob again")
    assert len(set(CARD.findall(text))) == 1
    assert surroundings == ["New password: ", "New passphrase: "] * 2  # of Bob, of Alice
    saved = (tmp_path / "alice" / "account.keyfile").read_bytes()
    assert str(KeyFile(saved).userId) == author


@pytest.mark.long
@pytest.mark.usefixtures("real_argon2id")
def test_the_commands_of_the_page_do_what_it_shows_in_two_terminals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    first, second, again = steps(PAGE)
    [shown] = CARD.findall(first.output)

    def started(command: str) -> pexpect.spawn[str]:
        words = shlex.split(command.replace("python", sys.executable, 1))
        return pexpect.spawn(
            words[0], words[1:], cwd=str(tmp_path), encoding="utf-8", timeout=PATIENCE
        )

    def registered(command: str) -> pexpect.spawn[str]:
        program = started(command)
        for question, secret in {
            "New password: ": PASSWORD,
            "New passphrase: ": PASSPHRASE,
        }.items():
            program.expect_exact(question)
            program.sendline(secret)
        return program

    bobs = registered(first.command)
    bobs.expect(CARD.pattern + "(?=\r)")
    alices = registered(second.command.replace(shown, str(bobs.match[0])))  # type: ignore[index]
    alices.expect(f"shared by ({VOLATILE['id']})")
    bobs.expect_exact(f"{alices.match[1]}: 'Dear Bob'")  # type: ignore[index]
    bobs.sendintr()
    bobs.expect(pexpect.EOF)
    bobs = started(again.command)
    bobs.expect(CARD.pattern)
    bobs.sendintr()
    bobs.expect(pexpect.EOF)
    assert "Dear Bob" not in str(bobs.before)
