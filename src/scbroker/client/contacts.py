"""Keep an address book: the people whose fingerprints this user knows, under names of the user's own.

The book is a document of the user's own (`people.links`), so it is the same on all of the user's devices and
nobody else can read or change it. Nothing is ever looked up by name at the broker.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from scbroker import errors
from scbroker.cards import Address, ContactCard, Name, check_name
from scbroker.client.arguments import Card, moment, now
from scbroker.client.calls.operation import Operations, called, operation
from scbroker.client.people.links import OwnDocument
from scbroker.client.provider import BaseProvider, BrokerProvider
from scbroker.records.canonical import Time, parse_fingerprint, show_fingerprint
from scbroker.spelling import comparable
from scbroker.types import Contact
from scbroker.vocabulary import KeyType, instance_of
from scbroker.wire.users import origin_of

T = TypeVar("T")
Work = Coroutine[Any, Any, T]
TYPE: Final = "scbroker.contacts"
MAX_CONTACTS: Final = 10_000
_MAX_BYTES: Final = 16 * 2**20
_FEWEST_DIGITS: Final = 4


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A contact as the book stores it; `addedAt` is in microseconds since 1970."""

    name: Name
    fingerprint: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    serverUrl: Address
    verified: bool
    addedAt: Time

    @property
    def key(self) -> str:
        return comparable(self.name)

    @property
    def contact(self) -> Contact:
        return Contact(
            show_fingerprint(bytes.fromhex(self.fingerprint)),
            self.name,
            self.serverUrl,
            self.verified,
            moment(self.addedAt),
        )


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    contacts: Annotated[tuple[_Entry, ...], Meta(max_length=MAX_CONTACTS)] = ()

    def __post_init__(self) -> None:
        """Refuse a book with two contacts of one user or of one name."""
        if min(len(self.by_key), len(self.by_fingerprint)) < len(self.contacts):
            raise ValueError("a contact twice")

    @property
    def by_key(self) -> dict[str, _Entry]:
        return {entry.key: entry for entry in self.contacts}

    @property
    def by_fingerprint(self) -> dict[str, _Entry]:
        return {entry.fingerprint: entry for entry in self.contacts}

    def get(self, name: str) -> _Entry:
        """Return the contact of a name; `NotFoundError` suggests similar names."""
        names = self.by_key
        if (found := names.get(comparable(name))) is not None:
            return found
        near = [names[key].name for key in difflib.get_close_matches(comparable(name), names)]
        hint = f" Similar names: {', '.join(map(repr, near))}." if near else ""
        raise errors.NotFoundError(
            f"No contact is named {name!r}: add the person's card first.{hint}"
        )

    def replace(self, old: _Entry, **fields: Any) -> _Book:
        new = msgspec.structs.replace(old, **fields)
        return _Book(tuple(new if each is old else each for each in self.contacts))

    def without(self, old: _Entry) -> _Book:
        return _Book(tuple(each for each in self.contacts if each is not old))


