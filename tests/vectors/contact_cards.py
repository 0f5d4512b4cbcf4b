"""Contact cards: docs/spec/ids.md, 5.1."""

import base64

from scbroker.cards import PREFIX, ContactCard
from scbroker.crypto.verify import labelled_hash
from scbroker.records.canonical import encode_value, show_fingerprint
from tests.vectors.cast import cast
from tests.vectors.files import Vector, invalid, store, valid

BROKER = "https://broker.example"


def make() -> None:
    store(
        "contact_cards",
        "docs/spec/ids.md, 5.1. `card` is its text; a valid one has the other fields.",
        [*good(), *damaged(), *wrong()],
    )


def good() -> list[Vector]:
    cards = {
        "alice": ("As scbroker writes it.", BROKER, "Alice"),
        "path and port": ("The broker is below a path.", f"{BROKER}:8443/a/b.c_d~e-f", "Alice"),
        "this machine": ("http is allowed there.", "http://localhost:8400", "Alice"),
        "address of digits": ("IPv6.", "https://[2001:db8::1]", "Alice"),
        "longest address": ("255 bytes.", f"{BROKER}/" + "a" * 232, "Alice"),
        "bits to spare": ("The last character has some.", BROKER, "Alice B"),
        "name of one character": ("The shortest.", BROKER, "A"),
        "longest name": ("64 characters of 4 bytes.", BROKER, "\N{GRINNING FACE}" * 64),
        "name in another script": ("With a space.", BROKER, "Алиса Á"),
    }
    found = [
        of(name, comment, ContactCard(_shown(), address, person).text, address, person)
        for name, (comment, address, person) in cards.items()
    ]
    text = ContactCard(_shown(), BROKER, "Alice").text
    spellings = {
        "upper case": ("As in a QR code.", text.upper()),
        "mixed case": ("Each other character.", "".join(
            each.upper() if number % 2 else each for number, each in enumerate(text))),
        "line breaks": ("And spaces and tabs, within the prefix too.",
                        f" scbroker\r\n-contact: {text[17:40]}\n\t{text[40:]}\v\f"),
    }  # fmt: skip
    return [*found, *(of(name, *spelled, BROKER, "Alice") for name, spelled in spellings.items())]


def of(name: str, comment: str, text: str, address: str, person: str) -> Vector:
    fingerprint = cast()["alice"].fingerprint
    return valid(name, comment, card=text, fingerprint=fingerprint, serverUrl=address, name=person)


def damaged() -> list[Vector]:
    card = ContactCard(_shown(), BROKER, "Alice B").text
    data, digits = base64.b32decode(card[17:].upper() + "=" * (-len(card[17:]) % 8)), card[17:]
    unused = len(digits) * 5 - len(data) * 8
    assert unused, "this card has no bits to spare"
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    other = digits[:-1] + alphabet[alphabet.index(digits[-1]) + 1]
    bad = {
        "checksum": ("The last bit is another.", text_of(data[:-1] + bytes([data[-1] ^ 1]))),
        "another character": ("In the fingerprint.", card[:30] + _next(card[30]) + card[31:]),
        "two characters exchanged": ("They differ.", _exchanged(card)),
        "one character less": ("At the end.", card[:-1]),
        "bit that no byte has": ("In the last character.", PREFIX + other),
        "prefix without its colon": ("The base32 behind it.", card.replace(":", "", 1)),
        "another prefix": ("contacts.", card.replace("contact", "contacts", 1)),
        "padding": ("The first character of it.", card + "="),
        "a digit that base32 has not": ("0 for o.", PREFIX + "0" + digits[1:]),
        "a letter of another script": ("A Kelvin sign for k.", _kelvin(card)),
        "a space of another script": ("U+00A0.", card + "\N{NO-BREAK SPACE}"),
        "no card": ("The prefix alone.", PREFIX),
    }
    return [invalid(name, comment, "invalid", card=text) for name, (comment, text) in bad.items()]


def wrong() -> list[Vector]:
    """Cards whose checksum is right."""
    alice = cast()["alice"].fingerprint
    bad: dict[str, tuple[str, object]] = {
        "31 bytes": ("Of a fingerprint.", [alice[:31], BROKER, "Alice"]),
        "one element more": ("nil.", [alice, BROKER, "Alice", None]),
        "no text": ("A name of bytes.", [alice, BROKER, b"Alice"]),
        "empty name": ("No character.", [alice, BROKER, ""]),
        "blank name": ("A space.", [alice, BROKER, " "]),
        "long name": ("65 characters.", [alice, BROKER, "a" * 65]),
        "line feed in a name": ("U+000A.", [alice, BROKER, "Ali\nce"]),
        "direction of a name": ("U+202E.", [alice, BROKER, "Ali\u202ece"]),
        "long address": ("256 bytes.", [alice, f"{BROKER}/" + "a" * 233, "Alice"]),
        "address in another script": ("ü.", [alice, "https://bücher.example", "Alice"]),
        "address without scheme": ("A host.", [alice, "broker.example", "Alice"]),
        "address of another scheme": ("ftp.", [alice, "ftp://broker.example", "Alice"]),
        "http to another machine": ("It is not localhost.", [alice, "http://broker.example", "Alice"]),
        "slash at the end": ("Of the address.", [alice, f"{BROKER}/", "Alice"]),
        "dot segment": ("...", [alice, f"{BROKER}/a/../b", "Alice"]),
        "query": ("?a=b.", [alice, f"{BROKER}/?a=b", "Alice"]),
        "user in an address": ("user@.", [alice, "https://user@broker.example", "Alice"]),
    }  # fmt: skip
    found = [
        invalid(name, comment, "invalid", card=text_of(_summed(b"\1" + encode_value(value))))
        for name, (comment, value) in bad.items()
    ]
    card = encode_value([alice, BROKER, "Alice"])
    return [
        *found,
        invalid("trailing byte", "nil.", "invalid", card=text_of(_summed(b"\1" + card + b"\xc0"))),
        invalid("version 0", "It never was.", "invalid", card=text_of(_summed(b"\0" + card))),
        invalid("version 2", "It is newer.", "version", card=text_of(_summed(b"\2" + card))),
    ]


def _shown() -> str:
    return show_fingerprint(cast()["alice"].fingerprint)


def _summed(card: bytes) -> bytes:
    return card + labelled_hash("contact-card", card)[:5]


def text_of(data: bytes) -> str:
    return PREFIX + base64.b32encode(data).decode().rstrip("=").lower()


def _next(digit: str) -> str:
    return "b" if digit == "a" else "a"


def _exchanged(card: str) -> str:
    at = next(at for at in range(40, len(card)) if card[at] != card[at + 1])
    return card[:at] + card[at + 1] + card[at] + card[at + 2 :]


def _kelvin(card: str) -> str:
    at = card.rindex("k")
    return card[:at] + "\N{KELVIN SIGN}" + card[at + 1 :]
