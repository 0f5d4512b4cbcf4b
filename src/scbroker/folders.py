"""Know the platform's folders for this program's files. Nothing looks for them before one is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from scbroker import errors


def platform_folder(kind: Literal["config", "data", "state"], instead: str) -> Path:
    """Return the user's folder for configuration, a broker's data, or what this device has verified.

    Raises `InvalidArgumentError` if the user has no home directory, as in a container whose user id is in no
    list of users; `instead` ends the message, and says what else helps.
    """
    import platformdirs

    try:
        if kind == "config":
            return platformdirs.user_config_path("scbroker", appauthor=False)
        return Path(
            platformdirs.user_data_dir("scbroker")
            if kind == "data"
            else platformdirs.user_state_dir("scbroker")
        )
    except RuntimeError:
        raise errors.InvalidArgumentError(
            f"This user has no home directory: set HOME to a folder of the user's own{instead}."
        ) from None
