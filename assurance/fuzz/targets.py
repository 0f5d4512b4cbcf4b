"""Every decoder that the network or the disk reaches, by name."""

from pathlib import Path
from typing import Final

from assurance.fuzz import (
    answers,
    cards,
    containers,
    disk,
    groups,
    incoming,
    key_material,
    links,
    messages,
    parts,
    records,
)
from assurance.fuzz.target import Target

CORPUS: Final = Path(__file__).parent / "corpus"
TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for module in (
        records,
        key_material,
        containers,
        groups,
        incoming,
        parts,
        disk,
        messages,
        answers,
        cards,
        links,
    )
    for target in module.TARGETS
}


def stored(name: str) -> list[bytes]:
    """Return the inputs in the corpus of a target: all that once failed, and some that go far."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
