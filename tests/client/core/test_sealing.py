"""What an access list names is what the list before named, whatever an id leads to."""

import uuid

import pytest

from scbroker import BrokerError
from scbroker.client.core.sealing import Recipient, make_access
from scbroker.crypto.seal import DecryptionKey
from scbroker.records.canonical import uuid8
from scbroker.records.container_record import Entry
from scbroker.records.judge import ALL, Grant

NAME = b"\x01" * 32
USER = uuid8(NAME)


def test_an_id_that_leads_to_another_name_than_that_of_the_entry_gets_no_wrap() -> None:
    """Two names of 32 bytes may have the same 122 bits, as those of a user and of a group made for this."""
    key = DecryptionKey.generate().public
    grants: dict[uuid.UUID, Grant] = {USER: Grant(ALL, None)}
    before = {USER: Entry(NAME, 0, ALL, None, None)}
    same, other = Recipient(NAME, 0, key), Recipient(NAME[:16] + bytes(16), 0, key)
    rest = bytes(32), bytes(32), grants
    assert len(make_access(bytes(16), 2, NAME, *rest, {USER: same}, before).entries) == 1
    with pytest.raises(BrokerError.keySubstitutionError):
        make_access(bytes(16), 2, NAME, *rest, {USER: other}, before)
