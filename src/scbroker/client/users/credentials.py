"""Checks of passwords, passphrases and reminders, before anything is derived or sent."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

from scbroker.errors import InvalidArgumentError
from scbroker.keys import checked_secret
from scbroker.wire.users import MAX_REMINDER

Validator = Callable[[str], str | None]
_MIN_LENGTH: Final = 8
_MIN_CLASSES: Final = 3


def validate_secret(secret: str) -> str | None:
    """Return what the default policy finds wrong with a password or passphrase, or None.

    At least 8 characters from 3 of 4 classes: lower case, upper case, digits, everything else.
    """
    classes = {
        "lower" if char.islower() else "upper" if char.isupper() else "digit"
        if char.isdigit() else "other"
        for char in secret
    }  # fmt: skip
    if len(secret) < _MIN_LENGTH:
        return f"it has fewer than {_MIN_LENGTH} characters"
    if len(classes) < _MIN_CLASSES:
        return "it has fewer than 3 of: lower case, upper case, digits, other characters"
    return None


def checked_credentials(
    password: object, passphrase: object, reminder: object, validator: Validator
) -> tuple[str, str, str | None]:
    """Return new secrets and their reminder; `InvalidArgumentError` names the wrong one and the reason."""
    secrets = (
        checked_new("password", password, validator),
        checked_new("passphrase", passphrase, validator),
    )
    return *secrets, checked_reminder(reminder, secrets)


def checked_secrets(password: object, passphrase: object) -> tuple[str, str]:
    """Return secrets that exist already.

    They are not held to the policy for new ones: a secret that an older policy accepted has to work.
    """
    return checked_one("password", password), checked_one("passphrase", passphrase)


def checked_reminder(reminder: object, secrets: tuple[str, str]) -> str | None:
    """Return a reminder that can be stored, or None; `InvalidArgumentError` if it contains a secret."""
    if reminder is None:
        return None
    if not isinstance(reminder, str):
        raise InvalidArgumentError(
            f"reminder must be a str or None, not {type(reminder).__name__}."
        )
    if not _can_be_kept(reminder):
        raise InvalidArgumentError(
            f"reminder must have at most {MAX_REMINDER} bytes in UTF-8 and no NUL: shorten it."
        )
    if _contains(reminder, secrets):
        raise InvalidArgumentError("The reminder contains a secret, and the broker can read it.")
    return reminder


def check_kept_reminder(reminder: str, secrets: tuple[str, str]) -> None:
    """Raise `InvalidArgumentError` if the stored reminder, which is to stay, contains one of `secrets`."""
    if _contains(reminder, secrets):
        raise InvalidArgumentError(
            "The reminder that is stored contains one of these secrets, and the broker can read it: give "
            'another reminder, or "" to remove it.'
        )


def _contains(reminder: str, secrets: tuple[str, str]) -> bool:
    return any(_folded(secret) in _folded(reminder) for secret in secrets)


def _folded(text: str) -> str:
    """Return a form that is the same for every Unicode spelling of a text, in either case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _can_be_kept(reminder: str) -> bool:
    try:
        return "\0" not in reminder and len(reminder.encode()) <= MAX_REMINDER
    except UnicodeEncodeError:
        return False


def checked_one(name: str, secret: object) -> str:
    """Return a secret that the format can hold; `InvalidArgumentError` for any other, also an empty one."""
    if not isinstance(secret, str):
        raise InvalidArgumentError(f"{name} must be a str, not {type(secret).__name__}.")
    checked_secret(secret, name)
    return secret


def checked_new(name: str, given: object, validator: Validator) -> str:
    """Return a new secret; `InvalidArgumentError` if the validator finds it too weak."""
    secret = checked_one(name, given)
    if (fault := validator(secret)) is not None:
        raise InvalidArgumentError(f"The {name} is too weak: {fault}.")
    return secret
