"""Complete command lines in bash, zsh and fish: the scripts of the shells, and the answers to them.

Candidates are names that other users chose, and none may act as shell code. Typer's own scripts are not used:
the one for zsh evaluates the candidates. Zsh and fish quote what they insert. Bash leaves substitutions in it
active even with `-o filenames`, so the answer for bash is quoted here.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from scbroker import errors

VARIABLE: Final = "_SCBROKER_COMPLETE"
"""The environment variable with which a shell asks: its value is "bash", "zsh" or "fish"."""
_SECONDS: Final = 2.0
"""The time to read names from the broker; then those that were read are offered."""
_MOST: Final = 1000
_BREAKS: Final = ":=@"
"""Bash replaces only what follows one of these, unless it is quoted."""

_BASH: Final = """\
_scbroker_complete() {
    local LC_ALL=C line candidate
    line=${COMP_LINE:0:COMP_POINT}  # COMP_POINT counts bytes
    unset LC_ALL
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <(_SCBROKER_COMPLETE=bash "$1" "$line" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _scbroker_complete scbroker
"""
_ZSH: Final = """\
#compdef scbroker
_scbroker_complete() {
    local -a candidates
    candidates=("${(@f)$(_SCBROKER_COMPLETE=zsh "$words[1]" \\
        "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    candidates=("${(@)candidates:#}")
    if (( $#candidates )); then
        compadd -a candidates
    else
        _files
    fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _scbroker_complete scbroker
"""
_FISH: Final = """\
function __scbroker_complete
    set -l line (commandline -cp | string collect)
    set -l found (env _SCBROKER_COMPLETE=fish scbroker "$line" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c scbroker -f -a '(__scbroker_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def install(shell: str) -> Path:
    """Write the script for a shell of this user, and let the shell read it at its start; return its path.

    Raises `InvalidArgumentError` for files that cannot be written.
    """
    from scbroker.cli import profiles
    from scbroker.cli.paths import make_folder, write_own

    script = script_for(shell)
    try:
        home = Path.home()
    except RuntimeError:
        raise errors.InvalidArgumentError(
            "This user has no home directory: set HOME to a folder of the user's own."
        ) from None
    if shell == "fish":
        base = os.environ.get("XDG_CONFIG_HOME")
        config = Path(base) if base else home / ".config"
        path = config / "fish" / "completions" / "scbroker.fish"
    else:
        config = profiles.path().parent
        path = config / f"completion.{shell}"
    try:
        make_folder(path.parent)
        write_own(path, script.encode())
        if shell != "fish":
            _add_line(home / f".{shell}rc", f"source {shlex.quote(str(path))}")
    except OSError as error:
        raise errors.InvalidArgumentError(
            f"{error.filename} cannot be written: {error.strerror}. "
            f"`scbroker --show-completion {shell}` prints the script."
        ) from None
    return path


def script_for(shell: str) -> str:
    """Return the script for a shell. Raises `InvalidArgumentError` for an unknown one."""
    if shell not in SCRIPTS:
        raise errors.InvalidArgumentError(
            f"{shell!r} is not a shell with completion: name one of {', '.join(SCRIPTS)}."
        )
    return SCRIPTS[shell]


def _add_line(path: Path, line: str) -> None:
    text = path.read_bytes() if path.exists() else b""
    if line.encode() not in text.splitlines():
        # Another user who could write the file would have commands run by the shell, whatever the umask.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
            separator = b"" if not text or text.endswith(b"\n") else b"\n"
            file.write(separator + line.encode() + b"\n")


def answer() -> NoReturn:
    """Print the candidates for a command line, one in a line; nothing on any failure. End the process.

    Zsh passes the words up to the cursor without their quotes, the others the line up to the cursor.
    """
    output = sys.stdout
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        output.write("".join(f"{each}\n" for each in _answer(os.environ[VARIABLE], sys.argv[1:])))
        output.flush()
    finally:
        os._exit(0)  # a thread may still wait for the broker


def _answer(shell: str, given: list[str]) -> list[str]:
    if shell == "zsh":
        return _found(given)
    if shell not in SCRIPTS:
        return []
    line = split(given[0])
    found = _found(line.words)
    if shell == "bash":
        kept = line.words[-1][: line.at_break]
        return [line.quoted(each) for each in found if each.startswith(kept)]
    return found


def _found(words: list[str]) -> list[str]:
    """Return the words that Typer offers in place of the last one."""
    from typer.completion import completion_init  # type: ignore[attr-defined] # not declared public

    from scbroker.cli.app import app

    completion_init()
    os.environ |= {
        VARIABLE: "complete_bash",  # Typer's plainest form: one candidate in a line
        "COMP_WORDS": shlex.join(["scbroker", *words]),
        "COMP_CWORD": str(len(words)),
    }
    collected = io.StringIO()
    with contextlib.redirect_stdout(collected), contextlib.suppress(SystemExit):
        app(prog_name="scbroker")
    option, equals, _ = words[-1].partition("=")
    start = option + equals if equals and option.startswith("-") else ""
    # Typer completes the value alone of `--option=value`.
    return [start + each for each in collected.getvalue().split("\n") if each]


class Line(NamedTuple):
    """A command line up to the cursor: its words after the program's name, of which the last is completed."""

    words: list[str]
    quote: str
    """The quote that is open at the end."""
    at_break: int
    """Where in the last word the part begins that bash replaces."""

    def quoted(self, candidate: str) -> str:
        """Return what bash inserts for a candidate: it must have the text itself as its only meaning."""
        rest = candidate[self.at_break :]
        if self.quote == "'":
            return rest.replace("'", "'\\''")
        if self.quote:
            return re.sub(r'([\\$"`])', r"\\\1", rest).replace("!", "\"'!'\"")
        return re.sub(r"([^\w./+,%-])", r"\\\1", rest)


def split(line: str) -> Line:
    """Split a line that may end within quotes as a shell does."""
    words: list[str] = []
    word: str | None = None
    quote, at_break = "", 0
    rest = iter(line)
    for each in rest:
        if each == "\\" and quote != "'":
            each = next(rest, "")
        elif quote or each in "'\"":
            if each in ("'", '"') and quote in ("", each):
                quote, each = "" if quote else each, ""
        elif each.isspace():
            if word is not None:
                words.append(word)
            word, at_break = None, 0
            continue
        elif each in _BREAKS:
            at_break = len(word or "") + 1
        word = (word or "") + each
    words.append(word or "")
    return Line(words[1:], quote, at_break)


def candidates(incomplete: str, read: Callable[[], Iterable[str]]) -> list[str]:
    """Return the texts that begin with a word, as many as can be read in two seconds; none on any failure.

    The texts come from other users: one that would not be typed as it is, or that a command would take for an
    option, is left out.
    """
    import scbroker
    from scbroker.cli.output import printable

    _ = scbroker.ServerProvider  # its import is not a part of the two seconds
    found: list[str] = []

    def collect() -> None:
        with contextlib.suppress(Exception):  # nothing may disturb the command line
            for each in read():
                is_plain = each == printable(each) and not each.startswith("-")
                if is_plain and each.startswith(incomplete):
                    found.append(each)
                if len(found) == _MOST:
                    return

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    reader.join(_SECONDS)
    return sorted(set(found))
