"""The command that checks and shows a contact card."""

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import segno
from typer.testing import CliRunner

from scbroker import ContactCard, KeyRing
from scbroker.cli.command import program

CARD = ContactCard(KeyRing.generate().fingerprint, "https://broker.example/base", "Bob of Öland")


def run(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(program(), ["card", *arguments])
    assert done.exit_code == exit_code, (done.output, done.exception)
    return str(done.exception) if exit_code else done.output


@pytest.mark.parametrize(
    "text", [CARD.text, CARD.text.upper(), f" {CARD.text[:30]}\n{CARD.text[30:]} "]
)
def test_a_card_is_shown_with_its_user_broker_name_and_qr_code(text: str) -> None:
    shown = run(text)
    for words in (CARD.name, str(CARD.userId), CARD.fingerprint, CARD.serverUrl):
        assert words in shown


def test_the_qr_code_is_written_to_a_new_file_and_replaces_none(tmp_path: Path) -> None:
    target = tmp_path / "card.svg"
    before = os.umask(0)
    try:
        run(CARD.text, "--svg", str(target))
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o600
    written = target.read_bytes()
    assert ET.fromstring(written).tag == "{http://www.w3.org/2000/svg}svg"
    assert "exists already" in run(CARD.text, "--svg", str(target), exit_code=1)
    assert "does not exist" in run(CARD.text, "--svg", str(tmp_path / "no" / "x.svg"), exit_code=1)
    assert target.read_bytes() == written


@pytest.mark.skipif(shutil.which("zbarimg") is None, reason="zbarimg is not installed")
def test_another_reader_of_qr_codes_finds_the_card_in_it(tmp_path: Path) -> None:
    longest = ContactCard(CARD.fingerprint, CARD.serverUrl + "/" + "a" * 220, "\U0001f600" * 64)
    for card in (CARD, longest):
        picture = tmp_path / "card.png"
        segno.make_qr(card.text.upper(), error="m").save(str(picture), scale=4)
        read = subprocess.run(["zbarimg", "-q", "--raw", picture], capture_output=True, check=True)
        assert ContactCard.parse(read.stdout.decode()) == card