class Contacts(Operations):
    """The address book of a provider's user, kept encrypted in a container of the user's own.

    The operations have both call styles, like those of a provider. The provider must have a session. A name
    stands for one contact, in any case and Unicode spelling (RFC 8266). The broker learns that the user has
    such a book, its size, and when it is read and changed.
    """

    def __init__(self, provider: BrokerProvider) -> None:
        self._provider: BaseProvider = instance_of("provider", provider, "a provider", BaseProvider)
        self._document: OwnDocument[_Book] = OwnDocument(self._provider, TYPE, _Book, _MAX_BYTES)

    def __repr__(self) -> str:
        return f"<Contacts of {self._provider!r}>"

    @operation
    async def add(self, card: Card, name: str | None = None, verified: bool = False) -> Contact:
        """Add the user of a card to the book, by default under the card's own name; return the contact.

        The client reads the user's keys, compares their fingerprint with the card's, and pins it. Pass
        `verified=True` if you got the card from the person, for example by scanning their QR code. A user who
        is in the book already is not changed, except that `verified=True` marks the contact as verified.

        Raises `invalidArgumentError` for a card of another broker; `notFoundError` if the broker does not
        know the user or they were deleted; `keySubstitutionError` if the name belongs to a contact with
        another fingerprint, or the broker serves other keys; `alreadyExistsError` if the user is in the book
        under another name than the one given; `tooLargeError` for more than 10,000 contacts; and what `list`
        raises.

        The broker learns that the caller asks for the user's keys, and that the book changes."""
        chosen = card.name if name is None else name
        check_name("name", chosen)
        fingerprint = parse_fingerprint(card.fingerprint).hex()
        new = _Entry(chosen, fingerprint, card.serverUrl, verified, now())

        def edit(book: _Book) -> _Book:
            if (same := book.by_fingerprint.get(fingerprint)) is not None:
                if name is not None and same.key != new.key:
                    raise errors.AlreadyExistsError(
                        f"This user is in the book as {same.name!r}: rename that contact instead."
                    )
                return book.replace(same, verified=True) if verified else book
            if (other := book.by_key.get(new.key)) is not None:
                raise errors.KeySubstitutionError(
                    f"{other.name!r} is in the book with the fingerprint {other.contact.fingerprint}, and "
                    f"this card has {card.fingerprint}: compare them with the person. If the person has a "
                    "new user, remove the contact first; if they are two people, pass another name."
                )
            if len(book.contacts) == MAX_CONTACTS:
                raise errors.TooLargeError(
                    f"The book has {MAX_CONTACTS} contacts: remove some first."
                )
            return _Book((*book.contacts, new))

        await called()
        await self._check_user(card)
        return await self._changed(edit, lambda book: book.by_fingerprint[fingerprint])

    async def _check_user(self, card: ContactCard) -> None:
        """Raise an error unless the card's user exists at this broker, with the card's fingerprint."""
        here = (await self._provider.getContactCard(card.name)).serverUrl
        if origin_of(card.serverUrl) != origin_of(here):
            raise errors.InvalidArgumentError(
                f"The card is of a user of {card.serverUrl}, and this provider is of {here}: users of two "
                "brokers cannot share containers. Use a provider of that broker."
            )
        try:
            keys = await self._provider.getPublicKeys(card.userId, KeyType.Encryption)
        except errors.NotFoundError:
            raise errors.NotFoundError(
                f"The broker does not know user {card.userId} of this card: ask the person whether the card "
                f"is of {here}, and for a new one."
            ) from None
        if not any(key.active for key in keys):
            raise errors.NotFoundError(
                f"User {card.userId} of this card was deleted: ask the person for their new card."
            )
        if not keys[0].hasFingerprint(card.fingerprint):
            raise errors.KeySubstitutionError(
                f"The broker's keys for user {card.userId} have the fingerprint {keys[0].fingerprint}, and "
                f"the card has {card.fingerprint}: do not share with them. Ask the person for a new card."
            )

    @operation
    async def get(self, name: str) -> Contact:
        """Return the contact with exactly this name, in any case and Unicode spelling.

        Raises `notFoundError`, which suggests similar names, and what `list` raises. The broker learns that
        the book is read, and nothing of the name."""
        return await self._read(lambda book: book.get(name).contact)

    @operation
    async def find(self, text: str) -> Sequence[Contact]:
        """Return the contacts that match a text, ascending by name.

        The text may be a part of the name, the user id, or at least four first digits of the fingerprint. Use
        it to search, not to decide with whom to share: a name may resemble another.

        Raises what `list` raises. The broker learns that the book is read, and nothing of the text."""
        key, digits = comparable(text), re.sub(r"[\s:.-]", "", text).lower()

        def matches(contact: Contact) -> bool:
            start = parse_fingerprint(contact.fingerprint).hex()[: len(digits)]
            is_start = len(digits) >= _FEWEST_DIGITS and start == digits
            return bool(key) and (
                key in comparable(contact.name) or is_start or contact.userId.hex == digits
            )

        return await self._read(lambda book: list(filter(matches, _contacts(book))))

    @operation
    async def list(self) -> Sequence[Contact]:
        """Return all contacts, ascending by name.

        Raises `integrityError` or `unsupportedVersionError` for a book that cannot be read, which is not
        overwritten then; `rollbackError` or `forkError` if the broker serves an older book than this device
        has read, or denies it; `conflictError` if other devices keep changing it. The broker learns that the
        book is read."""
        return await self._read(_contacts)

    @operation
    async def rename(self, name: str, newName: str) -> Contact:
        """Give a contact another name, and return the contact; it stays verified.

        Raises `notFoundError` without such a contact, `alreadyExistsError` if another contact has the new
        name, and what `list` raises. The broker learns that the book changes."""
        check_name("newName", newName)

        def edit(book: _Book) -> _Book:
            old, other = book.get(name), book.by_key.get(comparable(newName))
            if other not in (None, old):
                raise errors.AlreadyExistsError(
                    f"Another contact is named {newName!r}: choose another name, or remove that contact."
                )
            return book.replace(old, name=newName)

        return await self._changed(edit, lambda book: book.get(newName))

    @operation
    async def verify(self, name: str, fingerprint: str) -> Contact:
        """Compare a fingerprint that the person read out; mark the contact as verified, and return it.

        Spaces, hyphens, colons and upper or lower case are ignored.

        Raises `keySubstitutionError` if the contact has another fingerprint: then do not share with them.
        Raises `invalidArgumentError` for a text that is not a whole fingerprint, `notFoundError` without such
        a contact, and what `list` raises. The broker learns that the book changes."""
        digits = parse_fingerprint(fingerprint).hex()

        def edit(book: _Book) -> _Book:
            old = book.get(name)
            if old.fingerprint != digits:
                raise errors.KeySubstitutionError(
                    f"{old.name!r} is in the book with the fingerprint {old.contact.fingerprint}, and not "
                    f"with {show_fingerprint(bytes.fromhex(digits))}: do not share with this contact. Ask "
                    "the person for their card, and remove this contact."
                )
            return book.replace(old, verified=True)

        return await self._changed(edit, lambda book: book.get(name))

    @operation
    async def remove(self, name: str) -> None:
        """Remove a contact from the book. The person keeps the access that they have to containers.

        Raises `notFoundError` without such a contact, and what `list` raises. The broker learns that the book
        changes."""
        await called()
        await self._document.change(lambda book: book.without(book.get(name)))

    async def _read(self, use: Callable[[_Book], T]) -> T:
        await called()
        return use(await self._document.read())

    async def _changed(
        self, edit: Callable[[_Book], _Book], entry_of: Callable[[_Book], _Entry]
    ) -> Contact:
        await called()
        return entry_of(await self._document.change(edit)).contact


def _contacts(book: _Book) -> Sequence[Contact]:
    return [entry.contact for _, entry in sorted(book.by_key.items())]
