"""The users' key chains as people.json publishes them."""

from functools import cache

from scbroker.records.key_record import KeyChain
from tests.vectors.cast import DAY, START
from tests.vectors.files import load, signed_of


@cache
def chains() -> dict[str, KeyChain]:
    return {
        item["id"]: KeyChain.verify(
            [signed_of(record) for record in item["keyRecords"]], START + 1000 * DAY
        )
        for item in load("people")["vectors"]
    }


@cache
def authors() -> dict[bytes, KeyChain]:
    """The chains by fingerprint."""
    return {chain.fingerprint: chain for chain in chains().values()}
