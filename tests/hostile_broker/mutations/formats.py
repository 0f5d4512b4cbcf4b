"""What is against attacks 35 to 43."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.edits import Mutation

FORMATS: Final[list[Mutation]] = []
