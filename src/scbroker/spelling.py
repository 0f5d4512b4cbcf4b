"""Compare names of people, groups and links as people see them, and find invisible characters.

Names are compared as nicknames of PRECIS (RFC 8266, a profile of RFC 8264).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scbroker import errors

if TYPE_CHECKING:
    from precis_i18n.profile import Profile

_BLANK: Final = frozenset("\u2800\U00013441\U00013442\U00016fe4\U0001d159")
"""Symbols and letters that draw nothing. Unicode has no property for them."""
_FIRST_IGNORABLE: Final = "\u00ad"
_ID: Final = re.compile(r"(?=.*[0-9]|.{8})[0-9a-f]{4}[0-9a-f-]{,32}")
"""An id or its beginning: with a decimal digit, because Ebba is a name, or of 8 digits, as lists show it."""


def is_invisible(character: str) -> bool:
    """Return whether a character draws nothing, and is no space (Default_Ignorable_Code_Point, blanks)."""
    return character >= _FIRST_IGNORABLE and (character in _BLANK or _ignorable()(ord(character)))


def without_invisible(text: str) -> str:
    """Return a text without the characters that nobody sees."""
    return text if text.isascii() else "".join(each for each in text if not is_invisible(each))


def comparable(name: str) -> str:
    """Return a text that is equal for names that a person could confuse; "" for one that is all blank.

    It ignores case, kinds of composition and width, the length of white space, and invisible characters.
    Letters of two scripts that look alike have different texts.
    """
    if name.isascii():  # the same result in a tenth of the time
        return " ".join(name.casefold().split())
    seen = without_invisible(name)
    try:
        return _nickname().enforce(seen)
    except UnicodeEncodeError:  # a name older than `check_new`, which refuses it
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
        return " ".join(without_invisible(folded).split())


def check_new(argument: str, name: str) -> None:
    """Raise `InvalidArgumentError` for a name that looks like another one, like an id, or like "you"."""
    key = comparable(name)
    if not key:
        raise errors.InvalidArgumentError(f"{argument} must have at least one visible character")
    if not name.isascii() and (refused := _refused(name)):
        raise errors.InvalidArgumentError(
            f"{argument} has the character U+{ord(refused):04X}, which nobody sees, or which may look like "
            "another one: leave it out"
        )
    if key == "you" or _ID.fullmatch(key):
        raise errors.InvalidArgumentError(
            f"{argument} must not be {name!r}, which lists show for the user or for an id: choose another"
        )


def _refused(name: str) -> str | None:
    blank = next((each for each in name if is_invisible(each)), None)
    try:
        _nickname().enforce(name)  # accepts the joiners that Persian and Indian scripts write
    except UnicodeEncodeError as error:
        return blank or error.object[error.start]
    return blank if blank in _BLANK else None


@functools.cache
def _nickname() -> Profile:
    from precis_i18n import get_profile  # takes 15 ms, and most names are ASCII

    return get_profile("NicknameCaseMapped:CaseFold")


@functools.cache
def _ignorable() -> Callable[[int], bool]:
    from precis_i18n.unicode import UnicodeData

    return UnicodeData().default_ignorable
