"""Every decoder that the network or the disk reaches, each with the refusals that it documents."""

from __future__ import annotations

from typing import Final

from assurance.fuzz import (
    answers,
    containers,
    disk,
    incoming,
    key_material,
    messages,
    parts,
    records,
)
from assurance.fuzz.engine import Target

_MODULES: Final = (records, key_material, containers, incoming, parts, disk, messages, answers)
TARGETS: Final[dict[str, Target]] = {
    target.name: target for module in _MODULES for target in module.TARGETS
}
