"""Name the command that installs an extra of scbroker, for messages about a package that is missing."""


def install(extra: str) -> str:
    """Return the command, for a clone in ./scbroker. Its quotes keep shells from expanding the brackets."""
    return f"pip install './scbroker[{extra}]'"
