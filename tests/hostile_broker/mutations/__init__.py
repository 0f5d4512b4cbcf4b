"""What is against each attack, as edits that take it out: data for `mutate`.

Each removes one defence and leaves a program that otherwise works. The tests that are named have to fail
without it.
"""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.content import CONTENT
from tests.hostile_broker.mutations.credentials import CREDENTIALS
from tests.hostile_broker.mutations.edits import Mutation
from tests.hostile_broker.mutations.endless import ENDLESS
from tests.hostile_broker.mutations.formats import FORMATS
from tests.hostile_broker.mutations.keys_and_sharing import KEYS_AND_SHARING

MUTATIONS: Final[list[Mutation]] = [*KEYS_AND_SHARING, *CONTENT, *CREDENTIALS, *FORMATS, *ENDLESS]
