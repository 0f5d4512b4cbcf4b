"""Show one's contact card, then each text that is shared with its owner, until Ctrl-C.

python -m examples.two_programs.bob FOLDER
"""

import sys
import uuid
from contextlib import suppress
from pathlib import Path

from examples.two_programs.account import provider_in
from scbroker import BrokerError, ServerProvider


def main(folder: Path) -> None:
    with provider_in(folder) as bob:
        print(bob.getContactCard("Bob").result().text, flush=True)
        place = folder / "next-event"
        start = int(place.read_text()) if place.exists() else 1
        for event in bob.followEvents(start, "Added", containerType="letter"):
            print(letter(bob, event.containerId), flush=True)
            place.write_text(str(event.id + 1))  # the next start goes on from here


def letter(bob: ServerProvider, container: uuid.UUID) -> str:
    """Return a line for a container that anybody may have shared: its author, and what it says."""
    try:
        found = bob.getContainer(container).result()
    except BrokerError as error:  # deleted meanwhile, or it cannot be verified: go on with the next
        return f"not read: {error}"
    return f"{found.contentBy}: {(found.content or b'').decode(errors='replace')!r}"


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(Path(sys.argv[1]))
