"""Device passes: how the throttle tells a device that had a session of the user from a stranger.

A pass opens nothing. Guesses that come with one are counted apart, so that the guesses of strangers do not
lock a known device out. It holds a MAC under the broker's key: nothing is stored, and every process that has
the key can verify it. Spec: docs/spec/protocol.md, section 3.
"""

from __future__ import annotations

import os
from typing import Final

from scbroker.crypto.verify import equal
from scbroker.server.broker import Broker

_ID_SIZE: Final = 16


def new_pass(broker: Broker, user_id: bytes) -> bytes:
    """Return a pass for a device of this user; only for a request that the user's key signed."""
    device_id = os.urandom(_ID_SIZE)
    return device_id + broker.keyed("device-pass", user_id, device_id)


def is_pass_of(broker: Broker, user_id: bytes, device_pass: bytes) -> bool:
    """Return whether this broker made the pass for this user."""
    device_id, tag = device_pass[:_ID_SIZE], device_pass[_ID_SIZE:]
    return equal(broker.keyed("device-pass", user_id, device_id), tag)
