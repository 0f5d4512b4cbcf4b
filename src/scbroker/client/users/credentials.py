"""Check passwords, passphrases and reminders before anything is derived or sent."""

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


def check_credentials(
    password: str, passphrase: str, reminder: str | None, validator: Validator
) -> None:
    """Raise `InvalidArgumentError` that names the wrong one of new secrets and their reminder."""
    check_new("password", password, validator)
    check_new("passphrase", passphrase, validator)
    check_reminder(reminder, (password, passphrase))


def check_new(name: str, secret: str, validator: Validator) -> None:
    """Raise `InvalidArgumentError` if the format cannot hold a new secret or the validator refuses it.

    Existing secrets are not held to the policy: one that an older policy accepted must still work.
    """
    checked_secret(secret, name)
    if (fault := validator(secret)) is not None:
        raise InvalidArgumentError(f"The {name} is too weak: {fault}.")


def check_reminder(reminder: str | None, secrets: tuple[str, str]) -> None:
    """Raise `InvalidArgumentError` for a reminder that cannot be stored or contains one of `secrets`."""
    if reminder is None:
        return
    if not _can_be_kept(reminder):
        raise InvalidArgumentError(
            f"reminder must have at most {MAX_REMINDER} bytes in UTF-8 and no NUL: shorten it."
        )
    if _contains(reminder, secrets):
        raise InvalidArgumentError("The reminder contains a secret, and the broker can read it.")


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
