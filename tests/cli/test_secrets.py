"""Where secrets come from: files, variables, standard input and prompts."""

import getpass
import io
import sys
from pathlib import Path

import pytest

from scbroker import errors
from scbroker.cli.secrets import secret


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    return path


@pytest.mark.parametrize(
    "content",
    [b"battery Staple 8", b"battery Staple 8\n", b"battery Staple 8\r\nsecond line\n",
     b"\xef\xbb\xbfbattery Staple 8\r\n"],
)  # fmt: skip
def test_a_file_has_the_secret_in_its_first_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert secret("passphrase", file) == "battery Staple 8"


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\nx", b"\xff\xfe", b"x" * 4097])
def test_a_file_that_is_empty_binary_or_too_long_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(errors.InvalidArgumentError, match=f"{file} has no passphrase in its first"):
        secret("passphrase", file)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_access_is_refused_with_the_command_that_closes_it(
    file: Path, mode: int
) -> None:
    file.write_text("battery Staple 8")
    file.chmod(mode)
    with pytest.raises(errors.InvalidArgumentError) as found:
        secret("passphrase", file)
    assert f"run `chmod 600 {file}`" in str(found.value)
    assert "Staple" not in str(found.value)


def test_a_hyphen_reads_a_line_of_standard_input_for_each_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = io.TextIOWrapper(io.BytesIO(b"correct Horse 7\nbattery Staple 8\n"))
    monkeypatch.setattr(sys, "stdin", given)
    assert secret("password", Path("-")) == "correct Horse 7"
    assert secret("passphrase", Path("-")) == "battery Staple 8"
    with pytest.raises(errors.InvalidArgumentError, match="Standard input has no passphrase"):
        secret("passphrase", Path("-"))


def test_a_variable_has_a_secret_and_a_file_comes_before_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCBROKER_NEW_PASSPHRASE", "from the variable")
    file.write_text("from the file")
    assert secret("new passphrase", None) == "from the variable"
    assert secret("new passphrase", file) == "from the file"
    monkeypatch.setenv("SCBROKER_NEW_PASSPHRASE", "")
    with pytest.raises(errors.InvalidArgumentError, match="SCBROKER_NEW_PASSPHRASE is empty"):
        secret("new passphrase", None)


def test_a_prompt_asks_again_for_an_empty_secret_and_until_two_are_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["", "first", "second", "right", "right"])
    monkeypatch.setattr(getpass, "getpass", lambda _: next(answers))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert secret("passphrase", None, new=True) == "right"
    asked = capsys.readouterr()
    assert asked.err.count("New passphrase:") == 3
    assert asked.err.count("New passphrase again:") == 2
    assert "do not match" in asked.err
    assert asked.out == ""
    answers = iter(["key"])
    assert secret("API key", None) == "key"
    assert capsys.readouterr().err.startswith("API key:")
