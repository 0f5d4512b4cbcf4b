"""Share a text with the owner of a contact card.

python -m examples.two_programs.alice FOLDER CARD TEXT
"""

import sys
from pathlib import Path

from examples.two_programs.account import provider_in
from scbroker import AccessLevel, ContactCard, ContainerAccessLevel


def main(folder: Path, card: str, text: str) -> None:
    with provider_in(folder) as alice:
        me = alice.getUserId().result()
        access = [
            AccessLevel(me, ContainerAccessLevel.DefaultOwnerPermissions),
            AccessLevel(ContactCard.parse(card)),  # the client compares it with the broker's keys
        ]
        alice.createContainer(text.encode(), accessLevels=access, type="letter").result()
        print("shared by", me)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
