"""Contexts and lists of segments: docs/spec/container.md, 3 and 6."""

import pytest

from scbroker.errors import IntegrityError
from scbroker.records.canonical import encode_value
from scbroker.records.container_record import AccessList, Entry, SaltedEntry, bare_body
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.vectors.files import load

RECORD: str = load("container_records")["given"]["records"]["create"]["body"]


def test_no_bare_form_is_made_of_an_array_of_another_length() -> None:
    for body in (b"\x01\x90", b"\x02" + bare_body(bytes.fromhex(RECORD))[1:], b"\x01\x91\x01"):
        with pytest.raises(IntegrityError):
            bare_body(body)


def test_a_list_allows_each_combination_of_permissions_that_the_spec_allows_and_no_other() -> None:
    """Upload needs Decrypt and ViewAccess, and both changes of what governs need Upload."""
    needed = {
        Level.Upload: Level.Decrypt | Level.ViewAccess,
        Level.ModifyAccess: Level.Upload,
        Level.ModifyType: Level.Upload,
    }
    for bits in range(1, 512):
        items = [SaltedEntry(bytes(32), encode_value(Entry(bytes(32), 0, bits, None, None)))]
        try:
            AccessList.whole(items)
            allowed = True
        except IntegrityError:
            allowed = False
        assert allowed == all(bits & more == more for one, more in needed.items() if bits & one)
