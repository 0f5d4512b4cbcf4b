"""The grammar of a departure: a user's signed statement that they leave an access list.

`judge.verify_departure` decides whether it is valid. Spec: docs/spec/container.md, section 4.1.

"""

from typing import Final

from scbroker.records.canonical import Bin16, Bin32, KeyIndex, Row, Time, decode_object
from scbroker.records.container_record import Version

LABEL: Final = "departure"
MAX_DEPARTURE: Final = 128


class Departure(Row, frozen=True):
    """A user's statement that they give up their entry in one access list. It is void for any other."""

    containerId: Bin16
    accessVersion: Version
    accessList: Bin32
    """The hash of the list."""
    fingerprint: Bin32
    keyIndex: KeyIndex
    time: Time


def parse_departure(body: bytes) -> Departure:
    return decode_object(Departure, body, MAX_DEPARTURE)
