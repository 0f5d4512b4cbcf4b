"""Every mutant of every row, those that the everyday suite tries, and those that change nothing."""

from typing import Final

from assurance.mutations.conformance import contents, seam, sessions
from assurance.mutations.conformance.generic import generic, updates
from tests.conformance.interface import INTERFACE

CATALOGUE: Final = [
    *(mutant for each in (*INTERFACE.operations, *INTERFACE.added) for mutant in generic(each)),
    *updates(),
    *contents.MUTANTS,
    *sessions.MUTANTS,
    *seam.MUTANTS,
]
# The ten of the everyday suite. Each survived the tests of its row once. The eleventh, a wrong
# declared result, is in test_types.
EVERYDAY: Final = {
    ("updateContainerType", "ignores type"),
    ("updateContainerHeader", "unshares the container"),
    ("updateContainer", "ignores accessLevels"),
    ("getContainerHeader", "returns nothing"),
    ("getLatestActiveSigningKey", "returns the oldest key"),
    ("T4", "has an owner's permissions by default"),
    ("T4", "DefaultUserPermissions are an owner's"),
    ("register", "ignores reminder"),
    ("changeCredentials", "ignores reminder"),
    ("logout", "leaves the token alive"),
}
# No test can notice these; the run tries them as well, and they have to survive.
EQUIVALENT: Final[dict[tuple[str, str], str]] = {}
