"""Attacks that point a client elsewhere: redirects, and addresses in what is served.

Attack 36 of `catalogue`. A client knows one address, that of its own configuration, and asks no other.
"""

import uuid
from typing import Final

import pytest

from scbroker import MemoryTrustStore, ServerProvider
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import FAULT
from tests.kit.tcp import PROTOCOL, BadBroker, http
from tests.kit.waiting import PATIENCE

all_mount(__name__, 36, "stolen token")

STATUSES: Final = (301, 302, 303, 307, 308)


@pytest.mark.parametrize("status", STATUSES)
def test_no_redirect_is_followed_on_a_connection(status: int) -> None:
    with BadBroker([http(200)]) as other:
        location = b"Location: %s/v1/elsewhere\r\n" % other.url.encode()
        with (
            BadBroker([http(status, headers=PROTOCOL + location)]) as broker,
            ServerProvider(uuid.uuid4(), broker.url, "d", trustStore=MemoryTrustStore()) as device,
        ):
            with pytest.raises(FAULT):
                device.getReminder(uuid.uuid4()).result(PATIENCE)
            assert len(broker.requests) == 1
        assert other.requests == []
