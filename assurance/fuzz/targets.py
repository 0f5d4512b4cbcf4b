"""Every decoder that the network or the disk reaches, by name."""

from pathlib import Path
from typing import Final

from assurance.fuzz import (
    answers,
    containers,
    disk,
    groups,
    incoming,
    key_material,
    messages,
    parts,
    records,
    texts,
)
from assurance.fuzz.target import Target

CORPUS: Final = Path(__file__).parent / "corpus"
_MODULES: Final = (
    records, key_material, containers, groups, incoming, parts, disk, messages, answers, texts,
)  # fmt: skip
TARGETS: Final[dict[str, Target]] = {
    target.name: target for module in _MODULES for target in module.TARGETS
}


def stored(name: str) -> list[bytes]:
    """Return the inputs in the corpus of a target: all that once failed, and some that go far."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
