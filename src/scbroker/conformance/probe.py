"""Ask a broker questions by users of the probe's own, and keep the outcomes."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from scbroker.conformance.by_hand import Connection, StoryError, User
from scbroker.conformance.outcomes import Outcome, Report


@dataclass
class Probe:
    """The questions asked so far, and the users made for them."""

    url: str
    api_key: uuid.UUID
    report: Report
    outcomes: list[Outcome] = field(default_factory=list)
    made: list[User] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at: Connection = Connection(self.url, self.api_key)

    def ask(self, section: str, name: str, expected: str, came: object) -> None:
        """Record a question; `came` is an answer, or a sentence about one. Sections are of protocol.md."""
        page = "" if section.startswith("groups.md") else "protocol.md, "
        outcome = Outcome(name, f"{page}{section}", expected, str(came))
        self.outcomes.append(outcome)
        self.report(outcome)

    def about(self, section: str) -> Callable[[str, str, object], None]:
        """Return `ask` for the questions of one section."""
        return lambda name, expected, came: self.ask(section, name, expected, came)

    def newcomer(self) -> User:
        """Return a user with new keys, not registered yet; `delete_users` deletes them."""
        user = User(self.at)
        self.made.append(user)
        return user

    def user(self) -> User:
        """Return a registered user with a session."""
        user = self.newcomer()
        self.at.post("/v1/users", user.registration()).done()
        return user.log_in()

    def delete_users(self) -> None:
        """Delete every user of the probe; a broker that refuses keeps them."""
        for user in self.made:
            with suppress(StoryError):
                if not user.log_in().chain().closed:
                    self.at.post(f"{user.path}/deletion", user.deletion())
