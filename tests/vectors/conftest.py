import pytest

from scbroker.records.key_record import KeyChain
from tests.vectors.keys_of_people import chains


@pytest.fixture(scope="session")
def authors() -> dict[bytes, KeyChain]:
    """The chains of all users, by fingerprint."""
    return {chain.fingerprint: chain for chain in chains().values()}
